"""What makes the figures of `bathy size` doubtful, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bathyscope.analysis.sizing.question import SizeQuestion
from bathyscope.analysis.sizing.wear import DAY_S
from bathyscope.records import CurvePoint
from bathyscope.records.blocks import CaveatView
from bathyscope.records.size_finding import SizeCurve
from bathyscope.spec import limits
from bathyscope.units import format_seconds, format_size_short

# A band of this width in hit ratio is too wide to choose a size by.
WIDE_BAND = 0.05
# Several processors that write one trace leave some I/Os out of order; more than this share is a damaged trace.
LARGEST_DISORDER = 0.01
# Rarer writes, and smaller gaps in what they touch, do not decide a size.
LEAST_WRITE_SHARE = 0.05
LEAST_GAP = 0.05
# Up to this, writes count as aligned to a fetch size.
ALIGNED_GAP = 0.01


def caveats_of_curves(
    curves: Sequence[SizeCurve], main: SizeCurve | None, question: SizeQuestion
) -> Iterator[CaveatView]:
    """Yield what limits the curves and what follows from them. `main` is the curve that the advice is about."""
    trace = question.trace
    if trace.duration_s <= 0:
        text = "the trace has no time, or all of it at one moment: nothing per day and no life of the flash follows"
        yield CaveatView("no_time", "warning", text)
    elif trace.duration_s < DAY_S:
        text = (
            f"the trace spans {format_seconds(trace.duration_s)}; what returns daily or weekly is not in it, "
            "and figures per day are extrapolated"
        )
        yield CaveatView("short_trace", "warning" if trace.duration_s < 3600 else "note", text)
    if trace.skipped:
        yield CaveatView("skipped_records", "warning", f"{trace.skipped} records could not be read")
    hits = [p.read_hit for curve in curves for p in curve.points]
    wide = sum(hit.low is not None and hit.high is not None and hit.high - hit.low > WIDE_BAND for hit in hits)
    if wide:
        yield CaveatView("wide_band", "warning", f"{wide} points have a 95 % band wider than 5 points of hit ratio")
    yield from _partial_writes(curves, main)
    if question.hit is not None and question.miss is not None:
        text = (
            "expected latency mixes the latencies of hits and misses as they are today; with fewer misses the backing "
            "device queues less, so the real mean will be lower"
        )
        yield CaveatView("simple_mix", "note", text)
    if trace.incomplete_ops:
        text = f"{trace.incomplete_ops} operations are from op histories that were full: only the slowest were kept"
        yield CaveatView("incomplete_history", "warning", text)


def caveats_of_inputs(rows: Sequence[CurvePoint], question: SizeQuestion) -> Iterator[CaveatView]:
    """Yield what limits the prices and the trace itself, and which part of a size is DRAM."""
    trace = question.trace
    if question.spec.prices.packaged:
        text = (
            "prices are estimates without a quotation, and endurance and speed are those of data sheets; --show-prices "
            "prints the file to put your offer in, --prices reads it"
        )
        yield CaveatView("estimated_prices", "note", text)
    largest = max(rows, key=lambda row: row.size_bytes - row.flash_bytes, default=None)
    if largest is not None and largest.flash_bytes < largest.size_bytes:
        share = largest.flash_bytes / largest.size_bytes
        text = (
            f"of a size of {largest.policy}, {share:.0%} is flash and {1 - share:.0%} is DRAM: its small queue, which "
            "new lines pass first; it has no price here"
        )
        yield CaveatView("small_queue_in_memory", "note", text)
    if trace.overlapping_files:
        text = (
            f"{trace.overlapping_files[0]} begins before the files given earlier end; files are read one after the "
            "other, so curves that rest on several of them see their I/Os in another order than the cluster did"
        )
        yield CaveatView("overlapping_files", "warning", text)
    if trace.out_of_order > LARGEST_DISORDER * trace.events:
        text = (
            f"{trace.out_of_order:,} of {trace.events:,} I/Os are earlier than the one before them; they were "
            "simulated in the order of the file, and windows and budgets per day go by their time"
        )
        yield CaveatView("out_of_order", "warning", text)
    if trace.object_bytes is not None and not trace.object_bytes_given:
        text = (
            f"the trace does not say how large the objects of its images are; they are taken to be of "
            f"{format_size_short(trace.object_bytes)}, which holds every I/O; --object-size gives another size"
        )
        yield CaveatView("object_size", "note", text)
    if trace.columns_used:
        ignored = f"; ignored: {', '.join(trace.columns_ignored)}" if trace.columns_ignored else ""
        yield CaveatView("columns", "note", f"columns used: {', '.join(trace.columns_used)}{ignored}")
    if trace.first_errors:
        yield CaveatView("first_bad_record", "note", f"the first bad record: {trace.first_errors[0]}")


def _partial_writes(curves: Sequence[SizeCurve], main: SizeCurve | None) -> Iterator[CaveatView]:
    """Yield the caveat that writes cover units in part: a part makes no unit valid, so reads of it miss."""
    whole = [c for c in curves if c.group_kind == "all"]
    affected = {c.line_bytes: c for c in whole if _has_partial_writes(c)}
    if not affected:
        return
    gaps = sorted(c.write_gap_ratio or 0.0 for c in affected.values())
    share = " to ".join(dict.fromkeys((f"{gaps[0]:.0%}", f"{gaps[-1]:.0%}")))
    units = ", ".join(format_size_short(size) for size in sorted({c.unit_bytes for c in affected.values()}))
    is_main = main is not None and main.line_bytes in affected
    shown = main if main is not None and is_main else max(affected.values(), key=lambda c: c.line_bytes)
    text = (
        f"at least {share} of the units that writes touch ({units}) are written in part "
        f"only; a part does not make a unit valid, so reads of it still miss and the hits may be too low; "
        f"{_remedy(shown, whole)}"
    )
    yield CaveatView("partial_writes", "warning" if is_main else "note", text)


def _has_partial_writes(curve: SizeCurve) -> bool:
    requests = curve.read_requests + curve.write_requests
    often = curve.write_requests >= LEAST_WRITE_SHARE * requests
    return often and curve.write_gap_ratio is not None and curve.write_gap_ratio >= LEAST_GAP


def _remedy(curve: SizeCurve, whole: Sequence[SizeCurve]) -> str:
    """Return which fetch size to simulate: the largest that the writes are known to fill, else the smallest."""
    line = format_size_short(curve.line_bytes)
    smallest = max(limits.MIN_LINE_BYTES, curve.line_bytes // limits.MAX_FETCH_UNITS)
    aligned = [
        c.unit_bytes for c in whole
        if c.write_gap_ratio is not None and c.write_gap_ratio <= ALIGNED_GAP
        and smallest <= c.unit_bytes < curve.unit_bytes
    ]  # fmt: skip
    if aligned:
        return f"--line {line} --fetch {format_size_short(max(aligned))} simulates units that writes fill"
    if curve.unit_bytes > smallest:
        return f"--line {line} --fetch {format_size_short(smallest)} simulates the smallest units"
    if curve.line_bytes > limits.MIN_LINE_BYTES:
        return f"units of {line} lines cannot be smaller; --line {format_size_short(curve.line_bytes // 4)} shows more"
    return "units cannot be smaller"
