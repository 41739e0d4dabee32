"""Tables that fit a narrow terminal by fewer columns: a number cut short is a wrong number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table

from bathyscope.views.table.terminal import new_table, text

_TIGHT = (0, 1, 0, 0)
# Below this a name would be folded into a column of letters.
_NAME_LENGTH_MIN = 16


def fitting(
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    out: Console,
    dispensable: Sequence[str],
    *,
    words: Collection[str] = (),
) -> Table | Group:
    """Return a table of as many columns as fit whole: without the first of `dispensable`, then the second, …

    Columns move together before one is left out. Where that is not enough, names in the first column go over several
    lines; where there is no room for them, the columns stand in several tables, each with the first, or each row goes
    over several lines. `words` are the columns besides the first without numbers.
    """

    def made(names: Sequence[str]) -> Table:
        table = table_with(*names, words=words)
        for style, cells in rows:
            table.add_row(*(text(cells[columns.index(name)], style) for name in names))
        if not fits(table, out):
            table.padding = _TIGHT
        return table

    shown = list(columns)
    for left_out in ("", *dispensable):
        shown = [name for name in shown if name != left_out]
        if fits(table := made(shown), out):
            return table
    first = table.columns[0]
    longest = max(cell_len(cells[0]) for cells in [columns, *(cells for _, cells in rows)])
    length = longest - (_width(table, out) - out.width)
    if length < min(longest, _NAME_LENGTH_MIN):
        is_room = all(fits(made([shown[0], name]), out) for name in shown[1:])
        return Group(*_below(made, shown, out)) if is_room else _apart(columns, rows)
    first.no_wrap, first.overflow, first.width = False, "fold", length
    return table


def _below(made: Callable[[Sequence[str]], Table], names: Sequence[str], out: Console) -> Iterator[Table]:
    """Yield tables of the first column and as many of the others as fit beside it."""
    first, *others = names
    while others:
        count = next(count for count in range(len(others), 0, -1) if fits(made([first, *others[:count]]), out))
        yield made([first, *others[:count]])
        others = others[count:]


def _apart(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> Group:
    """Return each row over several lines: a cut figure is a wrong figure."""
    lines = []
    for style, (name, *cells) in rows:
        named = [f"  {heading}: {cell}" for heading, cell in zip(columns[1:], cells, strict=True) if cell.strip()]
        lines += [text(name, "bold"), *(text(line, style) for line in named if not line.endswith(": –"))]
    return Group(*lines)


def table_with(*columns: str, words: Collection[str] = ()) -> Table:
    """Return a table without rows: names and `words` to the left, numbers to the right."""
    table = new_table()
    for index, name in enumerate(columns):
        table.add_column(text(name), justify="left" if index == 0 or name in words else "right", no_wrap=True)
    return table


def _width(table: Table, out: Console) -> int:
    return Measurement.get(out, out.options.update(max_width=10_000), table).maximum


def fits(table: Table, out: Console) -> bool:
    """Return whether the table fits whole."""
    return _width(table, out) <= out.width
