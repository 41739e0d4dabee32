"""Words and choices that every view of `bathy size` shares: which curve is shown, and how a figure reads."""

from __future__ import annotations

import math
from pathlib import PurePath

from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint, Split
from bathyscope.units import format_bytes, format_rate, format_seconds
from bathyscope.views.labels import clean


def is_advised(finding: SizeFinding, curve: SizeCurve, point: SizePoint) -> bool:
    """Return whether the advice is about this point."""
    main = main_curve(finding)
    return main is curve and finding.advice.size_bytes == point.size_bytes


def main_curve(finding: SizeFinding) -> SizeCurve | None:
    """Return the curve that the advice is about: that of the whole trace with its line size, else the first."""
    whole = [c for c in finding.curves if c.group_kind == "all"]
    advised = [
        c for c in whole
        if (c.line_bytes, c.policy) == (finding.advice.line_bytes, finding.advice.policy)
    ]  # fmt: skip
    return next(iter(advised or whole), None)


def trace_line(finding: SizeFinding) -> str:
    """Return what the answer rests on, in one line."""
    names = [clean(PurePath(source).name) for source in finding.sources]
    name = names[0] if len(names) == 1 else f"{len(names)} traces"
    parts = [f"{finding.events:,} I/Os"]
    if finding.duration_s > 0:
        parts[0] += f" over {format_seconds(finding.duration_s)}"
    whole = next((c for c in finding.curves if c.group_kind == "all"), None)
    if whole is not None:
        parts.append(f"{whole.read_requests:,} reads of {format_bytes(whole.read_bytes)}")
        parts.append(f"{whole.write_requests:,} writes of {format_bytes(whole.write_bytes)}")
    return f"{name}: {', '.join(parts)}"


def how(curve: SizeCurve) -> str:
    """Return how a curve was found, in words."""
    words = {
        "simulation": "simulated in full",
        "exact": "exact",
        "shards": "sampled",
        "minisim": "simulated on a sample",
    }
    method = words.get(curve.method, curve.method)
    return method if curve.sampled_lines is None else f"{method}, {curve.sampled_lines:,} lines"


def percent(ratio: float | None) -> str:
    """Return a hit ratio with one digit after the point: "50.9%"."""
    return "n/a" if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:.1f}%"


def hit_text(point: SizePoint) -> str:
    """Return the hit ratio with half its band when it has one: "50.9% ±1.2"."""
    figure = point.read_hit
    if figure.value is None or figure.low is None or figure.high is None or figure.high - figure.low < 0.0005:
        return percent(figure.value)
    return f"{percent(figure.value)} ±{50 * (figure.high - figure.low):.1f}"


def life_text(years: float | None) -> str:
    """Return the life of the flash: "4.2 y", "50 y+" where it is longer than anyone asks."""
    if years is None:
        return "n/a"
    if years < 1:
        return f"{years * 365:.0f} d" if years * 365 >= 1 else "<1 d"
    return "50 y+" if years >= 50 else f"{years:.1f} y"


def main_split(finding: SizeFinding) -> Split | None:
    """Return the split at the advised line size and policy, else the one with the most hits."""
    main = main_curve(finding)
    if main is not None:
        for one in finding.splits:
            if (one.line_bytes, one.policy) == (main.line_bytes, main.policy):
                return one
    return max(finding.splits, key=lambda one: one.hits, default=None)


def split_gain(one: Split) -> str:
    """Return what the split is worth against an even one."""
    if one.hits_even <= 0:
        return f"{format_rate(one.hits)} hits"
    return f"{100 * (one.hits / one.hits_even - 1):+.1f}% hits against an even one"
