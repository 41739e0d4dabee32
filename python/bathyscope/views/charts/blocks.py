"""The charts of blocks."""

from __future__ import annotations

from typing import Any

from bathyscope.records.blocks import Bars, HeatMap, Lines, Ratios
from bathyscope.views.charts import bars, heat, lines, ratios
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.theme import LIGHT, Theme


def drawing_of(block: Any, theme: Theme = LIGHT) -> Drawing | None:
    """Return the chart that a block is; None for one that is no chart, or has nothing to show."""
    match block:
        case HeatMap():
            return heat.drawing(block, theme)
        case Bars():
            return bars.drawing(block, theme)
        case Lines():
            return lines.drawing(block, theme)
        case Ratios():
            return ratios.drawing(block, theme)
        case _:
            return None
