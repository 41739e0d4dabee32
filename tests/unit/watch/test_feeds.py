"""What a live screen is fed with: narrowed views, zooming while one looks, and faults until they are over."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.activity.conftest import rows_of

from bathyscope.commands.top import top
from bathyscope.errors import UnreachableError, UsageError
from bathyscope.host.fake import EPOCH_NS, FakeCephSession, FakeHost
from bathyscope.host.mgr_install import SAFE_VERSION
from bathyscope.recording.collect import as_collected
from bathyscope.recording.recorder import Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import Collection, Image, ImageIo, RawAnswer, Record, ZoneIo, to_table
from bathyscope.spec import Target
from bathyscope.spec.collect import CollectSpec
from bathyscope.spec.scope import ScopeOsd
from bathyscope.store import Workspace
from bathyscope.watch import drill_down
from bathyscope.watch.feeds import (
    HISTORIES,
    NO_HISTORIES,
    NO_MODULE,
    NOT_LISTED,
    NOT_YET,
    SOME_OSDS,
    UNSAFE_MODULE,
    LiveFeed,
    ReplayFeed,
)
from bathyscope.watch.live import LiveSink

S = 1_000_000_000
SHAPE = {"object_size_bytes": 1 << 22, "stripe_unit_bytes": 1 << 22, "stripe_count": 1}
IMAGE = Image(EPOCH_NS, "rbd", "", "a", "10ab", 1 << 30, data_pool=None, parent=None, **SHAPE)


class Rows:
    """A source whose rows are given with its answer."""

    differences = False
    period_s = timeout_s = 1.0

    def __init__(self, name: str, *rows: Any) -> None:
        self.name = name
        self._tables = {
            kind: to_table(kind, [row for row in rows if type(row) is kind]) for kind in set(map(type, rows))
        }
        self.records: tuple[type[Record], ...] = tuple(self._tables)

    def plan(self, scope: Any) -> Any:
        raise AssertionError

    def parse(self, answers: Any, scope: Any) -> Any:
        return self._tables


class World:
    """A live feed whose rows the test gives it. `failure` is what ended its recorder."""

    def __init__(self, *, module: bool = True, session: Any = None) -> None:
        self.host = FakeHost()
        self.keeper = ScopeKeeper(self.host, None, Target(name="lab"))
        self.keeper.narrow(mgr_modules=("bathyscope",) if module else ())
        self.sink = LiveSink(self.keeper, 70.0)
        self.recorder = SimpleNamespace(failure=None)
        spec = CollectSpec(duration_s=None, interval_s=5.0)
        self.feed = LiveFeed(self.host, self.sink, self.keeper, cast("Recorder", self.recorder), spec, session=session)

    def add(self, name: str, *rows: Any) -> None:
        now_ns = self.host.now_ns()
        answer = RawAnswer("x", ("ceph",), (), 0, b"", b"", now_ns, now_ns)
        self.sink.take(cast("Any", Rows(name, *rows)), as_collected(name, [answer]))
        self.sink.tend()

    def fail(self, name: str, problem: str, *, success: bool = False) -> None:
        cost = Collection(self.host.now_ns(), name, 0, 1, 0 if success else 1, 0, success, problem)
        self.sink.take(cast("Any", Rows(name)), cast("Any", SimpleNamespace(cost=cost, answers=())))
        self.sink.tend()


def io(image: str, client: str, reads: int, at_ns: int = EPOCH_NS) -> ImageIo:
    return ImageIo(at_ns, 5 * S, "rbd", "", image, None, client, client, reads, 0, 0, 0, None, None)


def test_a_client_s_images_are_those_that_it_did_io_on() -> None:
    world = World()
    world.add("mgr_counters", io("a", "10.0.0.1", 5), io("b", "10.0.0.2", 7))
    world.add("mgr_counters", io("a", "10.0.0.1", 5, EPOCH_NS - 5 * S))
    assert rows_of(world.feed.view("devices", {"client": "10.0.0.1"}), "image", "reads") == [("rbd/a", 10)]
    assert len(world.feed.view("devices", {}).tables[0].rows) == 2
    assert world.feed.view("devices", {"pool": "else"}).tables[0].rows == ()


def test_an_image_is_zoomed_while_one_looks_at_it() -> None:
    world = World()
    world.feed.zoom("rbd/a")
    assert world.keeper.scope.zoomed_images == ()
    assert world.feed.view("zones", {"image": "rbd/a"}).unseen == (NOT_LISTED,)
    world.add("images", IMAGE)
    for name in ("rbd/a", "rbd/(id 10ab)"):
        world.feed.zoom(name)
        assert world.keeper.scope.zoomed_images == ("10ab",), name
        assert world.keeper.scope.zoom_digits == 16
        assert world.feed.view("zones", {"image": name}).unseen == (NOT_YET,)
        world.feed.zoom(None)
        assert world.keeper.scope.zoomed_images == ()
    world.feed.zoom("rbd/gone")
    assert world.keeper.scope.zoomed_images == ()


def test_which_images_there_are_is_known_when_all_were_listed() -> None:
    world = World()
    assert world.feed.images() == []
    world.add("images")
    assert world.feed.images() == []
    world.add("images", IMAGE, dataclasses.replace(IMAGE, namespace="tenant", image="b", image_id="20cd"))
    known = ["rbd/(id 10ab)", "rbd/a", "rbd/tenant/(id 20cd)", "rbd/tenant/b"]
    assert world.feed.images() == known
    hint = drill_down.unknown("rbd/tenantt/b", known).hint
    assert hint == "did you mean 'rbd/tenant/b'?"
    # Another pool was not listed the next time.
    world.host.clock.advance(300)
    world.fail("images", "no answer")
    assert world.feed.images() == []


def test_a_recording_knows_the_images_that_were_listed_and_those_that_did_something(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Workspace(tmp_path).create_run(kind="collect", started_ns=EPOCH_NS, target={"name": "t"}) as run:
        with run.begin_segment("20260923T000000.000Z") as writer:
            writer.table(Image, to_table(Image, [IMAGE]))
            writer.table(ImageIo, to_table(ImageIo, [io("a", "c", 1), io("c", "c", 1)]))
            writer.commit()
        run.update(status="done", ended_ns=EPOCH_NS + S)
        assert {"rbd/(id 10ab)", "rbd/a", "rbd/c"} <= set(ReplayFeed(run).images())
    once = {"once": True, "replay": "last", "workspace": tmp_path, "output": "json"}
    top("zones", image="rbd/c", **once)
    assert json.loads(capsys.readouterr().out)["view"] == "zones"
    with pytest.raises(UsageError, match="no image 'rbd/cc' is known") as caught:
        top(image="rbd/cc", **once)
    assert caught.value.hint == "did you mean 'rbd/c'?"
    assert capsys.readouterr().out == ""


def test_what_was_said_at_the_start_is_shown_on_the_screen_for_a_while() -> None:
    world = World()
    spec = CollectSpec(duration_s=None, interval_s=5.0)
    recorder = cast("Recorder", world.recorder)
    feed = LiveFeed(world.host, world.sink, world.keeper, recorder, spec, session=None, said=["an old module"])
    assert feed.notes() == ["an old module"]
    world.host.clock.advance(31)
    assert feed.notes() == []


def test_a_large_image_begins_with_zones_of_several_objects() -> None:
    world = World()
    world.add("images", Image(EPOCH_NS, "rbd", "", "big", "10ab", 1 << 42, data_pool=None, parent=None, **SHAPE))
    world.feed.zoom("rbd/big")
    assert world.keeper.scope.zoom_digits < 16


def test_without_the_module_the_view_says_what_would_show_objects() -> None:
    world = World(module=False)
    world.add("images", IMAGE)
    world.feed.zoom("rbd/a")
    assert world.keeper.scope.zoomed_images == ()
    assert world.feed.view("objects", {"image": "rbd/a"}).unseen == (NO_MODULE,)
    # One through which a client could end the manager is not asked.
    world.keeper.narrow(mgr_modules=("bathyscope",), mgr_module_version=SAFE_VERSION - 1)
    world.feed.zoom("rbd/a")
    assert world.keeper.scope.zoomed_images == ()
    assert world.feed.view("objects", {"image": "rbd/a"}).unseen == (UNSAFE_MODULE.format(version=SAFE_VERSION - 1),)
    world.keeper.narrow(mgr_module_version=SAFE_VERSION)
    world.feed.zoom("rbd/a")
    assert world.keeper.scope.zoomed_images == ("10ab",)


def test_zones_objects_and_one_object_are_narrowed_to_what_was_gone_into() -> None:
    world = World()
    counted = (3, 0, 4096, 0, 1000, 0)
    world.add("images", IMAGE)
    world.add(
        "mgr_counters", *(ZoneIo(EPOCH_NS, 5 * S, "rbd", "10ab", 0, number, 1, *counted) for number in (1, 2, 40))
    )
    seen = {"image": "rbd/(id 10ab)", "from_bytes": 1 << 22, "to_bytes": 12 << 20}
    assert rows_of(world.feed.view("objects", seen), "object") == [(1,), (2,)]
    assert rows_of(world.feed.view("objects", {"image": "rbd/a", "object_number": 40}), "object") == [(40,)]
    assert len(world.feed.view("objects", {"image": "rbd/a"}).tables[0].rows) == 3


def test_sources_that_fail_for_one_reason_are_one_problem_and_their_recovery_is_said_for_a_while() -> None:
    world = World()
    for name in ("pg_stats", "mgr_counters"):
        world.fail(name, "no answer")
    world.fail("perf_counters", "slowed to every 4 s", success=True)
    assert world.feed.problems() == ["mgr_counters, pg_stats: no answer"]
    assert world.feed.notes() == ["perf_counters: slowed to every 4 s"]
    world.host.clock.advance(42)
    world.add("pg_stats", io("a", "c", 1))
    assert world.feed.problems() == ["mgr_counters: no answer"]
    assert "pg_stats: answers again after 42 s" in world.feed.notes()
    world.host.clock.advance(31)
    world.add("pg_stats", io("a", "c", 1))
    assert not any("pg_stats" in note for note in world.feed.notes())


def test_what_ended_the_recording_is_raised() -> None:
    world = World()
    world.recorder.failure = UnreachableError("gone")
    with pytest.raises(UnreachableError, match="gone"):
        world.feed.view("devices", {})


def test_rates_are_not_known_after_a_single_look() -> None:
    world = World()
    world.add("mgr_counters", io("a", "10.0.0.1", 5))
    assert rows_of(world.feed.view("devices", {}), "reads", "IOPS", "read IOPS") == [(5, None, None)]


def test_a_recording_is_narrowed_as_what_is_live(tmp_path: Path) -> None:
    run = Workspace(tmp_path).create_run(kind="collect", started_ns=EPOCH_NS, target={"name": "t"})
    with run:
        with run.begin_segment("20260923T000000.000Z") as writer:
            rows = [io("a", "10.0.0.1", 5, EPOCH_NS + 10 * S), io("b", "10.0.0.2", 7, EPOCH_NS + 10 * S)]
            writer.table(ImageIo, to_table(ImageIo, rows))
            writer.commit()
        run.update(status="done", ended_ns=EPOCH_NS + 60 * S)
        feed = ReplayFeed(run)
        feed.zoom("rbd/a")
        assert rows_of(feed.view("devices", {"client": "10.0.0.2"}), "image") == [("rbd/b",)]
        feed.move(9)
        assert feed.view("devices", {}).tables[0].rows == ()
        assert (feed.problems(), feed.notes()) == ((), ())


def history(*objects: str) -> dict[str, Any]:
    """A history that holds all of its ops: one read of each of `objects`, a second long."""
    times = [datetime.fromtimestamp(EPOCH_NS / S - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f%z") for ago_s in (9, 8)]
    events = [{"event": "initiated", "time": times[0]}, {"event": "done", "time": times[1]}]
    ops = [
        {
            "description": f"osd_op(client.4.0:{number} 2.0 2:0:::{name}:head [read 0~4096] snapc 0=[] e9)",
            "initiated_at": times[0],
            "age": 9.0,
            "duration": 1.0,
            "type_data": {"events": events},
        }
        for number, name in enumerate(objects)
    ]
    return {"size": 20, "duration": 600, "ops": ops}


def test_operations_are_those_that_the_osds_keep_anyway_and_are_asked_for_only_where_they_are_shown() -> None:
    name = "rbd_data.10ab.0000000000000003"
    session = FakeCephSession({("osd.1", "dump_historic_ops"): json.dumps(history(name, name, "else")).encode()})
    world = World(session=session)
    world.keeper.narrow(osds=tuple(ScopeOsd(osd=osd, up=True) for osd in (1, 2)), asked_osds=[1])
    world.add("images", IMAGE)
    world.feed.view("devices", {})
    assert session.requests == []
    slow = world.feed.view("slow", {})
    assert [dict(request.command)["prefix"] for request in session.requests] == ["dump_historic_ops"]
    assert rows_of(slow, "object") == [(name,), (name,), ("else",)]
    assert slow.unseen[:2] == (HISTORIES, SOME_OSDS.format(asked=1, all=2))
    assert slow.end_ns - slow.start_ns == 600 * S
    ops = world.feed.view("ops", {"image": "rbd/a", "object_number": 3})
    assert rows_of(ops, "object", "took") == [(3, S), (3, S)]
    assert world.feed.view("ops", {"image": "rbd/a", "object_number": 4}).tables[0].rows == ()


def test_osds_that_may_not_be_asked_for_operations_are_not() -> None:
    world = World()
    assert world.feed.view("slow", {}).unseen == (NO_HISTORIES,)


def test_osds_that_do_not_answer_are_a_fault_of_the_view_alone() -> None:
    world = World(session=FakeCephSession({("osd.1", "dump_historic_ops"): UnreachableError("gone")}))
    world.keeper.narrow(asked_osds=[1])
    with pytest.raises(UnreachableError, match="gone"):
        world.feed.view("slow", {})
    assert world.feed.view("devices", {}).tables[0].rows == ()
