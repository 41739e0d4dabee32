"""Tables that fit a narrow terminal by fewer columns: a number cut short is a wrong number."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from bathyscope.views.table.terminal import new_table, text

_TIGHT = (0, 1, 0, 0)


def fitting(
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    out: Console,
    dispensable: Sequence[str],
    *,
    words: Collection[str] = (),
) -> Table:
    """Return a table of as many columns as fit whole: without the first of `dispensable`, then the second, …

    Columns move together before one is left out. Where that is not enough, the names in the first column are shortened,
    never a number. `words` are the columns besides the first that hold no numbers.
    """
    shown = list(columns)
    for left_out in ("", *dispensable):
        shown = [name for name in shown if name != left_out]
        table = _table_of(shown, columns, rows, words)
        if fits(table, out):
            return table
        table.padding = _TIGHT
        if fits(table, out):
            return table
    excess = _width(table, out) - out.width
    longest = max((len(cells[0]) for _, cells in rows), default=0)
    length = max(1, max(longest, len(columns[0])) - excess)
    short = [(style, [shortened(cells[0], length), *cells[1:]]) for style, cells in rows]
    table = _table_of(shown, columns, short, words, first=shortened(columns[0], length))
    table.padding = _TIGHT
    return table


def _table_of(
    shown: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    words: Collection[str],
    first: str | None = None,
) -> Table:
    places = [columns.index(name) for name in shown]
    table = table_with(*([*shown] if first is None else [first, *shown[1:]]), words=words)
    for style, cells in rows:
        table.add_row(*(text(cells[place], style) for place in places))
    return table


def shortened(name: str, length: int) -> str:
    """Return a name that is no longer than `length`."""
    return name if len(name) <= length else name[: length - 1] + "…"


def table_with(*columns: str, words: Collection[str] = ()) -> Table:
    """Return a table without rows: names and `words` to the left, numbers to the right."""
    table = new_table()
    for place, name in enumerate(columns):
        table.add_column(text(name), justify="left" if place == 0 or name in words else "right", no_wrap=True)
    return table


def _width(table: Table, out: Console) -> int:
    return Measurement.get(out, out.options.update(max_width=10_000), table).maximum


def fits(table: Table, out: Console) -> bool:
    """Return whether the table fits whole."""
    return _width(table, out) <= out.width
