"""From curve points to the answer: the curves with everything that follows, the split, the stability, the advice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis.sizing.advice import advise
from bathyscope.analysis.sizing.caveats import caveats_of
from bathyscope.analysis.sizing.choice import Floor, choose, main_curve
from bathyscope.analysis.sizing.endurance import Endurance
from bathyscope.analysis.sizing.knee import knee_index
from bathyscope.analysis.sizing.latency import LatencyDistribution, mixed_mean_ns, mixed_quantile_ns
from bathyscope.analysis.sizing.split import Demand, even_hits, split
from bathyscope.analysis.sizing.stability import judge_windows
from bathyscope.analysis.sizing.wear import gentler_admissions
from bathyscope.records import CurvePoint, from_table
from bathyscope.records.finding import Figure
from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint, Split, SplitShare
from bathyscope.units import format_bytes, format_cost, format_duration_ns

DAY_S = 86400.0
GIB = float(1 << 30)


@dataclasses.dataclass(frozen=True, slots=True)
class SizeQuestion:
    """What was asked, and what the answer may lean on beside the curves.

    `hit` and `miss` are read latencies of flash and of the backing device; either may be None, then no
    latency is expected. At most one of the targets may be set. `min_life_years` is the least life of the flash that a
    size to advise must have, 0 for any.
    """

    sources: tuple[str, ...]
    events: int
    skipped: int
    duration_s: float
    by: str
    target_hit: float | None = None
    target_latency_ns: float | None = None
    budget_bytes: int | None = None
    hit: LatencyDistribution | None = None
    miss: LatencyDistribution | None = None
    endurance: Endurance = dataclasses.field(default_factory=Endurance)
    min_life_years: float = 0.0
    price_per_gib: float | None = None
    currency: str = ""
    price_source: str = ""


_CURVE_KEY = ("group_kind", "group_name", "line_bytes", "policy", "admission", "method")


def _curve_rows(points: pa.Table) -> list[list[CurvePoint]]:
    """Return the rows of each whole-trace curve, sorted by size; curves in the order of their first row."""
    curves: dict[tuple[object, ...], list[CurvePoint]] = {}
    for row in from_table(CurvePoint, points):
        if row.window == "all":
            curves.setdefault(tuple(getattr(row, name) for name in _CURVE_KEY), []).append(row)
    return [sorted(rows, key=lambda row: row.size_bytes) for rows in curves.values()]


def _flash_write_bytes_per_day(row: CurvePoint) -> float | None:
    """Return what is written in a day: no more than the budget, whose saved part a short trace would extrapolate."""
    if row.duration_s <= 0:
        return row.write_budget_bytes_per_day
    per_day = row.flash_write_bytes * DAY_S / row.duration_s
    return per_day if row.write_budget_bytes_per_day is None else min(per_day, row.write_budget_bytes_per_day)


def _size_point(row: CurvePoint, question: SizeQuestion) -> SizePoint:
    per_day = _flash_write_bytes_per_day(row)
    mean = p99 = None
    if question.hit is not None and question.miss is not None and row.read_requests > 0:
        mean = mixed_mean_ns(question.hit, question.miss, row.read_hit_ratio)
        # Two constants have no tail; a p99 from them would be an invention.
        if question.miss.is_measured:
            p99 = mixed_quantile_ns(question.hit, question.miss, row.read_hit_ratio, 0.99)
    has_reads = row.read_requests > 0
    return SizePoint(
        size_bytes=row.size_bytes,
        flash_bytes=row.flash_bytes,
        memory_bytes=row.size_bytes - row.flash_bytes,
        read_hit=Figure(
            row.read_hit_ratio if has_reads else None,
            "",
            low=row.read_hit_ratio_low if has_reads else None,
            high=row.read_hit_ratio_high if has_reads else None,
            samples=row.sampled_lines or 0,
        ),
        read_byte_hit=row.read_byte_hit_ratio if has_reads else None,
        write_hit=row.write_hit_ratio if row.write_requests > 0 else None,
        write_byte_hit=row.write_byte_hit_ratio if row.write_requests > 0 else None,
        backing_reads_left=1.0 - row.read_hit_ratio if has_reads else None,
        fetch_amplification=row.fetch_amplification,
        flash_write_bytes_per_day=per_day,
        life_years=question.endurance.life_years(row.flash_bytes, per_day),
        latency_ns_mean=mean,
        latency_ns_p99=p99,
        cost=None if question.price_per_gib is None else row.flash_bytes / GIB * question.price_per_gib,
    )


def _wanted(points: Sequence[SizePoint], question: SizeQuestion) -> tuple[SizePoint | None, str | None]:
    """Return the smallest size that meets the target, or None and why not; (None, None) when none was set."""
    if question.target_hit is not None:
        return _wanted_hit(points, question.target_hit)
    if question.target_latency_ns is not None:
        return _wanted_latency(points, question.target_latency_ns)
    if question.budget_bytes is not None:
        fitting = [p for p in points if p.flash_bytes <= question.budget_bytes]
        if fitting:
            return fitting[-1], None
        least = min((p.flash_bytes for p in points), default=0)
        return None, f"the smallest size simulated needs {format_bytes(least)} of flash, more than the budget"
    return None, None


def _wanted_hit(points: Sequence[SizePoint], target_hit: float) -> tuple[SizePoint | None, str | None]:
    for point in points:
        if (point.read_hit.value or 0.0) >= target_hit:
            return point, None
    best = max((p.read_hit.value or 0.0 for p in points), default=0.0)
    return None, f"no simulated size reaches {target_hit:.0%} of reads; the most is {best:.1%}"


def _wanted_latency(points: Sequence[SizePoint], target_ns: float) -> tuple[SizePoint | None, str | None]:
    known = [(p.latency_ns_mean, p) for p in points if p.latency_ns_mean is not None]
    if not known:
        return None, "the latency of hits or misses is not known"
    for mean_ns, point in known:
        if mean_ns <= target_ns:
            return point, None
    best_ns = min(mean_ns for mean_ns, _ in known)
    return None, (
        f"no simulated size reaches a mean of {format_duration_ns(target_ns)}; "
        f"the least is {format_duration_ns(best_ns)}"
    )


def _curve(rows: list[CurvePoint], question: SizeQuestion) -> SizeCurve:
    points = tuple(_size_point(row, question) for row in rows)
    sizes = np.asarray([p.size_bytes for p in points], dtype=np.float64)
    hits = np.asarray([p.read_hit.value or 0.0 for p in points], dtype=np.float64)
    knee = knee_index(sizes, hits)
    wanted, reason = _wanted(points, question)
    first = rows[0]
    return SizeCurve(
        group_kind=first.group_kind,
        group_name=first.group_name,
        line_bytes=first.line_bytes,
        fetch_bytes=first.fetch_bytes,
        policy=first.policy,
        admission=first.admission,
        method=first.method,
        sampled_lines=first.sampled_lines,
        read_requests=first.read_requests,
        write_requests=first.write_requests,
        read_bytes=first.read_bytes,
        write_bytes=first.write_bytes,
        working_set_bytes=first.working_set_bytes,
        cold_read_ratio=first.cold_read_ratio if first.read_requests else None,
        cold_write_ratio=first.cold_write_ratio if first.write_requests else None,
        write_gap_ratio=first.write_gap_ratio,
        points=points,
        knee=None if knee is None else points[knee],
        wanted=wanted,
        wanted_reason=reason,
    )


def _demand(curve: SizeCurve) -> Demand:
    """Return the hits over flash. Where two sizes need the same flash, the larger one has more memory for it."""
    hits = {p.flash_bytes: (p.read_hit.value or 0.0) * curve.read_requests for p in curve.points}
    return Demand(
        name=curve.group_name,
        sizes_bytes=np.asarray(list(hits), dtype=np.float64),
        hits=np.asarray(list(hits.values()), dtype=np.float64),
    )


def _memory_bytes(curve: SizeCurve, flash_bytes: int) -> int:
    """Return the memory that goes with some flash, straight between the curve's points."""
    flash, memory = [0, *(p.flash_bytes for p in curve.points)], [0, *(p.memory_bytes for p in curve.points)]
    return int(np.interp(flash_bytes, flash, memory))


