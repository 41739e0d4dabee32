"""Work on the cluster that is not the load's: other tenants, scrub, recovery, snapshot trimming, other processes,
and a hypervisor.

Tenants are known from two sides. The pools' statistics name them, but come seconds late. The OSDs' own counters miss no
operation and are never late, but name nobody: what they served in a direction beyond our load and the pools that are
known is of unknown clients. Both count a client's operation once, at its primary; replicas and the shards of an
erasure-coded pool are sub-operations.

Our load is one operation for each I/O, or fewer where librbd joins sequential ones. Bytes are not joined.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis import counters
from bathyscope.analysis.columns import Floats, Tables, floats, strings, table_of
from bathyscope.analysis.step_figures import StepFigures, figures, machine, osds_of
from bathyscope.analysis.tenants import Direction
from bathyscope.analysis.window import counted_s
from bathyscope.records import Step
from bathyscope.records.account import ForeignWork
from bathyscope.records.figure import Figure
from bathyscope.units import format_bandwidth, format_percent, format_rate, three_digits

# A figure that may hold more work of others than this share of our own is not given.
FOREIGN_MAX = 0.02
# Where processors waited for a hypervisor less than this, it is not told; from the limit on it is a warning.
STEAL_MIN, STEAL_LIMIT = 0.02, 0.05
# Subjects of work.
UNKNOWN_CLIENTS, NOT_CLEAN, DEEP_SCRUB = "unknown clients", "placement groups", "deep scrub"
# Kinds of what a machine does besides: no I/O of the cluster, and no processor time of an OSD.
OF_MACHINES = frozenset({"processes", "steal"})

# Less of our load, or of a machine's processors, is not worth a line.
_SHARE_MIN, _PROCESSES_MIN = 0.001, 0.25
# How far our load at the OSDs may be from what its rate says: in all, in the ramp (whose rate is not measured), and for
# what each load process asks when it opens an image.
_RATE_ERROR, _RAMP_FACTOR = 0.1, 2.0
_OPEN_COUNT, _OPEN_BYTES = 20, 1 << 20
# The statistics of a pool are late: over a short step they may lack as much as they say.
_POOL_ERROR = 1.0
# From here on it is said at how many OSDs a write is.
_COPIES_MIN = 1.5
# So much of our load the OSDs must have served, unless it is joined.
_SERVED_MIN = 0.7

_COUNTED = {
    "read": (("op_r",), ("op_r_out_bytes", "op_rw_out_bytes")),
    "write": (("op_w", "op_rw"), ("op_w_in_bytes", "op_rw_in_bytes")),
}
_SCRUB_BYTES = ("scrub_replicated_read_bytes", "scrub_ec_read_bytes")
_DIRECTIONS: tuple[Direction, ...] = ("read", "write")


def own_figures(step: Step, tables: Tables) -> StepFigures:
    """Return the figures of one step with the work of others beside them, and none that holds much of it.

    What a tenant's write costs a device, or a scrub an OSD's processor, is not counted anywhere, so that it cannot be
    subtracted: a figure that would hold more than FOREIGN_MAX of it is not known.
    """
    measured = figures(step, tables)
    measured = dataclasses.replace(measured, foreign=interference_of(step, measured, tables))
    return dataclasses.replace(
        measured,
        write_amplification=None if in_writes(measured) else measured.write_amplification,
        osd_cpu_shared=bool(in_cpu(measured)),
    )


def interference_of(step: Step, measured: StepFigures, tables: Tables) -> tuple[ForeignWork, ...]:
    """Return what others did during a step, the greatest shares of each kind first.

    `tables` are the step's own, as `window.tables` gives them. Nothing is said of what is not known; a sum over OSDs
    that did not all answer is a lower bound.
    """
    if osds_of(step) is None:
        return (*_processes(measured), *_steal(measured))
    looks, perf = table_of(tables, "cluster_status"), table_of(tables, "perf_counter")
    return (
        *_tenants(step, measured, perf),
        *_scrub(measured, looks, perf),
        *_recovery(step, measured, looks, perf),
        *_snap_trim(looks),
        *_processes(measured),
        *_steal(measured),
    )


def in_writes(measured: StepFigures) -> tuple[ForeignWork, ...]:
    """Return the work of others that makes up more than FOREIGN_MAX of what the devices wrote, or may do so."""
    moved = measured.read_bytes + measured.write_bytes
    part = (
        min(_own_iops(measured, "write") / measured.iops, measured.write_bytes / moved)
        if measured.iops > 0 and moved
        else 0.0
    )
    return _too_much([work for work in measured.foreign if work.direction != "read"], FOREIGN_MAX * part)


def in_cpu(measured: StepFigures) -> tuple[ForeignWork, ...]:
    """Return the work of others that makes up more than FOREIGN_MAX of the OSDs' processor time, or may do so."""
    # Where there are many OSDs, some placement group is always being scrubbed: that of one OSD in fifty is small.
    few = FOREIGN_MAX * len(measured.osd_cores)
    works = [work for work in measured.foreign if work.kind != "scrub" or (work.rate.value or 0.0) > few]
    return _too_much(works, FOREIGN_MAX)


