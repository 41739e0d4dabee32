"""Sums of the averages among Ceph's perf counters: how many samples, and how long all together."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from bathyscope.analysis.columns import floats, strings, where
from bathyscope.analysis.counters import PREFIX

# (number of samples, nanoseconds)
Sums = tuple[float, float]
NO_SUM: Sums = (0.0, 0.0)


def averages(perf: pa.Table, section: str, osds: Collection[int]) -> dict[tuple[int, str], Sums]:
    """Return (OSD, counter) → its sums over the intervals of `perf`; names as since Reef, without `bluestore_`."""
    rows = where(perf, section=section, kind="average")
    if rows.num_rows == 0:
        return {}
    grouped = rows.group_by(["daemon", "name"], use_threads=False).aggregate([("count", "sum"), ("delta", "sum")])
    columns = zip(
        strings(grouped, "daemon"),
        strings(grouped, "name"),
        floats(grouped, "count_sum").tolist(),
        floats(grouped, "delta_sum").tolist(),
        strict=True,
    )
    wanted = {f"osd.{osd}": osd for osd in osds}
    return {
        (wanted[daemon], name.removeprefix(PREFIX)): (count, seconds * 1e9)
        for daemon, name, count, seconds in columns
        if daemon in wanted
    }
