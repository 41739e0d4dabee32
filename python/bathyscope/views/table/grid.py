"""Tables whose columns have a width: those of all tables stand below each other, and few characters take a column."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from bathyscope.records.blocks import Column, Table
from bathyscope.views import labels
from bathyscope.views.cells import cell, left_out_first, shortened, shown_columns
from bathyscope.views.table.terminal import text

_WIDE_FROM, _WIDTH_MAX = 120, 160
# What the interval of a figure takes in a wide terminal.
_INTERVAL_WIDTH = 6


def write(table: Table, out: Console) -> None:
    """Print a table: as many columns as fit, text on the left; prose stands in place of the figures of its row."""
    width = min(out.width, _WIDTH_MAX)
    places = [place for place in shown_columns(table) if not table.columns[place].prose]
    left_out = left_out_first(table, places)
    while left_out and sum(_as_shown(table.columns[place], width).width + 1 for place in places) - 1 > width:
        places.remove(left_out.pop(0))
    columns = [_as_shown(table.columns[place], width) for place in places]
    out.print(text(_line([column.heading for column in columns], columns, width).plain, "dim"))
    prose = [place for place, column in enumerate(table.columns) if column.prose]
    for row in table.rows[: table.shown_max]:
        if words := next((row[place] for place in prose if row[place]), ""):
            lead = f"{row[places[0]]:<{columns[0].width}} "
            lines = textwrap.wrap(labels.clean(words), width - 1 - len(lead))
            out.print(Text(f"\n{' ' * len(lead)}".join([lead + lines[0], *lines[1:]]), style="red"))
        else:
            out.print(
                _line([cell(each, row[place]) for each, place in zip(columns, places, strict=True)], columns, width)
            )


def _as_shown(column: Column, width: int) -> Column:
    """Return a column as it is in a terminal of this width."""
    if column.figure != "roomy":
        return column
    if width < _WIDE_FROM:
        return dataclasses.replace(column, figure="value")
    return dataclasses.replace(column, figure="interval", width=column.width + _INTERVAL_WIDTH)


def _line(cells: Sequence[str], columns: Sequence[Column], width: int) -> Text:
    """Return a line; what is longer than its column takes the room that later columns can spare."""
    line, start = Text(), 0
    for words, column in zip(cells, columns, strict=True):
        is_text = not (column.unit or column.figure)
        over = max(0, len(line.plain) - start)
        shown = shortened(words, max(column.width, width - start)) if is_text else words
        side, style = ("<", "") if is_text else (">", "bold" if column.figure == "interval" else "")
        line.append(f"{shown:{side}{max(column.width - over, len(shown))}}", style=style)
        line.append(" ")
        start += column.width + 1
    line.rstrip()
    return line