def _too_much(works: Sequence[ForeignWork], limit: float) -> tuple[ForeignWork, ...]:
    """Return the work that is not known to be small; what is small each may be too much together."""
    works = [work for work in works if work.kind not in OF_MACHINES]
    share = sum(work.share.value or 0.0 for work in works)
    return tuple(work for work in works if work.share.value is None or (share > limit and work.share.value > 0))


def _own_iops(measured: StepFigures, direction: Direction) -> float:
    """Return our I/Os a second in one direction."""
    for each in measured.directions:
        if each.direction == direction:
            return each.iops
    return measured.iops if (measured.read_bytes if direction == "read" else measured.write_bytes) else 0.0


# --- tenants


@dataclasses.dataclass(frozen=True, slots=True)
class _Served:
    """What the OSDs under test did in one direction for others than us, a second.

    `iops`, `bytes_per_s`: for nobody that is known, zero where our load may explain it. `room_iops`: for others at
    most; None where it is not known.
    """

    iops: float
    bytes_per_s: float
    room_iops: float | None


def _tenants(step: Step, measured: StepFigures, perf: pa.Table) -> list[ForeignWork]:
    least = "" if counters.all_answered(perf, osds_of(step), "osd") else "at least "
    works = []
    copies = _copies(perf)
    for direction in _DIRECTIONS:
        uses = [(use.pool, *use.rates(direction)) for use in measured.tenants or ()]
        served = _served(step, measured, perf, direction)
        total = sum(iops for _, iops, _ in uses)
        # A pool of other OSDs is no work for those under test.
        here = 1.0 if served.room_iops is None or total <= 0 else min(1.0, max(0.0, served.room_iops) / total)
        for pool, iops, moved in uses:
            if (_share(measured, direction, iops, moved, copies).value or 0.0) >= _SHARE_MIN:
                words = _rate_words(direction, iops, moved, copies)
                done = f"the pool {pool} did {words}{'' if here else ' on other OSDs'}"
                share = _share(measured, direction, iops * here, moved * here, copies)
                works.append(_tenant(pool, direction, iops, share, done))
        if served.iops > 0 or served.bytes_per_s > 0:
            words = _rate_words(direction, served.iops, served.bytes_per_s, copies)
            done = f"{UNKNOWN_CLIENTS} did {least}{words} as the OSDs count"
            share = _share(measured, direction, served.iops, served.bytes_per_s, copies)
            works.append(_tenant(UNKNOWN_CLIENTS, direction, served.iops, share, done))
    return sorted(works, key=lambda work: -(work.share.value or 0.0))


