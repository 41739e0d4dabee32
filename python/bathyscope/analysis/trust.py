"""Whether a step's numbers may be shown, and what to know beside them.

A refusal means that the number would be a lie: it measures something else than it claims. A caveat means
that the number is what was measured, and says what limits its use. Each is one sentence with its figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import pyarrow.compute as pc

from bathyscope.analysis import counters
from bathyscope.analysis.columns import Tables, table_of
from bathyscope.analysis.step_figures import StepFigures, figures
from bathyscope.records import Caveat
from bathyscope.units import format_bytes, format_percent, three_digits

COLD_CACHE_LIMIT = 0.05
CACHE_NOTE = 0.05
THIN_LIMIT = 0.5
CLIENT_THREAD_LIMIT = 0.95
CLIENT_HOST_LIMIT = 0.95
SHARED_HOST_LIMIT = 0.9
OTHER_CPU_LIMIT = 0.25
WITNESS_LIMIT = 0.1
SHORT_RUNTIME_LIMIT = 0.8
OTHER_LOAD_LIMIT = 1.3

Severity = Literal["note", "doubt", "refused"]


@dataclasses.dataclass(frozen=True, slots=True)
class StepContext:
    """What is known of a step beside its records.

    `osds`: OSDs under test, None when unknown. `cache_bytes`: what their caches may hold together. `replicas`: of
    the pool. `degraded`: a sentence if placement groups were degraded or recovering at any time during the step.
    `failures`: a sentence for each load process that failed. `image_written`: False when an image that is read was
    not written in full. `shared_host`: the load runs on a machine that also runs OSDs under test.
    `counted_s`: seconds between the two looks at the perf counters (ramp included), None when unknown.
    """

    run_id: str
    step_index: int
    layer: str
    op: str
    runtime_s: float
    ramp_s: float = 0.0
    device_class: str = ""
    temperature: str = "any"
    working_set_bytes: int | None = None
    osds: frozenset[int] | None = None
    replicas: int | None = None
    cache_bytes: int | None = None
    degraded: str | None = None
    failures: tuple[str, ...] = ()
    image_written: bool | None = None
    shared_host: bool = False
    counted_s: float | None = None
    io_count_limited: bool = False

    @property
    def reads(self) -> bool:
        """Whether the load reads."""
        return self.op in ("randread", "read", "randrw")

    @property
    def on_disk(self) -> bool:
        """Whether the step loads a disk without a cluster."""
        return self.layer == "disk"


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """`status` is done, refused or failed; `reason` is the first refusal's sentence. Refusals are caveats as well."""

    status: Literal["done", "refused", "failed"]
    reason: str | None
    caveats: tuple[Caveat, ...]
    figures: StepFigures


@dataclasses.dataclass(frozen=True, slots=True)
class _Doubt:
    code: str
    severity: Severity
    text: str


def judge_step(tables: Tables, context: StepContext) -> Judgement:
    """Judge one step from its own tables (result, interval, histogram, op, perf_counter, …).

    failed: there is no number (no I/O at all, or the load failed). refused: there is one that lies.
    """
    found = figures(
        context.step_index, tables, on_disk=context.on_disk, device_class=context.device_class, osds=context.osds
    )
    doubts = [*_failures(found, context)]
    failed = bool(doubts)
    doubts += _refusals(found, tables, context)
    if not failed:
        doubts += _caveats(found, tables, context)
    refused = [d for d in doubts if d.severity == "refused"]
    caveats = tuple(Caveat(context.run_id, context.step_index, d.code, d.severity, d.text, "trust") for d in doubts)
    status: Literal["done", "refused", "failed"] = "failed" if failed else "refused" if refused else "done"
    return Judgement(status, refused[0].text if refused else None, caveats, found)


def target_caveats(run_id: str, caveats: tuple[tuple[str, str], ...]) -> list[Caveat]:
    """Return the caveats of a target (throttled lab devices, unthrottled lab, …) as rows of the whole run."""
    return [Caveat(run_id, None, code, "note", text, "target") for code, text in caveats]


