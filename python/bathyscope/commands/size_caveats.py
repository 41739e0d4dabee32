"""What the passes over a trace leave doubtful: the sample, the order of the I/Os, the prices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from bathyscope.mrc.regions import region_bytes
from bathyscope.records import CurvePoint
from bathyscope.records.finding import CaveatView
from bathyscope.sources.flash_share import SMALL_QUEUE_SHARE
from bathyscope.units import format_bytes, format_size_short

if TYPE_CHECKING:
    from bathyscope.sources.block_trace import TraceReport
    from bathyscope.sources.curve_request import CurveRequest

# Several processors that write one trace leave some I/Os out of order; more than this share is another matter.
LARGEST_DISORDER = 0.01
# The error is estimated from eight parts of the sample; parts of fewer than sixty regions vary too much to tell it.
LEAST_REGIONS = 500
# Requests over the end of a region of which there are fewer cannot matter much.
MANY_CUT = 0.05
# A sample holds about as many lines as asked for, not exactly; what is advised shall be enough in any case.
SAMPLES_MARGIN = 1.1


def caveats_of_pass(
    request: CurveRequest, rows: Sequence[CurvePoint], found: TraceReport, *, packaged_prices: bool
) -> list[CaveatView]:
    """Return the caveats of the points `rows` (any windows) and of what was found of the trace itself."""
    caveats = sample_caveats(rows, found.request_bytes_p99)
    if packaged_prices:
        text = "prices and endurance are placeholders; --show-prices prints a file to fill in, --prices reads it"
        caveats.append(CaveatView("placeholder_prices", "note", text))
    if "s3-fifo" in request.policies:
        share = SMALL_QUEUE_SHARE["s3-fifo"]
        text = (
            f"of an s3-fifo size, {1 - share:.0%} are flash and {share:.0%} is memory, the queue that newcomers must "
            "survive; life and cost are of the flash"
        )
        caveats.append(CaveatView("small_queue_in_memory", "note", text))
    if found.overlapping_files:
        text = (
            f"{found.overlapping_files[0]} begins before the files given earlier end; files are read one after the "
            "other, so curves that rest on several of them see their I/Os in another order than the cluster did"
        )
        caveats.append(CaveatView("overlapping_files", "doubt", text))
    if found.out_of_order > LARGEST_DISORDER * found.events:
        text = (
            f"{found.out_of_order:,} of {found.events:,} I/Os are earlier than the one before them; they were "
            "simulated in the order of the file, and windows and budgets a day go by their time"
        )
        caveats.append(CaveatView("out_of_order", "doubt", text))
    if found.first_errors:
        caveats.append(CaveatView("first_bad_record", "note", f"the first bad record: {found.first_errors[0]}"))
    return caveats


def sample_caveats(rows: Sequence[CurvePoint], request_bytes_p99: float) -> list[CaveatView]:
    """Return what follows from curves that rest on a sample of regions; nothing when all were simulated in full.

    `request_bytes_p99` is the length that 99 % of the requests do not exceed.
    """
    sampled = {row: row.sampled_lines for row in rows if row.window == "all" and row.sampled_lines is not None}
    if not sampled:
        return []
    region = format_size_short(region_bytes(request_bytes_p99))
    lines = f"{min(sampled.values()):,} to {max(sampled.values()):,} lines"
    text = f"curves of a sample rest on {lines} in whole regions of {region} or more"
    # A size that holds every line was simulated in full beside others that were not.
    parts = {row: lines for row, lines in sampled.items() if lines * row.line_bytes < row.working_set_bytes}
    # What is said of long requests holds the more for those that are cut.
    beyond = _long_requests(parts, request_bytes_p99) or _cut_requests(parts, request_bytes_p99)
    return [CaveatView("sampled", "note", text), *_few_regions(parts, request_bytes_p99), *beyond]


def _few_regions(parts: Mapping[CurvePoint, int], request_bytes_p99: float) -> list[CaveatView]:
    few = {
        row: lines * row.line_bytes / region_bytes(request_bytes_p99, row.line_bytes) for row, lines in parts.items()
    }
    few = {row: regions for row, regions in few.items() if regions < LEAST_REGIONS}
    if not few:
        return []
    enough = max(region_bytes(request_bytes_p99, row.line_bytes) / row.line_bytes for row in few) * LEAST_REGIONS
    text = (
        f"{_curves(few)} of a sample may rest on as few as {max(1, math.floor(min(few.values())))} regions; with fewer "
        f"than {LEAST_REGIONS} the 95 % band is itself uncertain; --samples {math.ceil(SAMPLES_MARGIN * enough)} "
        "takes enough of them, --exact needs none"
    )
    return [CaveatView("few_regions", "doubt", text)]


def _long_requests(parts: Mapping[CurvePoint, int], request_bytes_p99: float) -> list[CaveatView]:
    long = [row for row in parts if 2 * request_bytes_p99 > region_bytes(request_bytes_p99, row.line_bytes)]
    if not long:
        return []
    text = (
        f"a hundredth of the requests is {format_bytes(request_bytes_p99)} or longer, more than half a "
        f"region; {_curves(long)} of a sample overestimate hits, beyond their band; --exact tells"
    )
    return [CaveatView("long_requests", "doubt", text)]


def _cut_requests(parts: Mapping[CurvePoint, int], request_bytes_p99: float) -> list[CaveatView]:
    """Tell how many requests lie over the end of a region, as far as they begin anywhere."""
    cut = {}
    for row in parts:
        requests = row.read_requests + row.write_requests
        beyond_bytes = max(0.0, (row.read_bytes + row.write_bytes) / max(1, requests) - row.line_bytes)
        cut[row] = min(1.0, beyond_bytes / region_bytes(request_bytes_p99, row.line_bytes))
    many = {row: share for row, share in cut.items() if share >= MANY_CUT}
    if not many:
        return []
    text = (
        f"about {max(many.values()):.0%} of the requests lie over the end of a sampled region; they are counted with "
        f"the next whole ones of their length, and if they behave otherwise {_curves(many)} of a sample are off beyond "
        "their band; --exact tells"
    )
    return [CaveatView("cut_requests", "note", text)]


def _curves(rows: Iterable[CurvePoint]) -> str:
    count = len({(row.group_kind, row.group_name, row.line_bytes, row.policy, row.admission) for row in rows})
    return "1 curve" if count == 1 else f"{count} curves"
