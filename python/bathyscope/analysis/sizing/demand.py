"""What the busiest minute and hour ask of the flash, and what they leave to the disks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from bathyscope.analysis.sizing.drives import Demand
from bathyscope.records import CurvePoint
from bathyscope.spec.prices import Backing

PREFIX = "peak "
HOUR_S = 3600.0


def peak_windows(rows: Iterable[CurvePoint]) -> list[CurvePoint]:
    """Return the rows of the short windows, in the order of time."""
    short = [row for row in rows if row.window.startswith(PREFIX)]
    return sorted(short, key=_number)


def _number(row: CurvePoint) -> int:
    return int(row.window.removeprefix(PREFIX))


def peak_demand(windows: Sequence[CurvePoint], line_bytes: int) -> Demand | None:
    """Return the greatest of each demand over the windows; they need not be of the same one."""
    whole = [row for row in windows if row.duration_s > 0]
    if not whole:
        return None
    # The last window may be a moment long; the others are of one length, and it counts as one of them.
    seconds = max(row.duration_s for row in whole)
    demands = [_demand(row, seconds, line_bytes) for row in whole]
    fields = [field.name for field in dataclasses.fields(Demand)]
    return Demand(*(max(getattr(demand, name) for demand in demands) for name in fields))


def _demand(row: CurvePoint, seconds: float, line_bytes: int) -> Demand:
    """Return what a window asks. A read is one read of the flash when it hits, else at most one write.

    More than one line is one I/O: the data of a request lies in few places, and large I/Os count by their bytes.
    """
    hits = row.read_requests * row.read_hit_ratio
    writes = min(row.read_requests - hits + row.write_requests, row.flash_write_bytes / min(line_bytes, 4096))
    return Demand(
        hits / seconds,
        writes / seconds,
        row.read_bytes * row.read_byte_hit_ratio / seconds,
        row.flash_write_bytes / seconds,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PeakHour:
    """The hour (or the whole of a shorter trace) in which reads keep the disks busiest behind the cache.

    Disks are how many of the profile are kept busy all the time: by the reads left, the reads without the cache, and
    the writes, which a write-through cache does not spare.
    """

    seconds: float
    reads_per_s: float
    reads_left_per_s: float
    disks_left: float
    disks_without: float
    disks_writes: float


def peak_hour(windows: Sequence[CurvePoint], trace_s: float, backing: Backing) -> PeakHour | None:
    """Return the busiest hour of consecutive windows; None without windows."""
    if not windows or trace_s <= 0:
        return None
    window_s = max(row.duration_s for row in windows)
    span = max(1, round(min(HOUR_S, trace_s) / window_s))
    seconds = min(trace_s, span * window_s)
    left = [backing.busy_s(*reads_left(row)) for row in windows]
    best, first, busy = 0.0, 0, 0.0
    start = 0
    for end, row in enumerate(windows):
        busy += left[end]
        while _number(row) - _number(windows[start]) >= span:
            busy -= left[start]
            start += 1
        if busy > best:
            best, first = busy, start
    hour = [row for row in windows[first:] if _number(row) - _number(windows[first]) < span]
    reads, writes = sum(row.read_requests for row in hour), sum(row.write_requests for row in hour)
    return PeakHour(
        seconds=seconds,
        reads_per_s=reads / seconds,
        reads_left_per_s=sum(reads_left(row)[0] for row in hour) / seconds,
        disks_left=best / seconds,
        disks_without=backing.busy_s(reads, sum(row.read_bytes for row in hour)) / seconds,
        disks_writes=backing.busy_s(writes, sum(row.write_bytes for row in hour)) / seconds,
    )


def reads_left(row: CurvePoint) -> tuple[float, float]:
    """Return the reads that reach the disks, and the bytes that these fetch."""
    return row.read_requests * (1.0 - row.read_hit_ratio), row.read_bytes * (row.fetch_amplification or 0.0)
