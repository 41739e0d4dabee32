"""Ceph's performance counters, read tolerantly: names drift between releases.

BlueStore's counters carried the prefix `bluestore_` up to Quincy and lost it with Reef, so both forms of a
name mean the same. Only counters that changed are recorded: one that is missing beside others of its section
did not change, one whose whole section is missing is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.columns import floats, strings, total, where

PREFIX = "bluestore_"
# Less than this share of what the clients read was returned by the OSDs: the rest is not there. Below the second one,
# what is there is too little to say anything of it.
_RETURNED_MIN = 0.9
_EXISTING_MIN = 0.05


def covers(sampled: Iterable[str], osds: frozenset[int] | None) -> bool:
    """Return whether all OSDs under test are among the daemons that were sampled. False without OSDs."""
    return bool(osds) and {f"osd.{n}" for n in osds or ()} <= set(sampled)


def all_answered(perf: pa.Table, osds: frozenset[int] | None, section: str) -> bool:
    """Return whether a section was recorded of every OSD under test."""
    if perf.num_rows == 0:
        return False
    return covers(map(str, where(perf, section=section).column("daemon").unique().to_pylist()), osds)


def osd_total(perf: pa.Table, osds: frozenset[int] | None, section: str, *names: str) -> float | None:
    """Return the sum over `osds`, those under test, of what the counters `names` grew by in the rows' intervals.

    None when it is not known: as for `osd_sum`, or one of the OSDs did not answer; then the sum is not the total.
    """
    return osd_sum(perf, section, *names) if all_answered(perf, osds, section) else None


def osd_sum(perf: pa.Table, section: str, *names: str) -> float | None:
    """Return the same sum over the OSDs that answered: at least so much.

    None when it is not known: the section was not recorded, or the counter came as a gauge, whose value at the end of
    an interval says nothing of the interval.
    """
    if perf.num_rows == 0:
        return None
    rows = where(perf, section=section)
    rows = rows.filter(pc.starts_with(rows.column("daemon"), pattern="osd."))
    if rows.num_rows == 0:
        return None
    named = where(rows, name=[form for name in names for form in (name, PREFIX + name)])
    if named.num_rows and where(named, kind="gauge").num_rows:
        return None
    return total(named, "delta")


def osd_level(perf: pa.Table, osds: frozenset[int] | None, section: str, name: str) -> float | None:
    """Return the sum over `osds`, those under test, of a gauge's last value; None when one of them did not answer."""
    if not all_answered(perf, osds, section):
        return None
    rows = where(perf, section=section, name=name, daemon=[f"osd.{number}" for number in osds or ()])
    rows = rows.filter(pc.is_valid(rows.column("value"))).sort_by("at_ns")
    return float(sum(dict(zip(strings(rows, "daemon"), floats(rows, "value").tolist(), strict=True)).values()))


def read_from_cache_ratio(
    perf: pa.Table,
    osds: frozenset[int] | None,
    device_read_bytes_per_s: float | None,
    client_read_bytes_per_s: float,
    loaded_s: float,
) -> float | None:
    """Return the share of the reads that no device was asked for; None if unknown. The clients' reads are some.

    Two sources, and the greater wins. BlueStore's own hit ratio misses what a cache below it served (the
    page cache under a file or a buffered loop device). The devices' read bytes miss nothing, but hold
    metadata, readahead and other readers as well, so one minus their share is a lower bound of the cached part.

    A read of an object that does not exist asks no device either, and is no hit: only the bytes count that the OSDs
    returned. `loaded_s` is how long the clients read, ramp included, as the counters saw it.
    """
    shares = []
    hit, miss = (osd_total(perf, osds, "bluestore", name) for name in ("buffer_hit_bytes", "buffer_miss_bytes"))
    if hit is not None and miss is not None and hit + miss > 0:
        shares.append(hit / (hit + miss))
    answered = osd_total(perf, osds, "osd", "op_r_out_bytes", "op_rw_out_bytes")
    returned = 1.0 if answered is None or loaded_s <= 0 else answered / (client_read_bytes_per_s * loaded_s)
    # The rate in the ramp is not measured: a small difference says nothing.
    existing = 1.0 if returned >= _RETURNED_MIN else returned
    if device_read_bytes_per_s is not None and existing >= _EXISTING_MIN:
        shares.append(max(0.0, 1.0 - device_read_bytes_per_s / (client_read_bytes_per_s * existing)))
    return max(shares, default=None)
