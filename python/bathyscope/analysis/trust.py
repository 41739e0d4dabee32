"""Whether a step's numbers may be shown, and what to know beside them.

A refusal means that the figure would mislead: it measures something else than it claims. A caveat means that the
figure is what was measured, and says what limits its use. Each is one sentence with its numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis import counters
from bathyscope.analysis.columns import Tables, floats, table_of
from bathyscope.analysis.interference import (
    DEEP_SCRUB,
    NOT_CLEAN,
    STEAL_LIMIT,
    UNKNOWN_CLIENTS,
    in_cpu,
    in_writes,
    own_figures,
)
from bathyscope.analysis.step_figures import StepFigures, osds_of
from bathyscope.records import Caveat, Step
from bathyscope.units import format_bytes, format_percent, three_digits

COLD_CACHE_LIMIT = 0.05
CACHE_NOTE = 0.05
THIN_LIMIT = 0.5
WRITTEN_RATIO = 0.999
CLIENT_THREAD_LIMIT = 0.95
CLIENT_HOST_LIMIT = 0.95
SHARED_HOST_LIMIT = 0.9
LATENESS_NOTE = 0.02
LATENESS_LIMIT = 0.1
CROSS_CHECK_LIMIT = 0.1
SHORT_RUNTIME_LIMIT = 0.8
CLIENTS_APART_LIMIT = 0.1
RECOVERY_LIMIT = 0.01
TENANT_NOTE = 0.02

STOPPED_WHEN_PRECISE = "stopped_when_precise"
WHEN_PRECISE = "95 % intervals of such repeats hold the true median in about 92 % of the cases"
"""By simulation: docs/decisions/numbers.md."""

_DATA_IN_CACHE = "bluestore_cache_data_bytes"

Severity = Literal["note", "warning", "refused"]


@dataclasses.dataclass(frozen=True, slots=True)
class StepContext:
    """What is known of a step beside its records.

    `cache_bytes`: what the caches of the OSDs under test may hold together. `failures`: a sentence for each load
    process that failed. `image_written`: False when an image that is read was not written in full, None when no image
    is read or it is not known. `shared_host`: the load runs on a machine that also runs OSDs under test.
    `io_count_limited`: the load ends after a number of I/Os, not after its run time. `max_tenant_share`: the plan's
    limit for the I/O of other pools over ours. `precision`: which ends the repeats; None: their number does.
    """

    step: Step
    cache_bytes: int | None = None
    failures: tuple[str, ...] = ()
    image_written: bool | None = None
    shared_host: bool = False
    io_count_limited: bool = False
    max_tenant_share: float = math.inf
    precision: float | None = None

    @property
    def reads(self) -> bool:
        """Whether the load reads."""
        return self.step.op in ("randread", "read", "randrw")

    @property
    def on_disk(self) -> bool:
        """Whether the step loads a disk without a cluster."""
        return self.step.osds is None


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """`status` is done, refused or failed; `reason` is the first refusal's sentence. Refusals are caveats as well."""

    status: Literal["done", "refused", "failed"]
    reason: str | None
    caveats: tuple[Caveat, ...]
    figures: StepFigures


# (code, severity, text)
_Remark = tuple[str, Severity, str]


def judge_step(tables: Tables, context: StepContext) -> Judgement:
    """Judge one step from its own tables, as `window.tables` gives them.

    failed: there is no figure (no I/O at all, or the load failed). refused: there is one that misleads.
    """
    step_figures = own_figures(context.step, tables)
    remarks = [*_failures(step_figures, context)]
    failed = bool(remarks)
    remarks += _refusals(step_figures, tables, context)
    if not failed:
        remarks += _caveats(step_figures, tables, context)
    refused = [text for _, severity, text in remarks if severity == "refused"]
    caveats = tuple(Caveat(context.step.step_index, *remark, "trust") for remark in remarks)
    status: Literal["done", "refused", "failed"] = "failed" if failed else "refused" if refused else "done"
    return Judgement(status, refused[0] if refused else None, caveats, step_figures)


def _failures(step: StepFigures, context: StepContext) -> Iterator[_Remark]:
    for sentence in context.failures:
        yield "load_failed", "refused", sentence
    if step.io_count == 0:
        yield "no_io", "refused", "not one I/O was completed in the measured window"


def _refusals(step: StepFigures, tables: Tables, context: StepContext) -> Iterator[_Remark]:
    if step.error_count:
        share = step.error_count / max(1, step.io_count + step.error_count)
        yield "io_errors", "refused", f"{step.error_count} I/Os failed ({format_percent(share)} of all)"
    if step.io_count == 0:
        return
    yield from _recovery(step)
    if context.on_disk:
        return
    yield from _thin(step, tables, context)
    share, text = _other_pools(step)
    if share > context.max_tenant_share:
        limit = f"the plan's limit is {format_percent(context.max_tenant_share)}"
        yield "tenant_load", "refused", f"{text}; {limit} (limits.max_tenant_share)"
    cached = step.read_from_cache_ratio
    # What is not there comes from no cache.
    thin = context.image_written is False
    if context.step.temperature == "cold" and not thin and cached is not None and cached > COLD_CACHE_LIMIT:
        text = f"the step claims cold caches, but {format_percent(cached)} of its reads came from one"
        yield "not_cold", "refused", text
    busy = _client_limit(step)
    if busy is not None:
        yield "client_cpu", "refused", f"{busy}: the figure is the client's, not the cluster's"


