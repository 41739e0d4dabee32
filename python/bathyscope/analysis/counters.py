"""Ceph's performance counters, read tolerantly: names drift between releases.

BlueStore's counters carried the prefix `bluestore_` up to Quincy and lost it with Reef, so both forms of a
name mean the same. Only counters that changed are recorded: one that is missing beside others of its section
did not change, one whose whole section is missing is unknown.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.columns import total, where

_PREFIX = "bluestore_"


def osd_total(perf: pa.Table, section: str, *names: str) -> float | None:
    """Return the sum over all OSDs of what the counters `names` of `section` grew by in the step.

    None when it cannot be told: the section was not recorded, or the counter came as a gauge, whose value
    after the step says nothing of the step.
    """
    if perf.num_rows == 0:
        return None
    rows = where(perf, section=section)
    rows = rows.filter(pc.starts_with(rows.column("daemon"), pattern="osd."))
    if rows.num_rows == 0:
        return None
    named = where(rows, name=[form for name in names for form in (name, _PREFIX + name)])
    if named.num_rows and where(named, kind="gauge").num_rows:
        return None
    return total(named, "delta")


def buffer_hit_ratio(perf: pa.Table) -> float | None:
    """Return the share of the bytes looked up in BlueStore's buffer cache that were there; None if unknown."""
    hit, miss = osd_total(perf, "bluestore", "buffer_hit_bytes"), osd_total(perf, "bluestore", "buffer_miss_bytes")
    if hit is None or miss is None or hit + miss <= 0:
        return None
    return hit / (hit + miss)


def read_from_cache_ratio(
    perf: pa.Table, device_read_bytes_per_s: float | None, client_read_bytes_per_s: float
) -> float | None:
    """Return the share of the clients' reads that no device was asked for; None if unknown.

    Two witnesses, and the greater wins. BlueStore's own hit ratio misses what a cache below it served (the
    page cache under a file or a buffered loop device). The devices' read bytes miss nothing, but hold
    metadata, readahead and other readers as well, so one minus their share is a lower bound of the cached part.
    """
    counters = buffer_hit_ratio(perf)
    if device_read_bytes_per_s is None or client_read_bytes_per_s <= 0:
        return counters
    bound = max(0.0, 1.0 - device_read_bytes_per_s / client_read_bytes_per_s)
    return bound if counters is None else max(counters, bound)
