"""Rows of a view with a cursor. Only visible lines are made, so ten thousand rows cost as much as twenty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from bathyscope.records.blocks import Column, Table, Unit
from bathyscope.views.cells import cell, left_out_first, shown_columns

Row = tuple[Any, ...]

_HEAD_LINES = 2
_GAP = 2
# Room for the longest value of each unit, so that columns do not move when rows do.
_WIDTHS: dict[Unit, int] = {
    "1/s": 5,
    "1/day": 5,
    "bytes": 8,
    "bytes/s": 10,
    "ns": 7,
    "s": 13,
    "ratio": 6,
    "fine ratio": 6,
    "times": 6,
    "change": 6,
    "time": 23,
    "trend": 8,
    "parts": 12,
    "bar": 24,
    "amount": 12,
    "code": 24,
}
_DRAWN: tuple[Unit, ...] = ("trend", "parts", "bar", "code")
# Texts get these parts of the screen at most while columns are chosen: the first column, and any other.
_FIRST_PART, _TEXT_PART = 3, 5
_TEXT_LEAST = 12


def fitting(table: Table, rows: Sequence[Row], width: int) -> list[tuple[int, int]]:
    """Return (index, width) of the columns that fit into `width`.

    Columns are left out by their rank. Only texts are shortened: a number that is cut is another number.
    """
    kept = [index for index in shown_columns(table) if not table.columns[index].prose]
    texts = [index for index in kept if not table.columns[index].unit]
    natural = {index: _natural_width(table.columns[index], index, rows) for index in kept}
    widths = {
        index: min(natural[index], max(_TEXT_LEAST, width // (_TEXT_PART if number else _FIRST_PART)))
        for number, index in enumerate(texts)
    }
    widths = {**natural, **widths}
    for index in left_out_first(table, kept, live=True):
        if _whole(widths, kept) <= width:
            break
        kept.remove(index)
    left = width - _whole(widths, kept)
    for index in (index for index in texts if index in kept):
        longer, shorter = natural[index] - widths[index], min(0, _TEXT_LEAST - widths[index])
        change = min(left, longer) if left >= 0 else max(left, shorter)
        widths[index] += change
        left -= change
    return [(index, widths[index]) for index in kept]


def _whole(widths: dict[int, int], kept: Sequence[int]) -> int:
    return sum(widths[index] + _GAP for index in kept)


def _natural_width(column: Column, index: int, rows: Sequence[Row]) -> int:
    head = max(map(len, _head(column)))
    values = (row[index] for row in rows)
    if column.unit == "count":
        return max(head, len(f"{max((value for value in values if value is not None), default=0):,}"))
    if column.unit:
        return max(head, _WIDTHS[column.unit])
    return max(head, max((len(str(value)) for value in values if value is not None), default=1))


def _head(column: Column) -> tuple[str, str]:
    """Return a column's name on two lines."""
    first, _, rest = column.heading.partition(" ")
    return (first, rest) if rest else ("", first)


def _middle_cut(text: str, width: int) -> str:
    """Return a text without its middle, where it is too long: names differ at their ends."""
    if cell_len(text) <= width:
        return text
    tail = (width - 1) // 2
    return set_cell_size(text, width - 1 - tail).rstrip() + "…" + text[len(text) - tail :]


def _placed(column: Column, text: str, width: int) -> str:
    """Return a text in its column: numbers to the right and never cut, words to the left."""
    if column.unit and column.unit not in _DRAWN:
        return " " + text.rjust(width) + " "
    return " " + set_cell_size(_middle_cut(text, width), width) + " "


