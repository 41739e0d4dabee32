"""Plain rows as a table: a column for each key, whose name gives the unit of its cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TextIO

from bathyscope.units import format_bytes, format_duration_ns, format_percent, format_seconds
from bathyscope.views import Options
from bathyscope.views.figures import NOT_APPLICABLE, trimmed
from bathyscope.views.labels import time_utc
from bathyscope.views.rows import plain_rows
from bathyscope.views.table.terminal import console, new_table, text

_MOMENTS = frozenset({"started_ns", "ended_ns", "created_ns"})
# The first suffix that fits counts: a rate ends with _s, too, but is no duration.
_FORMATS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_bytes", format_bytes),
    ("_ns", format_duration_ns),
    ("_per_s", trimmed),
    ("_s", format_seconds),
    ("_ratio", format_percent),
)


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
    unit = next((unit for unit in ("_bytes", "_ns", "_s", "_ratio") if name.endswith(unit)), "")
    return name.removesuffix(unit).replace("_", " ")


def cell_text(name: str, value: Any) -> str:
    """Return a cell for reading; the column's name gives the unit: size_bytes, started_ns, duration_s, hit_ratio."""
    if value is None or value == "":
        return NOT_APPLICABLE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return _number(name, value) if isinstance(value, int | float) else str(value)


def _number(name: str, value: float) -> str:
    if name in _MOMENTS:
        return time_utc(int(value))
    for suffix, form in _FORMATS:
        if name.endswith(suffix):
            return form(value)
    return str(value) if isinstance(value, int) else trimmed(value)
