"""The guard stops a load for what the load or somebody else does to the cluster, and for nothing older."""

from __future__ import annotations

from typing import Any

import pytest

from bathyscope.bench.guard import Guard
from bathyscope.bench.preflight import look
from bathyscope.errors import UnreachableError
from bathyscope.host.fake import FakeCephSession
from bathyscope.spec.plan import Limits


def cluster(
    *, health: str = "HEALTH_OK", checks: dict[str, str] | None = None, down: tuple[int, ...] = (),
    states: dict[str, int] | None = None, commit_ms: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """Return the answers of a cluster of three OSDs."""
    summary = {code: {"summary": {"message": text}} for code, text in (checks or {}).items()}
    nodes: list[dict[str, Any]] = [{"id": -1, "type": "host", "name": "node1", "children": [0, 1, 2]}]
    nodes += [
        {"id": i, "type": "osd", "device_class": "ssd", "utilization": 5.0, "kb": 1 << 20,
         "status": "down" if i in down else "up"}
        for i in range(3)
    ]  # fmt: skip
    counts = [{"state_name": name, "count": n} for name, n in (states or {"active+clean": 32}).items()]
    perf = [{"id": i, "perf_stats": {"commit_latency_ms": commit_ms}} for i in range(3)]
    return {
        "health": {"status": health, "checks": summary},
        "status": {"pgmap": {"pgs_by_state": counts}},
        "osd df": {"nodes": nodes},
        "osd perf": {"osdstats": {"osd_perf_infos": perf}},
    }


def guard(before: dict[str, Any], now: dict[str, Any], **limits: Any) -> Guard:
    session = FakeCephSession(before)
    made = Guard(session, Limits(**limits), look(session))
    session.answers = now
    return made


def test_a_quiet_cluster_is_no_reason_to_stop() -> None:
    assert guard(cluster(), cluster()).check() is None


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (cluster(health="HEALTH_WARN", checks={"OSD_DOWN": "1 osds down"}, down=(2,)), "osd.2"),
        (cluster(health="HEALTH_ERR", checks={"OSD_FULL": "1 full osd(s)"}), "1 full osd"),
        (cluster(health="HEALTH_WARN", checks={"SLOW_OPS": "3 slow ops, oldest 33 sec"}), "3 slow operations"),
        (cluster(commit_ms=12_000.0), "12.0 s"),
    ],
)
def test_what_stops_a_load(now: dict[str, Any], words: str) -> None:
    found = guard(cluster(), now).check()
    assert found is not None
    assert words in found


def test_what_was_so_before_does_not_stop_it() -> None:
    before = cluster(health="HEALTH_WARN", checks={"OSD_DOWN": "1 osds down", "SLOW_OPS": "3 slow ops"}, down=(2,))
    assert guard(before, before).check() is None
    worse = cluster(health="HEALTH_WARN", checks={"OSD_DOWN": "1 osds down", "SLOW_OPS": "5 slow ops"}, down=(2,))
    assert guard(before, worse, max_slow_ops=2).check() is None
    assert guard(before, worse, max_slow_ops=1).check() is not None


def test_placement_groups_that_are_not_whole_make_the_step_doubtful_once() -> None:
    watching = guard(cluster(), cluster(states={"active+undersized+degraded": 5, "active+clean": 27}))
    assert watching.check() is None
    assert watching.take_trouble() == "5 PGs active+undersized+degraded"
    assert watching.take_trouble() is None


def test_a_lost_cluster_stops_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    import time  # noqa: PLC0415

    monkeypatch.setattr("bathyscope.bench.guard.PERIOD_S", 0.01)
    watching = guard(cluster(), {"health": UnreachableError("the connection to the cluster was lost")})
    watching.start()
    deadline = time.monotonic() + 5
    while watching.violation is None and time.monotonic() < deadline:
        time.sleep(0.01)
    watching.stop()
    assert watching.violation == "the connection to the cluster was lost"


def test_one_late_answer_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading  # noqa: PLC0415

    monkeypatch.setattr("bathyscope.bench.guard.PERIOD_S", 0.005)
    looked = threading.Semaphore(0)
    count = 0
    quiet = cluster()

    def every_other_is_late(_: Any) -> Any:
        nonlocal count
        count += 1
        looked.release()
        return UnreachableError("the cluster did not answer 'health'") if count % 2 else quiet["health"]

    watching = guard(quiet, {**quiet, "health": every_other_is_late})
    watching.start()
    for _ in range(6):
        assert looked.acquire(timeout=5)
    watching.stop()
    assert watching.violation is None


def test_a_look_at_the_end_of_a_short_step_sees_what_the_thread_would_miss() -> None:
    made = guard(cluster(), cluster(states={"active+undersized+degraded": 4, "active+clean": 28}))
    assert made.take_trouble() is None
    trouble = made.take_trouble(look=True)
    assert trouble is not None
    assert "degraded" in trouble
    assert made.take_trouble() is None
    stopped = guard(cluster(), cluster(health="HEALTH_ERR", checks={"OSD_FULL": "1 full osd(s)"}))
    stopped.take_trouble(look=True)
    assert stopped.violation is not None