def _splits(curves: Iterable[SizeCurve], question: SizeQuestion) -> tuple[Split, ...]:
    """Return the best split of the budget over the groups, one for each line size and policy."""
    if question.budget_bytes is None or question.by == "all":
        return ()
    grouped: dict[tuple[int, str], list[SizeCurve]] = {}
    for curve in curves:
        if curve.group_kind == question.by:
            grouped.setdefault((curve.line_bytes, curve.policy), []).append(curve)
    days = question.duration_s / DAY_S
    splits = []
    for (line_bytes, policy), members in sorted(grouped.items()):
        demands = [_demand(c) for c in members]
        allocations = split(demands, question.budget_bytes)
        by_name = {c.group_name: c for c in members}
        splits.append(
            Split(
                line_bytes=line_bytes,
                policy=policy,
                budget_bytes=question.budget_bytes,
                shares=tuple(
                    SplitShare(
                        group_name=a.name,
                        flash_bytes=a.size_bytes,
                        memory_bytes=_memory_bytes(by_name[a.name], a.size_bytes),
                        read_hit_ratio=a.hits / max(1, by_name[a.name].read_requests),
                        hits_per_day=a.hits / days if days > 0 else None,
                        marginal_hits_per_gib=a.marginal_hits_per_gib,
                    )
                    for a in sorted(allocations, key=lambda a: (-a.size_bytes, a.name))
                ),
                hits=sum(a.hits for a in allocations),
                hits_even=even_hits(demands, question.budget_bytes),
            )
        )
    return tuple(splits)


