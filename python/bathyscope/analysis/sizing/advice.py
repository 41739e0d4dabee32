"""Is flash worth it, and how much: one sentence with its reasons, "not worth it" when it is not."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.analysis.sizing.choice import ANY, LEAST_HIT_RATIO, Floor, choose, main_curve
from bathyscope.analysis.sizing.endurance import Endurance
from bathyscope.analysis.sizing.latency import LatencyDistribution
from bathyscope.analysis.sizing.wear import life_words, what_would_last
from bathyscope.records.size_finding import Advice, SizeCurve, SizePoint, Split
from bathyscope.units import format_bytes, format_duration_ns, format_line_size

# Below these, the figures rest on too little to advise a purchase.
LEAST_READ_REQUESTS = 1000
# A write-through cache serves reads; where they are rarer than this, it has nothing to serve.
LEAST_READ_SHARE = 0.05
# Bytes that the disks read for each byte that clients read, from which on the cache spares them nothing.
LEAST_FETCHED = 0.95
# A hit must be this much faster than a miss; below, the path through the cache eats the gain.
LEAST_SPEEDUP = 1.5
# A life below this is told whatever life was asked for.
SHORT_LIFE_YEARS = 5.0


def _only_neighbours(curve: SizeCurve, curves: Sequence[SizeCurve]) -> bool:
    """Return whether the hits are neighbours fetched along and not data that returns.

    Then the smallest lines hit next to nothing, and the disks read no less than without the cache: what large lines
    do for such a load, read-ahead in memory does without flash.
    """
    smallest = min(
        (c for c in curves if c.group_kind == "all" and c.policy == curve.policy and c.points),
        key=lambda c: c.line_bytes,
    )
    returns = max(p.read_hit.value or 0.0 for p in smallest.points)
    fetched = min((p.fetch_amplification or 0.0 for p in curve.points), default=0.0)
    return returns < LEAST_HIT_RATIO and fetched >= LEAST_FETCHED


def _against(
    curve: SizeCurve,
    curves: Sequence[SizeCurve],
    hit: LatencyDistribution | None,
    miss: LatencyDistribution | None,
) -> list[str]:
    """Return the reasons why flash would not help this load; empty when it would."""
    reasons = []
    requests = curve.read_requests + curve.write_requests
    if requests and curve.read_requests < LEAST_READ_SHARE * requests:
        share = f"only {curve.read_requests / requests:.1%} of the requests are reads"
        share = share if curve.read_requests else "no request is a read"
        reasons.append(f"{share}; a write-through cache saves nothing on writes")
    best = max(p.read_hit.value or 0.0 for p in curve.points)
    if curve.read_requests and best < LEAST_HIT_RATIO:
        reasons.append(
            f"with {format_line_size(curve.line_bytes)} lines no size hits more than {best:.1%} of reads: "
            f"{curve.cold_read_ratio:.0%} touch data for the first time"
        )
    elif curve.read_requests and _only_neighbours(curve, curves):
        reasons.append(
            f"hardly any data returns: {best:.0%} of reads hit because {format_line_size(curve.line_bytes)} lines "
            "fetch neighbours along, which read-ahead does without flash"
        )
    if hit is not None and miss is not None and miss.mean_ns < LEAST_SPEEDUP * hit.mean_ns:
        reasons.append(
            f"the backing device is nearly as fast as a hit: "
            f"{format_duration_ns(miss.mean_ns)} against {format_duration_ns(hit.mean_ns)}"
        )
    return reasons


def size_words(point: SizePoint) -> str:
    """Return a size as a sentence has it: "476 MiB of flash", with its parts where some of it is memory."""
    if not point.memory_bytes:
        return f"{format_bytes(point.size_bytes)} of flash"
    flash, memory = format_bytes(point.flash_bytes), format_bytes(point.memory_bytes)
    return f"{format_bytes(point.size_bytes)} ({flash} of flash, {memory} of memory)"


def advise(
    curves: Sequence[SizeCurve],
    splits: Sequence[Split],
    hit: LatencyDistribution | None,
    miss: LatencyDistribution | None,
    *,
    stable: bool | None,
    floor: Floor = ANY,
    endurance: Endurance | None = None,
    trials: Sequence[SizeCurve] = (),
) -> Advice:
    """Return the advice for the whole trace. `stable` is None when the trace is too short to judge that.

    `trials` are what other admissions make of a size that wears out.
    """
    curve = main_curve(curves, floor)
    if curve is None or curve.read_requests + curve.write_requests < LEAST_READ_REQUESTS:
        count = 0 if curve is None else curve.read_requests + curve.write_requests
        sentence = f"Cannot tell: the trace holds {count} requests, fewer than {LEAST_READ_REQUESTS}."
        return Advice("cannot tell", sentence, ())

    def advice(call: str, sentence: str, reasons: Sequence[str], size: SizePoint | None = None) -> Advice:
        return Advice(
            call,
            sentence,
            tuple(reasons),
            size_bytes=None if size is None else size.size_bytes,
            flash_bytes=None if size is None else size.flash_bytes,
            line_bytes=curve.line_bytes,
            policy=curve.policy,
        )

    against = _against(curve, curves, hit, miss)
    if against:
        return advice("not worth it", f"Not worth it: {against[0]}.", against)
    if curve.wanted is None and curve.wanted_reason is not None:
        return advice("not worth it", f"Not within reach: {curve.wanted_reason}.", [curve.wanted_reason])
    choice = choose(curve, floor)
    chosen, preferred = choice.point, choice.preferred
    hit_ratio = chosen.read_hit.value or 0.0
    if hit_ratio < LEAST_HIT_RATIO:
        reason = (
            f"{format_bytes(chosen.size_bytes)} with {format_line_size(curve.line_bytes)} lines "
            f"hit only {hit_ratio:.1%} of reads"
        )
        return advice("not worth it", f"Not worth it: {reason}.", [reason])
    reasons = _for(chosen, curve, splits, miss, stable=stable)
    cache = f"{size_words(chosen)} with {format_line_size(curve.line_bytes)} lines ({curve.policy})"
    if not floor.lasts(chosen):
        wanted, life = life_words(floor.life_years), life_words(chosen.life_years or 0.0)
        sentence = (
            f"Wears out: {cache} {_what(chosen, curve, floor)} and {reasons[0]}, "
            f"but the flash would live {life}, not {wanted}."
        )
        lasting = what_would_last(chosen, floor, endurance or Endurance(), trials)
        return advice("wears out", sentence, [*lasting, *reasons])
    what = _what(chosen, curve, floor)
    if chosen is not preferred:
        what = f"is the smallest size that lives {life_words(floor.life_years)}"
        reasons.append(
            f"{size_words(preferred)} {_what(preferred, curve, floor)}, but its flash would live "
            f"{life_words(preferred.life_years or 0.0)}"
        )
    return advice("worth it", f"Worth it: {cache} {what}; {reasons[0]}.", reasons, chosen)


def _what(point: SizePoint, curve: SizeCurve, floor: Floor) -> str:
    """Return what makes a size stand out, as the rest of a sentence."""
    if point is not curve.wanted:
        return "is the knee" if point is curve.knee else "is enough"
    if floor.most_flash_bytes is not None:
        return "uses the budget" if point.flash_bytes >= 0.9 * floor.most_flash_bytes else "fits the budget"
    largest = point.size_bytes >= curve.points[-1].size_bytes
    return "meets the target" + (" (the largest size simulated)" if largest else "")


def _for(
    chosen: SizePoint,
    curve: SizeCurve,
    splits: Sequence[Split],
    miss: LatencyDistribution | None,
    *,
    stable: bool | None,
) -> list[str]:
    """Return what a size brings and what speaks against it; the share of reads that hit comes first."""
    reasons = [
        f"{chosen.read_hit.value or 0.0:.1%} of reads hit",
        f"{1.0 - (chosen.read_hit.value or 0.0):.1%} still reach the disks",
    ]
    if chosen.latency_ns_mean is not None and miss is not None:
        reasons.append(
            f"mean read latency {format_duration_ns(chosen.latency_ns_mean)} "
            f"instead of {format_duration_ns(miss.mean_ns)}"
        )
    if chosen.life_years is not None and chosen.life_years < SHORT_LIFE_YEARS:
        reasons.append(f"the flash would live {life_words(chosen.life_years)}")
    if stable is False:
        reasons.append("the hit ratio changes much over the trace")
    reasons.extend(
        f"the best split brings {best.hits / best.hits_even - 1:.1%} more hits than an even one"
        for best in splits
        if best.hits > best.hits_even > 0 and best.line_bytes == curve.line_bytes and best.policy == curve.policy
    )
    return reasons
