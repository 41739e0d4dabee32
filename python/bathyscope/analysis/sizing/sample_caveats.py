"""What limits curves that rest on a sample of regions: too few of them, or requests too long for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bathyscope.records import CurvePoint
from bathyscope.records.blocks import CaveatView
from bathyscope.units import format_bytes, format_size_short

# The error is estimated from eight parts of the sample; parts of fewer than sixty regions vary too much for that.
LEAST_REGIONS = 500
# Fewer requests across the boundaries of a sample's regions cannot matter much.
MANY_CUT = 0.05
# A sample holds about as many lines as asked for, not exactly; what is advised shall be enough in any case.
SAMPLES_MARGIN = 1.1


def caveats_of_sample(rows: Sequence[CurvePoint], request_bytes_p99: float) -> list[CaveatView]:
    """Return what limits the rows of a sample; nothing when all were simulated in full.

    `request_bytes_p99` is the length that 99 % of the requests do not exceed.
    """
    sampled = [row for row in rows if row.window == "all" and row.sampled_lines is not None]
    if not sampled:
        return []
    region = format_size_short(min(_region(row) for row in sampled))
    least, most = (f"{bound(map(_lines, sampled)):,}" for bound in (min, max))
    lines = least if least == most else f"{least} to {most}"
    text = f"curves of a sample rest on {lines} lines in whole regions of {region} or more"
    # A size that holds every line was simulated in full beside others that were not.
    parts = [row for row in sampled if _lines(row) * row.line_bytes < row.working_set_bytes]
    # What is said of long requests holds the more for those that cross a boundary.
    beyond = _long_requests(parts, request_bytes_p99) or _cut_requests(parts)
    return [CaveatView("sampled", "note", text), *_few_regions(parts), *beyond]


def _lines(row: CurvePoint) -> int:
    return row.sampled_lines or 0


def _region(row: CurvePoint) -> int:
    return row.sample_region_bytes or row.line_bytes


def _few_regions(parts: Iterable[CurvePoint]) -> list[CaveatView]:
    regions = {row: _lines(row) * row.line_bytes / _region(row) for row in parts}
    few = {row: count for row, count in regions.items() if count < LEAST_REGIONS}
    if not few:
        return []
    enough = max(_region(row) / row.line_bytes for row in few) * LEAST_REGIONS
    text = (
        f"{_curves(few)} of a sample may rest on as few as {max(1, math.floor(min(few.values())))} regions; with fewer "
        f"than {LEAST_REGIONS} the 95 % band is itself uncertain; --samples {math.ceil(SAMPLES_MARGIN * enough)} "
        "takes enough of them, --exact needs none"
    )
    return [CaveatView("few_regions", "warning", text)]


def _long_requests(parts: Iterable[CurvePoint], request_bytes_p99: float) -> list[CaveatView]:
    long = [row for row in parts if 2 * request_bytes_p99 > _region(row)]
    if not long:
        return []
    text = (
        f"a hundredth of the requests is {format_bytes(request_bytes_p99)} or longer, more than half a "
        f"region; {_curves(long)} of a sample overestimate hits, beyond their band; --exact shows by how much"
    )
    return [CaveatView("long_requests", "warning", text)]


def _cut_requests(parts: Iterable[CurvePoint]) -> list[CaveatView]:
    """Return how many requests cross a sample boundary, as far as they begin anywhere."""
    cut = {}
    for row in parts:
        requests = row.read_requests + row.write_requests
        beyond_bytes = max(0.0, (row.read_bytes + row.write_bytes) / max(1, requests) - row.line_bytes)
        cut[row] = min(1.0, beyond_bytes / _region(row))
    many = {row: share for row, share in cut.items() if share >= MANY_CUT}
    if not many:
        return []
    text = (
        f"about {max(many.values()):.0%} of the requests cross a sample boundary; each counts with the next request of "
        f"its size that does not, and if the two behave differently, {_curves(many)} of a sample are off beyond their "
        "band; --exact shows by how much"
    )
    return [CaveatView("cut_requests", "note", text)]


def _curves(rows: Iterable[CurvePoint]) -> str:
    count = len({(row.group_kind, row.group_name, row.line_bytes, row.policy, row.admission) for row in rows})
    return "1 curve" if count == 1 else f"{count} curves"
