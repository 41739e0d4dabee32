"""The intervals hold what they promise: simulation with known medians, and equal groups called equal."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bathyscope.analysis import bootstrap

Generator = Callable[[np.random.Generator, int], np.ndarray]

# Noise of repeats around a median of 1000, as benchmarks show it: even, multiplicative, with outliers, one-sided.
NOISE: dict[str, Generator] = {
    "normal": lambda r, n: 1000 + 20 * r.standard_normal(n),
    "log-normal": lambda r, n: 1000 * np.exp(0.2 * r.standard_normal(n)),
    "heavy-tailed": lambda r, n: 1000 + 10 * r.standard_t(3, n),
    "exponential": lambda r, n: 1000 + 30 * (r.exponential(1.0, n) - math.log(2)),
}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("size", [3, 5, 7, 10])
def test_coverage_of_the_median_interval(noise: str, size: int) -> None:
    random = np.random.default_rng(size)
    trials = 600
    estimates = (bootstrap.median(NOISE[noise](random, size)) for _ in range(trials))
    held = sum(estimate.low <= 1000 <= estimate.high for estimate in estimates)
    # 93 % less three standard errors of 600 trials.
    assert held / trials >= 0.93 - 3 * math.sqrt(0.93 * 0.07 / trials)


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("size", [3, 5, 10])
def test_equal_groups_are_called_different_in_at_most_one_of_twenty(noise: str, size: int) -> None:
    random = np.random.default_rng(100 + size)
    trials = 800
    wrong = 0
    for _ in range(trials):
        contrast = bootstrap.ratio(NOISE[noise](random, size), NOISE[noise](random, size))
        outside = not contrast.estimate.low <= 1 <= contrast.estimate.high
        if outside:
            # The interval is never narrower than Welch's, so it never accuses where the p-value does not.
            assert contrast.p_value <= 0.0501
        wrong += outside
    assert wrong / trials <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)


def test_a_real_difference_is_found() -> None:
    random = np.random.default_rng(5)
    pairs = ((random.normal(1000, 15, 5), random.normal(900, 15, 5)) for _ in range(200))
    assert sum(bootstrap.ratio(*pair).estimate.high < 1 for pair in pairs) >= 196


def test_one_value_and_none() -> None:
    assert bootstrap.median([]) == bootstrap.Estimate(None)
    assert bootstrap.median([float("nan")]) == bootstrap.Estimate(None)
    assert bootstrap.median([7.0]) == bootstrap.Estimate(7.0, None, None, 1)
    assert bootstrap.ratio([1.0], [2.0]).estimate == bootstrap.Estimate(2.0, None, None, 1)
    assert bootstrap.ratio([1.0], [2.0]).p_value is None
    assert bootstrap.ratio([], [2.0]).estimate.value is None
    assert bootstrap.ratio([0.0, 0.0], [2.0, 2.0]).estimate.value is None


def test_values_that_agree_exactly() -> None:
    same = bootstrap.ratio([232.0] * 3, [232.0] * 3)
    assert same.estimate.value == 1
    assert same.p_value == 1.0
    other = bootstrap.ratio([232.0] * 3, [116.0] * 3)
    assert other.estimate.high == pytest.approx(0.5)
    assert other.p_value == 0.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=12))
def test_the_interval_holds_the_value_and_repeats_exactly(values: list[float]) -> None:
    first = bootstrap.median(values)
    assert first == bootstrap.median(values)
    assert first.samples == len(values)
    assert first.value == pytest.approx(np.median(values))
    if len(values) > 1:
        assert first.low <= first.value <= first.high


def test_ratio_and_difference_agree_in_sign_and_scale() -> None:
    a, b = [100.0, 101.0, 99.0], [50.0, 51.0, 49.5]
    assert bootstrap.ratio(a, b).estimate.value == pytest.approx(0.5)
    difference = bootstrap.difference(a, b).estimate
    assert difference.value == pytest.approx(-50.0)
    assert difference.high < 0


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_within_repeat_interval_survives_correlated_seconds(correlation: float) -> None:
    """Neighbouring seconds of a real load resemble each other; batch means keep most of the coverage."""
    random = np.random.default_rng(9)
    trials, held = 400, 0
    for _ in range(trials):
        noise = random.standard_normal(120)
        for i in range(1, noise.size):
            noise[i] += correlation * noise[i - 1]
        estimate = bootstrap.within_repeat(1000 + 10 * noise)
        held += estimate.low <= 1000 <= estimate.high
    assert held / trials >= 0.90


def test_within_repeat_needs_points() -> None:
    assert bootstrap.within_repeat([1.0, 2.0]).low is None
    assert bootstrap.within_repeat([]).value is None


@pytest.mark.parametrize("size", [3, 5, 10])
def test_whole_comparisons_of_equal_runs_stay_clean(size: int) -> None:
    """Twelve steps compared at once: after adjustment at most 5 % of comparisons accuse any step."""
    random = np.random.default_rng(size)
    trials, dirty, unadjusted = 200, 0, 0
    for _ in range(trials):
        groups = [(random.normal(1000, 30, size), random.normal(1000, 30, size)) for _ in range(12)]
        p_values = [bootstrap.ratio(a, b).p_value for a, b in groups]
        dirty += any(q is not None and q <= 0.05 for q in bootstrap.false_discovery_rate(p_values))
        unadjusted += any(p is not None and p <= 0.05 for p in p_values)
    assert dirty / trials <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)
    assert unadjusted / trials > 0.25


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_adjustment_is_that_of_benjamini_and_hochberg(p_values: list[float]) -> None:
    expected = stats.false_discovery_control(p_values, method="bh")
    # A value that is not known stays so and does not count.
    assert bootstrap.false_discovery_rate([*p_values, None]) == pytest.approx([*expected, None])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1.0, 1e6), min_size=2, max_size=12, unique=True),
    st.lists(st.floats(1.0, 1e6), min_size=2, max_size=12, unique=True),
)
def test_the_p_value_is_that_of_welch(a: list[float], b: list[float]) -> None:
    expected = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).pvalue
    if min(np.std(np.log(a)), np.std(np.log(b))) > 1e-6:
        assert bootstrap.ratio(a, b).p_value == pytest.approx(expected, rel=1e-6, abs=1e-12)
