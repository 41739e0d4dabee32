"""The live screen: its keys, its columns on a narrow terminal, and a fault in place of a crash."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from bathyscope.errors import UnreachableError
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable
from bathyscope.views.tui.top import ROWS_MOST, Top, fitting_columns

COLUMNS = (
    ActivityColumn("image"),
    ActivityColumn("reads", "count"),
    ActivityColumn("read latency", "ns", rank=1),
    ActivityColumn("written", "bytes", rank=2),
)
ROWS = (("rbd/a", 5, 1e6, 4096), ("rbd/evil\x1b[2J", 9000, None, 0), ("rbd/c", 70, 2e6, 1 << 20))


class Feed:
    period_s = 60.0
    shown_s = 15.0

    def __init__(self) -> None:
        self.broken = False
        self.moved = 0

    def view(self, name: str) -> ActivityFinding:
        if self.broken:
            raise UnreachableError("the cluster did not answer")
        table = ActivityTable("t", COLUMNS, ROWS if name == "devices" else ())
        return ActivityFinding(name, "", "lab", 0, 10**10, f"about {name}", tables=(table,), unseen=("cannot see x",))

    def problems(self) -> Sequence[str]:
        return ("image_counters: denied",)

    def move(self, steps: int) -> None:
        self.moved += steps


Steps = Callable[[Top, Pilot[None]], Awaitable[None]]


def drive(feed: Feed, steps: Steps, *, width: int = 80, replay: bool = False) -> None:
    async def run() -> None:
        app = Top(feed, ["devices", "osds"], "devices", replay=replay)
        async with app.run_test(size=(width, 24)) as pilot:
            await settled(app, pilot)
            await steps(app, pilot)

    asyncio.run(run())


async def settled(app: Top, pilot: Pilot[None]) -> None:
    await app.workers.wait_for_complete()
    await pilot.pause()


def shown(app: Top) -> list[list[str]]:
    table: DataTable[Any] = app.query_one(DataTable)
    return [[str(value) for value in table.get_row_at(place)] for place in range(table.row_count)]


def words(app: Top, name: str) -> str:
    return str(app.query_one(name, Static).content)


def test_rows_remarks_and_problems_are_shown_and_names_cannot_steer_the_terminal() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert [row[:2] for row in shown(app)] == [["rbd/a", "5"], ["rbd/evil\ufffd[2J", "9,000"], ["rbd/c", "70"]]
        assert words(app, "#sentence") == "about devices"
        assert "cannot see x" in words(app, "#remarks")
        assert "image_counters: denied" in words(app, "#remarks")

    drive(Feed(), steps)


def test_keys_sort_reverse_filter_and_change_the_view() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("s", "s")
        assert [row[1] for row in shown(app)] == ["9,000", "70", "5"]
        await pilot.press("r")
        assert [row[1] for row in shown(app)] == ["5", "70", "9,000"]
        await pilot.press("slash", "b", "d", "slash", "c")
        assert [row[0] for row in shown(app)] == ["rbd/c"]
        await pilot.press("enter", "escape")
        assert len(shown(app)) == 3
        await pilot.press("tab")
        await settled(app, pilot)
        assert words(app, "#sentence") == "about osds"
        assert shown(app) == []
        await pilot.press("space")
        assert "PAUSED" in words(app, "#where")

    drive(Feed(), steps)


def test_a_value_that_is_not_known_is_last_in_either_order() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("s", "s", "s")
        assert [row[0] for row in shown(app)][-1].startswith("rbd/evil")
        await pilot.press("r")
        assert [row[0] for row in shown(app)][-1].startswith("rbd/evil")

    drive(Feed(), steps)


def test_a_lost_cluster_is_told_and_the_screen_goes_on() -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        feed.broken = True
        app.refresh_view()
        await settled(app, pilot)
        assert "the cluster did not answer" in words(app, "#remarks")
        assert len(shown(app)) == 3
        feed.broken = False
        app.refresh_view()
        await settled(app, pilot)
        assert "did not answer" not in words(app, "#remarks")

    drive(feed, steps)


def test_a_recording_can_be_moved_in() -> None:
    feed = Feed()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("full_stop", "full_stop", "comma")
        await settled(app, pilot)
        assert feed.moved == 1

    drive(feed, steps, replay=True)


def test_of_very_many_rows_the_first_are_drawn_and_a_filter_finds_the_others() -> None:
    class Many(Feed):
        def view(self, name: str) -> ActivityFinding:
            rows = tuple((f"rbd/vm-{number}", number, 1.0, 1) for number in range(10_000))
            return dataclasses.replace(super().view(name), tables=(ActivityTable("t", COLUMNS, rows),))

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert len(shown(app)) == ROWS_MOST
        assert "9,500 rows more" in words(app, "#where")
        await pilot.press("slash", *"vm", "minus", *"9999")
        assert [row[0] for row in shown(app)] == ["rbd/vm-9999"]
        assert "rows more" not in words(app, "#where")

    drive(Many(), steps, width=120)


@pytest.mark.parametrize(("width", "kept"), [(200, 4), (36, 3), (25, 2), (5, 2)])
def test_a_narrow_screen_has_fewer_columns_and_whole_numbers(width: int, kept: int) -> None:
    rows = [["rbd/a", "5", "1.00 ms", "4.00 KiB"]]
    assert fitting_columns(ActivityTable("t", COLUMNS, ROWS), rows, width) == list(range(kept))
