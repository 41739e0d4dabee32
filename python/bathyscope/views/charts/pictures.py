"""Charts as PNG or SVG files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import altair as alt
import vl_convert

from bathyscope.errors import StoreError
from bathyscope.records.finding import LadderFinding
from bathyscope.views import labels
from bathyscope.views.charts import distribution, ladder, series, stages
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.ladder import METRICS
from bathyscope.views.charts.series import shown_measures
from bathyscope.views.charts.theme import LIGHT, Theme
from bathyscope.views.refusal import without_refused

VL_VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
PNG_SCALE = 2


def drawings(finding: LadderFinding, theme: Theme = LIGHT) -> Iterator[Drawing]:
    """Yield every chart of a run that has something to show."""
    finding = without_refused(finding)
    for device_class in labels.device_classes(finding):
        for metric in METRICS:
            yield ladder(finding, device_class, metric, theme)
        yield from (d for d in [stages(finding, device_class, theme)] if d.rows)
    for group in finding.groups:
        yield from (d for d in [distribution(finding, group, theme)] if d.rows)
    for step_key in dict.fromkeys(s.step_key for s in finding.series):
        for name in shown_measures(finding):
            yield from (d for d in [series(finding, step_key, name, theme)] if d.rows)


def write(finding: LadderFinding, directory: Path, file_format: str, theme: Theme = LIGHT) -> list[Path]:
    """Write every chart as `file_format` (png or svg) into `directory`; return the files. Raises StoreError."""
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for number, drawing in enumerate(drawings(finding, theme), start=1):
            file = directory / f"{number:03d}-{_file_name(drawing.name)}.{file_format}"
            file.write_bytes(render(drawing, file_format, theme))
            written.append(file)
    except OSError as error:
        raise StoreError(f"cannot write charts to {directory}: {error.strerror}", hint="choose another -o") from error
    return written


def render(drawing: Drawing, file_format: str, theme: Theme = LIGHT) -> bytes:
    """Return one chart as the bytes of a PNG (at twice its size) or an SVG."""
    spec = json.dumps(drawing.picture(theme))
    if file_format == "png":
        picture: bytes = vl_convert.vegalite_to_png(spec, vl_version=VL_VERSION, scale=PNG_SCALE)
        return picture
    return vl_convert.vegalite_to_svg(spec, vl_version=VL_VERSION).encode()


def _file_name(name: str) -> str:
    """Return a name that is safe in any directory: what a cluster calls a device class may be anything."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:80] or "chart"
