"""Time series of a step: load, processors, devices; repeats lie over each other."""

from __future__ import annotations

import functools
from typing import Any

import altair as alt

from bathyscope.records.ladder_blocks import TimeSeries
from bathyscope.views import labels
from bathyscope.views.charts.base import LABELS, PLAIN_LABEL, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme

_HEIGHT = 110
# Of the load itself; other measures are of daemons and devices.
_OF_LOAD = ("1/s", "bytes/s", "ns")


def drawing(block: TimeSeries, theme: Theme = LIGHT) -> Drawing:
    """Return the lines of one measure of one configuration."""
    rows = tuple(
        {
            "t": p.t_s,
            "v": p.value,
            "subject": labels.clean(s.subject),
            "repeat": s.repeat_index + 1,
            "layer": s.step_key.partition("/")[0],
        }
        for s in block.series
        for p in s.points
    )
    about = f"{block.title} over time, one line for each repeat."
    chart = functools.partial(_chart, block, theme)
    return Drawing(block.name, block.title, about, chart, rows, f"series-{block.measure}")


def _chart(block: TimeSeries, theme: Theme) -> Any:
    unit = block.series[0].unit
    y_axis = alt.Axis(labelExpr=LABELS.get(unit, PLAIN_LABEL), title=None, tickCount=4)
    # A throttle lets short bursts through: what is beyond 100 % is drawn as well, inside the axes.
    whole = alt.DomainUnionWith(unionWith=[0, 1])
    y_scale = alt.Scale(domain=whole) if unit == "ratio" else alt.Scale(zero=True, nice=True)
    if unit not in _OF_LOAD:
        subjects = alt.Scale(range=[theme.layers[i] for i in (1, 2, 3, 4, 5, 6, 0)])
        legend = alt.Legend(orient="bottom", columns=2, labelLimit=112)
        colour = alt.Color("subject:N", scale=subjects, legend=legend)
    else:
        colour = alt.Color("layer:N", scale=theme.layer_scale(block.layers, by_name=True), legend=None)
    dash = alt.StrokeDash(
        "repeat:O", legend=None, scale=alt.Scale(range=[[1, 0], [5, 2], [2, 2], [8, 2, 2, 2], [1, 3]])
    )
    return (
        alt.Chart(named_rows(), height=_HEIGHT)
        .mark_line(strokeWidth=1.6, opacity=0.9, strokeJoin="round")
        .encode(
            x=alt.X(
                "t:Q",
                axis=alt.Axis(title=None, labelExpr="datum.label + ' s'", grid=False, tickCount=5),
                scale=alt.Scale(nice=False, zero=True),
            ),
            y=alt.Y("v:Q", axis=y_axis, scale=y_scale),
            color=colour,
            strokeDash=dash,
            detail="subject:N",
            tooltip=[
                alt.Tooltip("subject:N"),
                alt.Tooltip("repeat:O"),
                alt.Tooltip("t:Q", title="s"),
                alt.Tooltip("v:Q", format=".4~g", title="value"),
            ],
        )
    )
