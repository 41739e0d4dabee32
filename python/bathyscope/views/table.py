"""Terminal tables: one renderer for each kind of finding, and one for plain rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from bathyscope.records.finding import CompareFinding, LadderFinding
from bathyscope.units import format_bytes, format_duration_ns, format_percent, format_seconds
from bathyscope.views import table_compare, table_ladder
from bathyscope.views.figures import NOT_APPLICABLE, trimmed
from bathyscope.views.labels import time_utc
from bathyscope.views.rows import plain_rows
from bathyscope.views.terminal import console, text

_MOMENTS = frozenset({"started_ns", "ended_ns", "created_ns"})
# The first that the column's name ends with; a rate ends with _s, too, but is no duration.
_FORMATS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_bytes", format_bytes),
    ("_ns", format_duration_ns),
    ("_per_s", trimmed),
    ("_s", format_seconds),
    ("_ratio", format_percent),
)
_UNITS = ("_bytes", "_ns", "_s", "_ratio")


def write(
    finding: Any,
    stream: TextIO,
    *,
    colour: bool | None = None,
    width: int | None = None,
    columns: Sequence[str] | None = None,
    empty: str = "nothing to show",
) -> None:
    """Write a table for people; see `views.render`."""
    out = console(stream, colour=colour, width=width)
    if isinstance(finding, LadderFinding):
        table_ladder.write(finding, out)
    elif isinstance(finding, CompareFinding):
        table_compare.write(finding, out)
    else:
        _write_rows(plain_rows(finding, columns), out, empty)


def _write_rows(rows: list[dict[str, Any]], out: Console, empty: str) -> None:
    if not rows:
        out.print(text(empty))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in rows[0]:
        numeric = all(isinstance(row[name], int | float | None) and not isinstance(row[name], bool) for row in rows)
        table.add_column(text(_heading(name)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text(cell_text(name, value)) for name, value in row.items()))
    out.print(table)


def _heading(name: str) -> str:
    """Return a column's name in words; the unit is written in each cell instead."""
    for unit in _UNITS:
        if name.endswith(unit):
            name = name.removesuffix(unit)
            break
    return name.replace("_", " ")


def cell_text(name: str, value: Any) -> str:
    """Return a cell for reading; the column's name says the unit: size_bytes, started_ns, duration_s, hit_ratio."""
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
