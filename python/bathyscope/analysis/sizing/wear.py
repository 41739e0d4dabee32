"""What a warm cache writes in a day. Filling an empty cache is done once, and a short trace would repeat it daily."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bathyscope.records import CurvePoint

DAY_S = 86_400.0
# A cache that is never full has what it will hold once this share of the first touches is behind it.
WARM = 0.95
# The last moments of a trace do not say what is written in a day: so much of it must be warm.
LEAST_WARM = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Wear:
    """Bytes that fill the flash of the cache once, and those written in a day once it is warm; None: it was not."""

    fill_bytes: float
    bytes_per_day: float | None


def wear_of(windows: Sequence[CurvePoint], trace_s: float, *, invalidates: bool = False) -> Wear | None:
    """Return the wear of one point of a curve from its windows; None without windows.

    The cache is warm from the window on before which it evicted, so it was full, or before which nearly all data was
    touched that the trace touches and nearly all was filled. A whole window and `LEAST_WARM` of the trace must be left.
    What a cache that was never full still fills in that time is done once as well. Where writes invalidate
    (`invalidates`), data is fetched again and again: then a fetch is no filling. A write budget is an upper bound: what
    of it was saved up may be spent within a short trace.
    """
    if not windows or trace_s <= 0:
        return None
    ordered = sorted(windows, key=lambda row: int(row.window))
    first_touches = [_first_touches(row) for row in ordered]
    fills = [0.0 if invalidates else _most_filled(row) for row in ordered]
    room = float(min(ordered[0].flash_bytes, ordered[0].working_set_bytes))
    window_s = max(row.duration_s for row in ordered)
    budget = ordered[0].write_budget_bytes_per_day
    fill_bytes = touched = filled = 0.0
    is_full = False
    for index, row in enumerate(ordered):
        if is_full or (touched >= WARM * sum(first_touches) and filled >= WARM * min(room, sum(fills))):
            # Times without any request are part of a day too, and have no row.
            warm_s = trace_s - int(row.window) * window_s
            if warm_s < max(0.99 * window_s, LEAST_WARM * trace_s):
                break
            still_filled = 0.0 if is_full else min(max(0.0, room - filled), sum(fills[index:]))
            written = sum(later.flash_write_bytes for later in ordered[index:]) - still_filled
            per_day = written / warm_s * DAY_S
            filled_once = min(fill_bytes + still_filled, room)
            return Wear(filled_once, per_day if budget is None else min(per_day, budget))
        fill_bytes += row.flash_write_bytes
        touched += first_touches[index]
        filled += fills[index]
        is_full = is_full or row.evicted_lines > 0
    return Wear(min(sum(row.flash_write_bytes for row in ordered), room), budget)


def _most_filled(row: CurvePoint) -> float:
    """Return the bytes that a window can have put into empty room: what was fetched, and written for the first time."""
    fetched = row.read_bytes * (row.fetch_amplification or 0.0)
    return min(row.flash_write_bytes, fetched + row.write_bytes * row.cold_write_ratio)


def _first_touches(row: CurvePoint) -> float:
    return row.read_requests * row.cold_read_ratio + row.write_requests * row.cold_write_ratio


def life_words(years: float) -> str:
    """Return a life as a sentence has it: "4.2 years", or days where it is less than one year."""
    if years >= 50:
        return "50 years and more"
    if years < 1:
        days = years * 365
        return f"{days:.0f} days" if days >= 1 else "less than a day"
    return "1 year" if years == 1 else f"{years:.1f} years".replace(".0 ", " ")


def option_bytes(size_bytes: float) -> str:
    """Return a size as an option has it, rounded down to at least two digits: "53G", "1536M"; "" below 1 KiB."""
    for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if size_bytes >= 10 * 1024**power or (power == 1 and size_bytes >= 1024):
            return f"{int(size_bytes // 1024**power)}{letter}"
    return ""
