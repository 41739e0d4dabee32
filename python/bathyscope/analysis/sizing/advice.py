"""Is flash worth it, which drive and how much of it: one sentence with its reasons, "not worth it" when it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bathyscope.analysis.sizing.choice import LEAST_HIT_RATIO, Choice, has_target, main_curve, meets, whole_curves
from bathyscope.analysis.sizing.drives import MOST_DRIVES, cheapest
from bathyscope.analysis.sizing.question import SizeQuestion
from bathyscope.analysis.sizing.sentences import drive_words
from bathyscope.analysis.sizing.wear import life_words
from bathyscope.records.size_finding import Advice, SizeCurve, SizePoint, Split
from bathyscope.units import format_bytes, format_cost, format_duration_ns, format_line_size

# Below these, the figures rest on too little to advise a purchase.
LEAST_READ_REQUESTS = 1000
# A write-through cache serves reads; where they are rarer than this, it has nothing to serve.
LEAST_READ_SHARE = 0.05
# Bytes that the disks read for each byte that clients read, from which on the cache spares them nothing.
LEAST_FETCHED = 0.95
# A hit must be this much faster than a miss; below, the path through the cache eats the gain.
LEAST_SPEEDUP = 1.5
# A split that gains less than this over an even one is not worth a reason.
LEAST_SPLIT_GAIN = 0.001
# A size that uses this much of a budget uses it.
LARGE_PART = 0.9
# One group that brings this share of the hits is named: a cache for it alone would do.
NEARLY_ALL = 0.9
# Reads that keep the disks busy for this share of the time that they do without the cache: it spares them nothing.
LEAST_SPARED = 0.95


def _only_neighbours(curve: SizeCurve, curves: Sequence[SizeCurve]) -> bool:
    """Return whether the hits are neighbours fetched along and not data that returns.

    Then the smallest lines hit next to nothing, and the disks read no less than without the cache: what large lines
    do for such a load, read-ahead in memory does without flash.
    """
    smallest = min(whole_curves(curves), key=lambda c: (c.line_bytes, c.fetch_bytes))
    returns = max(p.read_hit.value or 0.0 for p in smallest.points)
    fetched = min((p.fetch_amplification or 0.0 for p in curve.points), default=0.0)
    return returns < LEAST_HIT_RATIO and fetched >= LEAST_FETCHED


def _against(curve: SizeCurve, curves: Sequence[SizeCurve], question: SizeQuestion) -> list[str]:
    """Return the reasons why flash would not help this load; empty when it would."""
    reasons: list[str] = []
    hit, miss = question.hit, question.miss
    requests = curve.read_requests + curve.write_requests
    if requests and curve.read_requests < LEAST_READ_SHARE * requests:
        share = f"only {curve.read_requests / requests:.1%} of the requests are reads"
        reasons.append(
            f"{share if curve.read_requests else 'no request is a read'}; a write-through cache saves nothing on writes"
        )
    best = max(p.read_hit.value or 0.0 for p in curve.points)
    if curve.read_requests and best < LEAST_HIT_RATIO:
        reasons.append(
            f"with {_lines(curve)} no size hits more than {best:.1%} of reads: "
            f"{curve.cold_read_ratio:.0%} touch data for the first time"
        )
    elif curve.read_requests and _only_neighbours(curve, curves):
        reasons.append(
            f"hardly any data returns: {best:.0%} of reads hit because {format_line_size(curve.line_bytes)} lines "
            "fetch neighbours along, which read-ahead does without flash"
        )
    left = min((p.disk_time_left for p in curve.points if p.disk_time_left is not None), default=0.0)
    if not reasons and left >= LEAST_SPARED:
        reasons.append(f"reads would keep the disks busy for {left:.0%} of the time that they do without the cache")
    if hit is not None and miss is not None and miss.mean_ns < LEAST_SPEEDUP * hit.mean_ns:
        reasons.append(
            f"the backing device is nearly as fast as a hit: "
            f"{format_duration_ns(miss.mean_ns)} against {format_duration_ns(hit.mean_ns)}"
        )
    return reasons


def size_words(point: SizePoint) -> str:
    """Return a size as a sentence has it: "476 MiB of flash", with its parts where some of it is DRAM."""
    if not point.dram_bytes:
        return f"{format_bytes(point.size_bytes)} of flash"
    flash, dram = format_bytes(point.flash_bytes), format_bytes(point.dram_bytes)
    return f"{format_bytes(point.size_bytes)} ({flash} of flash, {dram} of DRAM)"


def advise(
    curves: Sequence[SizeCurve],
    choice: Choice | None,
    splits: Sequence[Split],
    question: SizeQuestion,
    *,
    stable: bool | None,
) -> Advice:
    """Return the advice for the whole trace. `stable` is None when the trace is too short to judge that."""
    curve = main_curve(curves, question.spec)
    if curve is None or curve.read_requests + curve.write_requests < LEAST_READ_REQUESTS:
        count = 0 if curve is None else curve.read_requests + curve.write_requests
        sentence = f"Inconclusive: the trace holds {count} requests, fewer than {LEAST_READ_REQUESTS}."
        return Advice("inconclusive", sentence, ())

    def advice(verdict: str, sentence: str, reasons: Sequence[str], point: SizePoint | None = None) -> Advice:
        return Advice(
            verdict,
            sentence,
            tuple(reasons),
            size_bytes=None if point is None else point.size_bytes,
            flash_bytes=None if point is None else point.flash_bytes,
            line_bytes=curve.line_bytes,
            unit_bytes=curve.unit_bytes,
            fetch_bytes=curve.fetch_bytes,
            is_fetch_adaptive=curve.is_fetch_adaptive,
            policy=curve.policy,
            admission=curve.admission,
            purchase=None if point is None else point.purchase,
        )

    against = _against(curve, curves, question)
    if against:
        return advice("not worth it", f"Not worth it: {against[0]}.", against)
    if choice is None:
        return _out_of_reach(curve, curves, question, advice)
    point = choice.point
    hit_ratio = point.read_hit.value or 0.0
    if hit_ratio < LEAST_HIT_RATIO:
        reason = f"{format_bytes(point.size_bytes)} with {_lines(curve)} hit only {hit_ratio:.1%} of reads"
        return advice("not worth it", f"Not worth it: {reason}.", [reason])
    reasons = _for(choice, curves, splits, question, stable=stable)
    on = "" if question.spec.budget_bytes is not None else _on_drives(point, question)
    sentence = (
        f"Worth it: {size_words(point)}{on}, {configuration_words(curve)}, {_what(point, question)}: {reasons[0]}."
    )
    return advice("worth it", sentence, reasons, point)


def _on_drives(point: SizePoint, question: SizeQuestion) -> str:
    if point.purchase is None:
        return ""
    return f" on {drive_words(point.purchase)} ({format_cost(point.purchase.price)} {question.spec.prices.currency})"


def _out_of_reach(
    curve: SizeCurve, curves: Sequence[SizeCurve], question: SizeQuestion, advice: Callable[..., Advice]
) -> Advice:
    """Return why no size is advised: no drives bear what the cache writes, or none meets the target."""
    spec = question.spec
    meeting = [p for c in whole_curves(curves) for p in c.points if meets(p, spec) and (p.disk_time_left or 0.0) < 1.0]
    if not meeting:
        reason = curve.wanted_reason or "no simulated size spares the disks anything"
        return advice("not worth it", f"Not within reach: {reason}.", [reason])
    least = min(meeting, key=lambda p: (p.flash_write_bytes_per_day or 0.0, p.flash_bytes))
    per_day = least.flash_write_bytes_per_day
    if per_day is None or cheapest(spec.drives, least.flash_bytes, None, None, spec.min_life_years) is None:
        reason = (
            f"{format_bytes(least.flash_bytes)} of flash are more than {MOST_DRIVES} of any drive in the price file"
        )
        return advice("not worth it", f"Not within reach: {reason}.", [reason])
    life = "their warranty" if spec.min_life_years is None else life_words(spec.min_life_years)
    sentence = (
        f"Wears out: {size_words(least)}, {configuration_words(curve)}, would write {format_bytes(per_day)} to flash a "
        f"day, which {MOST_DRIVES} of no drive in the price file bear for {life}."
    )
    reasons = ("--min-life asks for a shorter life", "--admission 2-hit or budget:SIZE writes less")
    return advice("wears out", sentence, reasons)


def configuration_words(curve: SizeCurve) -> str:
    """Return the configuration of a curve as a sentence has it: "64K lines fetched by 4K, lru, admission 2-hit"."""
    admission = "" if curve.admission == "all" else f", admission {curve.admission}"
    return f"{_lines(curve)} ({curve.policy}{admission})"


def _lines(curve: SizeCurve) -> str:
    return f"{format_line_size(curve.line_bytes)} lines{curve.fetch_words}"


def _what(point: SizePoint, question: SizeQuestion) -> str:
    """Return what makes a size stand out, as the rest of a sentence."""
    spec = question.spec
    if has_target(spec):
        return "is the smallest that meets the target"
    if spec.budget_bytes is None:
        return "is all that helps"
    return (
        "uses the budget" if point.flash_bytes >= LARGE_PART * spec.budget_bytes else "is all of the budget that helps"
    )


def hit_words(point: SizePoint) -> str:
    """Return the share of reads that hit, with half its band when it has one."""
    hit = point.read_hit
    if hit.low is None or hit.high is None or hit.high - hit.low < 0.0005:
        return f"{hit.value or 0.0:.1%} of reads hit"
    return f"{hit.value or 0.0:.1%} ±{50 * (hit.high - hit.low):.1f} points of reads hit"


def _for(
    choice: Choice,
    curves: Sequence[SizeCurve],
    splits: Sequence[Split],
    question: SizeQuestion,
    *,
    stable: bool | None,
) -> list[str]:
    """Return what a size brings and what speaks against it; the share of reads that hit comes first."""
    chosen, purchase = choice.point, choice.point.purchase
    one = _one_group(choice, curves, question)
    reasons = [hit_words(chosen) + (f", nearly all of them of {one}" if one else "")]
    reasons.append(f"{chosen.disk_time_left or 0.0:.1%} of the time that reads keep the disks busy is left")
    if chosen.latency_ns_mean is not None and question.miss is not None:
        mean, miss = format_duration_ns(chosen.latency_ns_mean), format_duration_ns(question.miss.mean_ns)
        reasons.append(f"mean read latency {mean} instead of {miss}")
    if purchase is not None:
        if chosen.life_years is None:
            reasons.append(f"the life of the flash is unknown: {_why_unknown(chosen, question)}")
        else:
            reasons.append(f"the flash would live {life_words(chosen.life_years)}")
        if purchase.count == 1 and purchase.share < 0.5:
            count = int(1 / max(purchase.share, 0.01))
            reasons.append(f"such a drive serves {count} caches like this one{' and more' if count == 100 else ''}")
    if chosen.fill_bytes:
        reasons.append(f"{format_bytes(chosen.fill_bytes)} are written once, to fill the cache")
    if stable is False:
        reasons.append("the hit ratio changes much over the trace")
    reasons.extend(
        f"the best split brings {best.hits / best.hits_even - 1:.1%} more hits than an even one"
        for best in splits
        if (best.line_bytes, best.policy) == (choice.curve.line_bytes, choice.curve.policy)
        and best.hits_even > 0
        and best.hits / best.hits_even - 1 >= LEAST_SPLIT_GAIN
    )
    return reasons


def _why_unknown(point: SizePoint, question: SizeQuestion) -> str:
    if question.trace.duration_s <= 0:
        return "the trace has no time"
    if point.flash_write_bytes_per_day is not None:
        return "the price file promises no endurance"
    return "the trace does not show the cache when it is warm"


def _one_group(choice: Choice, curves: Sequence[SizeCurve], question: SizeQuestion) -> str | None:
    """Return the group that has nearly all hits when each has a cache of the size that is advised."""
    groups = [
        c for c in curves if c.group_kind == question.spec.by != "all" and c.line_bytes == choice.curve.line_bytes
    ]
    hits: dict[str, float] = {}
    for group in groups:
        fitting = [p for p in group.points if p.size_bytes <= choice.point.size_bytes] or [group.points[0]]
        best = max(p.read_hit.value or 0.0 for p in fitting) * group.read_requests
        hits[group.group_name] = max(best, hits.get(group.group_name, 0.0))
    most = max(hits, key=lambda name: hits[name], default=None)
    if most is None or len(hits) < 2 or hits[most] < NEARLY_ALL * sum(hits.values()):
        return None
    return f"{question.spec.by} {most}"
