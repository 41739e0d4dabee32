"""A division is a promise: never more than the budget, and never fewer hits than an even division of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope.analysis.sizing.split import Demand, even_hits, split

GIB = 1 << 30


def demand(sizes_bytes: list[int], hits: list[float]) -> Demand:
    return Demand(np.asarray(sizes_bytes, np.float64), np.asarray(hits, np.float64))


def total_hits(demands: list[Demand], budget_bytes: int) -> float:
    return sum(d.hits_at(size) for d, size in zip(demands, split(demands, budget_bytes), strict=True))


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    steps = draw(st.lists(st.integers(1, 10_000), min_size=1, max_size=8))
    hits = draw(st.lists(st.integers(0, 10_000), min_size=len(steps), max_size=len(steps)))
    return demand([int(size) for size in np.cumsum(steps)], [float(hit) for hit in hits])


@given(st.lists(demands(), min_size=1, max_size=5), st.integers(1, 100_000))
def test_is_never_worse_than_even_and_never_above_the_budget(members: list[Demand], budget_bytes: int) -> None:
    sizes = split(members, budget_bytes)
    assert sum(sizes) <= budget_bytes
    assert min(sizes) >= 0
    assert total_hits(members, budget_bytes) >= even_hits(members, budget_bytes)


def test_a_cliff_that_the_budget_does_not_reach_gets_nothing() -> None:
    loop = demand([10 * GIB, 90 * GIB, 100 * GIB], [0.0, 0.0, 10_000.0])
    zipf = demand([10 * GIB, 30 * GIB, 60 * GIB, 100 * GIB], [900.0, 1350.0, 1500.0, 1560.0])
    assert even_hits([loop, zipf], 60 * GIB) == 1350.0
    assert split([loop, zipf], 60 * GIB) == [0, 60 * GIB]
    assert total_hits([loop, zipf], 60 * GIB) == 1500.0


def test_two_cliffs_beat_the_steepest_one() -> None:
    # The steepest takes more than half, and then neither of the others fits: only a look at all of them tells.
    members = [
        demand([1, 59, 60], [0.0, 0.0, 660.0]),
        demand([1, 49, 50], [0.0, 0.0, 500.0]),
        demand([1, 49, 50], [0.0, 0.0, 500.0]),
    ]
    assert total_hits(members, 100) == 1000.0


def test_sizes_between_the_steps_of_the_budget_are_paid_for_in_full() -> None:
    budget_bytes = 1_000_003
    members = [demand([499_999, 500_001], [0.0, 10.0]), demand([500_001, 500_002], [0.0, 10.0])]
    assert total_hits(members, budget_bytes) == 20.0
    # One byte less and only one of the cliffs can be climbed whole.
    assert sum(split(members, 1_000_002)) <= 1_000_002


@pytest.mark.parametrize("budget_bytes", [0, 1])
def test_hardly_any_budget_is_divided_too(budget_bytes: int) -> None:
    assert sum(split([demand([4096], [8.0]), demand([4096], [4.0])], budget_bytes)) <= budget_bytes


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=4, max_size=4), min_size=2, max_size=3),
    st.integers(1, 12),
)
def test_the_split_of_concave_curves_is_the_best_of_all_splits(gains: list[list[int]], budget: int) -> None:
    """Concave by construction (falling gains); every whole split is tried."""
    demands = [Demand(np.arange(1.0, 5.0), np.cumsum(sorted(g, reverse=True)).astype(float)) for g in gains]
    best = max(
        sum(d.hits_at(s) for d, s in zip(demands, sizes, strict=True))
        for sizes in itertools.product(range(5), repeat=len(demands))
        if sum(sizes) <= budget
    )
    assert total_hits(demands, budget) == pytest.approx(best)


def test_a_scan_gets_nothing_and_the_hot_group_has_the_slope_of_its_next_step() -> None:
    scan, hot = demand([10, 20], [0.0, 0.0]), demand([10, 20], [90.0, 99.0])
    assert split([scan, hot], 15) == [0, 15]
    assert hot.marginal_hits_per_gib(15) == pytest.approx(0.9 * GIB)
    assert (scan.marginal_hits_per_gib(0), hot.marginal_hits_per_gib(20)) == (0.0, 0.0)
