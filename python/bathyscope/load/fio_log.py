"""fio's per-interval logs (write_iops_log, write_bw_log, write_lat_log with log_avg_msec) → intervals.

A line is "end in ms, value, direction, block size, …"; a bandwidth is in KiB/s, a latency in ns. Two traps:

* An interval in which nothing ended leaves no line. A stall would look like the absence of data, so the gaps
  are filled with zeros here.
* The three logs are written by different threads; their times for the same interval differ by a few ms.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
import statistics
from collections.abc import Sequence

import pyarrow as pa

from bathyscope.fields import as_int
from bathyscope.records import Interval, build_table

DIRECTIONS = ("read", "write")
_NAME = re.compile(r"_(iops|bw|lat)\.log")
_KIB = 1024.0

# Times beyond this (the year 2001) are absolute: the option that makes them so changed its name after 3.35.
EPOCH_MS = 10**12

# A step of a day with intervals of 100 ms has fewer, in each direction; more than that is not a log of ours.
_INTERVALS_MAX = 1_000_000

# (kind of log, direction) → (end in ms, value), in order of time
Series = dict[tuple[str, str], list[tuple[int, int]]]


@dataclasses.dataclass(frozen=True, slots=True)
class LogClock:
    """How the times of the logs are to be read: `start_ms` of the measured window in them, and the interval."""

    start_ms: int
    length_ms: int


def read_series(files: Sequence[tuple[str, bytes]]) -> Series:
    """Return the lines of the logs among `files`. Raises ValueError or IndexError for a line that is none."""
    series: Series = {}
    for name, content in files:
        match = _NAME.search(name)
        if match is None:
            continue
        # fio buffers its logs; a last line without its line break was cut off.
        for line in content.decode("utf-8", "replace").split("\n")[:-1]:
            columns = line.split(",")
            direction = as_int(columns[2])
            if 0 <= direction < len(DIRECTIONS):
                series.setdefault((match[1], DIRECTIONS[direction]), []).append(
                    (as_int(columns[0]), as_int(columns[1]))
                )
    for lines in series.values():
        lines.sort()
    return series


def usual_length_ms(series: Series) -> int:
    """Return the usual distance between two lines, for logs whose log_avg_msec is not known; 1000 without any."""
    gaps = [b[0] - a[0] for lines in series.values() for a, b in itertools.pairwise(lines) if b[0] > a[0]]
    return round(statistics.median(gaps)) if gaps else 1000


def first_end_ms(series: Series) -> int | None:
    """Return the end of the first interval that any IOPS log has."""
    return min((lines[0][0] for (kind, _), lines in series.items() if kind == "iops" and lines), default=None)


def last_latency_ms(series: Series) -> int | None:
    """Return the time of the last line of the latency logs: unlike the other logs they are flushed at the end."""
    return max((lines[-1][0] for (kind, _), lines in series.items() if kind == "lat" and lines), default=None)


def intervals(step_index: int, client: str, series: Series, clock: LogClock) -> pa.Table:
    """Return the intervals of one process, gaps filled with zeros. Offsets count from the measured window's start."""
    rows: list[tuple[str, int, int, int, int, int | None]] = []
    for direction in DIRECTIONS:
        bandwidths, latencies = series.get(("bw", direction), []), series.get(("lat", direction), [])
        previous_ms = 0
        for end_ms, iops in series.get(("iops", direction), []):
            offset_ms = end_ms - clock.start_ms
            if offset_ms <= previous_ms:
                continue
            gap_ends = _gap_ends(previous_ms, offset_ms, clock.length_ms)
            if len(rows) + len(gap_ends) > _INTERVALS_MAX * len(DIRECTIONS):
                raise ValueError(f"more than {_INTERVALS_MAX * len(DIRECTIONS)} intervals")
            for gap_end_ms in gap_ends:
                rows.append((direction, gap_end_ms, gap_end_ms - previous_ms, 0, 0, None))
                previous_ms = gap_end_ms
            bandwidth, latency = (_near(lines, end_ms, clock.length_ms) for lines in (bandwidths, latencies))
            rows.append((direction, offset_ms, offset_ms - previous_ms, iops, bandwidth or 0, latency))
            previous_ms = offset_ms
    columns = {
        "step_index": step_index,
        "client": client,
        "direction": [row[0] for row in rows],
        "offset_ns": [row[1] * 1_000_000 for row in rows],
        "duration_ns": [row[2] * 1_000_000 for row in rows],
        "iops": [float(row[3]) for row in rows],
        "bandwidth_bytes_per_s": [row[4] * _KIB for row in rows],
        "latency_ns_mean": [None if row[5] is None else float(row[5]) for row in rows],
    }
    return build_table(Interval, columns)


def _gap_ends(previous_ms: int, offset_ms: int, length_ms: int) -> range:
    """Return the ends of the intervals without a line between two lines; empty when there is no gap."""
    missing = round((offset_ms - previous_ms) / max(1, length_ms)) - 1
    if missing > _INTERVALS_MAX:
        raise ValueError(f"a gap of {missing} intervals")
    first_ms = offset_ms - missing * length_ms
    return range(first_ms, offset_ms, length_ms) if missing > 0 and first_ms > previous_ms else range(0)


def _near(lines: Sequence[tuple[int, int]], end_ms: int, length_ms: int) -> int | None:
    """Return the value of the line nearest to `end_ms`, if it is less than half an interval away."""
    index = bisect.bisect_left(lines, (end_ms,))
    near = min(lines[max(0, index - 1) : index + 1], key=lambda line: abs(line[0] - end_ms), default=None)
    return near[1] if near is not None and abs(near[0] - end_ms) * 2 < length_ms else None