def _latency_sentence(question: SizeQuestion) -> str:
    if question.hit is None or question.miss is None:
        return (
            "No latency is expected: the trace has no latencies, and none were given (--hit-latency, --miss-latency)."
        )
    return (
        f"A hit takes {format_duration_ns(question.hit.mean_ns)} on average ({question.hit.source}), "
        f"a miss {format_duration_ns(question.miss.mean_ns)} ({question.miss.source})."
    )


def _cost_sentence(question: SizeQuestion, flash_bytes: int | None) -> str:
    if question.price_per_gib is None or flash_bytes is None:
        return ""
    cost = flash_bytes / GIB * question.price_per_gib
    return (
        f"{format_bytes(flash_bytes)} of flash cost {format_cost(cost)} {question.currency} "
        f"at {question.price_per_gib:g} {question.currency}/GiB ({question.price_source})."
    )


def build(points: pa.Table, question: SizeQuestion) -> SizeFinding:
    """Return the answer that the rows of `points` (records.CurvePoint) give to `question`.

    Curves keep the order of their first row. Windows other than "all" serve the stability only.
    """
    found = [_curve(rows, question) for rows in _curve_rows(points)]
    # Further admissions were tried at single sizes; the curves are those of the first.
    curves = tuple(c for c in found if c.admission == found[0].admission)
    trials = tuple(c for c in found if c.admission != found[0].admission)
    splits = _splits(curves, question)
    floor = Floor(question.min_life_years, question.budget_bytes)
    main = main_curve(curves, floor)
    stability, stability_sentence, stable = judge_windows(points, main, floor, has_time=question.duration_s > 0)
    advice = advise(
        curves,
        splits,
        question.hit,
        question.miss,
        stable=stable,
        floor=floor,
        endurance=question.endurance,
        trials=trials,
    )
    return SizeFinding(
        sources=question.sources,
        events=question.events,
        skipped=question.skipped,
        duration_s=question.duration_s,
        by=question.by,
        budget_bytes=question.budget_bytes,
        advice=advice,
        curves=curves,
        trials=trials,
        splits=splits,
        stability=stability,
        stability_sentence=stability_sentence,
        latency_sentence=_latency_sentence(question),
        cost_sentence=_cost_sentence(question, advice.flash_bytes),
        caveats=caveats_of(
            curves,
            main,
            duration_s=question.duration_s,
            skipped=question.skipped,
            mixes_latencies=question.hit is not None and question.miss is not None,
        ),
    )


def admissions_to_try(points: pa.Table, question: SizeQuestion) -> tuple[SizeCurve, int, list[str]] | None:
    """Return the curve, the size in bytes and the admissions to simulate beside it; None when no size wears out."""
    finding = build(points, question)
    floor = Floor(question.min_life_years, question.budget_bytes)
    curve = main_curve(finding.curves, floor)
    if curve is None or finding.advice.call != "wears out":
        return None
    point = choose(curve, floor).point
    names = gentler_admissions(point, curve.admission, floor, question.endurance)
    return (curve, point.size_bytes, names) if names else None
