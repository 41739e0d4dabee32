"""Every chart of a finding, in the order of its sections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.blocks import drawing_of
from bathyscope.views.charts.theme import LIGHT, Theme
from bathyscope.views.findings import sections_of


def drawings(finding: Any, theme: Theme = LIGHT) -> Iterator[Drawing]:
    """Yield the charts."""
    for section in sections_of(finding):
        yield from filter(None, (drawing_of(block, theme) for block in section.blocks))
