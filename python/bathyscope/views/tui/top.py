"""The screen of `bathy top`: one view at a time as a table that is drawn anew with every sample.

It shows what it is fed with and computes nothing but the order of rows. A fault is shown in place of the table, and
the next sample tries again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import get_current_worker

from bathyscope.errors import BathyscopeError
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable
from bathyscope.units import format_seconds
from bathyscope.views import labels
from bathyscope.views.activity_rows import cell, left_out_first, shown_columns

# A table's cell has a space at either side.
_PADDING = 2
# More rows than these are found by a filter, not by scrolling, and each costs time to draw.
ROWS_MOST = 500


class Feed(Protocol):
    """Where a screen gets its views from."""

    period_s: float
    shown_s: float

    def view(self, name: str) -> ActivityFinding:
        """Return a view as it is now. May take a while; may raise BathyscopeError."""
        ...

    def problems(self) -> Sequence[str]:
        """Return what is wrong with the sources, in words."""
        ...

    def move(self, steps: int) -> None:
        """Go on or back in a recording; nothing happens in what is live."""
        ...


class Top(App[None]):
    """The screen. `view` is the one that is shown first, `views` are all of them in order."""

    CSS = """
    Screen { layout: vertical; }
    #where { height: 1; color: $text-muted; }
    #sentence { height: auto; max-height: 3; text-style: bold; }
    #remarks { height: auto; max-height: 4; color: $text-warning; }
    #filter { display: none; height: 3; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("tab,right_square_bracket", "next_view(1)", "Next view", priority=True),
        Binding("shift+tab,left_square_bracket", "next_view(-1)", "Previous", show=False, priority=True),
        Binding("s", "sort(1)", "Sort by"),
        Binding("S", "sort(-1)", "Sort back", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "unfilter", "No filter", show=False),
        Binding("space", "pause", "Pause"),
        Binding("d", "toggle_dark", "Dark/light", show=False),
    ]
    REPLAY: ClassVar[list[tuple[str, str, str]]] = [
        ("left,comma", "move(-1)", "Back"),
        ("right,full_stop", "move(1)", "On"),
    ]

    def __init__(self, feed: Feed, views: Sequence[str], view: str, *, replay: bool = False) -> None:
        super().__init__()
        self._feed, self._views, self._view, self._replay = feed, list(views), view, replay
        self._paused = False
        self._finding: ActivityFinding | None = None
        # The column by which each view is sorted, where somebody chose one; and whether the order is turned round.
        self._sorted_by: dict[str, int] = {}
        self._reversed = False
        self._left_out = 0
        if replay:
            for keys, action, words in self.REPLAY:
                self.bind(keys, action, description=words)

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="where", markup=False)
        yield Static("waiting for the first sample", id="sentence", markup=False)
        yield Input(placeholder="show rows with this text", id="filter")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="remarks", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to draw."""
        self.query_one(DataTable).focus()
        self.refresh_view()
        if not self._replay:
            self.set_interval(self._feed.period_s, self._tick)

    def on_resize(self) -> None:
        """Draw with as many columns as fit."""
        self._draw()

    def _tick(self) -> None:
        if not self._paused:
            self.refresh_view()

    @work(thread=True, exclusive=True)
    def refresh_view(self) -> None:
        """Ask for the view in the background; a slow cluster must not freeze the keys."""
        worker = get_current_worker()
        try:
            finding, problem = self._feed.view(self._view), None
        except BathyscopeError as error:
            finding, problem = None, error.message
        problems = [problem] if problem else list(self._feed.problems())
        if not worker.is_cancelled:
            self.call_from_thread(self._show, finding, problems)

    def _show(self, finding: ActivityFinding | None, problems: Sequence[str]) -> None:
        remarks = [*problems, *(finding.unseen if finding is not None else ())]
        self.query_one("#remarks", Static).update(Text("\n".join(f"- {labels.clean(line)}" for line in remarks)))
        if finding is not None and finding.view == self._view:
            self._finding = finding
        self._draw()

    def _draw(self) -> None:
        finding = self._finding
        if finding is None or finding.view != self._view:
            self.query_one("#where", Static).update(Text(self._where()))
            return
        self.query_one("#sentence", Static).update(Text(labels.clean(finding.sentence)))
        table = self.query_one(DataTable)
        row, scroll = table.cursor_row, table.scroll_y
        table.clear(columns=True)
        shown = finding.tables[0]
        rows = self._rows()
        cells = [
            [cell(column, value) for column, value in zip(shown.columns, each, strict=True)]
            for each in rows[:ROWS_MOST]
        ]
        self._left_out = max(0, len(rows) - ROWS_MOST)
        for place in fitting_columns(shown, cells, self.size.width):
            column = shown.columns[place]
            mark = ("▲" if self._reversed else "▼") if place == self._sort_place() else ""
            table.add_column(Text(column.name + mark, justify="right" if column.unit else "left"), key=str(place))
        for each in cells:
            table.add_row(*(self._cell(shown.columns, each, int(str(key.value))) for key in table.columns))
        self.query_one("#where", Static).update(Text(self._where()))
        table.move_cursor(row=row)
        table.scroll_to(y=scroll, animate=False)

    def _cell(self, columns: Sequence[ActivityColumn], cells: Sequence[str], place: int) -> Text:
        return Text(cells[place], justify="right" if columns[place].unit else "left", no_wrap=True)

    def _where(self) -> str:
        position = self._views.index(self._view)
        names = " ".join(f"[{name}]" if place == position else name for place, name in enumerate(self._views))
        finding = self._finding
        target = labels.clean(finding.target) if finding is not None else ""
        span = f"last {format_seconds(self._feed.shown_s)}"
        if self._replay and finding is not None:
            span = f"{format_seconds(self._feed.shown_s)} to {labels.time_utc(finding.end_ns)}"
        more = f"  {self._left_out:,} rows more: filter with /" if self._left_out else ""
        return f"{target}  {names}  {span}{'  PAUSED' if self._paused else ''}{more}"

    def _rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of the table that match the filter, in the order that was chosen."""
        assert self._finding is not None  # noqa: S101 - only called when there is one
        shown = self._finding.tables[0]
        wanted = self.query_one(Input).value.strip().lower()
        rows = [row for row in shown.rows if not wanted or any(wanted in str(value).lower() for value in row)]
        place = self._sort_place()
        if place is not None:
            number = bool(shown.columns[place].unit)
            known = [row for row in rows if row[place] is not None]
            # Numbers begin with the greatest, names with the first; what is not known comes last.
            known.sort(key=lambda row: row[place], reverse=number != self._reversed)
            rows = known + [row for row in rows if row[place] is None]
        elif self._reversed:
            rows.reverse()
        return rows

    def _sort_place(self) -> int | None:
        return self._sorted_by.get(self._view)

    # --- keys

    def action_next_view(self, step: int) -> None:
        """Show the next view, or the one before."""
        self._view = self._views[(self._views.index(self._view) + step) % len(self._views)]
        self.refresh_view()
        self._draw()

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or by the one before."""
        if self._finding is not None:
            count = len(self._finding.tables[0].columns)
            place = self._sort_place()
            self._sorted_by[self._view] = (step - 1) // 2 % count if place is None else (place + step) % count
            self._draw()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._reversed = not self._reversed
        self._draw()

    def action_filter(self) -> None:
        """Ask for a text that rows must have."""
        field = self.query_one(Input)
        field.add_class("shown")
        field.focus()

    def action_unfilter(self) -> None:
        """Show all rows again."""
        field = self.query_one(Input)
        field.value = ""
        field.remove_class("shown")
        self.query_one(DataTable).focus()
        self._draw()

    def on_input_changed(self) -> None:
        """Filter while it is typed."""
        self._draw()

    def on_input_submitted(self) -> None:
        """Go back to the table with the filter on."""
        self.query_one(DataTable).focus()

    def action_pause(self) -> None:
        """Keep what is shown, or go on."""
        self._paused = not self._paused
        self._draw()

    def action_toggle_dark(self) -> None:
        """Change between a dark and a light screen."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"

    def action_move(self, steps: int) -> None:
        """Go on in a recording, or back."""
        self._feed.move(steps)
        self.refresh_view()


def fitting_columns(table: ActivityTable, rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return which columns fit into `width`."""
    kept = shown_columns(table)
    widths = {
        place: max([len(table.columns[place].name) + 1, *(len(row[place]) for row in rows)]) + _PADDING
        for place in kept
    }
    for place in left_out_first(table, kept):
        if sum(widths[place] for place in kept) <= width:
            break
        kept.remove(place)
    return kept
