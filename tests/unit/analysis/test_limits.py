"""A load is stopped for what it or somebody else does to the cluster, and for nothing older."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bathyscope.analysis.limits import baseline, tenant_violation, unwatched, violation
from bathyscope.records import ClusterStatus, Collection, HealthCheck, OsdLatency, PoolIo, PoolWait, to_table
from bathyscope.spec.plan import Limits


def look(
    at: int = 2, *, health: str = "HEALTH_OK", checks: dict[str, str] | None = None, slow: int = 0,
    down: str | None = None, commit_ms: float = 1.0,
) -> dict[str, pa.Table]:  # fmt: skip
    status = ClusterStatus(at, health, slow, 32, 32, 0, 0, None, down)
    raised = [HealthCheck(at, code, "HEALTH_WARN", text) for code, text in (checks or {}).items()]
    latencies = [OsdLatency(at, osd, commit_ms if osd == 1 else 1.0, 1.0) for osd in range(3)]
    return {
        "cluster_status": to_table(ClusterStatus, [status]),
        "health_check": to_table(HealthCheck, raised),
        "osd_latency": to_table(OsdLatency, latencies),
    }


def judged(now: dict[str, pa.Table], before: dict[str, pa.Table] | None = None, **limits: Any) -> str | None:
    return violation(now, baseline(before or look(1)), Limits(**limits))


def test_a_quiet_cluster_is_no_reason_to_stop() -> None:
    assert judged(look()) is None
    assert judged({}, {}) is None


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (look(health="HEALTH_WARN", checks={"OSD_DOWN": "1 osds down"}, down="2"), "osd.2"),
        (look(health="HEALTH_ERR", checks={"OSD_FULL": "1 full osd(s)"}), "1 full osd"),
        (look(slow=3, checks={"SLOW_OPS": "3 slow ops, oldest 33 sec"}), "3 slow operations"),
        (look(commit_ms=12_000.0), "osd.1 commits in 12.0 s, the plan's limit is 10.0 s"),
    ],
)
def test_what_stops_a_load(now: dict[str, Any], words: str) -> None:
    assert words in (judged(now) or "")


def test_what_was_so_before_does_not_stop_it() -> None:
    before = look(1, health="HEALTH_ERR", slow=3, down="2")
    assert judged(look(health="HEALTH_ERR", slow=3, down="2"), before) is None
    assert judged(look(slow=5, down="2"), before, max_slow_ops=2) is None
    assert judged(look(slow=5, down="2"), before, max_slow_ops=1) is not None
    assert "osd.7" in (judged(look(down="2 7"), before) or "")


def test_the_last_look_counts() -> None:
    two = {name: pa.concat_tables([look(3)[name], look(2, down="1", slow=9)[name]]) for name in look()}
    assert judged(two) is None


def test_looks_that_failed_are_said() -> None:
    rows = [
        Collection(1, "cluster_status", 5, 3, 0, 100, success=True, problem=None),
        Collection(2, "proc", 5, 1, 1, 0, success=False, problem="x"),
    ]
    assert unwatched(to_table(Collection, rows)) is None
    rows.append(Collection(3, "cluster_status", 5, 3, 3, 0, success=False, problem="no monitor answered"))
    assert unwatched(to_table(Collection, rows)) == "no monitor answered"


# --- other tenants


def waiting(at: int, pool: str, *ages_ms: float, own: bool = False) -> pa.Table:
    ages_ns = [round(age * 1e6) for age in ages_ms]
    row = PoolWait(at, 2, pool, own, 3, len(ages_ns), sum(ages_ns), max(ages_ns, default=0))
    return to_table(PoolWait, [row])


def pool_io(pool: str, reads: int, *, own: bool = False) -> pa.Table:
    rows = [PoolIo(second * 10**9, 10**9, 2, pool, own, reads, 0, 0, 0) for second in range(1, 6)]
    return to_table(PoolIo, rows)


def watched(idle: pa.Table | None, *looks: pa.Table, **limits: Any) -> str | None:
    tables = {**look(1), "pool_io": pool_io("volumes", 50)} | ({} if idle is None else {"pool_wait": idle})
    return tenant_violation(looks, baseline(tables), Limits(**limits))


def test_operations_of_another_pool_that_wait_too_long_stop_a_load() -> None:
    slow = [waiting(at, "volumes", 80, 60) for at in (1, 2)]
    assert watched(waiting(0, "volumes", 2), *slow) == (
        "operations of the pool volumes had waited 70.0 ms in the OSDs "
        "(2.00 ms before the load, limits.max_tenant_wait allows 50.0 ms)"
    )
    assert watched(None, *slow) is not None
    assert watched(None, *slow, max_tenant_wait=0.1) is None
    # As long as before the load, or a few times as long where that was long.
    assert watched(waiting(0, "volumes", 20), *slow) is None
    assert watched(waiting(0, "volumes", 20), *slow, max_tenant_wait_factor=3.0) is not None
    assert watched(waiting(0, "other", 20), *slow) is not None


def test_our_own_pools_wait_as_long_as_they_like() -> None:
    assert watched(None, *(waiting(at, "bathy-own", 800, 900, own=True) for at in range(4))) is None


def test_one_slow_operation_is_no_reason() -> None:
    assert watched(None, waiting(1, "volumes", 400), waiting(2, "volumes", 1)) is None
    assert watched(None, waiting(1, "volumes", 400, 400, 400)) is None
    # One that does not end is.
    assert watched(None, *(waiting(at, "volumes", 400 + 1000 * at) for at in range(3))) is not None


def test_the_pool_that_is_hurt_most_is_named() -> None:
    looks = [pa.concat_tables([waiting(at, "a", 60, 60), waiting(at, "b", 600)]) for at in (1, 2, 3)]
    assert "the pool b " in (watched(None, *looks) or "")


def test_where_no_osd_can_be_asked_commit_latencies_protect_other_tenants() -> None:
    idle = {**look(1), "pool_io": pool_io("volumes", 50)}
    assert judged(look(commit_ms=49), idle) is None
    assert judged(look(commit_ms=51), idle) == (
        "osd.1 commits in 51.0 ms while other pools are in use "
        "(1.00 ms before the load, limits.max_tenant_wait allows 50.0 ms)"
    )
    # A cluster without tenants, and one whose OSDs say what they work on, are loaded as far as the plan wants.
    for pools in ({"pool_io": pool_io("bathy-own", 50, own=True)}, {"pool_wait": waiting(1, "bathy-own", own=True)}):
        assert judged(look(commit_ms=51), {**idle, **pools}) is None
    slow = {**look(1, commit_ms=20), "pool_io": pool_io("volumes", 50)}
    assert judged(look(commit_ms=99), slow) is None
    assert judged(look(commit_ms=101), slow) is not None