def _failures(step: StepFigures, context: StepContext) -> Iterator[_Doubt]:
    for sentence in context.failures:
        yield _Doubt("load_failed", "refused", sentence)
    if step.io_count == 0:
        yield _Doubt("no_io", "refused", "not one I/O was completed in the measured window")


def _refusals(step: StepFigures, tables: Tables, context: StepContext) -> Iterator[_Doubt]:
    if step.error_count:
        share = step.error_count / max(1, step.io_count + step.error_count)
        yield _Doubt("io_errors", "refused", f"{step.error_count} I/Os failed ({format_percent(share)} of all)")
    if step.io_count == 0:
        return
    yield from _recovery(step, tables, context)
    if context.on_disk:
        return
    yield from _thin(step, tables, context)
    cached = step.read_from_cache_ratio
    if context.temperature == "cold" and cached is not None and cached > COLD_CACHE_LIMIT:
        yield _Doubt(
            "not_cold",
            "refused",
            f"the step claims cold caches, but {format_percent(cached)} of its reads came from one",
        )
    busy = _client_limit(step)
    if busy is not None:
        yield _Doubt("client_cpu", "refused", f"{busy}: the figure is the client's, not the cluster's")


def _recovery(step: StepFigures, tables: Tables, context: StepContext) -> Iterator[_Doubt]:
    if context.degraded:
        yield _Doubt("recovery", "refused", f"the cluster was not whole during the step: {context.degraded}")
        return
    operations = counters.osd_total(table_of(tables, "perf_counter"), "osd", "recovery_ops") or 0.0
    if operations >= max(1.0, 0.01 * step.io_count):
        yield _Doubt("recovery", "refused", f"the OSDs did {operations:.0f} recovery operations during the step")
    elif operations:
        yield _Doubt("recovery", "note", f"the OSDs did {operations:.0f} recovery operations during the step")


def _thin(step: StepFigures, tables: Tables, context: StepContext) -> Iterator[_Doubt]:
    """Refuse reads that the OSDs did not answer with data.

    Bytes rather than operations: a read of an object that does not exist is an operation without bytes, and
    librbd joins sequential reads into fewer, larger operations.
    """
    if not context.reads:
        return
    if context.image_written is False:
        yield _Doubt(
            "thin_image", "refused", "the image was not written in full, so reads of it are answered without a disk"
        )
        return
    answered = counters.osd_total(table_of(tables, "perf_counter"), "osd", "op_r_out_bytes", "op_rw_out_bytes")
    if answered is None or step.read_bytes <= 0:
        return
    share = answered / step.read_bytes
    if share < THIN_LIMIT:
        yield _Doubt(
            "thin_image",
            "refused",
            f"the OSDs returned {format_percent(share)} of the {format_bytes(step.read_bytes)} that the client read: "
            "the rest was answered without them (a thin image, or a cache in the client)",
        )


def _client_limit(step: StepFigures) -> str | None:
    """Return why the client is the limit, or None."""
    busy = step.client_thread_busy
    if busy is not None and busy >= CLIENT_THREAD_LIMIT:
        return f"a load process uses {format_percent(busy)} of the one processor that its thread can use"
    if step.client_cores is not None and step.host_processors:
        share = step.client_cores / step.host_processors
        if share >= CLIENT_HOST_LIMIT:
            return f"the load processes use {three_digits(step.client_cores)} of {step.host_processors} processors"
    return None


def _caveats(step: StepFigures, tables: Tables, context: StepContext) -> Iterator[_Doubt]:
    steady = step.steady
    if steady.verdict == "unsteady":
        yield _Doubt("unsteady", "doubt", f"not steady: {steady.sentence}")
    elif steady.verdict == "cannot tell":
        yield _Doubt("steadiness_unknown", "note", f"steadiness is not known: {steady.sentence}")
    if step.runtime_s < SHORT_RUNTIME_LIMIT * context.runtime_s and not context.io_count_limited:
        text = f"the load ran {three_digits(step.runtime_s)} s instead of {three_digits(context.runtime_s)} s"
        yield _Doubt("short", "doubt", text)
    yield from _stranger_caveats(step)
    if context.on_disk:
        yield from _witness_caveats(step)
        busy = _client_limit(step)
        if busy is not None:
            yield _Doubt("client_cpu", "doubt", f"{busy}: the disk may be faster")
        return
    yield from _cache_caveats(step, context)
    yield from _load_caveats(step, tables, context)
    ops = table_of(tables, "op")
    if ops.num_rows and not pc.all(ops.column("complete_sample")).as_py():
        yield _Doubt(
            "stages_slowest_only",
            "note",
            f"the OSDs' op history overflowed: the {ops.num_rows} operations kept lean towards the slow ones",
        )


