"""Lines over the size of a cache or over time, each with its band, and what is of note on them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import altair as alt

from bathyscope.records.blocks import Lines
from bathyscope.views.cells import value_cell
from bathyscope.views.charts.base import LABELS, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme

# The slots of the palette that are farthest apart come first; dashes repeat the message.
_SLOTS = (1, 2, 3, 4, 5, 6, 0)
_DASHES: tuple[list[int], ...] = ([1, 0], [8, 3], [4, 2], [2, 2], [8, 2, 2, 2], [1, 3], [12, 3])
_SHAPES = {"knee": "diamond", "target met": "square", "budget": "square", "advised": "circle"}
_NAMED_MARK = "advised"
_HEIGHT = 280


def drawing(block: Lines, theme: Theme = LIGHT) -> Drawing | None:
    """Return the lines; None where no line has a point."""
    rows = tuple(
        {
            "line": line.name,
            "x": point.x,
            "y": point.y,
            "mark": point.mark,
            "low": point.y if point.low is None else point.low,
            "high": point.y if point.high is None else point.high,
            "x_value": value_cell(point.x, block.x_unit),
            "y_value": value_cell(point.y, "fine ratio" if block.y_unit == "ratio" else block.y_unit),
            "label": f"{point.mark}: {value_cell(point.x, block.x_unit)}",
        }
        for line in block.lines
        for point in line.points
    )
    about = f"{block.title}: {block.y_title} over {block.x_title}; the tables below hold the same figures."
    return (
        Drawing(block.name, block.title, about, functools.partial(_chart, block, rows, theme), rows) if rows else None
    )


def _chart(block: Lines, rows: Sequence[dict[str, Any]], theme: Theme) -> Any:
    names = [line.name for line in block.lines if line.points]
    # Vega-Lite joins the legends of colour and dash only when both are the same.
    legend = (
        alt.Legend(symbolType="circle", symbolOpacity=1, symbolStrokeWidth=0, columns=4) if len(names) > 1 else None
    )
    colours = [theme.layers[_SLOTS[index % len(_SLOTS)]] for index in range(len(names))]
    dashes = [_DASHES[index % len(_DASHES)] for index in range(len(names))]
    colour = alt.Color("line:N", scale=alt.Scale(domain=names, range=colours), legend=legend)
    dash = alt.StrokeDash("line:N", scale=alt.Scale(domain=names, range=dashes), legend=legend)
    titles = {"line": "line", "x_value": block.x_title, "y_value": block.y_title}
    tooltip = [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]
    domain = [0, 1] if block.y_unit == "ratio" else [0, max(row["high"] for row in rows)]
    y_axis = alt.Axis(labelExpr=LABELS[block.y_unit], title=block.y_title, tickCount=5)
    x, y = _x_axis(block, [row["x"] for row in rows]), alt.Y("y:Q", scale=alt.Scale(domain=domain), axis=y_axis)
    base = alt.Chart(named_rows()).encode(x=x, y=y, color=colour)
    band = base.mark_area(opacity=0.16).encode(y=alt.Y("low:Q"), y2="high:Q")
    line = base.mark_line(strokeWidth=2.2, interpolate="monotone").encode(strokeDash=dash)
    dots = base.mark_point(filled=True, size=26, opacity=0.9).encode(tooltip=tooltip)
    shape = alt.Shape("mark:N", scale=alt.Scale(domain=list(_SHAPES), range=list(_SHAPES.values())), legend=None)
    marked = base.transform_filter("datum.mark !== ''")
    marks = marked.mark_point(size=150, strokeWidth=2.5, filled=False).encode(shape=shape, tooltip=tooltip)
    words = marked.transform_filter(f"datum.mark === '{_NAMED_MARK}'").mark_text(
        align="left", dx=11, dy=16, fontSize=11.5, fontWeight=600, color=theme.text
    )
    texts = words.encode(text="label:N", color=alt.value(theme.text))
    return alt.layer(band, line, dots, marks, texts).properties(height=_HEIGHT)


def _x_axis(block: Lines, places: Sequence[float]) -> alt.X:
    if block.x_unit != "bytes":
        # A page draws before it has data, and an axis without ends would complain.
        ends = alt.Scale(domain=[min(places), max(places)], nice=False)
        return alt.X("x:Q", scale=ends, axis=alt.Axis(title=block.x_title, grid=False, tickMinStep=1))
    low, high = min(places), max(places)
    ticks = [1 << power for power in range(max(0, int(low).bit_length() - 1), int(2 * high).bit_length())]
    scale = alt.Scale(type="log", base=2, domain=[low, max(high, low * 2)], nice=False)
    axis = alt.Axis(labelExpr=LABELS["bytes"], values=ticks, title=block.x_title, labelOverlap=True, grid=False)
    return alt.X("x:Q", scale=scale, axis=axis)
