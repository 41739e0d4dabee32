"""What every view of `bathy size` shares: which curve is shown, and how a figure reads."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Generic, TypeVar

from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint, Split, SplitShare
from bathyscope.units import (
    format_bytes,
    format_cost,
    format_duration_ns,
    format_line_size,
    format_rate,
    format_seconds,
)
from bathyscope.views.figures import NOT_KNOWN
from bathyscope.views.labels import clean

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table: its heading in a terminal and on a page, and its cells."""

    short: str
    heading: str
    cell: Callable[[T], str]


def is_advised(finding: SizeFinding, curve: SizeCurve, point: SizePoint) -> bool:
    """Return whether the advice is about this point."""
    main = main_curve(finding)
    return main is curve and finding.advice.size_bytes == point.size_bytes


def main_curve(finding: SizeFinding) -> SizeCurve | None:
    """Return the curve of the whole trace that the advice is about, else the first."""
    advice = finding.advice
    advised = (advice.line_bytes, advice.fetch_bytes, advice.policy, advice.admission)
    whole = [c for c in (*finding.curves, *finding.trials) if c.group_kind == "all"]
    found = [c for c in whole if (c.line_bytes, c.fetch_bytes, c.policy, c.admission) == advised]
    return next(iter(found or whole), None)


def is_trial(finding: SizeFinding, curve: SizeCurve) -> bool:
    """Return whether a curve is of a configuration that was tried beside those asked for."""
    return curve in finding.trials


def configuration(curve: SizeCurve) -> str:
    """Return the configuration of a curve: "64K lines fetched by 4K, lru, 2-hit"."""
    admission = "" if curve.admission == "all" else f", {curve.admission}"
    return f"{format_line_size(curve.line_bytes)} lines{curve.fetch_words}, {curve.policy}{admission}"


def group_curves(finding: SizeFinding, main: SizeCurve) -> list[SizeCurve]:
    """Return the curves of the groups with the line size of `main`, and its policy where groups have it."""
    same = [c for c in finding.curves if c.group_kind != "all" and c.line_bytes == main.line_bytes]
    policies = [c.policy for c in same]
    policy = main.policy if main.policy in policies else next(iter(policies), None)
    return [c for c in same if c.policy == policy]


def source_name(finding: SizeFinding) -> str:
    """Return the name of the trace without its directory, or how many traces there are."""
    names = finding.sources
    return clean(names[0].rstrip("/").rpartition("/")[2]) if len(names) == 1 else f"{len(names)} traces"


def trace_line(finding: SizeFinding) -> str:
    """Return the traces and their I/Os in one line."""
    parts = [f"{finding.events:,} I/Os"]
    if finding.duration_s > 0:
        parts[0] += f" over {format_seconds(finding.duration_s)}"
    whole = next((c for c in finding.curves if c.group_kind == "all"), None)
    if whole is not None:
        parts.append(f"{whole.read_requests:,} reads of {format_bytes(whole.read_bytes)}")
        parts.append(f"{whole.write_requests:,} writes of {format_bytes(whole.write_bytes)}")
    return f"{source_name(finding)}: {', '.join(parts)}"


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
    return NOT_KNOWN if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:.1f}%"


def hit_text(point: SizePoint) -> str:
    """Return the hit ratio with half its band when it has one: "50.9% ±1.2"."""
    figure = point.read_hit
    if figure.value is None or figure.low is None or figure.high is None or figure.high - figure.low < 0.0005:
        return percent(figure.value)
    return f"{percent(figure.value)} ±{50 * (figure.high - figure.low):.1f}"


def life_text(years: float) -> str:
    """Return the life of the flash: "4.2 y", "50 y+" from 50 years on."""
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
    """Return what the split brings over an even one."""
    if one.hits_even <= 0:
        return f"{format_rate(one.hits)} hits"
    return f"{100 * (one.hits / one.hits_even - 1):+.1f}% hits over an even split"


def best_text(curve: SizeCurve) -> str:
    """Return the greatest read hit ratio of a curve."""
    return percent(max(p.read_hit.value or 0.0 for p in curve.points) if curve.read_requests else None)


def known(value: float | None, form: Callable[[float], str]) -> str:
    """Return a value by `form`; "n/a" when it is not known."""
    return NOT_KNOWN if value is None else form(value)


def _drives(point: SizePoint) -> str:
    purchase = point.purchase
    return NOT_KNOWN if purchase is None else f"{purchase.count} {clean(purchase.drive)}"


_COLUMNS: tuple[Column[SizePoint], ...] = (
    Column("flash", "Flash", lambda p: format_bytes(p.flash_bytes)),
    Column("reads", "Read hit ratio", hit_text),
    Column("bytes", "Byte hit ratio", lambda p: percent(p.read_byte_hit)),
    Column("writes", "Write hit ratio", lambda p: percent(p.write_hit)),
    Column("left", "Disk reads left", lambda p: percent(p.backing_reads_left)),
    Column("disks", "Disk time left", lambda p: percent(p.disk_time_left)),
    Column("fetch", "Fetched per byte read", lambda p: known(p.fetch_amplification, "{:.2f}".format)),
    Column("flash/day", "Flash written per day", lambda p: known(p.flash_write_bytes_per_day, format_bytes)),
    Column("fill", "Written once", lambda p: known(p.fill_bytes, format_bytes)),
    Column("life", "Life", lambda p: known(p.life_years, life_text)),
    Column("mean", "Mean latency", lambda p: known(p.latency_ns_mean, format_duration_ns)),
    Column("p99", "p99 latency", lambda p: known(p.latency_ns_p99, format_duration_ns)),
    Column("drives", "Drives", _drives),
    Column("cost", "Cost", lambda p: known(p.cost, format_cost)),
)


def columns_of(curve: SizeCurve) -> list[Column[SizePoint]]:
    """Return the columns with something to show: known for some size, and flash only where it is not the whole size."""
    with_memory = any(p.dram_bytes for p in curve.points)
    return [
        column for column in _COLUMNS
        if (column.short != "flash" or with_memory) and any(column.cell(p) != NOT_KNOWN for p in curve.points)
    ]  # fmt: skip


def split_columns(one: Split) -> list[Column[SplitShare]]:
    """Return the columns of a split; DRAM only where a share has some."""
    memory: Column[SplitShare] = Column("DRAM", "DRAM", lambda s: format_bytes(s.dram_bytes))
    return [
        Column("flash", "Flash", lambda s: format_bytes(s.flash_bytes) if s.flash_bytes else "none"),
        *[memory] * any(share.dram_bytes for share in one.shares),
        Column("hit ratio", "Read hit ratio", lambda s: percent(s.read_hit_ratio)),
        Column("hits/day", "Hits per day", lambda s: known(s.hits_per_day, format_rate)),
        Column("marginal hit ratio/GiB", "Marginal hit ratio per GiB", lambda s: percent(s.marginal_hit_ratio_per_gib)),
    ]
