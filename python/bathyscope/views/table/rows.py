"""Plain rows as a table: a column for each key, whose name gives the unit of its cells."""

from __future__ import annotations

import re
from typing import Any, Literal, TextIO

from bathyscope.records.blocks import Unit, units_of
from bathyscope.views import Options
from bathyscope.views.cells import value_cell
from bathyscope.views.figures import trimmed
from bathyscope.views.rows import plain_rows
from bathyscope.views.table.terminal import console, new_table, text

_MOMENTS = frozenset({"started_ns", "ended_ns", "created_ns"})


def write(rows: Any, stream: TextIO, options: Options) -> None:
    """Print the rows, or `options.empty` when there are none."""
    out = console(stream, options)
    shown = plain_rows(rows, options.columns)
    if not shown:
        out.print(text(options.empty))
        return
    table = new_table()
    for name in shown[0]:
        numeric = all(isinstance(row[name], int | float | None) and not isinstance(row[name], bool) for row in shown)
        # The id of a run or an image is there to be copied: other columns give way to it.
        whole = name in ("id", "run_id", "image_id")
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(text(_heading(name)), justify=justify, overflow="fold", no_wrap=whole)
    for row in shown:
        table.add_row(*(text(cell_text(name, value)) for name, value in row.items()))
    out.print(table)


def _heading(name: str) -> str:
    """Return a column's name in words; the unit is written in each cell instead."""
    return re.sub("_(bytes|ns|s|ratio)$", "", name).replace("_", " ")


def cell_text(name: str, value: Any) -> str:
    """Return a cell for reading; the column's name gives the unit: size_bytes, started_ns, duration_s, hit_ratio."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if not isinstance(value, int | float):
        return value_cell(value, "")
    unit: Unit = "time" if name in _MOMENTS else next(iter(units_of(name)), "")
    return value_cell(value, unit) if unit or isinstance(value, int) else trimmed(value)
