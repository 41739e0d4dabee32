"""Whom a load shares the cluster with: the I/O of all pools that are not ours, and how long their operations wait."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.columns import Floats, Tables, floats, ints, strings, sums_by, table_of, total, where
from bathyscope.units import format_duration_ns, format_rate

Direction = Literal["read", "write"]

_COUNTED = ("read_count", "write_count", "read_bytes", "write_bytes")


@dataclasses.dataclass(frozen=True, slots=True)
class PoolUse:
    """What another tenant's pool did. `wait_ns`: how long its operations in flight had been in their OSD, on average.

    `op_count` operations in flight were seen; None where there was none, or nobody looked.
    """

    pool: str
    read_iops: float
    write_iops: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    wait_ns: float | None
    op_count: int

    @property
    def iops(self) -> float:
        """I/Os a second in both directions."""
        return self.read_iops + self.write_iops

    def rates(self, direction: Direction) -> tuple[float, float]:
        """Return I/Os and bytes a second in one direction."""
        reads = direction == "read"
        return (self.read_iops, self.read_bytes_per_s) if reads else (self.write_iops, self.write_bytes_per_s)


def pool_uses(io: pa.Table, waits: pa.Table) -> tuple[PoolUse, ...] | None:
    """Return the pools of other tenants that did I/O or had operations in flight, the busiest first.

    None when the pools' I/O is not known.
    """
    if io.num_rows == 0:
        return None
    rates = _rates(where(io, own=False), _times(io))
    pools, (counts, sums) = sums_by(where(waits, own=False), "pool", "op_count", "wait_ns_sum")
    seen = {pool: (int(counts[i]), float(sums[i])) for i, pool in enumerate(pools) if counts[i] > 0}
    uses = []
    for pool in sorted(rates.keys() | seen.keys()):
        count, sum_ns = seen.get(pool, (0, 0.0))
        grown = rates.get(pool, (0.0, 0.0, 0.0, 0.0))
        if any(grown) or count:
            uses.append(PoolUse(pool, *grown, sum_ns / count if count else None, count))
    return tuple(sorted(uses, key=lambda use: -use.iops))


@dataclasses.dataclass(frozen=True, slots=True)
class Shared:
    """The other tenants of one step."""

    step_key: str
    started_ns: int
    uses: tuple[PoolUse, ...]

    @property
    def iops(self) -> float:
        """I/Os a second of all other pools."""
        return sum(use.iops for use in self.uses)


def cost(tables: Tables, steps: Sequence[Shared]) -> str:
    """Return what a run cost the other tenants of its cluster, as sentences; empty when nobody looked.

    `tables` are the run's; what lies before the first step was watched without a load.
    """
    if not steps:
        return ""
    first_ns = min(step.started_ns for step in steps)
    idle = [table_of(tables, name) for name in ("pool_io", "pool_wait")]
    before = pool_uses(*(table.filter(pc.less(table.column("at_ns"), pa.scalar(first_ns))) for table in idle))
    pools = sorted({use.pool for step in steps for use in step.uses} | {use.pool for use in before or ()})
    if not pools:
        return "No other pool did I/O during the run."
    used = f"{len(pools)} other pools" if len(pools) > 1 else f"The pool {pools[0]}"
    least = min(steps, key=lambda step: step.iops)
    during = f"{format_rate(float(np.median([step.iops for step in steps])))} during the steps"
    if before is not None:
        was = Shared("", 0, before).iops
        during = f"{format_rate(was)} before the load, {during}"
    rate = f"{used} did about {during} (I/Os a second; the least, {format_rate(least.iops)}, in {least.step_key})."
    return f"{rate} {_waits(before or (), steps)}"


def _waits(before: Sequence[PoolUse], steps: Sequence[Shared]) -> str:
    """Return how long operations of other pools had waited before the load and during it."""
    waits = {step: wait for step in steps if (wait := wait_of(step.uses)) is not None}
    if not waits:
        return "None of their operations was in flight when the OSDs were looked at, or no OSD could be asked."
    worst = max(waits, key=lambda step: waits[step])
    idle = wait_of(before)
    was = f"{format_duration_ns(idle)} before the load and " if idle is not None else ""
    return (
        f"Their operations in flight had waited {was}{format_duration_ns(float(np.median(list(waits.values()))))} "
        f"during it (the longest, {format_duration_ns(waits[worst])}, in {worst.step_key})."
    )


def wait_of(uses: Sequence[PoolUse]) -> float | None:
    """Return the mean wait of the operations of several pools; None when none was seen."""
    seen = [(use.op_count, use.wait_ns) for use in uses if use.wait_ns is not None]
    return sum(count * wait_ns for count, wait_ns in seen) / sum(count for count, _ in seen) if seen else None


def mean_wait_ns(waits: pa.Table) -> float | None:
    """Return how long the operations of a table of `pool_wait` had been in their OSD, on average; None without any."""
    count = total(waits, "op_count")
    return total(waits, "wait_ns_sum") / count if count else None


def _times(io: pa.Table) -> Floats:
    """Return the moments of the looks, the one that the first interval begins with among them."""
    at = ints(io, "at_ns")
    first = int((at - ints(io, "duration_ns")).min())
    return np.concatenate(([first], np.unique(at))).astype(np.float64)


def _rates(io: pa.Table, times: Floats) -> dict[str, tuple[float, float, float, float]]:
    """Return pool → _COUNTED of it a second: the slopes of the lines through all looks (least squares).

    The counters are staircases: an OSD reports its part every 5 s, each OSD at another moment, and the manager passes
    it on every 2 s. So the difference of two single looks can be wrong by what a pool does in 7 s. Of a steady pool a
    line through looks of 12 s is within 20 %, of 30 s within 6 %, of a minute within 2 % (of a few OSDs; more average
    out); its standard error is a third of that.
    """
    if len(times) < 2:
        return {}
    from_middle = (times - times.mean()) / 1e9
    rates = {}
    for pool in sorted(set(strings(io, "pool"))):
        of_pool = where(io, pool=pool)
        places = np.searchsorted(times, ints(of_pool, "at_ns"))
        slopes = []
        for name in _COUNTED:
            grown = np.zeros(len(times))
            np.add.at(grown, places, floats(of_pool, name))
            course = np.cumsum(grown)
            slopes.append(max(0.0, float(from_middle @ (course - course.mean()) / (from_middle @ from_middle))))
        reads, writes, read_bytes, write_bytes = slopes
        rates[pool] = reads, writes, read_bytes, write_bytes
    return rates
