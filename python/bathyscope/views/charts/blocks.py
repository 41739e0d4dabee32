"""The charts of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bathyscope.records.blocks import Bars, HeatMap, Lines, Ratios
from bathyscope.records.ladder_blocks import Ceilings, Distributions, Rungs, Stages, TimeSeries
from bathyscope.views.charts import bars, ceilings, distribution, heat, lines, ratios, rungs, series, stages
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.theme import LIGHT, Theme

_CHARTS: dict[type, Callable[[Any, Theme], Drawing | None]] = {
    HeatMap: heat.drawing,
    Bars: bars.drawing,
    Lines: lines.drawing,
    Ratios: ratios.drawing,
    Rungs: rungs.drawing,
    Ceilings: ceilings.drawing,
    Distributions: distribution.drawing,
    Stages: stages.drawing,
    TimeSeries: series.drawing,
}


def drawing_of(block: Any, theme: Theme = LIGHT) -> Drawing | None:
    """Return the chart that a block is; None for one that is no chart, or has nothing to show."""
    chart = _CHARTS.get(type(block))
    return None if chart is None else chart(block, theme)
