"""The rates of other pools from counters that are late by seconds, and what a run cost the tenants."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bathyscope.analysis.tenants import PoolUse, Shared, cost, pool_uses
from bathyscope.records import PoolIo, PoolWait, to_table

SECOND = 10**9


def staircase(
    iops: float, looks_s: np.ndarray, phases_s: np.ndarray, *, period_s: float = 5.0, tick_s: float = 2.0,
    pool: str = "volumes", own: bool = False,
) -> list[PoolIo]:  # fmt: skip
    """Return what is seen of a steady pool: each OSD reports its share once a period, the manager once a tick."""
    rows: list[PoolIo] = []
    last = None
    for at_s in looks_s:
        ticked = np.floor(at_s / tick_s) * tick_s
        reported = phases_s + np.floor((ticked - phases_s) / period_s) * period_s
        count = int(np.floor(iops * reported / len(phases_s)).sum())
        if last is not None:
            at_ns, before, since_ns = round(at_s * SECOND), last[0], last[1]
            rows.append(PoolIo(at_ns, at_ns - since_ns, 2, pool, own, count - before, 0, 4096 * (count - before), 0))
        last = count, round(at_s * SECOND)
    return rows


def table(*rows: PoolIo) -> pa.Table:
    return to_table(PoolIo, list(rows))


def no_waits() -> pa.Table:
    return to_table(PoolWait, [])


def rates(runtime_s: float, osds: int, seed: int) -> float:
    random = np.random.default_rng(seed)
    looks = 1000 + np.arange(0, runtime_s + 1) + random.uniform(0, 0.1, int(runtime_s) + 1)
    (use,) = pool_uses(table(*staircase(50, looks, random.uniform(0, 5, osds))), no_waits()) or ()
    assert use.rates("read") == (use.iops, pytest.approx(4096 * use.iops))
    assert use.rates("write") == (0.0, 0.0)
    return use.iops


@pytest.mark.parametrize(("runtime_s", "osds", "within"), [(60, 1, 0.03), (60, 3, 0.03), (12, 1, 0.3), (12, 12, 0.1)])
def test_a_steady_pool_is_seen_whatever_the_phases_of_its_reports(runtime_s: float, osds: int, within: float) -> None:
    found = np.array([rates(runtime_s, osds, seed) for seed in range(40)])
    assert np.abs(found / 50 - 1).max() < within
    assert found.mean() == pytest.approx(50, rel=0.03)


def test_without_looks_nothing_is_known_and_without_other_pools_nothing_was_done() -> None:
    assert pool_uses(table(), no_waits()) is None
    looks, phases = np.arange(0.0, 12.0), np.zeros(1)
    assert pool_uses(table(*staircase(50, looks, phases, pool="bathy-own", own=True)), no_waits()) == ()


def test_the_busiest_pool_comes_first_and_waits_are_means_over_operations() -> None:
    looks, phases = np.arange(0.0, 60.0), np.array([0.0, 2.0])
    io = table(*staircase(5, looks, phases, pool="few"), *staircase(500, looks, phases, pool="many"))
    waits = to_table(PoolWait, [
        PoolWait(1, 2, "few", False, 3, 1, 4_000_000, 4_000_000),
        PoolWait(2, 2, "few", False, 3, 3, 0, 0),
        PoolWait(2, 7, "bathy-own", True, 3, 9, 90_000_000, 1),
        PoolWait(2, 9, "stuck", False, 3, 1, 5_000_000_000, 5_000_000_000),
    ])  # fmt: skip
    many, few, stuck = pool_uses(io, waits) or ()
    assert (many.pool, many.wait_ns, few.pool, few.wait_ns) == ("many", None, "few", 1_000_000)
    # A pool whose operations never end did no I/O that is counted.
    assert stuck == PoolUse("stuck", 0.0, 0.0, 0.0, 0.0, 5e9, 1)


def test_what_a_run_cost() -> None:
    looks = np.arange(0.0, 30.0)
    idle = {
        "pool_io": table(*staircase(50, looks, np.zeros(1), period_s=1.0, tick_s=1.0)),
        "pool_wait": to_table(PoolWait, [PoolWait(5, 2, "volumes", False, 3, 2, 4_000_000, 4_000_000)]),
    }
    steps = [
        Shared(f"rbd/ssd/{name}", 40 * SECOND, (PoolUse("volumes", iops / 4, iops * 3 / 4, 0.0, 0.0, wait_ns, 9),))
        for name, iops, wait_ns in (("a", 48.0, 3e6), ("b", 20.0, 90e6), ("c", 49.0, None))
    ]
    assert cost(idle, steps) == (
        "The pool volumes did about 50 before the load, 48 during the steps "
        "(I/Os a second; the least, 20, in rbd/ssd/b). "
        "Their operations in flight had waited 2.00 ms before the load and 46.5 ms during it "
        "(the longest, 90.0 ms, in rbd/ssd/b)."
    )
    assert cost(idle, []) == ""
    assert cost({}, [Shared("rbd/ssd/a", 1, ())]) == "No other pool did I/O during the run."
    alone = [
        Shared("rbd/ssd/a", 1, (PoolUse("x", 1.0, 0.0, 0.0, 0.0, None, 0), PoolUse("y", 0.0, 1.0, 0.0, 0.0, None, 0)))
    ]
    assert cost({}, alone).startswith("2 other pools did about 2 during the steps")
    assert "None of their operations was in flight" in cost({}, alone)
