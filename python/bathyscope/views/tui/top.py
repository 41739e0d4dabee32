"""The screen of `bathy top`: one view at a time, drawn anew with every sample; rows can be gone into.

It shows what it is fed with and computes nothing but the order of rows. A fault is shown in place beside what was known
last, and the next sample tries again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static
from textual.worker import get_current_worker

from bathyscope.errors import BathyscopeError
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.finding import Verdict
from bathyscope.units import format_seconds
from bathyscope.views import labels
from bathyscope.views.findings.activity import title
from bathyscope.views.tui.help import Help
from bathyscope.views.tui.places import Place, below, of_image
from bathyscope.views.tui.rows import Row, Rows

_BRIEF, _HEALTH, _HEALTHY = "image", "health", "HEALTH_OK"
# How often it is asked whether the screen is to end.
_ASKED_S = 0.5


class Feed(Protocol):
    """Where a screen gets its views from."""

    period_s: float
    shown_s: float

    def view(self, name: str, only: Mapping[str, Any]) -> ActivityFinding:
        """Return a view as it is now, narrowed to `only`. May take a while; may raise BathyscopeError."""
        ...

    def verdict(self) -> Verdict | None:
        """Return what limits the clients of the cluster now; None where nobody counts what they do."""
        ...

    def problems(self) -> Sequence[str]:
        """Return what is wrong with the sources, in words."""
        ...

    def notes(self) -> Sequence[str]:
        """Return what is not wrong and should be known, in words."""
        ...

    def zoom(self, image: str | None) -> None:
        """Have the objects of this image counted, where that can be done; of no image for None."""
        ...

    def move(self, steps: int) -> None:
        """Go on or back in a recording; nothing happens in what is live."""
        ...


@dataclasses.dataclass(frozen=True)
class _Sample:
    """What was asked for a place, all at one time."""

    place: Place
    view: str
    finding: ActivityFinding | None
    brief: ActivityFinding | None
    health: str
    verdict: Verdict | None
    problems: Sequence[str]
    notes: Sequence[str]


class Top(App[None]):
    """The screen. `view` is shown first, `views` are those of the whole cluster; `known` are all that the feed has.

    With `image` it begins inside of that one. It ends soon after `interrupted` says so.
    """

    CSS = """
    Screen { layout: vertical; }
    Screen > Static { height: auto; }
    #where { height: 1; color: $text-muted; }
    #tabs { height: 1; }
    #health { max-height: 1; color: $text-warning; }
    #sentence { max-height: 2; text-style: bold; }
    #facts { max-height: 3; color: $text-muted; }
    #filter { display: none; height: 3; }
    #filter.shown { display: block; }
    #problems { max-height: 3; color: $text-error; text-style: bold; }
    #notes { max-height: 2; color: $text-success; }
    #remarks { max-height: 3; color: $text-muted; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit", tooltip="end"),
        Binding("enter", "into", "Into", key_display="⏎", tooltip="go into the row: image, zone, object; OSD, pool"),
        Binding("escape,backspace", "out", "Back", key_display="esc", tooltip="go back, or show all rows again"),
        Binding("tab,right_square_bracket", "next_view(1)", "View", key_display="tab", priority=True,
                tooltip="next view; shift+tab the one before"),
        Binding("shift+tab,left_square_bracket", "next_view(-1)", show=False, priority=True),
        Binding("s", "sort(1)", "Sort", tooltip="sort by the next column; S by the one before"),
        Binding("S", "sort(-1)", show=False),
        Binding("r", "reverse", "Turn", tooltip="turn the order round"),
        Binding("slash", "filter", "Find", key_display="/", tooltip="show only rows with a text"),
        Binding("space", "pause", "Pause", key_display="␣", tooltip="keep what is shown, or go on"),
        Binding("left,comma", "move(-1)", "Earlier", key_display=",", tooltip="go back in the recording"),
        Binding("right,full_stop", "move(1)", "Later", key_display=".", tooltip="go on in the recording"),
        Binding("d", "toggle_dark", show=False, key_display="d", tooltip="dark or light"),
        Binding("question_mark", "help", "Help", key_display="?", tooltip="this page"),
    ]  # fmt: skip

    def __init__(
        self,
        feed: Feed,
        views: Sequence[str],
        view: str,
        *,
        known: Collection[str],
        replay: bool = False,
        image: str | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self._feed, self._known, self._replay, self._interrupted = feed, known, replay, interrupted
        self._places = [Place("", list(views), view if view in views else views[0])]
        if image is not None and self._enter(of_image(image)) and view in self.place.views:
            self.place.view = view
        self._paused = False
        self._sample: _Sample | None = None
        # The column by which each view is sorted, where somebody chose one; and whether the order is turned round.
        self._sorted_by: dict[str, str] = {}
        self._reversed = False

    @property
    def _table(self) -> Rows:
        # Also while the help lies over the screen.
        return self.screen_stack[0].query_one(Rows)

    @property
    def _field(self) -> Input:
        return self.screen_stack[0].query_one(Input)

    @property
    def place(self) -> Place:
        """Where one is."""
        return self._places[-1]

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        for name in ("where", "tabs", "health", "sentence", "facts"):
            yield Static(id=name, markup=False)
        yield Input(placeholder="show rows with this text", id="filter")
        yield Rows()
        for name in ("problems", "notes", "remarks"):
            yield Static(id=name, markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin to draw."""
        self._table.focus()
        self._draw()
        self.refresh_view()
        self.set_interval(_ASKED_S, self._end_if_interrupted)
        if not self._replay:
            self.set_interval(self._feed.period_s, self._tick)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Leave out the keys that mean nothing here."""
        return not ((action == "move" and not self._replay) or (action == "pause" and self._replay))

    def _end_if_interrupted(self) -> None:
        if self._interrupted():
            self.exit()

    def _tick(self) -> None:
        # A slow cluster is not asked a second time while it has not answered.
        if not self._paused and not any(worker.is_running for worker in self.workers):
            self.refresh_view()

    @work(thread=True, exclusive=True)
    def refresh_view(self) -> None:
        """Ask for the view in the background; a slow cluster must not freeze the keys."""
        worker = get_current_worker()
        sample = self._ask(self.place, self.place.view)
        if not worker.is_cancelled:
            self.call_from_thread(self._show, sample)

    def _ask(self, place: Place, view: str) -> _Sample:
        finding, brief, health, verdict, problem = None, None, "", None, []
        try:
            self._feed.zoom(place.only.get("image"))
            finding = self._feed.view(view, place.only)
            if "image" in place.only and view != _BRIEF:
                brief = self._feed.view(_BRIEF, {"image": place.only["image"]})
            health = self._feed.view(_HEALTH, {}).sentence if _HEALTH in self._known and view != _HEALTH else ""
            verdict = self._feed.verdict()
        except BathyscopeError as error:
            problem = [f"{error.message} ({error.hint})" if error.hint else error.message]
        return _Sample(
            place, view, finding, brief, health, verdict, [*problem, *self._feed.problems()], self._feed.notes()
        )

    def _show(self, sample: _Sample) -> None:
        if sample.place is not self.place or sample.view != self.place.view:
            return
        if sample.finding is None and self._finding is not None and self._sample is not None:
            # What was known last stays beside the fault.
            sample = dataclasses.replace(sample, finding=self._sample.finding, brief=self._sample.brief)
        self._sample = sample
        self._draw()

    @property
    def _finding(self) -> ActivityFinding | None:
        """The finding of what is to be shown, None before it is there."""
        sample = self._sample
        return sample.finding if sample and sample.place is self.place and sample.view == self.place.view else None

    def _draw(self) -> None:
        finding, sample = self._finding, self._sample
        self._say("where", self._where(finding))
        tabs = (f"[{title(name)}]" if name == self.place.view else title(name) for name in self.place.views)
        self._say("tabs", " ".join(tabs))
        current = sample if sample is not None and sample.place is self.place else None
        health = current.health if current else ""
        self._say("health", "" if health.startswith(_HEALTHY) else health)
        self._say("problems", "\n".join(labels.clean(line) for line in current.problems) if current else "")
        self._say("notes", "\n".join(labels.clean(line) for line in current.notes) if current else "")
        self._say("sentence", finding.sentence if finding else "waiting for a sample")
        self._say("facts", self._facts())
        self._say("remarks", "\n".join(f"- {labels.clean(line)}" for line in finding.unseen) if finding else "")
        if finding is None:
            return
        table = finding.tables[0]
        place = self._sort_place()
        self._table.show(table, self._rows(), None if place is None else (place, "▲" if self._reversed else "▼"))

    def _say(self, name: str, words: str) -> None:
        shown = self.screen_stack[0].query_one(f"#{name}", Static)
        shown.update(labels.clean_lines(words))
        shown.display = bool(words)

    def _where(self, finding: ActivityFinding | None) -> str:
        crumbs = [title(self._places[0].view), *(place.title for place in self._places[1:])]
        shown_s = self._feed.shown_s if finding is None else (finding.end_ns - finding.start_ns) / 1e9
        span = f"last {format_seconds(shown_s)}"
        if self._replay and finding is not None:
            span = f"{format_seconds(self._feed.shown_s)} to {labels.time_utc(finding.end_ns)}"
        path = " › ".join(crumbs) if len(crumbs) > 1 else ""
        target = finding.target if finding is not None else ""
        paused = "PAUSED" if self._paused else ""
        return "  ".join(filter(None, (target, path, span, self._limit, paused, self._filtered)))

    @property
    def _limit(self) -> str:
        """What limits the clients of the cluster, in few words."""
        verdict = self._sample.verdict if self._sample is not None else None
        return f"limit: {labels.limit(verdict)}" if verdict is not None else ""

    @property
    def _filtered(self) -> str:
        wanted = self._field.value.strip()
        return f"rows with '{wanted}'" if wanted else ""

    def _facts(self) -> str:
        """Return what is known of the thing that is shown: what its row said, and of an image its brief."""
        brief = self._sample.brief if self._finding is not None and self._sample is not None else None
        facts = [*self.place.facts, *(brief.facts if brief is not None else ())]
        words = " · ".join(f"{name} {value}" for name, value in facts)
        return "  ".join(filter(None, (brief.sentence if brief is not None else "", words)))

    def _rows(self) -> list[Row]:
        """Return the rows of the table that match the filter, in the order that was chosen."""
        assert self._finding is not None  # noqa: S101 - only called when there is one
        shown = self._finding.tables[0]
        wanted = self._field.value.strip().lower()
        texts = [index for index, column in enumerate(shown.columns) if not column.unit]
        rows = [row for row in shown.rows if not wanted or any(wanted in str(row[index]).lower() for index in texts)]
        place = self._sort_place()
        if place is not None:
            column = shown.columns[place]
            known = [row for row in rows if row[place] is not None]
            # Numbers begin with the greatest, names with the first; what is not known comes last. A trend counts by
            # how far it went up.
            by = (lambda row: _rise(row[place])) if column.unit == "trend" else (lambda row: row[place])
            known.sort(key=by, reverse=bool(column.unit) != self._reversed)
            rows = known + [row for row in rows if row[place] is None]
        elif self._reversed:
            rows.reverse()
        return rows

    def _sort_place(self) -> int | None:
        wanted = self._sorted_by.get(self.place.view)
        names = [column.key for column in self._finding.tables[0].columns] if self._finding is not None else []
        return names.index(wanted) if wanted in names else None

    # --- keys

    def _enter(self, place: Place | None) -> bool:
        """Make a place the one that is shown, as far as the feed has views of it; return whether it has any."""
        views = [] if place is None else [view for view in place.views if view in self._known]
        if place is not None and views:
            self._places.append(dataclasses.replace(place, views=views, view=views[0]))
        return bool(views)

    def _go(self) -> None:
        """Show what one has gone to."""
        self._table.forget()
        self._unfilter()
        self.refresh_view()
        self._draw()

    def action_into(self) -> None:
        """Go into the thing that the row is about."""
        row, finding = self._table.at_cursor, self._finding
        if row is None or finding is None:
            return
        if self._enter(below(self.place, finding.tables[0], row)):
            self._go()
        else:
            self.notify("There is no view of what is below this row.", timeout=3)

    def action_out(self) -> None:
        """Show all rows again where they are filtered, else go back to where one came from."""
        if self._field.has_class("shown"):
            self._unfilter()
            self._draw()
        elif len(self._places) > 1:
            self._places.pop()
            self._go()

    def action_next_view(self, step: int) -> None:
        """Show the next view of the place, or the one before."""
        if isinstance(self.screen, Help):
            return
        views = self.place.views
        self.place.view = views[(views.index(self.place.view) + step) % len(views)]
        self._go()

    def action_sort(self, step: int) -> None:
        """Sort by the next column that is shown, or by the one before."""
        if self._finding is not None:
            places = self._table.places
            now = self._sort_place()
            at = places.index(now) + step if now in places else (step - 1) // 2
            self._sorted_by[self.place.view] = self._finding.tables[0].columns[places[at % len(places)]].key
            self._draw()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._reversed = not self._reversed
        self._draw()

    def action_filter(self) -> None:
        """Ask for a text that rows must have."""
        self._field.add_class("shown")
        self._field.focus()

    def _unfilter(self) -> None:
        self._field.value = ""
        self._field.remove_class("shown")
        self._table.focus()

    def on_input_changed(self) -> None:
        """Filter while it is typed."""
        self._draw()

    def on_input_submitted(self) -> None:
        """Go back to the rows with the filter on."""
        self._table.focus()

    def action_pause(self) -> None:
        """Keep what is shown, or go on."""
        self._paused = not self._paused
        self._draw()

    def action_toggle_dark(self) -> None:
        """Change between a dark and a light screen."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"

    def action_help(self) -> None:
        """Explain the keys, the columns and the remarks."""
        keys = [
            (binding.key_display or binding.key, binding.tooltip)
            for binding in self.BINDINGS
            if isinstance(binding, Binding) and binding.tooltip and self.check_action(binding.action.split("(")[0], ())
        ]
        remarks = [*(self._sample.problems if self._sample else ()), *(self._finding.unseen if self._finding else ())]
        self.push_screen(Help(keys, self._finding, remarks))

    def action_move(self, steps: int) -> None:
        """Go on in a recording, or back."""
        self._feed.move(steps)
        self.refresh_view()


def _rise(rates: Sequence[float | None]) -> float:
    """Return by how much the last rate that is known is greater than the first."""
    known = [rate for rate in rates if rate is not None]
    return known[-1] - known[0] if known else 0.0