def _cache_caveats(step: StepFigures, context: StepContext) -> Iterator[_Doubt]:
    if not context.reads:
        return
    cached = step.read_from_cache_ratio
    if cached is None and context.temperature == "cold":
        text = "the step claims cold caches, which cannot be checked: neither OSD counters nor all devices were read"
        yield _Doubt("cold_unchecked", "doubt", text)
    elif cached is None:
        yield _Doubt(
            "cache_unknown", "note", "how many reads came from a cache is not known: no OSD counters, no device figures"
        )
    elif cached > CACHE_NOTE:
        severity: Severity = "doubt" if cached >= 0.5 and context.temperature != "warm" else "note"
        yield _Doubt(
            "cache_hits", severity, f"{format_percent(cached)} of the reads came from a cache, not from a device"
        )
    if context.working_set_bytes and context.cache_bytes and context.working_set_bytes < context.cache_bytes:
        yield _Doubt(
            "small_working_set",
            "note" if context.temperature == "warm" else "doubt",
            f"the working set of {format_bytes(context.working_set_bytes)} fits into the OSDs' caches of "
            f"{format_bytes(context.cache_bytes)}",
        )


def _witness_caveats(step: StepFigures) -> Iterator[_Doubt]:
    """Doubt a disk step whose device counted other bytes than the load generator: one of the two is wrong.

    On a raw disk with direct I/O both must agree; where they do not, the windows or the devices do not match.
    """
    seconds = step.runtime_s
    moved = (step.read_bytes + step.write_bytes) / seconds if seconds > 0 else 0.0
    counted = sum(device.read_bytes_per_s + device.write_bytes_per_s for device in step.devices)
    if step.devices and moved > 0 and abs(counted / moved - 1) > WITNESS_LIMIT:
        text = f"the device counted {format_percent(counted / moved)} of the bytes that the load generator moved"
        yield _Doubt("device_mismatch", "doubt", text)


def _stranger_caveats(step: StepFigures) -> Iterator[_Doubt]:
    """Doubt a step during which processes that have nothing to do with it used much of its machine."""
    others, processors = step.other_cores, step.host_processors
    if others is not None and processors and others >= OTHER_CPU_LIMIT * processors:
        text = f"other processes on the machine used {three_digits(others)} of its {processors} processors"
        yield _Doubt("other_cpu", "doubt", text)


def _load_caveats(step: StepFigures, tables: Tables, context: StepContext) -> Iterator[_Doubt]:
    ratio = step.host_cpu_ratio
    if context.shared_host and ratio is not None and ratio >= SHARED_HOST_LIMIT:
        text = f"load and OSDs share one machine whose processors were {format_percent(min(ratio, 1.0))} busy"
        yield _Doubt("shared_host_cpu", "doubt", text)
    perf = table_of(tables, "perf_counter")
    reads, writes = counters.osd_total(perf, "osd", "op_r"), counters.osd_total(perf, "osd", "op_w")
    if reads is None or writes is None or step.runtime_s <= 0:
        return
    # The counters run from before the ramp to after the load; ours are scaled to the same time.
    window_s = context.counted_s or (context.ramp_s + step.runtime_s + 1.0)
    expected = step.iops * max(window_s, step.runtime_s)
    if reads + writes > OTHER_LOAD_LIMIT * expected + 100:
        yield _Doubt(
            "other_load",
            "doubt",
            f"the OSDs served {reads + writes:.0f} operations where our load explains {expected:.0f}: others use them",
        )
