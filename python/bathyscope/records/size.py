"""Miss-ratio curves as records: one row per point of a curve, so that curves can be stored, merged and plotted."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.base import Record, column


@dataclasses.dataclass(frozen=True, slots=True)
class CurvePoint(Record):
    """One row per group, line size, policy and cache size: what a cache of that size would have done.

    A request hits when every line of it was in the cache; reads and writes are apart because a
    write-through cache saves the backing device nothing on a write. Ratios are of the requests (or bytes) of
    the whole trace, cold misses included.
    """

    TABLE: ClassVar[str] = "curve_point"

    group_kind: str = column("what the curve is of: all, osd, image, pool or node")
    group_name: str = column("which one")
    window: str = column(
        "part of the trace that it rests on: all, the number of the window from its start, or 'peak' and the number of "
        "a shorter window, which show the busiest minute"
    )
    policy: str = column("eviction policy: lru, s3-fifo, …")
    admission: str = column("admission: all, 2-hit, …")
    method: str = column("simulation of every request, or minisim: a miniature simulation of a sample")
    line_bytes: int = column("unit of caching", unit="bytes")
    fetch_bytes: int = column(
        "fetch size (sub-block): what a miss fetches; if adaptive, the unit of that", unit="bytes"
    )
    size_bytes: int = column("cache size, flash and DRAM together", unit="bytes")
    flash_bytes: int = column("part of the cache size that is flash; the rest is DRAM", unit="bytes")
    read_requests: int = column("read requests of the group in the window")
    write_requests: int = column("write requests of the group in the window")
    read_bytes: int = column("bytes read by the group in the window", unit="bytes")
    write_bytes: int = column("bytes written by the group in the window", unit="bytes")
    working_set_bytes: int = column("distinct lines touched, in bytes", unit="bytes")
    read_hit_ratio: float = column("read requests that hit, of all read requests, 0 to 1")
    read_hit_ratio_low: float = column("lower end of the 95 % band of the estimate")
    read_hit_ratio_high: float = column("upper end of the 95 % band of the estimate")
    read_byte_hit_ratio: float = column("read bytes that hit, of all read bytes, 0 to 1")
    write_hit_ratio: float = column("write requests whose lines were all cached, of all write requests, 0 to 1")
    write_byte_hit_ratio: float = column("bytes of writes whose line was cached, of all bytes written, 0 to 1")
    cold_read_ratio: float = column("compulsory (cold) misses: read requests that touch a line for the first time")
    cold_write_ratio: float = column("write requests that touch a line for the first time")
    fetch_amplification: float | None = column("bytes fetched from the backing device per byte read")
    write_gap_ratio: float | None = column(
        "part of the units touched by writes that the writes left unwritten, 0 when all are aligned; empty when "
        "nothing is written or writes never enter the cache"
    )
    flash_write_bytes: float = column("bytes written to flash over the window", unit="bytes")
    evicted_lines: float = column("lines evicted over the window; a cache that is not full evicts none")
    write_budget_bytes_per_day: float | None = column(
        "what admission lets be written to flash in a day, of which a day's worth can be saved up; empty if unbounded",
        unit="bytes",
    )
    duration_s: float = column("length of the window in the trace's own time; 0 when the trace has none", unit="s")
    sampled_lines: int | None = column("lines that the estimate rests on; empty when it is exact")
    sample_region_bytes: int | None = column(
        "length of the aligned regions that the sample is made of; empty when it is exact", unit="bytes"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TraceSummary:
    """What the first pass over a trace found: events, records that could not be read, times, read latencies.

    `out_of_order` counts events that are earlier than the one before them in the same file; `overlapping_files` are
    the first ten that begin before others given earlier end; `incomplete_ops` are operations of op histories that were
    full. `latency_ns` and `latency_counts` are a histogram, empty when the trace has no latencies.
    `request_bytes_p99` is the length that 99 % of the requests do not exceed, to 1.6 %. `object_bytes` is the size of
    images' objects where the trace has objects, given or the smallest that holds every I/O. `columns_used` and
    `columns_ignored` are those of a trace with a header.
    """

    sources: tuple[str, ...]
    events: int
    skipped: int = 0
    time_ns_range: tuple[int, int] | None = None
    latency_ns: tuple[float, ...] = ()
    latency_counts: tuple[float, ...] = ()
    first_errors: tuple[str, ...] = ()
    request_bytes_p99: float = 0.0
    out_of_order: int = 0
    overlapping_files: tuple[str, ...] = ()
    incomplete_ops: int = 0
    object_bytes: int | None = None
    object_bytes_given: bool = False
    columns_used: tuple[str, ...] = ()
    columns_ignored: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last event; 0 when the trace has no time."""
        return (self.time_ns_range[1] - self.time_ns_range[0]) / 1e9 if self.time_ns_range else 0.0
