"""Heat maps: one row for each image or OSD, time to the right, colour for how much."""

from __future__ import annotations

import functools
import json
from typing import Any, Literal

import altair as alt

from bathyscope.records.blocks import HeatMap
from bathyscope.views import labels
from bathyscope.views.charts.base import LABELS, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme

_ROW_HEIGHT, _ROW_LEAST_HEIGHT = 17, 6
_HEIGHT_MOST = 420
_OFFSETS_LABELLED = 8
# A few do most of the I/O nearly everywhere; on a scale of square roots the others are still seen.
# Viridis: its lightness grows evenly, so that it can be read without colours, too (van der Walt and Smith, 2015).
_SCHEME: Literal["viridis"] = "viridis"


def drawing(heat: HeatMap, theme: Theme = LIGHT) -> Drawing:
    """Return the picture of a heat map."""
    seconds = heat.bin_ns / 1e9
    names = [labels.clean(name) for name in heat.names]
    rows = tuple(
        {"row": number, "name": name, "t": index * seconds, "t2": (index + 1) * seconds, "v": value}
        for number, (name, values) in enumerate(zip(names, heat.values, strict=True))
        for index, value in enumerate(values)
        if value is not None
    )
    what = "I/Os a second" if heat.unit == "1/s" else "mean latency"
    return Drawing(
        name=f"heat-{heat.name}",
        title=heat.title,
        description=f"{heat.title}: {what} of each {heat.kind} as colour, time to the right.",
        chart=functools.partial(_chart, heat, names, what, theme),
        rows=rows,
    )


def _chart(heat: HeatMap, names: list[str], what: str, theme: Theme) -> Any:
    width_s = heat.bin_ns / 1e9 * len(heat.values[0])
    axis = alt.Axis(title="seconds since the start", grid=False, labelExpr="format(datum.value, ',')", tickCount=8)
    row_height = max(_ROW_LEAST_HEIGHT, min(_ROW_HEIGHT, _HEIGHT_MOST // len(names)))
    if heat.kind == "offset":
        # Names of offsets are rounded and may be alike, so rows stand by their numbers; every eighth has a label.
        shown = list(range(0, len(names), max(1, len(names) // _OFFSETS_LABELLED)))
        label = f"{json.dumps(names)}[datum.value]"
        y = alt.Y("row:O", axis=alt.Axis(title=None, values=shown, labelExpr=label, grid=False, ticks=True))
    else:
        y = alt.Y("name:N", sort=names, axis=alt.Axis(title=None, labelLimit=220, grid=False))
    return (
        alt.Chart(named_rows(), height=max(3, len(names)) * row_height)
        .mark_rect(stroke=theme.background if theme.background != "transparent" else None, strokeWidth=0.4)
        .encode(
            x=alt.X("t:Q", axis=axis, scale=alt.Scale(domain=[0, width_s], nice=False)),
            x2="t2:Q",
            y=y,
            color=alt.Color(
                "v:Q",
                scale=alt.Scale(type="sqrt", scheme=_SCHEME, domainMin=0, nice=True),
                legend=alt.Legend(title=what, labelExpr=LABELS[heat.unit], gradientLength=160),
            ),
            tooltip=[alt.Tooltip("name:N", title=heat.kind), alt.Tooltip("v:Q", title=what, format=",.3~g")],
        )
    )
