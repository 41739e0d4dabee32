"""How to divide one SSD over several OSDs or images so that most reads hit.

Greedy on the upper concave hulls is optimal when every curve is concave (Stone, Turek and Wolf, 1992);
where a policy has cliffs the hull's promise is checked against the curve itself, and the hits reported are
the curve's, never the hull's.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bathyscope.analysis.sizing.knee import upper_hull

GIB = float(1 << 30)


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """One group's curve: hit requests (not ratios) over cache size in bytes, sizes strictly increasing."""

    name: str
    sizes_bytes: NDArray[np.float64]
    hits: NDArray[np.float64]

    def hits_at(self, size_bytes: float) -> float:
        """Return the hits of a cache of that size, straight between the curve's points, 0 at size 0."""
        return float(
            np.interp(size_bytes, np.concatenate(([0.0], self.sizes_bytes)), np.concatenate(([0.0], self.hits)))
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """What one group gets: bytes, its hits there, and the hits that one GiB more would bring."""

    name: str
    size_bytes: int
    hits: float
    marginal_hits_per_gib: float


def _segments(demand: Demand) -> list[tuple[float, float, float]]:
    """Return the hull's segments as (hits per byte, start, end), steepest first by concavity."""
    xs = np.concatenate(([0.0], demand.sizes_bytes))
    ys = np.concatenate(([0.0], np.maximum.accumulate(demand.hits)))
    hull = upper_hull(xs, ys)
    return [((ys[b] - ys[a]) / (xs[b] - xs[a]), float(xs[a]), float(xs[b])) for a, b in itertools.pairwise(hull)]


def split(demands: Sequence[Demand], budget_bytes: int) -> list[Allocation]:
    """Return the allocation of `budget_bytes` over `demands`, in their order; what brings nothing stays unspent."""
    queue = sorted(
        ((slope, -i, start, end) for i, d in enumerate(demands) for slope, start, end in _segments(d) if slope > 0),
        reverse=True,
    )
    given = [0.0] * len(demands)
    left = float(budget_bytes)
    for _, minus_index, start, end in queue:
        take = min(left, end - start)
        given[-minus_index] += take
        left -= take
        if left <= 0:
            break
    return [
        Allocation(
            name=d.name,
            size_bytes=int(size),
            hits=d.hits_at(size),
            marginal_hits_per_gib=_slope_at(d, size) * GIB,
        )
        for d, size in zip(demands, given, strict=True)
    ]


def _slope_at(demand: Demand, size_bytes: float) -> float:
    """Return the hull's hits per byte just above `size_bytes`."""
    for slope, _, end in _segments(demand):
        if size_bytes < end:
            return slope
    return 0.0


def even_hits(demands: Sequence[Demand], budget_bytes: int) -> float:
    """Return the hits when the budget is divided evenly, the comparison that shows what the split is worth."""
    return sum(d.hits_at(budget_bytes / len(demands)) for d in demands) if demands else 0.0
