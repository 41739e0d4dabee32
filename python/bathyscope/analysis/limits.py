"""When a load must be stopped: what has changed on the cluster since the look before the load, whoever caused it.

Everything is judged from looks at the cluster (`cluster_status`, `health_check`, `osd_latency`, `pool_wait`), so a
recorded run gives the same answer again.

Other tenants are protected by what their own operations wait (`pool_wait`), never by a mean over all clients while
that can be helped: a load that fills its queues makes such a mean its own. Where no OSD says which operations it works
on (the client may not ask it), and other pools are in use, the OSDs' commit latencies stand in for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis.columns import Tables, floats, ints, strings, table_of, where
from bathyscope.analysis.tenants import mean_wait_ns, pool_uses
from bathyscope.records import ClusterStatus, HealthCheck, from_table
from bathyscope.spec.plan import Limits
from bathyscope.units import format_duration_ns

# The last looks that the wait of a pool is judged from, and the operations in flight that it takes: one that is slow
# for a reason of its own stops no load.
WAIT_LOOKS = 4
_WAIT_OPS = 3
# Other pools that do less are in no need of protection: the manager's own pool above all.
_IN_USE_IOPS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Baseline:
    """What was so before the load, and is therefore no reason to stop it."""

    slow_op_count: int = 0
    osds_down: frozenset[int] = frozenset()
    in_error: bool = False
    waits_ns: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Pool of another tenant → how long its operations in flight had waited, on average."""
    commits_ms: Mapping[int, float] = dataclasses.field(default_factory=dict)
    """OSD → its commit latency."""
    tenants_unseen: bool = False
    """Other pools are in use, and no OSD said which operations it works on."""


def baseline(tables: Tables) -> Baseline:
    """Return the baseline: waits from all looks, latencies from the first, all else from the last look in `tables`.

    A quiet cluster when there was none.
    """
    status = _last(tables)
    if status is None:
        return Baseline()
    waits, latencies = table_of(tables, "pool_wait"), table_of(tables, "osd_latency")
    uses = pool_uses(table_of(tables, "pool_io"), waits) or ()
    if latencies.num_rows:
        latencies = where(latencies, at_ns=int(ints(latencies, "at_ns").min()))
    return Baseline(
        status.slow_op_count,
        _numbers(status.osds_down),
        status.health == "HEALTH_ERR",
        waits_ns={use.pool: use.wait_ns for use in uses if use.wait_ns is not None},
        commits_ms=dict(zip(ints(latencies, "osd").tolist(), floats(latencies, "commit_latency_ms"), strict=True)),
        tenants_unseen=waits.num_rows == 0 and sum(use.iops for use in uses) >= _IN_USE_IOPS,
    )


def violation(tables: Tables, before: Baseline, limits: Limits) -> str | None:
    """Return the limit that the last look in `tables` breaks, as a sentence, or None."""
    status = _last(tables)
    if status is None:
        return None
    raised, latencies = (where(table_of(tables, name), at_ns=status.at_ns) for name in ("health_check", "osd_latency"))
    checks = {check.code: check.message for check in from_table(HealthCheck, raised)}
    if status.health == "HEALTH_ERR" and not before.in_error:
        return "the cluster went to HEALTH_ERR: " + "; ".join(checks.values())
    lost = sorted(_numbers(status.osds_down) - before.osds_down)
    if lost:
        return f"OSDs went down during the load: {', '.join(f'osd.{osd}' for osd in lost)}"
    slow = status.slow_op_count - before.slow_op_count
    if slow > limits.max_slow_ops:
        said = f": {checks['SLOW_OPS']}" if checks.get("SLOW_OPS") else ""
        return f"{slow} slow operations appeared (limit {limits.max_slow_ops}){said}"
    return _latency(latencies, before, limits)


def _latency(rows: pa.Table, before: Baseline, limits: Limits) -> str | None:
    """Return a sentence when an OSD's mean commit latency, all clients together, is over the limit."""
    if rows.num_rows == 0:
        return None
    latencies_ns, osds = floats(rows, "commit_latency_ms") * 1e6, ints(rows, "osd")
    worst, limit_ns = int(np.argmax(latencies_ns)), limits.max_client_latency * 1e9
    if latencies_ns[worst] > limit_ns:
        commits = f"osd.{osds[worst]} commits in {format_duration_ns(latencies_ns[worst])}"
        return f"{commits}, the plan's limit is {format_duration_ns(limit_ns)}"
    for osd, latency_ns in zip(osds.tolist(), latencies_ns, strict=True) if before.tenants_unseen else ():
        idle_ns = before.commits_ms.get(osd, 0.0) * 1e6
        limit_ns = _tenant_limit_ns(idle_ns, limits)
        if latency_ns > limit_ns:
            commits = f"osd.{osd} commits in {format_duration_ns(latency_ns)}"
            return f"{commits} while other pools are in use ({_against(idle_ns, limit_ns)})"
    return None


def tenant_violation(waits: Sequence[pa.Table], before: Baseline, limits: Limits) -> str | None:
    """Return the pool of another tenant whose operations wait too long, as a sentence, or None.

    `waits` are the rows of `pool_wait` of the last WAIT_LOOKS looks. The worst pool is named.
    """
    looks = [where(rows, own=False) for rows in waits]
    rows = pa.concat_tables(looks) if looks else table_of({}, "pool_wait")
    worst: tuple[float, str] | None = None
    for pool in sorted(set(strings(rows, "pool"))):
        of_pool = where(rows, pool=pool)
        wait_ns, count = mean_wait_ns(of_pool), int(np.sum(ints(of_pool, "op_count")))
        idle_ns = before.waits_ns.get(pool, 0.0)
        limit_ns = _tenant_limit_ns(idle_ns, limits)
        # A look has one row for a pool.
        if wait_ns is None or count < _WAIT_OPS or of_pool.num_rows < 2 or wait_ns <= limit_ns:
            continue
        if worst is None or wait_ns / limit_ns > worst[0]:
            waited = f"operations of the pool {pool} had waited {format_duration_ns(wait_ns)} in the OSDs"
            worst = wait_ns / limit_ns, f"{waited} ({_against(idle_ns, limit_ns)})"
    return None if worst is None else worst[1]


def _tenant_limit_ns(idle_ns: float, limits: Limits) -> float:
    return max(limits.max_tenant_wait * 1e9, limits.max_tenant_wait_factor * idle_ns)


def _against(idle_ns: float, limit_ns: float) -> str:
    """Return what was so before the load and what the limit is."""
    before = f"{format_duration_ns(idle_ns)} before the load, " if idle_ns else ""
    return f"{before}limits.max_tenant_wait allows {format_duration_ns(limit_ns)}"


def unwatched(collections: pa.Table) -> str | None:
    """Return why the limits could not be watched all the time, or None: the last failed look at the cluster."""
    failed = where(collections, source=["cluster_status", "tenants"], success=False)
    problems = [text for text in failed.column("problem").to_pylist() if text]
    return problems[-1] if problems else None


def _last(tables: Tables) -> ClusterStatus | None:
    rows = table_of(tables, "cluster_status")
    if rows.num_rows == 0:
        return None
    return from_table(ClusterStatus, rows.slice(int(np.argmax(ints(rows, "at_ns"))), 1))[0]


def _numbers(text: str | None) -> frozenset[int]:
    return frozenset(int(word) for word in (text or "").split())