def _served(step: Step, measured: StepFigures, perf: pa.Table, direction: Direction) -> _Served:
    """Compare what the OSDs served in one direction with our load and the pools that are known."""
    count, moved = (counters.osd_sum(perf, "osd", *names) for names in _COUNTED[direction])
    counted, loaded_s = counted_s(perf), step.ramp_s + measured.runtime_s
    if count is None or moved is None or not counted or measured.runtime_s <= 0:
        return _Served(0.0, 0.0, None)
    own_iops = _own_iops(measured, direction)
    own_bytes = (measured.read_bytes if direction == "read" else measured.write_bytes) / measured.runtime_s
    pools = [use.rates(direction) for use in measured.tenants or ()]
    beyond = []
    # What is in flight when a load ends, and was when its ramp ended, is done as well.
    in_flight = 2 * step.queue_depth * step.jobs if own_iops else 0
    for served, ours, opening, of_pools in (
        (count, own_iops, _OPEN_COUNT + in_flight, sum(iops for iops, _ in pools) * counted),
        (
            moved,
            own_bytes,
            _OPEN_BYTES + in_flight * step.block_size_bytes,
            sum(rate for _, rate in pools) * counted,
        ),
    ):
        excess = served - ours * loaded_s - of_pools
        allowed = ours * (_RATE_ERROR * loaded_s + (_RAMP_FACTOR - 1) * step.ramp_s) + opening * step.jobs
        beyond.append((excess, excess > allowed + _POOL_ERROR * of_pools))
    unexplained = any(more for _, more in beyond)
    iops, bytes_per_s = (max(0.0, excess) / counted if unexplained else 0.0 for excess, _ in beyond)
    if not counters.all_answered(perf, osds_of(step), "osd"):
        return _Served(iops, bytes_per_s, None)
    least = 0.0 if step.op in ("read", "write") else _SERVED_MIN * own_iops * loaded_s
    return _Served(iops, bytes_per_s, (count - least) / counted)


def _tenant(subject: str, direction: Direction, iops: float, share: Figure, done: str) -> ForeignWork:
    text = f"{done}: {format_percent(share.value)} of our load" if share.value else done
    return ForeignWork("tenant", subject, direction, Figure(iops, "1/s"), share, text)


def _rate_words(direction: Direction, iops: float, bytes_per_s: float, copies: float) -> str:
    moved = f" ({format_bandwidth(bytes_per_s)})" if bytes_per_s else ""
    each = f", each at {three_digits(copies)} OSDs" if direction == "write" and copies >= _COPIES_MIN else ""
    return f"{format_rate(iops)} {direction}s a second{moved}{each}"


def _copies(perf: pa.Table) -> float:
    """Return at how many OSDs a write is, on average of all clients' writes; 1 where none was counted."""
    written, copied = (counters.osd_sum(perf, "osd", *names) for names in (("op_w", "op_rw"), ("subop_w",)))
    return 1.0 + (copied or 0.0) / written if written else 1.0


def _share(measured: StepFigures, direction: Direction, iops: float, bytes_per_s: float, copies: float = 1.0) -> Figure:
    """Return the share of our load by operations in OSDs or by bytes, whichever is more.

    A write is at `copies` OSDs, a read at one: a few writes beside many reads are more than their number says.
    """
    if measured.iops <= 0 or measured.bandwidth_bytes_per_s <= 0:
        return Figure(None, "ratio")
    written, moved = _own_iops(measured, "write"), measured.read_bytes + measured.write_bytes
    our_iops = measured.iops + (copies - 1) * written
    own_bytes = measured.bandwidth_bytes_per_s * (1 + (copies - 1) * (measured.write_bytes / moved if moved else 0.0))
    times = copies if direction == "write" else 1.0
    return Figure(max(times * iops / our_iops, times * bytes_per_s / own_bytes), "ratio")


# --- what the cluster does for itself


