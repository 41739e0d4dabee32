"""Which configuration and size to advise: what leaves the disks the least time, for the least money.

An operator buys drives. Among what fits the same drives a larger cache costs nothing more, so size is not saved for
its own sake: as long as it helps the disks, it is taken, and of sizes that help alike the smallest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from bathyscope.analysis.sizing.knee import knee_index
from bathyscope.records.size_finding import SizeCurve, SizePoint
from bathyscope.spec.size import SizeSpec

# A cache that cannot reach this at any size sees data that does not come back; one that does not reach it at the
# size that was asked for is too small.
LEAST_HIT_RATIO = 0.10
# Times of the disks within this of the least count as equal to it, and the smallest size is taken.
SAME_DISK_TIME = 1.02
# Sizes within this of the smallest count as equal to it, and the one that spares the disks most is taken.
SAME_SIZE = 1.02


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The curve and the point that are advised.

    `disk_time` is the share left of the disks' time that is enough, `most` the largest size for that money.
    """

    curve: SizeCurve
    point: SizePoint
    disk_time: float
    most: SizePoint | None = None


def whole_curves(curves: Iterable[SizeCurve]) -> list[SizeCurve]:
    """Return the curves of the whole trace that have points."""
    return [curve for curve in curves if curve.group_kind == "all" and curve.points]


def meets(point: SizePoint, spec: SizeSpec) -> bool:
    """Return whether a size meets the target, or fits the budget; True when neither was set."""
    if spec.target_hit is not None:
        return (point.read_hit.value or 0.0) >= spec.target_hit
    if spec.target_latency_ns is not None:
        return point.latency_ns_mean is not None and point.latency_ns_mean <= spec.target_latency_ns
    return spec.budget_bytes is None or point.flash_bytes <= spec.budget_bytes


def has_target(spec: SizeSpec) -> bool:
    """Return whether the smallest size that meets a target is asked for."""
    return spec.target_hit is not None or spec.target_latency_ns is not None


def choose(curves: Iterable[SizeCurve], spec: SizeSpec) -> Choice | None:
    """Return what to advise for the whole trace; None when no size helps, meets the target and can be bought."""
    options = [
        Choice(curve, point, point.disk_time_left)
        for curve in whole_curves(curves)
        for point in curve.points
        if point.purchase is not None and point.disk_time_left is not None and point.disk_time_left < 1.0
        if meets(point, spec)
    ]
    if not options:
        return None
    if not has_target(spec):
        # A budget is flash at hand: nothing is bought.
        price = max(map(_price, options)) if spec.budget_bytes is not None else _worthwhile_price(options)
        affordable = [option for option in options if _price(option) <= price]
        enough = SAME_DISK_TIME * min(option.disk_time for option in affordable)
        most = max(affordable, key=lambda option: option.point.flash_bytes)
        options = [option for option in affordable if option.disk_time <= enough]
    least = min(map(_price, options))
    options = [option for option in options if _price(option) <= least or spec.budget_bytes is not None]
    smallest = min(option.point.flash_bytes for option in options)
    near = min((option for option in options if option.point.flash_bytes <= SAME_SIZE * smallest), key=_disk_time)
    best = min(
        (option for option in options if option.curve is near.curve), key=lambda option: option.point.flash_bytes
    )
    if has_target(spec):
        return dataclasses.replace(best, most=best.point)
    return dataclasses.replace(best, disk_time=enough, most=most.point)


def _price(option: Choice) -> float:
    return 0.0 if option.point.purchase is None else option.point.purchase.price


def _disk_time(option: Choice) -> tuple[float, float, int]:
    return option.disk_time, option.point.latency_ns_mean or 0.0, option.point.flash_bytes


def _worthwhile_price(options: Sequence[Choice]) -> float:
    """Return the price beyond which dearer drives spare the disks clearly less for their money."""
    prices = sorted({_price(option) for option in options})
    saved = [1.0 - min(option.disk_time for option in options if _price(option) <= price) for price in prices]
    knee = knee_index(np.asarray(prices), np.asarray(saved)) if prices[0] > 0 else None
    if knee is not None:
        return prices[knee]
    return next(price for price, share in zip(prices, saved, strict=True) if share >= 0.95 * saved[-1])


def main_curve(curves: Sequence[SizeCurve], spec: SizeSpec) -> SizeCurve | None:
    """Return the curve of the whole trace that the answer is about, None when there is none.

    It is the advised one, else the one that spares the disks most.
    """
    choice = choose(curves, spec)
    if choice is not None:
        return choice.curve
    return min(whole_curves(curves), key=lambda curve: min(map(_time_of, curve.points)), default=None)


def _time_of(point: SizePoint) -> float:
    return 1.0 if point.disk_time_left is None else point.disk_time_left
