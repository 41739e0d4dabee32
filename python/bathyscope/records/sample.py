"""What is sampled: each row carries an absolute time and the place that it comes from.

A bench step, an hour of a recording, an incident are windows of time that analysis joins with these rows. A row with
`duration_ns` is an interval that ends at `at_ns`: what was counted in it, not a running total, so that a restarted
daemon costs one interval and intervals can be added up.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.base import Record, column

_AT = "end of the interval, since the Unix epoch"
_MOMENT = "moment of the observation, since the Unix epoch"


@dataclasses.dataclass(frozen=True, slots=True)
class Collection(Record):
    """One row per source and collection: what asking cost, and whether it succeeded."""

    TABLE: ClassVar[str] = "collection"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column("start of the collection, since the Unix epoch", unit="ns")
    source: str = column("name of the source")
    duration_ns: int = column("from the first question to the last answer", unit="ns")
    request_count: int = column("questions asked")
    failure_count: int = column("questions without a good answer")
    answer_bytes: int = column("bytes that came back", unit="bytes")
    success: bool = column("whether at least one question was asked and none failed")
    problem: str | None = column("why it failed, or why it did not take place (missed, backed off)")


@dataclasses.dataclass(frozen=True, slots=True)
class Op(Record):
    """One row per client operation in an OSD's op history, which says where its time went, or in an OSD's log."""

    TABLE: ClassVar[str] = "op"
    TIME: ClassVar[str | None] = "started_ns"

    osd: int = column("OSD that holds the history or wrote the log: the primary")
    client: str = column("client instance: client.4157")
    client_address: str | None = column("client address without the nonce")
    pool_id: int | None = column("pool of the object")
    pg: str | None = column("placement group: 2.1f")
    object_name: str | None = column("name of the object")
    op: str = column("read, write or other")
    offset_bytes: int | None = column(
        "offset inside the object of the first extent that is written, else read", unit="bytes"
    )
    length_bytes: int | None = column("length of all extents that are written, else read", unit="bytes")
    started_ns: int = column("when the OSD began to receive the op, since the Unix epoch", unit="ns")
    duration_ns: int = column("from there to done", unit="ns")
    queue_ns: int | None = column("received to taken up by a worker (network read, throttle, op queue)", unit="ns")
    prepare_ns: int | None = column("taken up to started or sent to replicas (PG lock, object context)", unit="ns")
    store_ns: int | None = column("own object store: until the own commit, or until the read was done", unit="ns")
    replica_wait_ns: int | None = column("wait for replicas beyond the own commit", unit="ns")
    reply_ns: int | None = column("the rest, until done", unit="ns")
    slowest_peer: int | None = column("replica OSD whose commit came last, if it came after the own commit")
    complete_sample: bool = column("false when the history was full: then only the slowest ops are there")
    complete_since_ns: int = column(
        "since when the history held every op, or when the log begins, since the Unix epoch", unit="ns"
    )
    result: int | None = column(
        "result of the reply in the log, below 0 the number of an error; empty where it is not said", optional=True
    )
    image_id: str | None = column(
        "id of the image whose data the object holds; a text of no length for an object that is no data of an image",
        optional=True,
    )
    image_pool_id: int | None = column(
        "pool of the header of that image, where its data lies in another pool", optional=True
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PerfCounter(Record):
    """One row per interval, daemon and perf counter that changed or, for a gauge, is or was not zero."""

    TABLE: ClassVar[str] = "perf_counter"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column("length of the interval", unit="ns", roll_up="sum by daemon")
    daemon: str = column("osd.3")
    section: str = column("section of `perf dump`: osd, bluestore, bluefs, …")
    name: str = column("name of the counter")
    kind: str = column("counter, average (sum and count) or gauge")
    delta: float | None = column("counter: growth in the interval; average: growth of the sum", roll_up="sum")
    count: int | None = column("average: growth of the number of samples", roll_up="sum")
    value: float | None = column("gauge: the value at the end of the interval", roll_up="last")


# The machine that measures, in the column `host`; the same word as in `spec.target`.
HERE = "localhost"


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceSample(Record):
    """One row per interval and block device: what the kernel counted."""

    TABLE: ClassVar[str] = "device_sample"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column("length of the interval", unit="ns", roll_up="sum")
    host: str = column("machine of the device")
    device: str = column("kernel name: loop3, sda")
    role: str = column(
        "what uses it: osd.3, several OSDs (osd.3 osd.4), block.db (osd.3.db), disk (the layer under test), or other"
    )
    device_class: str = column("hdd, ssd or nvme as the cluster calls it; empty if unknown")
    read_count: int = column("reads completed", roll_up="sum")
    write_count: int = column("writes completed", roll_up="sum")
    read_bytes: int = column("bytes read", unit="bytes", roll_up="sum")
    write_bytes: int = column("bytes written", unit="bytes", roll_up="sum")
    busy_ratio: float = column(
        "share of the time with at least one I/O in flight (io_ticks); a short interval can exceed 1 by rounding",
        roll_up="mean",
    )
    read_limit_ratio: float | None = column(
        "for a throttled lab device: the greater of read IOPS and read bytes over their limit; a burst exceeds 1",
        roll_up="mean",
    )
    write_limit_ratio: float | None = column("the same for writes", roll_up="mean")


@dataclasses.dataclass(frozen=True, slots=True)
class SimulatedDiskSample(Record):
    """One row per interval and simulated disk of a lab: what the disk itself says that it did."""

    TABLE: ClassVar[str] = "simulated_disk_sample"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column("length of the interval", unit="ns", roll_up="sum")
    disk: str = column("name of the disk")
    drive: str = column("which drive is simulated")
    device: str = column("kernel name of the device that it is: loop3")
    read_count: int = column("reads completed", roll_up="sum")
    write_count: int = column("writes completed", roll_up="sum")
    flush_count: int = column("flushes completed", roll_up="sum")
    error_count: int = column("requests that failed, by a fault", roll_up="sum")
    busy_ns: int = column("time with at least one request in flight", unit="ns", roll_up="sum")
    queue_ns: int = column("requests in flight, integrated over time", unit="ns", roll_up="sum")
    seek_count: int = column("movements of the arm", roll_up="sum")
    seek_ns: int = column("time in which the arm moved", unit="ns", roll_up="sum")
    rotation_ns: int = column("time in which a sector was waited for", unit="ns", roll_up="sum")
    transfer_ns: int = column("time in which data passed the medium", unit="ns", roll_up="sum")
    media_read_bytes: int = column("bytes read from the medium, read ahead included", unit="bytes", roll_up="sum")
    media_write_bytes: int = column("bytes written to the medium", unit="bytes", roll_up="sum")
    erase_count: int = column("flash: blocks erased", roll_up="sum")
    wear_ratio: float = column("flash: share of the rated endurance used, at the end of the interval", roll_up="last")
    reply_count: int = column("answers given", roll_up="sum")
    lateness_ns: int = column("how much later than the model's times they were given, in all", unit="ns", roll_up="sum")
    late_count: int = column("answers that were given too late to pass for the disk's", roll_up="sum")
    faults: str = column("faults that were on at the end of the interval, as they were given; empty without any")


@dataclasses.dataclass(frozen=True, slots=True)
class CacheSample(Record):
    """One row per interval and directory that a cache serves: what the cache says that it did, and how full it is.

    A read is a hit when all of it came from the cache.
    """

    TABLE: ClassVar[str] = "cache_sample"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column("length of the interval", unit="ns", roll_up="sum")
    host: str = column("machine of the cache")
    cache: str = column("name of the cache, else the path of its SSD")
    source: str = column("name of the directory that it serves")
    directory: str = column("the directory")
    osd: int | None = column("OSD whose data directory it is, by the directory's name")
    capacity_bytes: int | None = column("its share of the cache", unit="bytes", roll_up="last")
    used_bytes: int | None = column("bytes of it in the cache at the end of the interval", unit="bytes", roll_up="last")
    file_count: int | None = column("files with something in the cache, a device counts as one", roll_up="last")
    read_count: int = column("reads", roll_up="sum")
    read_hit_count: int = column("reads of which all came from the cache", roll_up="sum")
    read_bytes: int = column("bytes read", unit="bytes", roll_up="sum")
    read_hit_bytes: int = column("bytes read that came from the cache", unit="bytes", roll_up="sum")
    write_count: int = column("writes", roll_up="sum")
    write_hit_count: int = column("writes to what was cached", roll_up="sum")
    write_bytes: int = column("bytes written", unit="bytes", roll_up="sum")
    daemon_resident_bytes: int | None = column(
        "resident memory of the cache's daemon, at the end of the interval: one process for all rows of a cache",
        unit="bytes",
        optional=True,
        roll_up="max",
    )
    daemon_memory_budget_bytes: int | None = column(
        "memory that the daemon may take", unit="bytes", optional=True, roll_up="last"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessSample(Record):
    """One row per interval and process: processor time and memory."""

    TABLE: ClassVar[str] = "process_sample"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column("length of the interval", unit="ns", roll_up="sum")
    host: str = column("machine of the process")
    process: str = column("osd.3, mon.a, mgr.x, client (all load processes), bathy, or host (the whole machine)")
    cpu_user_s: float = column("processor time in user mode in the interval", unit="s", roll_up="sum")
    cpu_system_s: float = column("processor time in the kernel in the interval", unit="s", roll_up="sum")
    memory_bytes: int | None = column("resident memory at the end of the interval", unit="bytes", roll_up="max")
    processors: int = column("processors of the machine", roll_up="last")
    cpu_steal_s: float | None = column(
        "time in which processors had work and waited for the hypervisor (steal), of all together; only of host",
        unit="s",
        optional=True,
        roll_up="sum",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class CgroupSample(Record):
    """One row per interval and process: the limits that control groups put on it, and how it was held back.

    A limit holds for all members of its group together; of several on the path of groups it is the tightest.
    """

    TABLE: ClassVar[str] = "cgroup_sample"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column("length of the interval", unit="ns", roll_up="sum")
    host: str = column("machine of the process")
    process: str = column("osd.3, or client (all load processes)")
    cpu_quota_cores: float | None = column(
        "processors that the quota allows at the end of the interval; empty without a quota", roll_up="last"
    )
    cpu_throttled_s: float | None = column(
        "time in which the quota held threads back, of each processor added up; empty without a quota",
        unit="s",
        roll_up="sum",
    )
    device: str = column("kernel name of the OSD's data device: loop3, sda; empty without one")
    read_iops_limit: float | None = column("reads a second that are allowed; empty without a limit", roll_up="last")
    write_iops_limit: float | None = column("the same for writes", roll_up="last")
    read_bytes_per_s_limit: float | None = column(
        "bytes read a second that are allowed; empty without a limit", unit="bytes/s", roll_up="last"
    )
    write_bytes_per_s_limit: float | None = column("the same for writes", unit="bytes/s", roll_up="last")
    read_request_count: int | None = column(
        "read requests to the device of the whole group that is limited, before they are merged; empty if not known",
        roll_up="sum",
    )
    write_request_count: int | None = column("the same for writes", roll_up="sum")
    cpu_period_count: int | None = column(
        "periods of the quota in which the group ran; empty without a quota", optional=True, roll_up="sum"
    )
    cpu_throttled_period_count: int | None = column(
        "of these, periods in which the quota was used up before their end", optional=True, roll_up="sum"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkSample(Record):
    """One row per interval and network interface that leads out of a machine: what the kernel counted."""

    TABLE: ClassVar[str] = "network_sample"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column("length of the interval", unit="ns", roll_up="sum")
    host: str = column("machine of the interface")
    interface: str = column("kernel name: eth0, enp1s0f0")
    receive_bytes: int = column("bytes received", unit="bytes", roll_up="sum")
    transmit_bytes: int = column("bytes sent", unit="bytes", roll_up="sum")
    receive_packets: int | None = column("packets received", roll_up="sum")
    transmit_packets: int | None = column("packets sent", roll_up="sum")
    receive_errors: int | None = column("packets received with an error", roll_up="sum")
    transmit_errors: int | None = column("packets that could not be sent", roll_up="sum")
    receive_drops: int | None = column("packets received and dropped", roll_up="sum")
    transmit_drops: int | None = column("packets dropped before they were sent", roll_up="sum")
    speed_bits_per_s: int | None = column(
        "speed of the link in each direction, as the card reports it", unit="bits/s", roll_up="last"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterStatus(Record):
    """One row per status sample: the health of the cluster and its placement groups."""

    TABLE: ClassVar[str] = "cluster_status"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_MOMENT, unit="ns")
    health: str = column("HEALTH_OK, HEALTH_WARN or HEALTH_ERR")
    slow_op_count: int = column("slow operations that the monitors count (SLOW_OPS)")
    pg_count: int = column("placement groups that the manager knows of")
    pg_clean_count: int = column("of these, active and clean (scrubbing ones included)")
    pg_unknown_count: int = column("of these, unknown to the manager: made or moved a moment ago")
    pg_scrubbing_count: int = column("of these, being scrubbed")
    pg_not_clean: str | None = column("states that are not clean, with their counts: 12 PGs active+undersized")
    osds_down: str | None = column("OSDs that are down, by number: 3 7; empty when none is")
    pg_deep_scrubbing_count: int | None = column("of those being scrubbed, the ones read in full (deep)", optional=True)
    pg_snap_trim_count: int | None = column(
        "of the placement groups, being trimmed of deleted snapshots", optional=True
    )
    pg_snap_trim_wait_count: int | None = column("of the placement groups, waiting for that", optional=True)


@dataclasses.dataclass(frozen=True, slots=True)
class HealthCheck(Record):
    """One row per status sample and health check that is raised."""

    TABLE: ClassVar[str] = "health_check"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_MOMENT, unit="ns")
    code: str = column("code of the check: OSD_DOWN, SLOW_OPS, …")
    severity: str = column("HEALTH_WARN or HEALTH_ERR")
    message: str = column("summary of the check")


@dataclasses.dataclass(frozen=True, slots=True)
class OsdLatency(Record):
    """One row per status sample and OSD: its latencies, the I/O of all clients together (`osd perf`)."""

    TABLE: ClassVar[str] = "osd_latency"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_MOMENT, unit="ns")
    osd: int = column("number of the OSD")
    commit_latency_ms: float = column("mean commit latency that the OSD reports", unit="ms")
    apply_latency_ms: float = column("mean apply latency that the OSD reports", unit="ms")


@dataclasses.dataclass(frozen=True, slots=True)
class PoolIo(Record):
    """One row per interval and pool that did I/O at any time of the recording: what all of its clients did."""

    TABLE: ClassVar[str] = "pool_io"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column("length of the interval", unit="ns", roll_up="sum")
    pool_id: int = column("number of the pool")
    pool: str = column("name of the pool")
    own: bool = column("whether the run loads this pool; all other pools are other tenants'")
    read_count: int = column("reads that the pool's placement groups reported", roll_up="sum")
    write_count: int = column("writes that the pool's placement groups reported", roll_up="sum")
    read_bytes: int = column("bytes read, each read rounded up to KiB", unit="bytes", roll_up="sum")
    write_bytes: int = column("bytes written, each write rounded up to KiB", unit="bytes", roll_up="sum")


@dataclasses.dataclass(frozen=True, slots=True)
class PoolWait(Record):
    """One row per look at the OSDs and pool: the client operations that were in flight, and since when."""

    TABLE: ClassVar[str] = "pool_wait"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_MOMENT, unit="ns")
    pool_id: int = column("number of the pool")
    pool: str = column("name of the pool")
    own: bool = column("whether the run loads this pool; all other pools are other tenants'")
    osd_count: int = column("OSDs that answered")
    op_count: int = column("client operations in flight in these OSDs")
    wait_ns_sum: int = column("how long these operations had been in their OSD, all together", unit="ns")
    wait_ns_max: int = column("the same of the one that had been there longest", unit="ns")


@dataclasses.dataclass(frozen=True, slots=True)
class ImageUsage(Record):
    """One row per look at an image: how much of it has ever been written."""

    TABLE: ClassVar[str] = "image_usage"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_MOMENT, unit="ns")
    pool: str = column("pool of the image")
    image: str = column("name of the image")
    size_bytes: int = column("provisioned size", unit="bytes")
    used_bytes: int = column("bytes of its objects that exist", unit="bytes")
