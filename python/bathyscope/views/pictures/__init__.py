"""Charts as PNG or SVG pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import vl_convert

from bathyscope.views import view_of
from bathyscope.views.charts.base import VL_VERSION, Drawing
from bathyscope.views.charts.theme import DARK, LIGHT, Theme
from bathyscope.views.refusal import without_refused

PNG_SCALE = 2


def draw(finding: Any, file_format: str, *, dark: bool = False) -> Iterator[tuple[str, bytes]]:
    """Yield a file name and the bytes of each chart of a finding that has something to show.

    `file_format` is png or svg. Raises UsageError when there are no pictures of findings of this kind.
    """
    theme = DARK if dark else LIGHT
    for number, drawing in enumerate(view_of(finding, "pictures").drawings(without_refused(finding), theme), start=1):
        yield f"{number:03d}-{_file_name(drawing.name)}.{file_format}", picture(drawing, file_format, theme)


def picture(drawing: Drawing, file_format: str, theme: Theme = LIGHT) -> bytes:
    """Return one chart as the bytes of a PNG (at twice its size) or an SVG."""
    spec = json.dumps(drawing.picture(theme))
    if file_format == "png":
        png: bytes = vl_convert.vegalite_to_png(spec, vl_version=VL_VERSION, scale=PNG_SCALE)
        return png
    return vl_convert.vegalite_to_svg(spec, vl_version=VL_VERSION).encode()


def _file_name(name: str) -> str:
    """Return a name that is safe in any directory: what a cluster calls a device class may be anything."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:80] or "chart"