def _scrub(measured: StepFigures, looks: pa.Table, perf: pa.Table) -> Iterator[ForeignWork]:
    """Yield the scrubbing of the whole cluster; since 20.2 the OSDs under test count what they read for it."""
    groups, deep = floats(looks, "pg_scrubbing_count"), floats(looks, "pg_deep_scrubbing_count")
    read, counted = counters.osd_sum(perf, "osd", *_SCRUB_BYTES), counted_s(perf)
    if not groups.any() and not read:
        return
    kind = DEEP_SCRUB if (deep > 0).any() else "scrub"
    said = [f"{kind} of {_groups(groups)}"] if groups.any() else []
    share = Figure(None, "ratio")
    if read and counted:
        share = _share(measured, "read", 0.0, read / counted)
        said.append(f"the OSDs read {format_bandwidth(read / counted)} to scrub")
    rate = Figure(float(groups.mean()) if groups.size else None, "placement groups", samples=groups.size)
    yield ForeignWork("scrub", kind, "read", rate, share, "; ".join(said))


def _recovery(step: Step, measured: StepFigures, looks: pa.Table, perf: pa.Table) -> Iterator[ForeignWork]:
    """Yield the placement groups that were not clean, and what the OSDs under test did for recovery."""
    # Groups whose state the manager does not know yet are no sign of data at risk, and scrubbing ones are clean.
    said = [text for text in strings(looks, "pg_not_clean") if text]
    if said:
        count = float(sum(int(number) for number in re.findall(r"(\d+) PGs", said[-1])))
        text = f"placement groups were not clean during the step: {said[-1]}"
        yield ForeignWork("recovery", NOT_CLEAN, "", Figure(count, "placement groups"), Figure(None, "ratio"), text)
    operations, counted = counters.osd_sum(perf, "osd", "recovery_ops"), counted_s(perf)
    if operations and counted and measured.io_count:
        moved = counters.osd_sum(perf, "osd", "recovery_bytes") or 0.0
        share = max(operations / measured.io_count, moved / max(1, measured.read_bytes + measured.write_bytes))
        least = "" if counters.all_answered(perf, osds_of(step), "osd") else "at least "
        text = f"the OSDs did {least}{operations:.0f} recovery operations during the step"
        rate = Figure(operations / counted, "1/s")
        yield ForeignWork("recovery", "recovery operations", "", rate, Figure(share, "ratio"), text)


def _snap_trim(looks: pa.Table) -> Iterator[ForeignWork]:
    groups = np.nan_to_num(floats(looks, "pg_snap_trim_count"))
    if groups.any():
        text = f"deleted snapshots were trimmed from {_groups(groups)}"
        rate = Figure(float(groups.mean()), "placement groups", samples=groups.size)
        yield ForeignWork("snap_trim", "snapshot trimming", "", rate, Figure(None, "ratio"), text)


def _groups(counts: Floats) -> str:
    """Return how many placement groups were in a state, look by look, in words."""
    most, seen = int(counts.max()), int((counts > 0).sum())
    return f"{most} placement group{'s' * (most > 1)} at once, seen in {seen} of {counts.size} looks at the cluster"


def _processes(measured: StepFigures) -> Iterator[ForeignWork]:
    """Yield the processes of the machine that makes the load which are neither load, nor daemons, nor ourselves."""
    cores, processors = measured.other_cores, measured.host_processors
    if cores is not None and processors and cores >= _PROCESSES_MIN * processors:
        text = f"other processes on the machine used {three_digits(cores)} of its {processors} processors"
        share = Figure(cores / processors, "ratio")
        yield ForeignWork("processes", measured.load_host, "", Figure(cores, "cores"), share, text)


def _steal(measured: StepFigures) -> Iterator[ForeignWork]:
    """Yield the machines whose processors had work and waited for a hypervisor."""
    for use in measured.machines:
        if use.steal_ratio is not None and use.steal_ratio >= STEAL_MIN:
            share = format_percent(use.steal_ratio)
            text = f"the processors of {machine(use.name)} waited for the hypervisor {share} of the time (steal)"
            cores = Figure(use.steal_ratio * use.processors, "cores")
            yield ForeignWork("steal", use.name, "", cores, Figure(use.steal_ratio, "ratio"), text)
