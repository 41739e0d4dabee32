"""A division is a promise: never more than the budget, and never fewer hits than an even division of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope.analysis.sizing.split import Demand, even_hits, split

GIB = 1 << 30


def demand(name: str, sizes_bytes: list[int], hits: list[float]) -> Demand:
    return Demand(name, np.asarray(sizes_bytes, np.float64), np.asarray(hits, np.float64))


def total_hits(demands: list[Demand], budget_bytes: int) -> float:
    return sum(a.hits for a in split(demands, budget_bytes))


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    steps = draw(st.lists(st.integers(1, 10_000), min_size=1, max_size=8))
    hits = draw(st.lists(st.integers(0, 10_000), min_size=len(steps), max_size=len(steps)))
    return demand("any", [int(size) for size in np.cumsum(steps)], [float(hit) for hit in hits])


@given(st.lists(demands(), min_size=1, max_size=5), st.integers(1, 100_000))
def test_is_never_worse_than_even_and_never_above_the_budget(members: list[Demand], budget_bytes: int) -> None:
    shares = split(members, budget_bytes)
    assert sum(share.size_bytes for share in shares) <= budget_bytes
    assert all(share.size_bytes >= 0 for share in shares)
    assert sum(share.hits for share in shares) >= even_hits(members, budget_bytes)
    for share, member in zip(shares, members, strict=True):
        assert share.hits == member.hits_at(share.size_bytes)


def test_a_cliff_that_the_budget_does_not_reach_gets_nothing() -> None:
    loop = demand("loop", [10 * GIB, 90 * GIB, 100 * GIB], [0.0, 0.0, 10_000.0])
    zipf = demand("zipf", [10 * GIB, 30 * GIB, 60 * GIB, 100 * GIB], [900.0, 1350.0, 1500.0, 1560.0])
    assert even_hits([loop, zipf], 60 * GIB) == 1350.0
    shares = split([loop, zipf], 60 * GIB)
    assert [share.size_bytes for share in shares] == [0, 60 * GIB]
    assert [share.hits for share in shares] == [0.0, 1500.0]


def test_two_cliffs_beat_the_steepest_one() -> None:
    # The steepest takes more than half, and then neither of the others fits: only a look at all of them tells.
    members = [
        demand("steep", [1, 59, 60], [0.0, 0.0, 660.0]),
        demand("left", [1, 49, 50], [0.0, 0.0, 500.0]),
        demand("right", [1, 49, 50], [0.0, 0.0, 500.0]),
    ]
    assert total_hits(members, 100) == 1000.0


def test_sizes_between_the_steps_of_the_budget_are_paid_for_in_full() -> None:
    budget_bytes = 1_000_003
    members = [demand("a", [499_999, 500_001], [0.0, 10.0]), demand("b", [500_001, 500_002], [0.0, 10.0])]
    assert total_hits(members, budget_bytes) == 20.0
    # One byte less and only one of the cliffs can be climbed whole.
    shares = split(members, 1_000_002)
    assert sum(share.size_bytes for share in shares) <= 1_000_002


@pytest.mark.parametrize("budget_bytes", [0, 1])
def test_hardly_any_budget_is_divided_too(budget_bytes: int) -> None:
    shares = split([demand("a", [4096], [8.0]), demand("b", [4096], [4.0])], budget_bytes)
    assert sum(share.size_bytes for share in shares) <= budget_bytes
