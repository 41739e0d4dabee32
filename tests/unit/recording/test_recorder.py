"""Sources run by the clock: inline by a clock that is not real, and in threads by the machine's."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.recording.world import TARGET, Counters, Map, Readings, Status, World, keeper_of, scope_of
from tests.unit.waiting import until

from bathyscope.errors import StoreError, UnreachableError
from bathyscope.host import ProcessRequest
from bathyscope.host.fake import EPOCH_NS, FakeAnswer, FakeCephSession, FakeHost
from bathyscope.host.local import LocalHost
from bathyscope.recording.recorder import LATE, STILL_RUNNING, Job, Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.sinks import MemorySink
from bathyscope.records import Collection, RawAnswer


def seconds(costs: Sequence[Collection], name: str, **equal: Any) -> list[float]:
    """Return the times of a source's collections in seconds since the clock's beginning."""
    return [
        (cost.at_ns - EPOCH_NS) / 1e9
        for cost in costs
        if cost.source == name and all(getattr(cost, key) == value for key, value in equal.items())
    ]


# --- inline


def test_every_source_keeps_its_own_period() -> None:
    host = World().host()
    sink = MemorySink()
    jobs = [Job(Counters()), Job(Status()), Job(Readings(), period_s=0.5)]
    Recorder(host, host.ceph, keeper_of(host), jobs, sink).run(4)
    assert seconds(sink.costs, "counters") == [0, 1, 2, 3]
    assert seconds(sink.costs, "status") == [0, 2]
    assert seconds(sink.costs, "readings") == [i / 2 for i in range(8)]
    assert all(cost.success for cost in sink.costs)
    assert [len(take.answers) for take in sink.collected("counters")] == [3, 3, 3, 3]
    assert [answer.json() for answer in sink.after("counters")[-1][1].answers] == [{"osd": {"op": 300}}] * 3


def test_an_endless_period_is_only_asked_for() -> None:
    host = World().host()
    sink = MemorySink()
    recorder = Recorder(host, host.ceph, keeper_of(host), [Job(Counters(), period_s=math.inf)], sink)
    before = recorder.collect_now("counters")
    recorder.run(10)
    after = recorder.collect_now("counters")
    assert seconds(sink.costs, "counters") == [0, 10]
    assert sink.answers("counters") == [*before, *after]
    with pytest.raises(KeyError):
        recorder.collect_now("nothing")


def test_an_outage_backs_off_and_ends() -> None:
    world = World(lost=lambda at_s: 10 <= at_s < 100)
    host = world.host()
    sink = MemorySink()
    recorder = Recorder(host, host.ceph, keeper_of(host), [Job(Counters())], sink)
    recorder.run(110)
    bad = seconds(sink.costs, "counters", success=False)
    assert bad == [10, 12, 16, 24, 40, 56, 72, 88]
    assert {cost.problem for cost in sink.costs if not cost.success} == {"the connection to the cluster was lost"}
    assert seconds(sink.costs, "counters", success=True) == [*range(10), *range(104, 110)]
    world.lost = lambda at_s: True
    with pytest.raises(UnreachableError):
        recorder.collect_now("counters")


def test_a_daemon_that_fails_does_not_back_the_others_off() -> None:
    host = World(down=lambda osd, at_s: osd == 1 and 3 <= at_s < 5).host()
    sink = MemorySink()
    # Its map is only read when asked for: osd.1 is asked throughout.
    keeper = keeper_of(host, refresh_s=math.inf)
    Recorder(host, host.ceph, keeper, [Job(Counters())], sink).run(8)
    assert seconds(sink.costs, "counters") == list(range(8))
    assert seconds(sink.costs, "counters", success=False, failure_count=1) == [3, 4]
    assert [cost.problem for cost in sink.costs if not cost.success] == ["perf_dump-osd.1: scripted refusal"] * 2


def test_the_scope_is_read_again_when_a_daemon_is_gone_and_until_it_is_back() -> None:
    host = World(down=lambda osd, at_s: osd == 1 and 15 <= at_s < 43).host()
    sink = MemorySink()
    keeper = keeper_of(host)
    Recorder(host, host.ceph, keeper, [Job(Counters())], sink).run(120)
    # At once when it was missed, then sooner than every 300 s as long as it is down: 10, 20 s.
    assert seconds(sink.costs, "map") == [15, 25, 45]
    assert seconds(sink.costs, "counters", success=False) == [15]
    # From the map to the map, only the others are asked.
    assert seconds(sink.costs, "counters", request_count=2) == list(range(16, 45))
    assert keeper.scope.asked_osds == (0, 1, 2)


def test_the_scope_is_read_by_its_own_period() -> None:
    host = World().host()
    sink = MemorySink()
    Recorder(host, host.ceph, keeper_of(host, refresh_s=100), [Job(Status())], sink).run(250)
    assert seconds(sink.costs, "map") == [100, 200]
    # Whoever has not read it before: the recorder begins with it.
    sink = MemorySink()
    keeper = ScopeKeeper(host, host.ceph, TARGET, sources=[Map()], scope_of=scope_of)
    Recorder(host, host.ceph, keeper, [Job(Counters())], sink).run(3)
    assert [cost.success for cost in sink.costs] == [True] * 5
    assert seconds(sink.costs, "counters") == [250, 251, 252]


def test_an_expensive_source_is_slowed_and_says_so() -> None:
    class Slow(Readings):
        def plan(self, scope: Any) -> list[ProcessRequest]:
            return [ProcessRequest("slow", ("slow",))]

    host = FakeHost({"slow": FakeAnswer(b"1", duration_s=0.1)}, clock=World().clock)
    sink = MemorySink()
    keeper = ScopeKeeper(host, None, TARGET, sources=[], refresh_s=math.inf)
    Recorder(host, None, keeper, [Job(Slow())], sink).run(12)
    assert seconds(sink.costs, "readings") == [0, 1, 2, 4, 6, 8, 10]
    assert [cost.problem for cost in sink.costs[:3]] == [None] * 3
    assert {cost.problem for cost in sink.costs[3:]} == {
        "slowed to every 2 s: every 1 s it would take more than 5 % of the time"
    }
    assert all(cost.success for cost in sink.costs)


def test_a_late_recorder_says_what_it_missed() -> None:
    host = World().host()
    sink = MemorySink()
    recorder = Recorder(host, host.ceph, keeper_of(host), [Job(Counters())], sink)
    recorder.run(2)
    host.sleep(10.5)
    recorder.run(2)
    (missed,) = [cost for cost in sink.costs if not cost.success]
    assert (missed.problem, missed.request_count, (missed.at_ns - EPOCH_NS) / 1e9) == (LATE, 0, 2)
    assert seconds(sink.costs, "counters", success=True) == [0, 1, 12.5, 13, 14]


def test_a_sink_that_cannot_write_ends_the_recording() -> None:
    class Full(MemorySink):
        def tend(self) -> None:
            if len(self.costs) == 3:
                raise StoreError("no space left")

    host = World().host()
    with pytest.raises(StoreError):
        Recorder(host, host.ceph, keeper_of(host), [Job(Counters())], Full()).run(100)


# --- in threads


class Gate:
    """A source whose collections wait until they are let through."""

    differences = False
    records = ()
    timeout_s = 5.0

    def __init__(self, name: str, period_s: float = 0.02, *, shut: bool = False) -> None:
        self.name = name
        self.period_s = period_s
        self.open = threading.Event()
        self.entered = threading.Event()
        self.side_by_side = 0
        self.most = 0
        if not shut:
            self.open.set()

    def plan(self, scope: Any) -> Any:
        self.side_by_side += 1
        self.most = max(self.most, self.side_by_side)
        self.entered.set()
        assert self.open.wait(10)
        self.side_by_side -= 1
        return [ProcessRequest(self.name, ("true",))]

    def parse(self, answers: Sequence[RawAnswer], scope: Any) -> Any:
        return {}


class Machine(LocalHost):
    """This machine, whose programs need no process."""

    def run(self, request: ProcessRequest) -> Any:
        return FakeHost({"true": FakeAnswer(b"yes")}).run(request)


@pytest.fixture
def keeper() -> ScopeKeeper:
    return ScopeKeeper(Machine(), None, TARGET, sources=[], refresh_s=math.inf)


def test_a_slow_source_delays_no_other(keeper: ScopeKeeper) -> None:
    slow, quick, sink = Gate("slow", shut=True), Gate("quick"), MemorySink()
    recorder = Recorder(Machine(), None, keeper, [Job(slow), Job(quick, budget_ratio=1)], sink)
    with recorder:
        until(lambda: len(sink.collected("quick")) >= 10)
        assert sink.collected("slow") == []
        slow.open.set()
        until(lambda: sink.collected("slow"))
    missed = [cost for cost in sink.costs if cost.source == "slow" and cost.problem == STILL_RUNNING]
    assert len(missed) >= 5
    assert slow.most == 1
    until(lambda: not any(thread.name.startswith("bathy-recorder") for thread in threading.enumerate()))


def test_stop_is_prompt_and_waits_for_what_is_under_way(keeper: ScopeKeeper) -> None:
    hours, slow, sink = Gate("hours", 3600.0), Gate("slow", 3600.0, shut=True), MemorySink()
    recorder = Recorder(Machine(), None, keeper, [Job(hours), Job(slow)], sink)
    recorder.start()
    assert slow.entered.wait(10)
    threading.Timer(0.1, slow.open.set).start()
    began = time.monotonic()
    recorder.stop()
    assert 0.05 < time.monotonic() - began < 2
    assert sorted(cost.source for cost in sink.costs) == ["hours", "slow"]
    recorder.stop()


def test_what_hangs_does_not_hold_the_stop_for_ever(keeper: ScopeKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bathyscope.recording.recorder._MARGIN_S", 0.0)
    hangs, sink = Gate("hangs", shut=True), MemorySink()
    recorder = Recorder(Machine(), None, keeper, [Job(hangs, timeout_s=0.1)], sink)
    recorder.start()
    assert hangs.entered.wait(10)
    began = time.monotonic()
    recorder.stop()
    assert time.monotonic() - began < 2
    hangs.open.set()


def test_collect_now_waits_for_the_collection_under_way(keeper: ScopeKeeper) -> None:
    gate, sink = Gate("gate", 3600.0, shut=True), MemorySink()
    with Recorder(Machine(), None, keeper, [Job(gate)], sink) as recorder:
        assert gate.entered.wait(10)
        threading.Timer(0.05, gate.open.set).start()
        (answer,) = recorder.collect_now("gate")
        assert answer.stdout == b"yes"
    assert gate.most == 1
    assert len(sink.collected("gate")) == 2


def test_a_failing_sink_ends_the_recording_and_stop_raises_it(keeper: ScopeKeeper) -> None:
    class Full(MemorySink):
        def tend(self) -> None:
            raise StoreError("no space left")

    recorder = Recorder(Machine(), None, keeper, [Job(Gate("gate"))], Full())
    recorder.start()
    assert recorder.wait(10)
    assert isinstance(recorder.failure, StoreError)
    with pytest.raises(StoreError, match="no space left"):
        recorder.stop()

    # Inside a `with` block another error is not replaced by it.
    def interrupted() -> None:
        with Recorder(Machine(), None, keeper, [Job(Gate("gate"))], Full()) as it:
            assert it.wait(10)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        interrupted()


def test_an_error_of_the_program_is_not_swallowed(keeper: ScopeKeeper) -> None:
    class Broken(Gate):
        def plan(self, scope: Any) -> Any:
            raise IndexError("a bug")

    recorder = Recorder(Machine(), None, keeper, [Job(Broken("broken"))], MemorySink())
    recorder.start()
    assert recorder.wait(10)
    with pytest.raises(IndexError, match="a bug"):
        recorder.stop()


def test_a_wait_ends_at_its_time(keeper: ScopeKeeper) -> None:
    with Recorder(Machine(), None, keeper, [Job(Gate("gate"))], MemorySink()) as recorder:
        assert not recorder.wait(0.05)


# --- the connection


def test_a_lost_connection_is_made_again() -> None:
    from bathyscope.host import CephRequest  # noqa: PLC0415
    from bathyscope.recording.connection import LastingSession  # noqa: PLC0415

    answers: list[Any] = [{"n": 1}, UnreachableError("lost"), {"n": 2}]
    made: list[FakeCephSession] = []

    def connect() -> FakeCephSession:
        if len(made) == 1 and not refused:
            refused.append(True)
            raise UnreachableError("no monitor answered")
        made.append(FakeCephSession({"status": lambda _: answers.pop(0)}))
        return made[-1]

    refused: list[bool] = []
    session = LastingSession(connect)
    assert made == []
    assert session.json("mon", "status") == {"n": 1}
    status = CephRequest("status", "mon", (("prefix", "status"),))
    with pytest.raises(UnreachableError, match="lost"):
        session.command(status)
    assert made[0].closed
    with pytest.raises(UnreachableError, match="no monitor"):
        session.commands([status])
    assert session.commands([status])[0].stdout == b'{"n": 2}'
    session.close()
    assert made[1].closed
