"""What is recorded around a step, and the limits that a load is watched by, on scripted OSDs."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bathyscope.analysis.limits import Baseline
from bathyscope.bench.step_recording import StepRecording, filing_s
from bathyscope.errors import UnreachableError
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import RawAnswer
from bathyscope.sources import SOURCES
from bathyscope.spec import Target
from bathyscope.spec.plan import Capture, Limits
from bathyscope.spec.scope import Scope, ScopeOsd

QUIET = {
    "health": {"status": "HEALTH_OK", "checks": {}},
    "status": {"pgmap": {"pgs_by_state": [{"state_name": "active+clean", "count": 32}]}},
    "osd perf": {"osdstats": {"osd_perf_infos": []}},
    "df": {"pools": []},
    "dump_ops_in_flight": {"ops": []},
}


def recording(host: FakeHost, osds: int = 2, capture: Capture | None = None, **limits: Any) -> StepRecording:
    target = Target(name="c")
    scope = Scope(target=target, fsid="f", osds=tuple(ScopeOsd(osd=i) for i in range(osds)))
    keeper = ScopeKeeper(host, host.ceph, target, sources=[], scope_of=lambda *_: scope)
    keeper.refresh()
    keeper.narrow(asked_osds=tuple(range(osds)))
    return StepRecording(
        host, host.ceph, keeper, capture=capture, plan_limits=Limits(**limits), before=Baseline()
    )  # fmt: skip


def test_the_counters_are_read_before_and_after_and_the_history_at_the_end() -> None:
    session = FakeCephSession({**QUIET, "perf dump": {"osd": {"op": 7}}, "dump_historic_ops": {"ops": []}})
    with recording(FakeHost(ceph=session), capture=Capture(processes=False)) as around:
        around.finish()
    asked = [str(dict(request.command)["prefix"]) for request in session.requests]
    assert asked[:2] == ["perf dump"] * 2
    assert asked[-2:] == ["dump_historic_ops"] * 2
    assert asked.count("perf dump") == 4
    looks = ("cluster_status", "tenants")
    assert {name: len(answers) for name, answers in around.answers.items() if name not in looks} == {
        "perf_counters": 4, "op_history": 2,
    }  # fmt: skip
    assert {cost.source for cost in around.costs} == {"perf_counters", "op_history", *looks}


def test_prometheus_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes, the other sources have been read by then."""
    around = recording(FakeHost(ceph=FakeCephSession(QUIET)))
    asked: list[str] = []
    around._asked = {*around._asked, "proc", "simulated_disks", "perf_counters", "op_history", "node_exporter"}
    monkeypatch.setattr(around._recorder, "collect_now", asked.append)
    around.finish()
    assert asked[-2:] == ["op_history", "node_exporter"]
    assert len(asked) == len(around._asked)


def test_what_is_switched_off_is_not_asked() -> None:
    session = FakeCephSession(QUIET)
    capture = Capture(processes=False, perf_counters=False, op_history=False)
    with recording(FakeHost(ceph=session), capture=capture) as around:
        around.finish()
    assert set(around.answers) == {"cluster_status", "tenants"}


def looks(label: str, *served: int) -> list[RawAnswer]:
    return [
        RawAnswer(label, (), (), 0, b'{"osd": {"op": %d}}' % count, b"", 0, second * 1_000_000_000)
        for second, count in zip((1, 3), served, strict=True)
    ]


@pytest.mark.parametrize(
    ("served", "waits"),
    [((5_000, 6_000), False), ((5_000, 90), True), ((5_000, 0), False), ((0, 0), False)],
)
def test_slow_osds_get_the_time_to_file_their_last_ops(served: tuple[int, int], waits: bool) -> None:
    """An OSD whose ops have long gaps between them files the last one up to 256 ms after it was done."""
    answers = [a for osd, count in enumerate(served) for a in looks(f"perf_dump-osd.{osd}", 1000, 1000 + count)]
    assert (filing_s(answers) > 0.256) is waits


def test_without_counters_every_osd_gets_that_time() -> None:
    assert filing_s([]) > 0.256
    refused = [dataclasses.replace(answer, stdout=b"no") for answer in looks("perf_dump-osd.0", 1, 2)]
    assert filing_s(refused) > 0.256


def wait_for_violation(around: StepRecording, seconds: float = 10.0) -> str | None:
    deadline = time.monotonic() + seconds
    while around.violation() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return around.violation()


def often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cluster_status", "tenants"):
        monkeypatch.setattr(type(SOURCES[name]), "period_s", 0.01)


