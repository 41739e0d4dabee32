"""From curve points to the answer: the curves with everything that follows, the split, the stability, the advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis.sizing.advice import advise
from bathyscope.analysis.sizing.caveats import caveats_of_curves, caveats_of_inputs
from bathyscope.analysis.sizing.choice import choose, main_curve, meets
from bathyscope.analysis.sizing.demand import PREFIX, peak_demand, peak_hour, peak_windows
from bathyscope.analysis.sizing.drives import Demand as FlashDemand
from bathyscope.analysis.sizing.drives import cheapest
from bathyscope.analysis.sizing.knee import knee_index
from bathyscope.analysis.sizing.latency import mixed_mean_ns, mixed_quantile_ns
from bathyscope.analysis.sizing.question import SizeQuestion
from bathyscope.analysis.sizing.sample_caveats import caveats_of_sample
from bathyscope.analysis.sizing.sentences import cost_sentence, demand_sentences, latency_sentence
from bathyscope.analysis.sizing.shares import split_of
from bathyscope.analysis.sizing.stability import judge_windows
from bathyscope.analysis.sizing.wear import Wear, wear_of
from bathyscope.records import CurvePoint, from_table
from bathyscope.records.figure import Figure
from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint, Split
from bathyscope.units import format_bytes, format_duration_ns

Key = tuple[object, ...]


def _curve_key(row: CurvePoint) -> Key:
    return row.group_kind, row.group_name, row.line_bytes, row.fetch_bytes, row.policy, row.admission


def curves_of(rows: Sequence[CurvePoint], question: SizeQuestion) -> list[SizeCurve]:
    """Return every curve that the rows hold, in the order of their first rows."""
    points: dict[Key, dict[int, CurvePoint]] = {}
    windows: dict[Key, list[CurvePoint]] = {}
    peaks: dict[Key, list[CurvePoint]] = {}
    for row in rows:
        key = _curve_key(row)
        if row.window == "all":
            points.setdefault(key, {}).setdefault(row.size_bytes, row)
        else:
            into = peaks if row.window.startswith(PREFIX) else windows
            into.setdefault((*key, row.size_bytes), []).append(row)
    demands = {key: peak_demand(same, same[0].fetch_bytes) for key, same in peaks.items()}
    invalidates = question.spec.on_write == "invalidate"
    wears = {key: wear_of(same, question.trace.duration_s, invalidates=invalidates) for key, same in windows.items()}
    return [
        _curve(key, sorted(by_size.values(), key=lambda row: row.size_bytes), wears, demands, question)
        for key, by_size in points.items()
    ]


def _size_point(row: CurvePoint, wear: Wear | None, demand: FlashDemand | None, question: SizeQuestion) -> SizePoint:
    mean = p99 = disk_time = None
    hit, low, high = None, None, None
    if row.read_requests > 0:
        hit, low, high = row.read_hit_ratio, row.read_hit_ratio_low, row.read_hit_ratio_high
        missing = row.read_requests * (1.0 - row.read_hit_ratio)
        fetched = row.read_bytes * (row.fetch_amplification or 0.0)
        without_s = question.backing.busy_s(row.read_requests, row.read_bytes)
        disk_time = question.backing.busy_s(missing, fetched) / without_s if without_s > 0 else None
        if question.hit is not None and question.miss is not None:
            # A miss waits for all that is fetched with it; the latency of a miss is that of its own bytes.
            more_bytes = fetched - missing * row.read_bytes / row.read_requests
            delay_s = question.backing.transfer_s(max(0.0, more_bytes) / missing) if missing > 0 else 0.0
            miss = question.miss.later_by(delay_s * 1e9)
            mean = mixed_mean_ns(question.hit, miss, row.read_hit_ratio)
            # Two constants have no tail; a p99 from them would be an invention.
            if miss.is_measured:
                p99 = mixed_quantile_ns(question.hit, miss, row.read_hit_ratio, 0.99)
    per_day = None if wear is None else wear.bytes_per_day
    return SizePoint(
        size_bytes=row.size_bytes,
        flash_bytes=row.flash_bytes,
        dram_bytes=row.size_bytes - row.flash_bytes,
        read_hit=Figure(hit, "", low, high, samples=row.sampled_lines or 0),
        read_byte_hit=row.read_byte_hit_ratio if row.read_requests > 0 else None,
        write_hit=row.write_hit_ratio if row.write_requests > 0 else None,
        write_byte_hit=row.write_byte_hit_ratio if row.write_requests > 0 else None,
        backing_reads_left=None if hit is None else 1.0 - hit,
        fetch_amplification=row.fetch_amplification,
        disk_time_left=disk_time,
        fill_bytes=None if wear is None else wear.fill_bytes,
        flash_write_bytes_per_day=per_day,
        latency_ns_mean=mean,
        latency_ns_p99=p99,
        purchase=cheapest(question.spec.drives, row.flash_bytes, per_day, demand, question.spec.min_life_years),
    )


def _wanted(points: Sequence[SizePoint], question: SizeQuestion) -> tuple[SizePoint | None, str | None]:
    """Return the smallest size that meets the target, or the largest that fits the budget, or None and why not.

    (None, None) when nothing was set.
    """
    spec = question.spec
    meeting = [point for point in points if meets(point, spec)]
    if spec.target_hit is not None:
        best = max(p.read_hit.value or 0.0 for p in points)
        why = f"no simulated size reaches {spec.target_hit:.0%} of reads; the most is {best:.1%}"
    elif spec.target_latency_ns is not None:
        known = [point.latency_ns_mean for point in points if point.latency_ns_mean is not None]
        why = "the latency of hits or misses is not known"
        if known:
            target, least = (format_duration_ns(ns) for ns in (spec.target_latency_ns, min(known)))
            why = f"no simulated size reaches a mean of {target}; the least is {least}"
    elif spec.budget_bytes is not None:
        meeting = meeting[-1:]
        least = format_bytes(min(p.flash_bytes for p in points))
        why = f"the smallest size simulated needs {least} of flash, more than the budget"
    else:
        return None, None
    return (meeting[0], None) if meeting else (None, why)


def _curve(
    key: Key,
    rows: list[CurvePoint],
    wears: Mapping[Key, Wear | None],
    demands: Mapping[Key, FlashDemand | None],
    question: SizeQuestion,
) -> SizeCurve:
    # Where the busiest minute of a point was not simulated, that of another point of the trace stands for it.
    other = next(iter(demands.values()), None) if rows[0].group_kind == "all" else None
    points = tuple(
        _size_point(row, wears.get((*key, row.size_bytes)), demands.get((*key, row.size_bytes), other), question)
        for row in rows
    )
    knee = knee_index(
        np.asarray([p.size_bytes for p in points], float), np.asarray([p.read_hit.value or 0.0 for p in points])
    )
    wanted, reason = _wanted(points, question)
    first = rows[0]
    return SizeCurve(
        group_kind=first.group_kind,
        group_name=first.group_name,
        line_bytes=first.line_bytes,
        fetch_bytes=first.fetch_bytes,
        unit_bytes=question.spec.unit_bytes(first.line_bytes, first.fetch_bytes),
        policy=first.policy,
        admission=first.admission,
        method="minisim" if any(row.method == "minisim" for row in rows) else first.method,
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
        is_fetch_adaptive=question.spec.break_even_bytes is not None,
    )


def _was_asked_for(curve: SizeCurve, question: SizeQuestion) -> bool:
    spec = question.spec
    fetch_bytes = spec.fetch_bytes or curve.line_bytes
    return curve.fetch_bytes == fetch_bytes and curve.policy in spec.policies and curve.admission == spec.admission.name


def _splits(curves: Iterable[SizeCurve], question: SizeQuestion) -> tuple[Split, ...]:
    """Return the best split of the budget over the groups, one for each line size and policy."""
    if question.spec.budget_bytes is None or question.spec.by == "all":
        return ()
    grouped: dict[tuple[int, str], list[SizeCurve]] = {}
    for curve in curves:
        if curve.group_kind == question.spec.by:
            grouped.setdefault((curve.line_bytes, curve.policy), []).append(curve)
    budget, seconds = question.spec.budget_bytes, question.trace.duration_s
    return tuple(split_of(members, budget, seconds) for _, members in sorted(grouped.items()))


def build(points: pa.Table, question: SizeQuestion) -> SizeFinding:
    """Return the answer that the rows of `points` (records.CurvePoint) give to `question`.

    Curves keep the order of their first row. Windows serve the wear, the stability and the busiest time.
    """
    rows = from_table(CurvePoint, points)
    every_curve = curves_of(rows, question)
    curves = tuple(c for c in every_curve if _was_asked_for(c, question))
    trials = tuple(c for c in every_curve if not _was_asked_for(c, question))
    splits = _splits(curves, question)
    choice, main = choose(every_curve, question.spec), main_curve(every_curve, question.spec)
    stability, stability_sentence, stable = judge_windows(rows, main, choice, question)
    advice = advise(every_curve, choice, splits, question, stable=stable)
    peaks = [] if choice is None else peak_windows(_of_point(rows, choice.curve, choice.point))
    return SizeFinding(
        sources=question.trace.sources,
        events=question.trace.events,
        skipped=question.trace.skipped,
        duration_s=question.trace.duration_s,
        by=question.spec.by,
        budget_bytes=question.spec.budget_bytes,
        advice=advice,
        curves=curves,
        trials=trials,
        splits=splits,
        stability=stability,
        stability_sentence=stability_sentence,
        latency_sentence=latency_sentence(question),
        demand_sentences=demand_sentences(
            peak_demand(peaks, main.fetch_bytes if main else 0),
            peak_hour(peaks, question.trace.duration_s, question.backing),
            peaks,
            question,
        ),
        cost_sentence=cost_sentence(advice, question),
        caveats=(
            *caveats_of_curves((*curves, *(c for c in trials if c is main)), main, question),
            *caveats_of_sample(rows, question.trace.request_bytes_p99),
            *caveats_of_inputs(rows, question),
        ),
    )


def _of_point(rows: Iterable[CurvePoint], curve: SizeCurve, point: SizePoint) -> list[CurvePoint]:
    key = (curve.group_kind, curve.group_name, curve.line_bytes, curve.fetch_bytes, curve.policy, curve.admission)
    return [row for row in rows if row.size_bytes == point.size_bytes and _curve_key(row) == key]
