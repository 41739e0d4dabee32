"""Which curve the advice is about, and which of its sizes: one that meets the target, and whose flash lasts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bathyscope.records.size_finding import SizeCurve, SizePoint

# A cache that cannot reach this at any size sees data that does not come back; one that does not reach it at the
# size that was asked for is too small.
LEAST_HIT_RATIO = 0.10
# Bytes that the disks may read for each byte that clients read before a line size counts as wasteful.
LARGEST_FETCH = 1.5
# What the hits of a curve count for whose flash wears out before its time, against one whose flash lasts.
WORN_OUT_MERIT = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Floor:
    """What a size must hold to be advised: a life of the flash in years (0: any), and at most so much flash."""

    life_years: float = 0.0
    most_flash_bytes: int | None = None

    def lasts(self, point: SizePoint) -> bool:
        """Return whether the flash lives long enough. A life that cannot be told is no reason against a size."""
        return point.life_years is None or point.life_years >= self.life_years


ANY = Floor()


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The size of a curve to advise. `preferred` is what it would be if every flash lasted; often the same."""

    point: SizePoint
    preferred: SizePoint


def choose(curve: SizeCurve, floor: Floor = ANY) -> Choice:
    """Return the preferred size, or, where its flash wears out, the next larger whose flash lasts and that hits more.

    Where there is none, the preferred size stays, and `floor.lasts` of it is False.
    """
    preferred = _preferred(curve)
    if floor.lasts(preferred):
        return Choice(preferred, preferred)
    for point in curve.points:
        larger = point.size_bytes > preferred.size_bytes
        affordable = floor.most_flash_bytes is None or point.flash_bytes <= floor.most_flash_bytes
        no_worse = (point.read_hit.value or 0.0) >= (preferred.read_hit.value or 0.0)
        if larger and affordable and no_worse and floor.lasts(point):
            return Choice(point, preferred)
    return Choice(preferred, preferred)


def _preferred(curve: SizeCurve) -> SizePoint:
    """Return the wanted point, else the knee, else the smallest size within 5 % of the best hit ratio."""
    if curve.wanted is not None:
        return curve.wanted
    if curve.knee is not None:
        return curve.knee
    best = max(p.read_hit.value or 0.0 for p in curve.points)
    return next(p for p in curve.points if (p.read_hit.value or 0.0) >= 0.95 * best)


def main_curve(curves: Sequence[SizeCurve], floor: Floor = ANY) -> SizeCurve | None:
    """Return the curve of the whole trace that the advice is about, None when there is none.

    Where a target is met: the curve that meets it with the least flash, first among those whose flash lasts, then
    among those that read at most LARGEST_FETCH from the disks for each byte, because large lines buy hits with disk
    reads. Else, and for a budget: the most hits for each byte that the disks read; hits on flash that wears out count
    less.
    """
    whole = [c for c in curves if c.group_kind == "all" and c.points]
    if not whole:
        return None

    def merit(curve: SizeCurve) -> tuple[bool, bool, bool, float]:
        point = choose(curve, floor).point
        lasts, fetched = floor.lasts(point), point.fetch_amplification or 1.0
        if curve.wanted is not None and floor.most_flash_bytes is None:
            return (True, lasts, fetched <= LARGEST_FETCH, -float(point.flash_bytes))
        hits = (point.read_hit.value or 0.0) / max(1.0, fetched)
        return (False, False, False, hits if lasts else WORN_OUT_MERIT * hits)

    return max(whole, key=merit)
