"""How many times something each row of a table is, with its interval, on a logarithmic axis."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from bathyscope.records.blocks import Ratios
from bathyscope.records.figure import Figure
from bathyscope.views.cells import cell, shown_columns
from bathyscope.views.charts.base import Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme

_SLOTS = (5, 1, 2, 0, 3, 4)
_LEGEND = alt.Legend(title=None, symbolOpacity=1, symbolStrokeWidth=0)


def drawing(block: Ratios, theme: Theme = LIGHT) -> Drawing | None:
    """Return the points; None where no ratio is known."""
    rows = tuple(_rows(block))
    about = f"{block.title}, on a logarithmic axis; the table below holds the same figures."
    return (
        Drawing(block.name, block.title, about, functools.partial(_chart, block, rows, theme), rows) if rows else None
    )


def _chart(block: Ratios, rows: Sequence[dict[str, Any]], theme: Theme) -> Any:
    series, groups = (list(dict.fromkeys(row[key] for row in rows)) for key in (block.series, block.group))
    colours = [theme.layers[_SLOTS[index % len(_SLOTS)] % len(theme.layers)] for index in range(len(series))]
    y = alt.Y(f"{block.group}:N", sort=groups, axis=alt.Axis(title=None, ticks=False))
    offset = alt.YOffset(f"{block.series}:N", sort=series)
    ticks = [digit * 10.0**power for power in range(-2, 4) for digit in (1, 2, 5)]
    axis = alt.Axis(title=f"times {block.base}", labelExpr="format(datum.value,'~g')+' ×'", values=ticks)
    # A bar on a logarithmic axis has no length; a point has a place.
    x = alt.X("at:Q", scale=alt.Scale(type="log"), axis=axis)
    colour = alt.Color(f"{block.series}:N", scale=alt.Scale(domain=series, range=colours), legend=_LEGEND)
    shown = [block.table.columns[index] for index in shown_columns(block.table)]
    tooltip = [alt.Tooltip(f"{column.key}:N", title=column.heading) for column in shown]
    base = alt.Chart(named_rows())
    interval = base.mark_rule(strokeWidth=5, opacity=0.38, strokeCap="round").encode(
        x="low:Q", x2="high:Q", y=y, yOffset=offset, color=colour
    )
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=x, y=y, yOffset=offset, color=colour, tooltip=tooltip
    )
    words = base.mark_text(align="left", dx=11, fontSize=11.5, color=theme.text).encode(
        x="high:Q", y=y, yOffset=offset, text=f"{block.label}:N"
    )
    return alt.layer(interval, dots, words).properties(height=24 * len(series) * len(groups))


def _rows(block: Ratios) -> Iterator[dict[str, Any]]:
    for values in block.table.rows:
        row = dict(zip((column.key for column in block.table.columns), values, strict=True))
        ratio = row["ratio"] or Figure(1.0 if row[block.series] == block.base else None, "")
        if ratio.value and row[block.label].value is not None:
            cells = {column.key: cell(column, row[column.key]) for column in block.table.columns}
            yield {**cells, "at": ratio.value, "low": ratio.low or ratio.value, "high": ratio.high or ratio.value}
