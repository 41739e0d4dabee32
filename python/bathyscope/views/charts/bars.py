"""A bar for each of the busiest rows of a table, reads and writes apart."""

from __future__ import annotations

import functools
from typing import Any

import altair as alt

from bathyscope.records.blocks import Bars
from bathyscope.units import format_percent
from bathyscope.views import labels
from bathyscope.views.charts.base import RATE_LABEL, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme

_ROW_HEIGHT = 22
_ROWS_MOST = 40
_READS, _WRITES, _SHARE = "reads", "writes", "share_ratio"
# Slots of the theme's colours that are told apart best: blue and orange.
_SLOTS = (1, 2)


def drawing(block: Bars, theme: Theme = LIGHT) -> Drawing | None:
    """Return the bars of a table; None where it does not count reads and writes, or has fewer than two rows."""
    table = block.table
    places = {column.key: place for place, column in enumerate(table.columns)}
    if not places.keys() >= {_READS, _WRITES, _SHARE} or len(table.rows) < 2:
        return None
    # What a row is of may take several columns: an OSD and a pool.
    first = next((place for place, each in enumerate(table.columns) if each.unit), len(table.columns))
    named = [place for place in range(first) if table.columns[place].rank == 0] or [0]
    rows = []
    for row in table.rows[:_ROWS_MOST]:
        share = row[places[_SHARE]]
        name = labels.clean(" ".join(str(row[place]) for place in named if row[place]))
        total = row[places[_READS]] + row[places[_WRITES]]
        about = {"name": name, "total": total, "share": "" if share is None else format_percent(share)}
        rows += [{**about, "kind": kind, "v": row[places[kind]]} for kind in (_READS, _WRITES)]
    title = f"Reads and writes of {table.title}"
    return Drawing(
        name=f"bars-{block.name}",
        title=title,
        description=f"{title}: a bar for each, its share of all beside it.",
        chart=functools.partial(_chart, [row["name"] for row in rows[::2]], theme),
        rows=tuple(rows),
    )


def _chart(names: list[str], theme: Theme) -> Any:
    y = alt.Y("name:N", sort=names, axis=alt.Axis(title=None, labelLimit=240, grid=False, ticks=False))
    x_axis = alt.Axis(title="operations", labelExpr=RATE_LABEL, tickCount=6)
    colours = alt.Scale(domain=[_READS, _WRITES], range=[theme.layers[slot] for slot in _SLOTS])
    bar = (
        alt.Chart(named_rows())
        .mark_bar(height={"band": 0.72})
        .encode(
            y=y,
            x=alt.X("v:Q", stack="zero", axis=x_axis),
            color=alt.Color("kind:N", scale=colours),
            order=alt.Order("kind:N", sort="ascending"),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("kind:N"),
                alt.Tooltip("v:Q", title="operations", format=","),
                alt.Tooltip("share:N"),
            ],
        )
    )
    text = (
        alt.Chart(named_rows())
        .transform_filter(f"datum.kind === '{_READS}'")
        .mark_text(align="left", dx=5, fontSize=11, color=theme.muted)
        .encode(y=y, x=alt.X("total:Q"), text="share:N")
    )
    return alt.layer(bar, text).properties(height=max(2, len(names)) * _ROW_HEIGHT)
