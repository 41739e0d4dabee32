"""The live screen: every key, every level below a row, both sizes, and a fault in place of a crash."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, get_args

import pytest
from textual.pilot import Pilot
from textual.widgets import Footer, Static

from bathyscope.analysis.activity import VIEWS
from bathyscope.analysis.activity.shape import Question
from bathyscope.errors import DeniedError, UnreachableError
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import _UNITS, Column, Table, Unit
from bathyscope.records.finding import Verdict
from bathyscope.views.tui.help import Help
from bathyscope.views.tui.places import Place, below
from bathyscope.views.tui.rows import Rows, fitting
from bathyscope.views.tui.top import Top

IMAGES = Table(
    "images",
    "images",
    (
        Column("image", "image"),
        Column("reads", "reads", "count", live=4),
        Column("read_iops", "read IOPS", "1/s", rank=3, live=0),
        Column("read_latency_ns", "read latency", "ns", rank=1),
        Column("trend_per_s", "trend", "trend", rank=3, live=1),
        Column("attached_to", "attached to", rank=1),
    ),
    (
        ("rbd/a", 5, 1.0, 1e6, [None, 1.0, 2.0, 4.0], "node1:vm-a"),
        ("rbd/evil\x1b[2J", 9000, 600.0, None, [9.0, 8.0, 8.0, 8.0], None),
        ("rbd/c", 70, 14.0, 2e6, None, None),
    ),
)
TABLES = {
    "devices": IMAGES,
    "clients": Table(
        "clients",
        "clients",
        (Column("client", "client"), Column("iops", "IOPS", "1/s"), Column("images", "images", "count")),
        (("10.0.0.1", 5.0, 2),),
    ),
    "nodes": Table("nodes", "nodes", (Column("node", "node"), Column("iops", "IOPS", "1/s")), (("node1", 5.0),)),
    "pools": Table("pools", "pools", (Column("pool", "pool"), Column("iops", "IOPS", "1/s")), (("rbd", 5.0),)),
    "osds": Table("osds", "OSDs", (Column("osd", "OSD"), Column("host", "host")), (("osd.3", "node1"),)),
    "osd_pools": Table(
        "osd_pools",
        "OSDs and pools",
        (Column("osd", "OSD"), Column("pool", "pool")),
        (("osd.3", "rbd"), ("osd.3", "ec")),
    ),
    "zones": Table(
        "zones",
        "zones",
        (
            Column("offset_bytes", "offset", "bytes"),
            Column("end_bytes", "end", "bytes"),
            Column("reads", "reads", "count"),
        ),
        ((0, 1 << 22, 4), (1 << 22, 1 << 23, 7)),
    ),
    "objects": Table(
        "objects",
        "objects",
        (
            Column("offset_bytes", "offset", "bytes"),
            Column("length_bytes", "length", "bytes"),
            Column("object_number", "object", "count"),
            Column("osd", "OSD"),
        ),
        ((1 << 22, 1 << 22, 1, "osd.3"),),
    ),
    "image": Table("nodes", "nodes", (Column("node", "node"), Column("reads", "reads", "count")), (("node1", 11),)),
    "ops": Table("operations", "operations", (Column("took_ns", "took", "ns"), Column("op", "op")), ((5e6, "read"),)),
    "balance": Table("balance", "balance", (Column("osd", "OSD"), Column("what", "what")), ()),
}
ROOTS = ["devices", "clients", "osds", "nodes", "pools", "balance"]
SIZES = [(80, 24), (200, 50)]


class Feed:
    period_s = 60.0
    shown_s = 15.0

    def __init__(self) -> None:
        self.broken: Exception | None = None
        self.moved = 0
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.zoomed: list[str | None] = []
        self.recovered: Sequence[str] = ()
        self.health = "HEALTH_OK."
        self.limit: Verdict | None = None

    def view(self, name: str, only: Mapping[str, Any]) -> ActivityFinding:
        if self.broken is not None:
            raise self.broken
        if name == "health":
            return ActivityFinding(name, "", "lab", 0, 10**10, self.health)
        self.asked.append((name, dict(only)))
        facts = (("Size", "1.00 GiB"),) if name == "image" else ()
        return ActivityFinding(
            name, "", "lab", 0, 10**10, f"about {name}", facts, (TABLES[name],), unseen=("cannot see x",)
        )

    def verdict(self) -> Verdict | None:
        return self.limit

    def problems(self) -> Sequence[str]:
        return ("image_counters: denied",)

    def notes(self) -> Sequence[str]:
        return self.recovered

    def zoom(self, image: str | None) -> None:
        self.zoomed.append(image)

    def move(self, steps: int) -> None:
        self.moved += steps


Steps = Callable[[Top, Pilot[None]], Awaitable[None]]
KNOWN = {*TABLES, "health"}


def drive(
    feed: Feed,
    steps: Steps,
    *,
    size: tuple[int, int] = (80, 24),
    replay: bool = False,
    known: set[str] = KNOWN,
    **more: Any,
) -> None:
    async def run() -> None:
        app = Top(feed, ROOTS, more.pop("view", "devices"), known=known, replay=replay, **more)
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            await steps(app, pilot)

    asyncio.run(run())


async def settled(app: Top, pilot: Pilot[None]) -> None:
    # One that was asked for in vain, as a key came after it, is cancelled.
    while any(worker.is_running for worker in app.workers):
        await pilot.pause(0.01)
    await pilot.pause()


async def press(app: Top, pilot: Pilot[None], *keys: str) -> None:
    """Press keys one after the other, each when the sample that the one before asked for is there."""
    for key in keys:
        await pilot.press(key)
        await settled(app, pilot)


def first_words(app: Top) -> list[str]:
    rows = app.screen_stack[0].query_one(Rows)
    return [rows.line(place).split()[0] for place in range(len(rows.rows))]


def lines(app: Top) -> list[str]:
    """Return the table as it is drawn, with its head."""
    rows = app.query_one(Rows)
    return [rows.render_line(y).text for y in range(rows.size.height)]


def words(app: Top, name: str) -> str:
    shown = app.screen_stack[0].query_one(name, Static)
    return str(shown.content) if shown.display else ""


# --- what is shown


@pytest.mark.parametrize("size", SIZES)
def test_rows_remarks_and_problems_are_shown_and_names_cannot_steer_the_terminal(size: tuple[int, int]) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert first_words(app) == ["rbd/a", "rbd/evil\ufffd[2J", "rbd/c"]
        drawn = lines(app)
        assert "1.00 ms" in drawn[2]
        assert "▃" not in drawn[3]
        assert " ▃▅█" in drawn[2] or " ▃▅█" in drawn[2].replace("▄", "▅"), drawn[2]
        assert "node1:vm-a" in drawn[2]
        assert all(len(line) == size[0] for line in drawn)
        assert words(app, "#sentence") == "about devices"
        assert "cannot see x" in words(app, "#remarks")
        assert "image_counters: denied" in words(app, "#problems")
        assert "[Images] Clients OSDs Nodes Pools Balance" in words(app, "#tabs")
        assert words(app, "#health") == ""

    drive(Feed(), steps, size=size)


def test_keys_sort_reverse_filter_and_change_the_view() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("s", "s")
        assert first_words(app)[0].startswith("rbd/evil")
        assert "▼" in lines(app)[1]
        await pilot.press("r")
        assert first_words(app)[0] == "rbd/a"
        assert "▲" in lines(app)[1]
        await pilot.press("slash", "b", "d", "slash", "c")
        assert first_words(app) == ["rbd/c"]
        assert "rows with 'bd/c'" in words(app, "#where")
        await pilot.press("enter", "escape")
        assert len(first_words(app)) == 3
        await press(app, pilot, "tab")
        assert words(app, "#sentence") == "about clients"
        await press(app, pilot, "shift+tab")
        assert words(app, "#sentence") == "about devices"
        await pilot.press("space")
        assert "PAUSED" in words(app, "#where")
        app._tick()
        await settled(app, pilot)
        assert "PAUSED" in words(app, "#where")

    drive(Feed(), steps)


def test_a_paused_screen_does_not_ask() -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("space")
        asked = len(feed.asked)
        app._tick()
        await settled(app, pilot)
        assert len(feed.asked) == asked
        await pilot.press("space")
        app._tick()
        await settled(app, pilot)
        assert len(feed.asked) == asked + 1

    drive(feed, steps)


def test_a_trend_is_sorted_by_its_rise_and_what_is_not_known_is_last_in_either_order() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        places = app.query_one(Rows).places
        await pilot.press(*["s"] * (places.index(4) + 1))
        assert first_words(app) == ["rbd/a", "rbd/evil\ufffd[2J", "rbd/c"]
        await pilot.press("r")
        assert first_words(app) == ["rbd/evil\ufffd[2J", "rbd/a", "rbd/c"]

    drive(Feed(), steps, size=(200, 50))


@pytest.mark.parametrize("size", SIZES)
def test_the_help_explains_keys_columns_and_remarks_and_lies_over_a_screen_that_goes_on(size: tuple[int, int]) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, Help)
        page = str(app.screen.words)
        for said in ("go into the row", "read latency", "cannot see x", "image_counters: denied"):
            assert said in page
        app.refresh_view()
        await settled(app, pilot)
        await press(app, pilot, "tab")
        assert words(app, "#sentence") == "about devices"
        await pilot.press("escape")
        assert not isinstance(app.screen, Help)

    drive(Feed(), steps, size=size)


@pytest.mark.parametrize("replay", [False, True])
def test_the_keys_are_on_the_screen_at_80_columns(replay: bool) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        def lacking() -> list[str]:
            keys = [key for key in app.query_one(Footer).children if key.display and key.region.width]
            shown = " ".join(str(key.render()) for key in keys if key.region.right <= 80)
            names = ["Quit", "Into", "Back", "View", "Sort", "Find", "Help", "Earlier" if replay else "Pause"]
            return [name for name in names if name not in shown]

        # The footer is made anew, some refreshes later, when the keys of the screen change.
        for _ in range(500):
            if not lacking():
                break
            await pilot.pause(0.01)
        assert lacking() == []

    drive(Feed(), steps, replay=replay)


def test_the_screen_can_be_light() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert app.current_theme.dark
        await pilot.press("d")
        assert not app.current_theme.dark
        await pilot.press("d")
        assert app.current_theme.dark

    drive(Feed(), steps)


def test_the_screen_ends_when_it_is_interrupted() -> None:
    interrupted: list[bool] = []

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.pause(1.0)
        assert app.is_running
        interrupted.append(True)
        while app.is_running:
            await pilot.pause(0.01)

    drive(Feed(), steps, interrupted=lambda: bool(interrupted))


# --- below a row


@pytest.mark.parametrize("size", SIZES)
def test_an_image_is_gone_into_down_to_the_last_operations_of_an_object_and_back(size: tuple[int, int]) -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await press(app, pilot, "enter")
        assert words(app, "#tabs") == "[Zones] Objects Operations Image"
        assert "Images › rbd/a" in words(app, "#where")
        assert words(app, "#sentence") == "about zones"
        # The brief, and what the row said.
        for fact in ("about image", "Size 1.00 GiB", "attached to node1:vm-a"):
            assert fact in words(app, "#facts")
        assert feed.zoomed[-1] == "rbd/a"
        await press(app, pilot, "down", "enter")
        assert feed.asked[-2] == ("objects", {"image": "rbd/a", "from_bytes": 1 << 22, "to_bytes": 1 << 23})
        assert "Images › rbd/a › 4.00 MiB–8.00 MiB" in words(app, "#where")
        await press(app, pilot, "enter")
        assert feed.asked[-2] == ("ops", {"image": "rbd/a", "object_number": 1})
        assert "› object 1" in words(app, "#where")
        assert first_words(app) == ["5.00"]
        assert feed.zoomed[-1] == "rbd/a"
        await press(app, pilot, "backspace", "escape", "escape")
        assert words(app, "#sentence") == "about devices"
        assert feed.zoomed[-1] is None
        # There is nothing above.
        await press(app, pilot, "escape")
        assert words(app, "#sentence") == "about devices"

    drive(feed, steps, size=size)


@pytest.mark.parametrize(
    ("view", "keys", "asked"),
    [
        ("clients", ["enter"], ("devices", {"client": "10.0.0.1"})),
        ("clients", ["enter", "enter"], ("zones", {"image": "rbd/a"})),
        ("nodes", ["enter"], ("osds", {"node": "node1"})),
        ("nodes", ["enter", "enter"], ("osd_pools", {"osd": "osd.3"})),
        ("osds", ["enter", "down", "enter"], ("devices", {"pool": "ec"})),
        ("pools", ["enter"], ("devices", {"pool": "rbd"})),
        ("pools", ["enter", "tab"], ("osd_pools", {"pool": "rbd"})),
        ("pools", ["enter", "tab", "enter"], ("osd_pools", {"osd": "osd.3"})),
        ("devices", ["enter", "tab", "enter"], ("ops", {"image": "rbd/a", "object_number": 1})),
        ("devices", ["enter", "shift+tab", "enter"], ("osds", {"node": "node1"})),
    ],
)
def test_a_row_leads_to_what_it_is_about(view: str, keys: list[str], asked: tuple[str, dict[str, Any]]) -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await press(app, pilot, *keys)
        assert [each for each in feed.asked if each[0] != "image"][-1] == asked

    drive(feed, steps, view=view)


def test_a_level_without_a_view_is_not_entered() -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await press(app, pilot, "enter")
        assert words(app, "#tabs") == "[Zones] Objects Image"
        await press(app, pilot, "tab", "enter")
        assert words(app, "#sentence") == "about objects"
        assert any("no view" in note.message for note in app._notifications)

    drive(feed, steps, known=KNOWN - {"ops"})


@pytest.mark.parametrize(
    ("view", "leads_to"),
    [
        ("devices", "zones"), ("clients", "devices"), ("osds", "osd_pools"), ("nodes", "osds"), ("pools", "devices"),
        ("balance", "osd_pools"), ("zones", "objects"), ("objects", "ops"), ("image", "osds"), ("ops", "devices"),
        ("slow", "osd_pools"), ("timeline", None), ("health", None),
    ],
)  # fmt: skip
def test_rows_of_the_real_views_lead_somewhere(view: str, leads_to: str | None) -> None:
    columns = vars(importlib.import_module(type(VIEWS[view]).__module__))["_COLUMNS"]
    place = Place("", [view], view, {"image": "rbd/a"} if VIEWS[view].of_image else {})
    found = below(place, Table("t", "t", columns, ()), [1 if column.unit else "x" for column in columns])
    assert (None if found is None else found.view) == leads_to
    if found is not None:
        assert set(found.only) <= {field.name for field in dataclasses.fields(Question)}
        assert set(found.views) <= set(VIEWS)
    unknown = below(place, Table("t", "t", columns, ()), [None for _ in columns])
    assert unknown is None


def test_every_unit_has_room() -> None:
    for unit in get_args(Unit):
        key = next((f"x{suffix}" for suffix, units in _UNITS if unit in units), "x")
        table = Table("t", "t", (Column(key, "x", unit),), ((None,),))
        assert fitting(table, table.rows, 80)[0][1] >= 1


def test_it_can_begin_inside_an_image() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert words(app, "#sentence") == "about objects"
        await press(app, pilot, "escape")
        assert words(app, "#sentence") == "about devices"

    drive(Feed(), steps, view="objects", image="rbd/a")


def test_the_cursor_stays_with_its_row_when_the_order_changes_and_otherwise_at_the_top() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        rows = app.query_one(Rows)
        await pilot.press("down", "down")
        assert rows.at_cursor == IMAGES.rows[2]
        await pilot.press("r")
        assert rows.rows[0][0] == "rbd/c"
        assert rows.at_cursor == IMAGES.rows[2]
        await pilot.press("r", "home", "r")
        assert rows.at_cursor == IMAGES.rows[2]
        await pilot.press("end")
        assert rows.at_cursor == IMAGES.rows[0]

    drive(Feed(), steps)


# --- faults


@pytest.mark.parametrize("fault", [UnreachableError("the cluster did not answer"), DeniedError("may not", hint="caps")])
def test_a_fault_is_shown_beside_what_was_known_last_and_the_screen_goes_on(fault: Exception) -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        feed.broken = fault
        app.refresh_view()
        await settled(app, pilot)
        assert str(fault) in words(app, "#problems")
        assert getattr(fault, "hint", None) is None or "caps" in words(app, "#problems")
        assert len(first_words(app)) == 3
        # Another view has nothing to show yet, and says the same.
        await press(app, pilot, "tab")
        assert str(fault) in words(app, "#problems")
        assert words(app, "#sentence") == "waiting for a sample"
        feed.broken = None
        feed.recovered = ("pg_stats: answers again after 12 s",)
        app.refresh_view()
        await settled(app, pilot)
        assert str(fault) not in words(app, "#problems")
        assert "answers again" in words(app, "#notes")
        assert words(app, "#sentence") == "about clients"

    drive(feed, steps)


def test_what_the_cluster_says_of_itself_is_shown_while_it_is_not_well() -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert words(app, "#health") == ""
        feed.health = "HEALTH_WARN: 1 osds down."
        app.refresh_view()
        await settled(app, pilot)
        assert words(app, "#health") == "HEALTH_WARN: 1 osds down."

    drive(feed, steps)


def test_what_limits_the_clients_stands_in_the_head_line() -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert "limit:" not in words(app, "#where")
        feed.limit = Verdict("device", "osd.3's HDD is saturated", subject="osd.3")
        app.refresh_view()
        await settled(app, pilot)
        assert words(app, "#where").endswith("limit: device (osd.3)")

    drive(feed, steps)


def test_a_sample_that_comes_late_is_not_shown_at_another_place() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        late = app._ask(app.place, "devices")
        await press(app, pilot, "tab")
        app._show(late)
        assert words(app, "#sentence") == "about clients"
        assert first_words(app) == ["10.0.0.1"]

    drive(Feed(), steps)


# --- recordings, many rows, widths


def test_a_recording_can_be_moved_in_and_is_not_paused() -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("full_stop", "full_stop", "comma", "right")
        await settled(app, pilot)
        assert feed.moved == 2
        await pilot.press("space")
        assert "PAUSED" not in words(app, "#where")

    drive(feed, steps, replay=True)


def test_ten_thousand_rows_can_be_scrolled_and_only_those_on_the_screen_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Many(Feed):
        def view(self, name: str, only: Mapping[str, Any]) -> ActivityFinding:
            rows = tuple((f"rbd/vm-{number}", number, 1.0, 1, None, None) for number in range(10_000))
            found = super().view(name, only)
            return (
                dataclasses.replace(found, tables=(dataclasses.replace(IMAGES, rows=rows),)) if found.tables else found
            )

    made: list[int] = []
    line = Rows.line
    monkeypatch.setattr(Rows, "line", lambda self, place: (made.append(place), line(self, place))[1])

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        app.refresh_view()
        await settled(app, pilot)
        assert max(made) < 50
        await pilot.press("end")
        await pilot.pause()
        assert app.query_one(Rows).at_cursor == ("rbd/vm-9999", 9999, 1.0, 1, None, None)
        assert any("rbd/vm-9999" in drawn for drawn in lines(app))
        assert len(set(made)) < 100
        await pilot.press("pageup", "slash", *"vm", "minus", *"1234")
        assert first_words(app) == ["rbd/vm-1234"]

    drive(Many(), steps, size=(120, 24))


@pytest.mark.parametrize(
    ("width", "kept"), [(200, [0, 1, 2, 3, 4, 5]), (54, [0, 2, 3, 4, 5]), (34, [0, 2, 3]), (5, [0, 2])]
)
def test_a_narrow_screen_has_the_columns_that_matter_live_and_whole_numbers(width: int, kept: list[int]) -> None:
    columns = fitting(IMAGES, IMAGES.rows, width)
    assert [place for place, _ in columns] == kept
    assert dict(columns)[2] >= len("99.9k")


def test_a_long_name_loses_its_middle_and_the_numbers_stay() -> None:
    name = "rbd/csi-vol-0a1b2c3d-4e5f-6789-abcd-ef0123456789-data"

    class Long(Feed):
        def view(self, name_: str, only: Mapping[str, Any]) -> ActivityFinding:
            found = super().view(name_, only)
            row = (name, 1_234_567, 99_900.0, 850_000, None, "node1:vm-a, node2:vm-b")
            return (
                dataclasses.replace(found, tables=(dataclasses.replace(IMAGES, rows=(row,)),))
                if found.tables
                else found
            )

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        drawn = lines(app)[2]
        assert "rbd/csi" in drawn
        assert "-data" in drawn
        assert "…" in drawn
        assert "99.9k" in drawn
        assert "850 µs" in drawn

    drive(Long(), steps)