def _recovery(step: StepFigures) -> Iterator[_Remark]:
    works = [work for work in step.foreign if work.kind == "recovery"]
    for work in works[:1]:
        small = work.subject != NOT_CLEAN and (work.share.value or 0.0) < RECOVERY_LIMIT
        yield "recovery", "note" if small else "refused", work.sentence


def is_written(usage: pa.Table) -> bool | None:
    """Return whether every image of an `image_usage` table was written in full; None when it has no image."""
    if usage.num_rows == 0:
        return None
    return bool(np.all(floats(usage, "used_bytes") >= WRITTEN_RATIO * floats(usage, "size_bytes")))


def _thin(step: StepFigures, tables: Tables, context: StepContext) -> Iterator[_Remark]:
    """Refuse reads that the OSDs did not answer with data.

    Bytes rather than operations: a read of an object that does not exist is an operation without bytes, and
    librbd joins sequential reads into fewer, larger operations.
    """
    if not context.reads:
        return
    if context.image_written is False:
        yield "thin_image", "refused", "the image was not written in full, so reads of it are answered without a disk"
        return
    perf, osds = table_of(tables, "perf_counter"), osds_of(context.step)
    answered = counters.osd_total(perf, osds, "osd", "op_r_out_bytes", "op_rw_out_bytes")
    if answered is None or step.read_bytes <= 0:
        return
    share = answered / step.read_bytes
    if share < THIN_LIMIT:
        text = (
            f"the OSDs returned {format_percent(share)} of the {format_bytes(step.read_bytes)} that the client read: "
            "the rest was answered without them (a thin image, or a cache in the client)"
        )
        yield "thin_image", "refused", text


def _client_limit(step: StepFigures) -> str | None:
    """Return why the client is the limit, or None."""
    busy = step.client_thread_busy
    if busy is not None and busy >= CLIENT_THREAD_LIMIT:
        return f"a load process uses {format_percent(busy)} of the one processor that its thread can use"
    if step.client_cores is not None and step.host_processors:
        share = step.client_cores / step.host_processors / step.host_given_ratio
        if share >= CLIENT_HOST_LIMIT:
            return f"the load processes use {three_digits(step.client_cores)} of {step.host_processors} processors"
    return None


def _other_pools(step: StepFigures) -> tuple[float, str]:
    """Return what other pools did on the OSDs under test: the share of our load, and a clause."""
    works = [work for work in step.foreign if work.kind == "tenant" and work.subject != UNKNOWN_CLIENTS]
    shares = [work.share.value or 0.0 for work in works]
    if not works:
        return 0.0, ""
    more = f" ({format_percent(sum(shares))} with all else of other pools)" if sum(shares) > shares[0] else ""
    return sum(shares), works[0].sentence + more


def _caveats(step: StepFigures, tables: Tables, context: StepContext) -> Iterator[_Remark]:
    if context.precision is not None:
        text = f"measured again while the interval of its IOPS was wider than {format_percent(context.precision)}"
        yield STOPPED_WHEN_PRECISE, "note", f"{text} of their median to a side: {WHEN_PRECISE}"
    steady = step.steady
    if steady.verdict == "unsteady":
        yield "unsteady", "warning", f"not steady: {steady.sentence}"
    elif steady.verdict == "unknown":
        yield "steadiness_unknown", "note", f"steadiness is not known: {steady.sentence}"
    if step.runtime_s < SHORT_RUNTIME_LIMIT * context.step.runtime_s and not context.io_count_limited:
        text = f"the load ran {three_digits(step.runtime_s)} s instead of {three_digits(context.step.runtime_s)} s"
        yield "short", "warning", text
    # What all clients did over the time of the longest: where one ended early it is less than the sum of their rates.
    over_longest = step.io_count / step.runtime_s if step.runtime_s > 0 else step.iops
    if step.iops > over_longest * (1 + CLIENTS_APART_LIMIT):
        share = format_percent(step.iops / over_longest - 1)
        text = f"clients ended apart: IOPS are the sum of their rates, {share} above all I/Os over the longest time"
        yield "clients_apart", "warning", text
    yield from _machine_caveats(step)
    yield from _simulated_disk_caveats(step)
    if context.on_disk:
        yield from _cross_check_caveats(step)
        busy = _client_limit(step)
        if busy is not None:
            yield "client_cpu", "warning", f"{busy}: the disk may be faster"
        return
    yield from _cache_caveats(step, tables, context)
    yield from _load_caveats(step, context)
    ops = table_of(tables, "op")
    if ops.num_rows and not pc.all(ops.column("complete_sample")).as_py():
        text = f"the OSDs' op history overflowed: the {ops.num_rows} operations kept lean towards the slow ones"
        yield "stages_slowest_only", "note", text


