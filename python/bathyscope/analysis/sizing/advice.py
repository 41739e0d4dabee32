"""Is flash worth it, and how much: one sentence with its reasons, "not worth it" when it is not."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.analysis.sizing.latency import LatencyDistribution
from bathyscope.records.size_finding import Advice, SizeCurve, SizePoint, Split
from bathyscope.units import format_bytes, format_duration_ns, format_size_short

# Below these, the figures rest on too little to advise a purchase.
LEAST_READ_REQUESTS = 1000
# A write-through cache serves reads; where they are rarer than this, it has nothing to serve.
LEAST_READ_SHARE = 0.05
# A cache that cannot reach this at any size sees data that does not come back; one that does not reach it at the
# size that was asked for is too small.
LEAST_HIT_RATIO = 0.10
# Bytes that the disks read for each byte that clients read, from which on the cache spares them nothing.
LEAST_FETCHED = 0.95
# Bytes that the disks may read for each byte that clients read before a line size counts as wasteful.
LARGEST_FETCH = 1.5
# A hit must be this much faster than a miss; below, the path through the cache eats the gain.
LEAST_SPEEDUP = 1.5


def main_curve(curves: Sequence[SizeCurve]) -> SizeCurve | None:
    """Return the curve of the whole trace that the advice is about, None when there is none.

    Where a target is met: the curve that meets it with the least flash among those that read at most
    LARGEST_FETCH from the disks for each byte, because large lines buy hits with disk reads. Else: the most hits
    for each byte that the disks read.
    """
    whole = [c for c in curves if c.group_kind == "all" and c.points]
    if not whole:
        return None

    def merit(curve: SizeCurve) -> tuple[bool, bool, float]:
        point = chosen_point(curve)
        fetched = point.fetch_amplification or 1.0
        if point is curve.wanted:
            return (True, fetched <= LARGEST_FETCH, -float(point.size_bytes))
        return (False, False, (point.read_hit.value or 0.0) / max(1.0, fetched))

    return max(whole, key=merit)


def chosen_point(curve: SizeCurve) -> SizePoint:
    """Return the wanted point, else the knee, else the smallest size within 5 % of the best hit ratio."""
    if curve.wanted is not None:
        return curve.wanted
    if curve.knee is not None:
        return curve.knee
    best = max(p.read_hit.value or 0.0 for p in curve.points)
    return next(p for p in curve.points if (p.read_hit.value or 0.0) >= 0.95 * best)


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
        reasons.append(
            f"only {curve.read_requests / requests:.1%} of the requests are reads; "
            "a write-through cache saves nothing on writes"
        )
    best = max(p.read_hit.value or 0.0 for p in curve.points)
    if curve.read_requests and best < LEAST_HIT_RATIO:
        reasons.append(
            f"no size hits more than {best:.1%} of reads: {curve.cold_read_ratio:.0%} touch data for the first time"
        )
    elif curve.read_requests and _only_neighbours(curve, curves):
        reasons.append(
            f"hardly any data returns: {best:.0%} of reads hit because {format_size_short(curve.line_bytes)} lines "
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


def _life(years: float) -> str:
    """Return a life as a sentence has it: "4.2 years", or days where it is less than one year."""
    return f"{years:.1f} years" if years >= 1 else f"{years * 365:.0f} days"


def advise(
    curves: Sequence[SizeCurve],
    splits: Sequence[Split],
    hit: LatencyDistribution | None,
    miss: LatencyDistribution | None,
    *,
    stable: bool | None,
) -> Advice:
    """Return the advice for the whole trace. `stable` is None when the trace is too short to judge that."""
    curve = main_curve(curves)
    if curve is None or curve.read_requests + curve.write_requests < LEAST_READ_REQUESTS:
        count = 0 if curve is None else curve.read_requests + curve.write_requests
        return Advice(
            "cannot tell",
            f"Cannot tell: the trace holds {count} requests, fewer than {LEAST_READ_REQUESTS}.",
            (),
        )
    against = _against(curve, curves, hit, miss)
    if against:
        return Advice("not worth it", f"Not worth it: {against[0]}.", tuple(against))
    if curve.wanted is None and curve.wanted_reason is not None:
        return Advice("not worth it", f"Not within reach: {curve.wanted_reason}.", (curve.wanted_reason,))
    chosen = chosen_point(curve)
    hit_ratio = chosen.read_hit.value or 0.0
    if hit_ratio < LEAST_HIT_RATIO:
        reason = (
            f"{format_bytes(chosen.size_bytes)} with {format_size_short(curve.line_bytes)} lines "
            f"hit only {hit_ratio:.1%} of reads"
        )
        return Advice("not worth it", f"Not worth it: {reason}.", (reason,))
    reasons = [
        f"{hit_ratio:.1%} of reads hit",
        f"{chosen.backing_reads_left:.1%} still reach the disks",
    ]
    if chosen.latency_ns_mean is not None and miss is not None:
        reasons.append(
            f"mean read latency {format_duration_ns(chosen.latency_ns_mean)} "
            f"instead of {format_duration_ns(miss.mean_ns)}"
        )
    if chosen.life_years is not None and chosen.life_years < 5:
        reasons.append(f"the flash would live {_life(chosen.life_years)}")
    if stable is False:
        reasons.append("the hit ratio changes much over the trace")
    reasons.extend(
        f"the best split brings {best.hits / best.hits_even - 1:.1%} more hits than an even one"
        for best in splits
        if best.hits > best.hits_even > 0 and best.line_bytes == curve.line_bytes and best.policy == curve.policy
    )
    what = "meets the target" if curve.wanted is not None else "is the knee" if curve.knee is not None else "is enough"
    if curve.wanted is not None and chosen.size_bytes >= curve.points[-1].size_bytes:
        what += " (the largest size simulated)"
    sentence = (
        f"Worth it: {size_words(chosen)} with {format_size_short(curve.line_bytes)} lines "
        f"({curve.policy}) {what}; {reasons[0]}."
    )
    return Advice(
        "worth it",
        sentence,
        tuple(reasons),
        size_bytes=chosen.size_bytes,
        flash_bytes=chosen.flash_bytes,
        line_bytes=curve.line_bytes,
        policy=curve.policy,
    )
