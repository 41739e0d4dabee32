"""A view of a recording on the terminal: its sentence, its tables, and what cannot be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Table
from bathyscope.units import format_seconds
from bathyscope.views import Options, labels
from bathyscope.views.activity_rows import cell, left_out_first, marks, shown_columns
from bathyscope.views.table.fitting import fitting
from bathyscope.views.table.terminal import console, print_wrapped, text

# More rows than these are for a program; the sentence and the first rows are what a person reads.
_ROWS_SHOWN = 40


def write(finding: ActivityFinding, stream: TextIO, options: Options) -> None:
    """Print the view."""
    out = console(stream, options)
    length = format_seconds((finding.end_ns - finding.start_ns) / 1e9)
    where = f"{labels.clean(finding.target)}, {length} from {labels.time_utc(finding.start_ns)}"
    out.print(text(where, "dim"))
    print_wrapped("", finding.sentence, out, out.width, "bold")
    for name, value in finding.facts:
        print_wrapped(f"{labels.clean(name)}: ", value, out, out.width)
    for table in finding.tables:
        _write_table(table, out, several=len(finding.tables) > 1)
    for remark in finding.unseen:
        print_wrapped("- ", remark, out, out.width, "dim")


def _write_prose(table: Table, names: Sequence[str], out: Console) -> None:
    """Print what has no column after the names of the rows that it is said of: once, if several have the same."""
    said: dict[tuple[int, str], list[str]] = {}
    for name, row in zip(names, table.rows, strict=False):
        for place, column in enumerate(table.columns):
            if column.prose and row[place]:
                said.setdefault((place, str(row[place])), []).append(name)
    for (_, words), those in said.items():
        if len(those) == 1:
            print_wrapped(f"{those[0]}: ", words, out, out.width)
        else:
            print_wrapped("", f"{', '.join(those)}: {words}", out, out.width)


def _write_table(table: Table, out: Console, *, several: bool) -> None:
    if several:
        out.print()
        out.print(text(table.title, "bold"))
    if not table.rows:
        return
    places = [place for place in shown_columns(table) if not table.columns[place].prose]
    columns = [table.columns[place] for place in places]
    rows = [
        ("", [cell(column, row[place]) for column, place in zip(columns, places, strict=True)])
        for row in table.rows[:_ROWS_SHOWN]
    ]
    dispensable = [table.columns[place].heading for place in left_out_first(table, places)]
    words = [column.heading for column in columns if not column.unit]
    out.print(fitting([column.heading for column in columns], rows, out, dispensable, words=words))
    _write_prose(table, [cells[0] for _, cells in rows], out)
    for column, place in zip(columns, places, strict=True):
        if column.unit == "parts" and (parts := next((row[place] for row in table.rows if row[place]), None)):
            letters = ", ".join(f"{letter} {name}" for name, letter in marks([name for name, _ in parts]).items())
            print_wrapped(f"{column.heading}: ", letters, out, out.width, "dim")
    if len(table.rows) > _ROWS_SHOWN:
        out.print(text(f"and {len(table.rows) - _ROWS_SHOWN:,} more; --output csv has them all", "dim"))
