"""The row axis that ladder and stage charts share: a heading for each pattern, below it one row for each layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import altair as alt

from bathyscope.views.charts.base import named_rows
from bathyscope.views.charts.theme import Theme

ROW_HEIGHT = 21
# Separates the group's number, which has only digits, from what the axis shows.
_MARK = "|"
_LABEL = "slice(datum.label, indexof(datum.label, '|') + 1)"


def heading_row(index: int) -> str:
    """Return the row that holds the heading of the group `index`."""
    return f"{index}{_MARK}"


def point_row(index: int, layer_title: str) -> str:
    """Return the row of a point; the axis shows the layer's title."""
    return f"{index}{_MARK}{layer_title}"


def order_of(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the rows of a chart's data from the top down."""
    return list(dict.fromkeys(row["row"] for row in rows))


def headings(y: alt.Y, theme: Theme) -> Any:
    """Return the marks of the rows of kind "heading"."""
    return (
        alt.Chart(named_rows())
        .transform_filter("datum.kind == 'heading'")
        .mark_text(align="left", fontWeight=600, fontSize=12, color=theme.text, dy=3)
        .encode(x=alt.value(0), y=y, text="title:N")
    )


def row_axis(order: list[str]) -> alt.Y:
    """Return the vertical axis with exactly these rows from the top down."""
    axis = alt.Axis(labelExpr=_LABEL, ticks=False, grid=False, title=None, labelPadding=8, labelLimit=90)
    scale = alt.Scale(domain=order, paddingInner=0, paddingOuter=0)
    return alt.Y("row", type="nominal", sort=None, axis=axis, scale=scale)
