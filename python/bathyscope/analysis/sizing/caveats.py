"""What makes the figures of `bathy size` doubtful, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.records.finding import CaveatView
from bathyscope.records.size_finding import SizeCurve
from bathyscope.units import format_seconds, format_size_short

DAY_S = 86400.0
# A band of this width in hit ratio is too wide to choose a size by.
WIDE_BAND = 0.05
# Rarer writes, and smaller gaps in what they touch, do not decide a size.
LEAST_WRITE_SHARE = 0.05
LEAST_GAP = 0.05
# Up to this, writes count as aligned to a fetch size.
ALIGNED_GAP = 0.01
# The engine has at most this many fetch units in a line, and none smaller than a sector.
MOST_UNITS = 64
SECTOR_BYTES = 512


def caveats_of(
    curves: Sequence[SizeCurve],
    main: SizeCurve | None,
    *,
    duration_s: float,
    skipped: int,
    mixes_latencies: bool,
) -> tuple[CaveatView, ...]:
    """Return the caveats of a finding. `main` is the curve that the advice is about."""
    caveats = []
    if duration_s <= 0:
        text = "the trace has no time, or all of it at one moment: nothing per day and no life of the flash follows"
        caveats.append(CaveatView("no_time", "doubt", text))
    elif duration_s < DAY_S:
        text = (
            f"the trace spans {format_seconds(duration_s)}; what returns daily or weekly is not in it, "
            "and figures per day are extrapolated"
        )
        caveats.append(CaveatView("short_trace", "doubt" if duration_s < 3600 else "note", text))
    if skipped:
        caveats.append(CaveatView("skipped_records", "doubt", f"{skipped} records could not be read"))
    wide = sum(_is_wide(curve) for curve in curves)
    if wide:
        text = f"{wide} points have a 95 % band wider than 5 points of hit ratio"
        caveats.append(CaveatView("wide_band", "doubt", text))
    caveats += _partial_writes(curves, main)
    if mixes_latencies:
        text = (
            "expected latency mixes the latencies of hits and misses as they are said to be today; with fewer misses "
            "the backing device queues less, so the real mean will be lower"
        )
        caveats.append(CaveatView("simple_mix", "note", text))
    return tuple(caveats)


def _is_wide(curve: SizeCurve) -> int:
    return sum(
        p.read_hit.low is not None and p.read_hit.high is not None and p.read_hit.high - p.read_hit.low > WIDE_BAND
        for p in curve.points
    )


def _partial_writes(curves: Sequence[SizeCurve], main: SizeCurve | None) -> list[CaveatView]:
    """Return the caveat that writes cover fetch units in part: a part makes no unit valid, so reads of it miss."""
    whole = [c for c in curves if c.group_kind == "all"]
    affected = {c.line_bytes: c for c in whole if _has_partial_writes(c)}
    if not affected:
        return []
    gaps = [c.write_gap_ratio or 0.0 for c in affected.values()]
    share = f"{min(gaps):.0%}" + (f" to {max(gaps):.0%}" if f"{min(gaps):.0%}" != f"{max(gaps):.0%}" else "")
    units = ", ".join(format_size_short(size) for size in sorted({c.fetch_bytes for c in affected.values()}))
    is_main = main is not None and main.line_bytes in affected
    shown = main if main is not None and is_main else max(affected.values(), key=lambda c: c.line_bytes)
    text = (
        f"at least {share} of the units that writes touch ({units}: --fetch, by default the line) are written in part "
        f"only; a part does not make a unit valid, so reads of it still miss and the hits may be too low; "
        f"{_remedy(shown, whole)}"
    )
    return [CaveatView("partial_writes", "doubt" if is_main else "note", text)]


def _has_partial_writes(curve: SizeCurve) -> bool:
    requests = curve.read_requests + curve.write_requests
    often = curve.write_requests >= LEAST_WRITE_SHARE * requests
    return often and curve.write_gap_ratio is not None and curve.write_gap_ratio >= LEAST_GAP


def _remedy(curve: SizeCurve, whole: Sequence[SizeCurve]) -> str:
    """Return which fetch size to simulate: the largest that the writes are known to fill, else the smallest."""
    line = format_size_short(curve.line_bytes)
    smallest = max(SECTOR_BYTES, curve.line_bytes // MOST_UNITS)
    aligned = [
        c.fetch_bytes for c in whole
        if c.write_gap_ratio is not None and c.write_gap_ratio <= ALIGNED_GAP
        and smallest <= c.fetch_bytes < curve.fetch_bytes
    ]  # fmt: skip
    if aligned:
        return f"--line {line} --fetch {format_size_short(max(aligned))} simulates units that writes fill"
    if curve.fetch_bytes > smallest:
        return f"--line {line} --fetch {format_size_short(smallest)} simulates the smallest units"
    if curve.line_bytes > SECTOR_BYTES:
        return f"units of {line} lines cannot be smaller; --line {format_size_short(curve.line_bytes // 4)} shows more"
    return "units cannot be smaller"