class RealTime(FakeHost):
    """A scripted host whose clock goes on by itself: the recorder's own thread waits in real time."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def now_ns(self) -> int:
        return time.time_ns()


def test_a_broken_limit_stays_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    full = {
        "status": "HEALTH_ERR",
        "checks": {"OSD_FULL": {"severity": "HEALTH_ERR", "summary": {"message": "1 full"}}},
    }
    session = FakeCephSession({**QUIET, "health": full})
    with recording(RealTime(ceph=session)) as around:
        found = wait_for_violation(around)
        assert found is not None
        assert "1 full" in found
        session.answers = QUIET
        time.sleep(0.1)
        assert around.violation() == found


def test_a_lost_cluster_stops_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    session = FakeCephSession({"status": UnreachableError("the connection to the cluster was lost")})
    with recording(RealTime(ceph=session)) as around:
        assert wait_for_violation(around) == "the connection to the cluster was lost"


def test_one_late_answer_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    late = itertools.cycle([UnreachableError("the cluster did not answer 'status'"), QUIET["status"]])
    session = FakeCephSession({**QUIET, "status": lambda _: next(late)})
    with recording(RealTime(ceph=session)) as around:
        deadline = time.monotonic() + 5
        while len(around.costs) < 16 and time.monotonic() < deadline:
            assert around.violation() is None
            time.sleep(0.005)
    assert {cost.success for cost in around.costs} == {True, False}


def test_a_look_at_the_end_of_a_short_step_is_always_taken() -> None:
    session = FakeCephSession(QUIET)
    with recording(FakeHost(ceph=session)) as around:
        around.finish()
    assert around.answers["cluster_status"]


def test_a_look_that_cannot_be_read_is_a_failed_one() -> None:
    session = FakeCephSession({**QUIET, "status": {"pgmap": {"pgs_by_state": "?"}}})
    with recording(FakeHost(ceph=session)) as around:
        around.finish()
        assert around.violation() is None
    cost = [cost for cost in around.costs if cost.source == "cluster_status"][-1]
    assert not cost.success
    assert cost.problem


def test_a_recorder_that_ended_stops_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    around = recording(RealTime(ceph=FakeCephSession(QUIET)))
    monkeypatch.setattr(around._recorder, "_take_due", broken)
    with pytest.raises(RuntimeError, match="new thread"), around:
        assert "can't start new thread" in (wait_for_violation(around) or "")


def test_a_slow_look_is_not_taken_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)

    def slow(_: Any) -> Any:
        time.sleep(0.02)
        return QUIET["status"]

    session = FakeCephSession({**QUIET, "status": slow})
    with recording(RealTime(ceph=session)) as around:
        deadline = time.monotonic() + 20
        while len([cost for cost in around.costs if cost.success]) < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not [cost for cost in around.costs if cost.problem and "slowed" in cost.problem]


# --- the limits under an injected schedule: who takes a look, and when it is judged, is decided by the test


FULL = {"status": "HEALTH_ERR", "checks": {"OSD_FULL": {"severity": "HEALTH_ERR", "summary": {"message": "1 full"}}}}
HURT = {
    "ops": [{"description": "osd_op(client.4157.0:22968 2.2 2:422bb82f:::rbd_data.1.b:head [read 0~4096])", "age": 0.3}]
}


def step_by_step(session: FakeCephSession) -> StepRecording:
    """Return a recording whose sources are only asked by the test."""
    around = recording(FakeHost(ceph=session))
    around._recorder._entries = {
        name: dataclasses.replace(entry, due_ns=None) for name, entry in around._recorder._entries.items()
    }
    return around


@pytest.mark.parametrize("judged_after", list(itertools.product((False, True), repeat=4)))
def test_every_look_is_judged_whenever_the_loads_thread_comes_round(judged_after: tuple[bool, ...]) -> None:
    """The second of four looks breaks a limit, the others do not; another thread takes them, as the recorder's does."""
    session = FakeCephSession(QUIET)
    around = step_by_step(session)
    broken = None
    for number, judge_now in enumerate(judged_after):
        session.answers = {**QUIET, "health": FULL} if number == 1 else QUIET
        with ThreadPoolExecutor(1) as recorder:
            recorder.submit(around._collect, "cluster_status").result()
        if judge_now:
            broken = around.violation()
            assert (broken is not None) == (number >= 1)
    assert "1 full" in (around.violation() or "")


@pytest.mark.parametrize("judged_after", list(itertools.product((False, True), repeat=5)))
def test_the_wait_of_other_tenants_is_judged_from_looks_in_their_order(judged_after: tuple[bool, ...]) -> None:
    stats = dict.fromkeys(("rd", "wr", "rd_bytes", "wr_bytes"), 0)
    quiet = {**QUIET, "df": {"pools": [{"id": 2, "name": "vms", "stats": stats}]}}
    session = FakeCephSession(quiet)
    around = step_by_step(session)
    for number, judge_now in enumerate(judged_after):
        session.answers = {**quiet, "dump_ops_in_flight": HURT if number in (1, 2) else {"ops": []}}
        with ThreadPoolExecutor(1) as recorder:
            recorder.submit(around._collect, "tenants").result()
        if judge_now:
            assert (around.violation() is not None) == (number >= 2)
    # Two OSDs hold one operation each, twice.
    assert "the pool vms had waited 300 ms" in (around.violation() or "")


def test_only_the_loads_thread_touches_what_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    touched: set[str] = set()
    plain = StepRecording.__setattr__

    def noted(self: StepRecording, name: str, value: object) -> None:
        touched.add(threading.current_thread().name)
        plain(self, name, value)

    class Noted(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            touched.add(threading.current_thread().name)
            super().__setitem__(key, value)

    monkeypatch.setattr(StepRecording, "__setattr__", noted)
    session = FakeCephSession({**QUIET, "dump_ops_in_flight": {"ops": "?"}})
    with recording(RealTime(ceph=session)) as around:
        around._judged, around._unreadable = Noted(), Noted()
        deadline = time.monotonic() + 10
        while len(around._judged) < 2 and time.monotonic() < deadline:
            assert around.violation() is None
            time.sleep(0.005)
        around.finish()
    assert around._unreadable
    assert touched == {threading.current_thread().name}