class Rows(ScrollView, can_focus=True, inherit_bindings=False):
    """The rows of one table. The cursor stays with what it is on when the rows change their order."""

    DEFAULT_CSS = """
    Rows { height: 1fr; background: $background; color: $foreground; overflow-x: hidden; }
    Rows > .rows--head { background: $panel; color: $foreground; text-style: bold; }
    Rows > .rows--odd { background: $surface; color: $foreground; }
    Rows > .rows--cursor { background: $primary; color: $text; text-style: bold; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--head", "rows--odd", "rows--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "go(-1)", "Up", show=False),
        Binding("down,j", "go(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "go_to(0)", "First", show=False),
        Binding("end,G", "go_to(-1)", "Last", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._table = Table("", "", (), ())
        self._rows: Sequence[Row] = ()
        self._columns: list[tuple[int, int]] = []
        self._cursor = 0
        self._sorted_by: tuple[int, str] | None = None

    @property
    def rows(self) -> Sequence[Row]:
        """The rows that can be scrolled to."""
        return self._rows

    @property
    def places(self) -> list[int]:
        """The places of the columns that are shown."""
        return [index for index, _ in self._columns]

    @property
    def at_cursor(self) -> Row | None:
        """The row that the cursor is on."""
        return self._rows[self._cursor] if self._rows else None

    def show(self, table: Table, rows: Sequence[Row], sorted_by: tuple[int, str] | None) -> None:
        """Show these rows of a table; `sorted_by` is a column's index and a mark for it.

        A cursor on the first row stays there: who looks at the top wants to see who is on top.
        """
        at = self.at_cursor
        same = table.columns == self._table.columns
        self._table, self._rows, self._sorted_by = table, rows, sorted_by
        if not same:
            self._cursor = 0
        elif self._cursor and at is not None:
            wanted = self._identity(at)
            self._cursor = next((n for n, row in enumerate(rows) if self._identity(row) == wanted), self._cursor)
        self._lay_out()
        self._go_to(self._cursor)

    def forget(self) -> None:
        """Begin at the first row again: what comes is another thing."""
        self._cursor = 0

    def _identity(self, row: Row) -> Row:
        """Return what tells a row from the others."""
        columns = enumerate(self._table.columns)
        return tuple(row[index] for index, column in columns if not index or not (column.unit or column.rank))

    def _lay_out(self) -> None:
        self._columns = fitting(self._table, self._rows, self.size.width)
        self.virtual_size = Size(self.size.width, len(self._rows) + _HEAD_LINES)
        self.refresh()

    def on_resize(self, _: Resize) -> None:
        """Choose the columns anew."""
        self._lay_out()

    def on_click(self, event: Click) -> None:
        """Put the cursor on a row; on the row where it is, go into it."""
        index = round(self.scroll_y) + event.y - _HEAD_LINES
        if event.y >= _HEAD_LINES and index < len(self._rows):
            self._go_to(index)

    def render_line(self, y: int) -> Strip:
        """Return one visible line: two of the head, then rows."""
        width = self.size.width
        if y < _HEAD_LINES:
            style = self.get_component_rich_style("rows--head")
            return Strip([Segment(self._head_line(y), style)]).crop_extend(0, width, style)
        index = round(self.scroll_y) + y - _HEAD_LINES
        if index >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        style = self.rich_style
        if index == self._cursor:
            style = self.get_component_rich_style("rows--cursor")
        elif index % 2:
            style = self.get_component_rich_style("rows--odd")
        return Strip([Segment(self.line(index), style)]).crop_extend(0, width, style)

    def line(self, index: int) -> str:
        """Return a row as it is shown."""
        row, columns = self._rows[index], self._table.columns
        return "".join(_placed(columns[at], cell(columns[at], row[at]), width) for at, width in self._columns)

    def _head_line(self, line: int) -> str:
        words = ""
        for index, width in self._columns:
            column = self._table.columns[index]
            shown = _placed(column, _head(column)[line], width)
            is_sorted = line == _HEAD_LINES - 1 and self._sorted_by is not None and self._sorted_by[0] == index
            words += shown[:-1] + self._sorted_by[1] if is_sorted and self._sorted_by else shown
        return words

    # --- the cursor

    def _go_to(self, index: int) -> None:
        last = len(self._rows) - 1
        self._cursor = max(0, min(index if index >= 0 else last, last))
        room = max(1, self.size.height - _HEAD_LINES)
        top = round(self.scroll_y)
        if not top <= self._cursor < top + room:
            self.scroll_to(y=self._cursor if self._cursor < top else self._cursor - room + 1, animate=False)
        self.refresh()

    def action_go(self, steps: int) -> None:
        """Move the cursor by rows."""
        self._go_to(max(0, self._cursor + steps))

    def action_page(self, steps: int) -> None:
        """Move the cursor by screens."""
        self._go_to(max(0, self._cursor + steps * max(1, self.size.height - _HEAD_LINES)))

    def action_go_to(self, index: int) -> None:
        """Move the cursor to the first row, or to the last."""
        self._go_to(index)
