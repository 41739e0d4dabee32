"""The charts of blocks."""

from __future__ import annotations

from typing import Any

from bathyscope.records.blocks import Bars, HeatMap
from bathyscope.views.charts import bars, heat
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.theme import LIGHT, Theme


def drawing_of(block: Any, theme: Theme = LIGHT) -> Drawing | None:
    """Return the chart that a block is; None for one that is no chart, or has nothing to show."""
    if isinstance(block, HeatMap):
        return heat.drawing(block, theme)
    return bars.drawing(block, theme) if isinstance(block, Bars) else None
