"""Tables whose columns have a width: those of all parts stand below each other, and few characters take a column."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from bathyscope.records.blocks import Column, Table
from bathyscope.views import labels
from bathyscope.views.cells import cell, left_out_first, shortened, shown_columns
from bathyscope.views.table.terminal import text

_WIDE_FROM, _WIDTH_MAX = 120, 160
# What the interval of a figure takes in a wide terminal.
_INTERVAL_WIDTH = 6


class Grid:
    """A table on a terminal: as many columns as fit, the same ones for all its parts."""

    def __init__(self, parts: Sequence[Table], out: Console) -> None:
        self._parts, self._out, self._width = parts, out, min(out.width, _WIDTH_MAX)
        self._columns = _columns(parts, self._width)

    def write(self, table: Table) -> None:
        """Print one of the parts: text on the left; prose stands in place of the figures of its row."""
        columns = [*self._columns.values()]
        self._out.print(text(_line([column.heading for column in columns], columns, self._width).plain, "dim"))
        for row in table.rows[: table.shown_max]:
            if words := _prose(table, row):
                index, column = next(iter(self._columns.items()))
                lead = f"{row[index]:<{column.width}} "
                lines = textwrap.wrap(labels.clean(words), self._width - 1 - len(lead))
                self._out.print(Text(f"\n{' ' * len(lead)}".join([lead + lines[0], *lines[1:]]), style="red"))
            else:
                cells = [cell(column, row[index]) for index, column in self._columns.items()]
                self._out.print(_line(cells, columns, self._width))

    def headings_and_cells(self) -> set[str]:
        """Return what stands in the table: in all its parts."""
        rows = (row for table in self._parts for row in table.rows[: table.shown_max] if not _prose(table, row))
        cells = {cell(column, row[index]) for row in rows for index, column in self._columns.items()}
        return cells | {column.heading for column in self._columns.values()}


def _prose(table: Table, row: Sequence[Any]) -> str:
    """Return what stands in place of the figures of a row; empty where they are shown."""
    return next((value for column, value in zip(table.columns, row, strict=True) if column.prose and value), "")


def _columns(parts: Sequence[Table], width: int) -> dict[int, Column]:
    """Return as many columns as fit in this width, by their index: the same ones for all parts."""
    table = parts[0]
    columns = {index: _as_shown(table.columns[index], width) for index in shown_columns(*parts)}
    columns = {index: column for index, column in columns.items() if not column.prose}
    left_out = left_out_first(table, [*columns])
    while left_out and sum(column.width + 1 for column in columns.values()) - 1 > width:
        del columns[left_out.pop(0)]
    return columns


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
