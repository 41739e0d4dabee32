"""How to divide one SSD over several OSDs or images so that most reads hit.

Taking the steepest hull segment first is optimal when every curve is concave (Stone, Turek and Wolf, 1992). Where a
policy has cliffs it is not: a part of a hull's segment gives less than its share. So every step taken is one of the
curve itself, a division by dynamic programming (a knapsack with one choice for each group, in `STEPS` steps of the
budget) and an even one compete with it, and the one with most hits is returned. It is never worse than an even one;
where curves have cliffs, another may be better by what a step of the budget can bring.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bathyscope.analysis.sizing.knee import upper_hull

GIB = float(1 << 30)

STEPS = 512
"""Steps of the budget of the dynamic programming."""


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """One group's curve: hit requests (not ratios) over cache size in bytes, sizes strictly increasing."""

    sizes_bytes: NDArray[np.float64]
    hits: NDArray[np.float64]

    def hits_at(self, size_bytes: float) -> float:
        """Return the hits of a cache of that size, straight between the curve's points, 0 at size 0."""
        return float(self.hits_of(np.asarray([size_bytes], np.float64))[0])

    def hits_of(self, sizes_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the same for many sizes, shape (n,)."""
        known_sizes, known_hits = np.append(0.0, self.sizes_bytes), np.append(0.0, self.hits)
        return np.asarray(np.interp(sizes_bytes, known_sizes, known_hits), np.float64)

    def marginal_hits_per_gib(self, size_bytes: int) -> float:
        """Return the hits that each GiB more would bring up to the next bend of the hull, 0 beyond its end.

        Across a cliff that is the mean slope; only the whole of it brings those hits.
        """
        xs = np.append(0.0, self.sizes_bytes)
        ys = np.append(0.0, np.maximum.accumulate(self.hits))
        for a, b in itertools.pairwise(upper_hull(xs, ys)):
            if size_bytes < xs[b]:
                return float((ys[b] - ys[a]) / (xs[b] - xs[a]) * GIB)
        return 0.0


def split(demands: Sequence[Demand], budget_bytes: int) -> list[int]:
    """Return the bytes of `budget_bytes` for each of `demands`, in their order; what brings nothing stays unspent.

    Its hits, which are those of the curves, are at least `even_hits`.
    """
    starts = [[0] * len(demands), _knapsack(demands, budget_bytes), _even(demands, budget_bytes)]
    candidates = [_spend(demands, sizes, budget_bytes) for sizes in starts]
    return max(candidates, key=lambda sizes: _hits(demands, sizes))


def _hits(demands: Sequence[Demand], sizes: Sequence[int]) -> float:
    return sum(d.hits_at(size) for d, size in zip(demands, sizes, strict=True))


def _spend(demands: Sequence[Demand], sizes: Sequence[int], budget_bytes: int) -> list[int]:
    """Return `sizes` and what the rest of the budget can add, always the affordable step with most hits for a byte."""
    given = list(sizes)
    while (left := budget_bytes - sum(given)) > 0:
        steps = [(*_steepest(d, given[i], given[i] + left), i) for i, d in enumerate(demands)]
        slope, size, i = max(steps, key=lambda step: (step[0], -step[2]), default=(0.0, 0, 0))
        if slope <= 0:
            break
        given[i] = size
    return given


def _steepest(demand: Demand, size_bytes: int, most_bytes: int) -> tuple[float, int]:
    """Return the hits per byte and the size of the best step up from `size_bytes`; (0, size) when none brings any.

    A step ends at a point of the curve or at `most_bytes`; from 0 with all the budget these are the hull's segments.
    """
    points = np.ceil(demand.sizes_bytes)
    ends = np.append(points[(points > size_bytes) & (points < most_bytes)], most_bytes)
    slopes = (demand.hits_of(ends) - demand.hits_at(size_bytes)) / (ends - size_bytes)
    best = int(np.argmax(slopes))
    return (float(slopes[best]), int(ends[best])) if slopes[best] > 0 else (0.0, size_bytes)


def _best_within(demand: Demand, limits_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the smallest size up to each limit that has the most hits: a point of the curve, the limit, or 0."""
    points = np.append(0, np.ceil(demand.sizes_bytes)).astype(np.int64)
    hits = demand.hits_of(points.astype(np.float64))
    most = np.maximum.accumulate(hits)
    is_record = np.append(True, hits[1:] > most[:-1])
    record = np.maximum.accumulate(np.where(is_record, np.arange(len(points)), 0))
    below = np.searchsorted(points, limits_bytes, side="right") - 1
    at_limit = demand.hits_of(limits_bytes.astype(np.float64)) > most[below]
    return np.where(at_limit, limits_bytes, points[record[below]])


def _even(demands: Sequence[Demand], budget_bytes: int) -> list[int]:
    """Return an even division, less what brings nothing."""
    return [int(_best_within(d, np.asarray([budget_bytes // len(demands)]))[0]) for d in demands]


def _knapsack(demands: Sequence[Demand], budget_bytes: int) -> list[int]:
    """Return the best division in whole steps of the budget; a size within a step is paid for with the whole of it."""
    useful = min(budget_bytes, sum(math.ceil(size) for d in demands for size in d.sizes_bytes[-1:]))
    steps = min(STEPS, useful)
    if steps < 1:
        return [0] * len(demands)
    sizes = [_best_within(d, np.arange(steps + 1) * (useful // steps)) for d in demands]
    best = np.zeros(steps + 1)
    chosen = np.zeros((len(demands), steps + 1), np.intp)
    for i, d in enumerate(demands):
        before, hits = best.copy(), d.hits_of(sizes[i].astype(np.float64))
        for step in np.flatnonzero(np.diff(sizes[i]) > 0) + 1:
            total = before[: steps + 1 - step] + hits[step]
            better = total > best[step:]
            best[step:][better] = total[better]
            chosen[i, step:][better] = step
    left, given = steps, []
    for i in reversed(range(len(demands))):
        given.append(int(sizes[i][chosen[i, left]]))
        left -= int(chosen[i, left])
    return given[::-1]


def even_hits(demands: Sequence[Demand], budget_bytes: int) -> float:
    """Return the hits when the budget is divided evenly in whole bytes, to show what the split is worth."""
    return sum(d.hits_at(budget_bytes // len(demands)) for d in demands) if demands else 0.0
