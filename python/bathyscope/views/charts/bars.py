"""A bar for each of the first rows of a table, its parts apart."""

from __future__ import annotations

import functools
from typing import Any

import altair as alt

from bathyscope.records.blocks import Bars, Unit
from bathyscope.views import labels
from bathyscope.views.cells import cell
from bathyscope.views.charts.base import LABELS, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme

_ROW_HEIGHT = 22
_ROWS_MOST = 40
_TITLES: dict[Unit, str] = {"count": "operations"}
# Slots of the theme's colours that are told apart best: blue and orange.
_SLOTS = (1, 2)


def drawing(block: Bars, theme: Theme = LIGHT) -> Drawing | None:
    """Return the bars of a table; None where it lacks one of the columns, or has fewer than two rows."""
    table = block.table
    places = {column.key: index for index, column in enumerate(table.columns)}
    if not places.keys() >= {*block.parts, block.beside} or len(table.rows) < 2:
        return None
    # What a row is of may take several columns: an OSD and a pool.
    first = next((index for index, each in enumerate(table.columns) if each.unit), len(table.columns))
    named = [index for index in range(first) if table.columns[index].rank == 0] or [0]
    beside = table.columns[places[block.beside]]
    rows = []
    for row in table.rows[:_ROWS_MOST]:
        name = labels.clean(" ".join(str(row[index]) for index in named if row[index]))
        total = sum(row[places[key]] for key in block.parts)
        about = {"name": name, "total": total, "share": cell(beside, row[places[block.beside]])}
        for column in (table.columns[places[key]] for key in block.parts):
            value = row[places[column.key]]
            rows.append({**about, "kind": column.key, "v": value, "value": cell(column, value)})
    unit = table.columns[places[block.parts[0]]].unit
    return Drawing(
        name=block.name,
        title=block.title,
        description=f"{block.title}: a bar for each, its {beside.heading} beside it.",
        chart=functools.partial(_chart, block, unit, [row["name"] for row in rows[:: len(block.parts)]], theme),
        rows=tuple(rows),
    )


def _chart(block: Bars, unit: Unit, names: list[str], theme: Theme) -> Any:
    y = alt.Y("name:N", sort=names, axis=alt.Axis(title=None, labelLimit=240, grid=False, ticks=False))
    x_axis = alt.Axis(title=_TITLES.get(unit), labelExpr=LABELS[unit], tickCount=6)
    parts = list(block.parts)
    colours = alt.Scale(domain=parts, range=[theme.layers[slot] for slot in _SLOTS[: len(parts)]])
    legend = alt.Legend() if len(parts) > 1 else None
    bar = (
        alt.Chart(named_rows())
        .mark_bar(height={"band": 0.72})
        .encode(
            y=y,
            x=alt.X("v:Q", stack="zero", axis=x_axis),
            color=alt.Color("kind:N", scale=colours, legend=legend),
            order=alt.Order("kind:N", sort="ascending"),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("kind:N"),
                alt.Tooltip("value:N", title=_TITLES.get(unit, "value")),
                alt.Tooltip("share:N"),
            ],
        )
    )
    text = (
        alt.Chart(named_rows())
        .transform_filter(f"datum.kind === '{parts[0]}'")
        .mark_text(align="left", dx=5, fontSize=11, color=theme.muted)
        .encode(y=y, x=alt.X("total:Q"), text="share:N")
    )
    return alt.layer(bar, text).properties(height=max(2, len(names)) * _ROW_HEIGHT)
