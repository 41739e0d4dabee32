"""What happened inside the cluster and its machines while a step ran."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.base import Record, column


@dataclasses.dataclass(frozen=True, slots=True)
class Op(Record):
    """One row per client operation in an OSD's op history: where its time went."""

    TABLE: ClassVar[str] = "op"

    run_id: str = column("run that the row belongs to")
    step_index: int = column("step that the row belongs to")
    osd: int = column("OSD that holds the history: the primary")
    client: str = column("client instance: client.4157")
    client_address: str | None = column("client address without the nonce")
    pool_id: int | None = column("pool of the object")
    pg: str | None = column("placement group: 2.1f")
    object_name: str | None = column("name of the object")
    op: str = column("read, write or other")
    offset_bytes: int | None = column("offset inside the object of the first extent", unit="bytes")
    length_bytes: int | None = column("length of all extents", unit="bytes")
    started_ns: int = column("when the OSD began to receive the op, since the Unix epoch", unit="ns")
    duration_ns: int = column("from there to done", unit="ns")
    queue_ns: int | None = column("received to taken up by a worker (network read, throttle, op queue)", unit="ns")
    prepare_ns: int | None = column("taken up to started or sent to replicas (PG lock, object context)", unit="ns")
    store_ns: int | None = column("own object store: until the own commit, or until the read was done", unit="ns")
    replica_wait_ns: int | None = column("wait for replicas beyond the own commit", unit="ns")
    reply_ns: int | None = column("the rest, until done", unit="ns")
    slowest_peer: int | None = column("replica OSD whose commit came last, if it came after the own commit")
    complete_sample: bool = column("false when the history was full: then only the slowest ops are there")


@dataclasses.dataclass(frozen=True, slots=True)
class PerfCounter(Record):
    """One row per step, daemon and counter that changed: its difference over the step."""

    TABLE: ClassVar[str] = "perf_counter"

    run_id: str = column("run that the row belongs to")
    step_index: int = column("step that the row belongs to")
    daemon: str = column("osd.3")
    section: str = column("section of `perf dump`: osd, bluestore, bluefs, …")
    name: str = column("name of the counter")
    kind: str = column("counter (difference), average (difference of sum and count) or gauge (value after)")
    delta: float = column("difference of the value (gauge: the value after the step); for averages, of the sum")
    count: int | None = column("for averages: difference of the number of samples")


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceSample(Record):
    """One row per step and device: what the kernel counted between the start and the end of the measured window."""

    TABLE: ClassVar[str] = "device_sample"

    run_id: str = column("run that the row belongs to")
    step_index: int = column("step that the row belongs to")
    host: str = column("machine of the device")
    device: str = column("kernel name: loop3, sda")
    role: str = column("what uses it: osd.3, disk (the layer under test), or other")
    device_class: str = column("hdd, ssd or nvme as the cluster calls it; empty if unknown")
    offset_ns: int = column("end of the interval since the start of the measured window", unit="ns")
    duration_ns: int = column("length of the interval", unit="ns")
    read_count: int = column("reads completed")
    write_count: int = column("writes completed")
    read_bytes: int = column("bytes read", unit="bytes")
    write_bytes: int = column("bytes written", unit="bytes")
    busy_ratio: float = column("share of the time with at least one I/O in flight (io_ticks), 0 to 1")
    limit_ratio: float | None = column(
        "for a throttled lab device: the greatest of IOPS and bytes over its limit, 0 to 1; empty elsewhere"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessSample(Record):
    """One row per step, process and interval: processor time and memory."""

    TABLE: ClassVar[str] = "process_sample"

    run_id: str = column("run that the row belongs to")
    step_index: int = column("step that the row belongs to")
    host: str = column("machine of the process")
    process: str = column("osd.3, mon.a, mgr.x, client (all load processes), bathy, or host (the whole machine)")
    offset_ns: int = column("end of the interval since the start of the measured window", unit="ns")
    duration_ns: int = column("length of the interval", unit="ns")
    cpu_user_s: float = column("processor time in user mode in the interval", unit="s")
    cpu_system_s: float = column("processor time in the kernel in the interval", unit="s")
    memory_bytes: int | None = column("resident memory at the end of the interval", unit="bytes")
    processors: int = column("processors of the machine")


@dataclasses.dataclass(frozen=True, slots=True)
class Caveat(Record):
    """One row per reason to doubt a step, or the whole run."""

    TABLE: ClassVar[str] = "caveat"

    run_id: str = column("run that the row belongs to")
    step_index: int | None = column("step that it concerns; empty for the whole run")
    code: str = column("stable name: unsteady, cache_hits, recovery, throttle_profile, …")
    severity: str = column("note (know it), doubt (do not decide on it alone) or refused (no number is shown)")
    text: str = column("one sentence with the evidence")
    source: str = column("what noticed it")
