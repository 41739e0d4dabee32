"""What was run: one `run` row a run, one `step` row a step, one `result` row a step and direction."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.base import Record, column


@dataclasses.dataclass(frozen=True, slots=True)
class Run(Record):
    """One row per run: what was asked, of which cluster, with which versions."""

    TABLE: ClassVar[str] = "run"

    run_id: str = column("identifier of the run: time of start and a random suffix")
    kind: str = column("bench, collect, size or study")
    plan_name: str = column("name of the plan or preset")
    status: str = column("running, interrupted, done or failed")
    target: str = column("name of the target: a lab's name, or the path of a ceph.conf")
    bathy_version: str = column("version of bathyscope that made the run")
    started_ns: int = column("start, since the Unix epoch", unit="ns")
    ended_ns: int | None = column("end, since the Unix epoch; empty while it runs", unit="ns")
    cluster_fsid: str | None = column("fsid of the cluster")
    ceph_version: str | None = column("version that the OSDs report; several are joined by a comma")
    fio_version: str | None = column("version of the load generator")
    host_name: str | None = column("name of the machine that ran bathy")
    kernel: str | None = column("kernel of the machine that ran bathy")
    cpu_count: int | None = column("processors of the machine that ran bathy")


CLIENTS = "clients"
"""The layer, and the load generator, of what others did to a cluster: a window of a recording."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step(Record):
    """One row per step: one point of the plan's matrix in one repeat."""

    TABLE: ClassVar[str] = "step"

    step_index: int = column("place of the step in the run's order, from 0")
    step_key: str = column("the step's configuration as a stable name, without the repeat: rbd/ssd/randread-4K-qd16")
    repeat_index: int = column("repeat of the same configuration, from 0")
    layer: str = column("layer under test: disk, rados, rbd, …")
    load_generator: str = column("program that made the load: fio, or rados_bench as the cross-check")
    device_class: str = column("CRUSH device class of the OSDs under test; empty when the pool spans all")
    op: str = column("randread, randwrite, read, write or randrw, as fio names them")
    block_size_bytes: int = column("size of one I/O", unit="bytes")
    queue_depth: int = column("I/Os kept in flight per job")
    jobs: int = column("load processes; for rbd one per image")
    object_size_bytes: int | None = column("size of the objects behind the image or of the RADOS objects", unit="bytes")
    working_set_bytes: int | None = column("bytes that the load can touch", unit="bytes")
    temperature: str = column("cold, warm or any: what the plan claims of the OSDs' caches before the step")
    ramp_s: float = column("warm-up that is not measured", unit="s")
    runtime_s: float = column("measured time that was asked for", unit="s")
    started_ns: int = column("start of the load, ramp included, since the Unix epoch", unit="ns")
    ended_ns: int = column("end of the load, since the Unix epoch", unit="ns")
    measured_start_ns: int = column("start of the measured window, since the Unix epoch", unit="ns")
    measured_end_ns: int = column("end of the measured window, since the Unix epoch", unit="ns")
    osds: str | None = column("OSDs under test by number: 0 1 2; empty when no OSD is")
    prolonged_count: int = column("times that the step was prolonged because it was not steady")
    status: str = column("done, refused (a number exists but cannot be trusted) or failed (there is no number)")
    reason: str | None = column("why the step was refused or failed")
    phase: str | None = column(
        "state of the cluster in which the step was measured: no-cache; empty where a plan has no phases", optional=True
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Result(Record):
    """One row per step, direction and client: the totals that the load generator reported."""

    TABLE: ClassVar[str] = "result"

    step_index: int = column("step that the row belongs to")
    client: str = column("load process: fio#0, fio#1, …, or host:port of a remote fio server")
    direction: str = column("read or write")
    io_count: int = column("I/Os completed in the measured window")
    io_bytes: int = column("bytes moved in the measured window", unit="bytes")
    error_count: int = column("I/Os that failed")
    runtime_ns: int = column("measured time by the load generator's clock", unit="ns")
    iops: float = column("I/Os per second, as the load generator computed it", unit="1/s")
    bandwidth_bytes_per_s: float = column("bytes per second, as the load generator computed it", unit="bytes/s")
    latency_ns_mean: float | None = column("mean latency from submission to completion", unit="ns")
    latency_ns_stddev: float | None = column("standard deviation of the latency", unit="ns")
    latency_ns_min: float | None = column("least latency", unit="ns")
    latency_ns_max: float | None = column("greatest latency", unit="ns")
    cpu_user_s: float | None = column("processor time of the load process in user mode", unit="s")
    cpu_system_s: float | None = column("processor time of the load process in the kernel", unit="s")
    cpu_thread_s: float | None = column(
        "processor time of the load generator's own thread; a library such as librbd has more threads beside it",
        unit="s",
        optional=True,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Interval(Record):
    """One row per step, client, direction and interval (one second unless the step is short)."""

    TABLE: ClassVar[str] = "interval"

    step_index: int = column("step that the row belongs to")
    client: str = column("load process, as in the table result")
    direction: str = column("read or write")
    offset_ns: int = column("end of the interval since the start of the measured window", unit="ns")
    duration_ns: int = column("length of the interval", unit="ns")
    iops: float = column("I/Os per second in the interval", unit="1/s")
    bandwidth_bytes_per_s: float = column("bytes per second in the interval", unit="bytes/s")
    latency_ns_mean: float | None = column("mean latency of the I/Os that ended in the interval", unit="ns")


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram(Record):
    """One row per step, client, direction, kind and bucket that holds anything. Buckets can be added up.

    The buckets are fio's: 64 to a power of two, so a value read from one is off by less than 1/128 (0.8 %).
    """

    TABLE: ClassVar[str] = "histogram"

    step_index: int = column("step that the row belongs to")
    client: str = column("load process, as in the table result")
    direction: str = column("read or write")
    kind: str = column("slat (submission), clat (completion) or lat (both)")
    bucket_ns: int = column("value that fio gives for the bucket: its middle", unit="ns")
    count: int = column("I/Os in the bucket")