def _cache_caveats(step: StepFigures, tables: Tables, context: StepContext) -> Iterator[_Remark]:
    if not context.reads or any(_thin(step, tables, context)):
        return
    cached = step.read_from_cache_ratio
    if cached is None and context.step.temperature == "cold":
        text = "the step claims cold caches, which cannot be checked: neither OSD counters nor all devices were read"
        yield "cold_unchecked", "warning", text
    elif cached is None:
        text = "how many reads came from a cache is not known: no OSD counters, no device figures"
        yield "cache_unknown", "note", text
    elif cached > CACHE_NOTE:
        severity: Severity = "warning" if cached >= 0.5 and context.step.temperature != "warm" else "note"
        yield "cache_hits", severity, f"{format_percent(cached)} of the reads came from a cache, not from a device"
    else:
        # However large the caches are, they had no part in it.
        return
    held = counters.osd_level(table_of(tables, "perf_counter"), osds_of(context.step), "mempool", _DATA_IN_CACHE)
    size, may = (context.cache_bytes, "may hold") if held is None else (held, "held")
    if context.step.working_set_bytes and size and context.step.working_set_bytes <= size:
        fits = f"the working set of {format_bytes(context.step.working_set_bytes)} fits into the OSDs' caches"
        text = f"{fits}, which {may} {format_bytes(size)} of data"
        yield "small_working_set", "note" if context.step.temperature == "warm" else "warning", text


def _cross_check_caveats(step: StepFigures) -> Iterator[_Remark]:
    """Warn of a disk step whose device counted other bytes than the load generator: one of the two is wrong.

    On a raw disk with direct I/O both must agree; where they do not, the windows or the devices do not match.
    """
    seconds = step.runtime_s
    moved = (step.read_bytes + step.write_bytes) / seconds if seconds > 0 else 0.0
    counted = sum(device.read_bytes_per_s + device.write_bytes_per_s for device in step.devices)
    if step.devices and moved > 0 and abs(counted / moved - 1) > CROSS_CHECK_LIMIT:
        text = f"the device counted {format_percent(counted / moved)} of the bytes that the load generator moved"
        yield "device_mismatch", "warning", text


def _machine_caveats(step: StepFigures) -> Iterator[_Remark]:
    """Warn of a step whose machines were used by processes that have no part in it, or waited for a hypervisor."""
    for work in step.foreign:
        if work.kind == "processes":
            yield "other_cpu", "warning", work.sentence
        elif work.kind == "steal":
            text = f"{work.sentence}: latencies are higher, and rates lower, than without a hypervisor"
            yield "cpu_steal", "warning" if (work.share.value or 0.0) >= STEAL_LIMIT else "note", text


def _simulated_disk_caveats(step: StepFigures) -> Iterator[_Remark]:
    """Warn of disks that answered later than the drives that they stand for, and of faults that somebody has set."""
    disks = [(device, device.disk) for device in (*step.devices, *step.bluefs_devices) if device.disk]
    late = max((disk.lateness_ratio or 0.0 for _, disk in disks), default=0.0)
    if late > LATENESS_NOTE:
        text = f"simulated disks answered up to {format_percent(late)} later than the drive would: processors were busy"
        yield "simulated_disk_late", "warning" if late > LATENESS_LIMIT else "note", text
    faulty = "; ".join(f"{device.place}: {', '.join(disk.faults)}" for device, disk in disks if disk.faults)
    if faulty:
        yield "disk_faults", "warning", f"simulated disks had faults: {faulty}"


def _load_caveats(step: StepFigures, context: StepContext) -> Iterator[_Remark]:
    share, text = _other_pools(step)
    if TENANT_NOTE < share <= context.max_tenant_share:
        yield "tenant_load", "warning", f"others used the cluster during the step: {text}"
    for work in step.foreign:
        if work.subject == UNKNOWN_CLIENTS:
            yield "other_load", "warning", f"others use the OSDs under test: {work.sentence}"
        elif work.kind in ("scrub", "snap_trim"):
            yield work.kind, "warning" if work.subject == DEEP_SCRUB else "note", work.sentence
    ratio = step.host_cpu_ratio
    if context.shared_host and ratio is not None and ratio / step.host_given_ratio >= SHARED_HOST_LIMIT:
        busy = format_percent(min(ratio / step.host_given_ratio, 1.0))
        text = f"load and OSDs share one machine whose processors were {busy} busy"
        yield "shared_host_cpu", "warning", text
    in_figures = {
        "write amplification": in_writes(step) if step.write_bytes else (),
        "OSD processor time per I/O": in_cpu(step) if step.osd_cores else (),
    }
    hidden = {name: works[0].sentence for name, works in in_figures.items() if works}
    if hidden:
        why = next(iter(hidden.values()))
        yield "foreign_work", "note", f"not known because of the work of others: {' and '.join(hidden)} ({why})"
