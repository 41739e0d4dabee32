"""Latency distributions: latency over the share of the I/Os, stretched so that each further nine has the same room."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import altair as alt

from bathyscope.records.finding import LayerView
from bathyscope.records.ladder_blocks import Distributions
from bathyscope.views.charts.base import LATENCY_LABEL, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, PAGE, Theme

# Of -log10(1 - q), so that 90 %, 99 %, 99.9 % … lie at 1, 2, 3 …
_TICKS = (0, 0.30103, 1, 2, 3, 4, 5, 6)
# Two for each power of ten, from 1 µs to 300 s: about the same distance apart on a logarithmic axis.
_LATENCY_TICKS_NS = tuple(step * 10**power for power in range(3, 12) for step in (1, 3))
_TICK_LABEL = (
    "datum.value < 0.1 ? '0 %' : datum.value < 0.9 ? '50 %' : datum.value < 1.5 ? '90 %' : datum.value < 2.5 ? '99 %'"
    " : datum.value < 3.5 ? '99.9 %' : datum.value < 4.5 ? '99.99 %' : datum.value < 5.5 ? '99.999 %' : '99.9999 %'"
)


def drawing(block: Distributions, theme: Theme = LIGHT) -> Drawing:
    """Return the latency distributions of all layers in one panel; a page has one legend for all of them."""
    titles = {view.name: view.title for view in block.layers}
    rows = tuple(
        {"name": titles.get(line.layer, line.layer), "q": p.quantile, "ns": p.latency_ns}
        for line in block.lines
        for p in line.points
    )
    about = f"{block.title}. Latency, logarithmic, over the percentile of the I/Os."
    chart = functools.partial(_chart, block.layers, theme)
    return Drawing(block.name, block.title, about, chart, rows, "distribution")


def _chart(layers: Sequence[LayerView], theme: Theme) -> Any:
    shown = None if theme is PAGE else alt.Legend()
    x_axis = alt.Axis(
        values=list(_TICKS),
        labelExpr=_TICK_LABEL,
        title="percentile of the I/Os",
        labelOverlap=True,
        labelSeparation=6,
    )
    y_axis = alt.Axis(values=list(_LATENCY_TICKS_NS), labelExpr=LATENCY_LABEL, title=None, labelOverlap=True)
    titles = [view.title for view in layers]
    dashes = [list(view.dash) for view in layers]
    return (
        alt.Chart(named_rows(), height=210)
        # A quantile of exactly 1 would be infinitely far along this axis.
        .transform_filter("datum.q < 1")
        .transform_calculate(nines="-log(1 - datum.q) / LN10", percent="format(datum.q * 100, '~r') + ' %'")
        .mark_line(strokeWidth=2.2, interpolate="monotone", strokeJoin="round")
        .encode(
            x=alt.X("nines:Q", axis=x_axis, scale=alt.Scale(nice=False, zero=True)),
            y=alt.Y("ns:Q", axis=y_axis, scale=alt.Scale(type="log", nice=False, padding=8)),
            color=alt.Color("name:N", scale=theme.layer_scale(layers), legend=shown),
            strokeDash=alt.StrokeDash("name:N", scale=alt.Scale(domain=titles, range=dashes), legend=shown),
            order="nines:Q",
            tooltip=[alt.Tooltip("name:N", title="layer"), alt.Tooltip("percent:N", title="share")],
        )
    )
