"""The shares of one SSD that several groups get, from their curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bathyscope.analysis.sizing.split import Demand, even_hits, split
from bathyscope.analysis.sizing.wear import DAY_S
from bathyscope.records.size_finding import SizeCurve, Split, SplitShare


def split_of(curves: Sequence[SizeCurve], budget_bytes: int, duration_s: float) -> Split:
    """Return the best split of `budget_bytes` of flash over the groups of `curves`, of one line size and policy.

    `duration_s` is the length of the trace; without it nothing per day is known. Shares are in the order of their size.
    """
    demands = [_demand(curve) for curve in curves]
    sizes = split(demands, budget_bytes)
    reads = max(1, sum(curve.read_requests for curve in curves))
    days = duration_s / DAY_S
    shares = [
        SplitShare(
            group_name=curve.group_name,
            flash_bytes=size,
            dram_bytes=_dram_bytes(curve, size),
            read_hit_ratio=demand.hits_at(size) / max(1, curve.read_requests),
            hits_per_day=demand.hits_at(size) / days if days > 0 else None,
            marginal_hit_ratio_per_gib=demand.marginal_hits_per_gib(size) / reads,
        )
        for curve, demand, size in zip(curves, demands, sizes, strict=True)
    ]
    return Split(
        line_bytes=curves[0].line_bytes,
        policy=curves[0].policy,
        budget_bytes=budget_bytes,
        shares=tuple(sorted(shares, key=lambda share: (-share.flash_bytes, share.group_name))),
        hits=sum(demand.hits_at(size) for demand, size in zip(demands, sizes, strict=True)),
        hits_even=even_hits(demands, budget_bytes),
    )


def _demand(curve: SizeCurve) -> Demand:
    """Return the hits over flash. Where two sizes need the same flash, the larger one has more DRAM for it."""
    hits = {p.flash_bytes: (p.read_hit.value or 0.0) * curve.read_requests for p in curve.points}
    sizes, hit_counts = np.asarray(list(hits), float), np.asarray(list(hits.values()), float)
    return Demand(sizes, hit_counts)


def _dram_bytes(curve: SizeCurve, flash_bytes: int) -> int:
    """Return the DRAM that goes with some flash, straight between the curve's points."""
    flash, dram = [0, *(p.flash_bytes for p in curve.points)], [0, *(p.dram_bytes for p in curve.points)]
    return int(np.interp(flash_bytes, flash, dram))
