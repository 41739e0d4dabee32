"""Steadiness on series whose truth is known: flat, ramps on both sides of the limits, noise, jumps."""

from __future__ import annotations

import numpy as np
import pytest

from bathyscope.analysis import steady_state
from bathyscope.records import Interval, to_table
from bathyscope.units import format_percent

SECOND_NS = 1_000_000_000


def ramp(change: float, points: int = 50) -> np.ndarray:
    """A straight line whose five rounds' means rise by `change` of their mean from first to last."""
    line = np.linspace(-0.5, 0.5, points)
    means = np.array([part.mean() for part in np.array_split(line, 5)])
    return 1000 * (1 + change * line / (means[-1] - means[0]))


def test_flat_is_steady() -> None:
    assert steady_state.judge([500.0] * 10).steady


@pytest.mark.parametrize(
    ("change", "steady"), [(0.09, True), (0.099, True), (0.101, False), (0.3, False), (-0.101, False), (-0.09, True)]
)
def test_the_slope_limit_is_ten_percent(change: float, steady: bool) -> None:
    verdict = steady_state.judge(ramp(change))
    assert verdict.steady is steady
    assert f"its trend moved it by {format_percent(abs(change))}" in verdict.sentence


@pytest.mark.parametrize(("height", "steady"), [(0.19, True), (0.21, False)])
def test_the_range_limit_is_twenty_percent(height: float, steady: bool) -> None:
    # A hump in the middle has no slope, so that only the range can fail.
    rounds = np.array([1.0, 1.0, 1.0 + height, 1.0, 1.0])
    rounds /= rounds.mean() / 1.0
    scaled = rounds * height / (rounds.max() - rounds.min())
    values = np.repeat(1000 * (1 + scaled - scaled.mean()), 4)
    verdict = steady_state.judge(values)
    assert f"ranged by {height:.0%}".replace("%", " %") in verdict.sentence
    assert "its trend moved it by 0.0 %" in verdict.sentence
    assert verdict.steady is steady


def test_counting_noise_of_a_slow_disk_is_steady() -> None:
    """80 I/Os a second scatter by 11 % a second from counting alone: that is no drift."""
    random = np.random.default_rng(1)
    judged = [steady_state.judge(random.poisson(80, 60)).steady for _ in range(200)]
    assert np.mean(judged) >= 0.95


def test_a_jump_is_unsteady() -> None:
    assert steady_state.judge([1000.0] * 20 + [400.0] * 20).verdict == "unsteady"
    assert "limit 20 %" in steady_state.judge([1000.0] * 20 + [400.0] * 20).sentence


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 4, [float("nan")] * 20])
def test_too_few_points_cannot_be_judged(values: list[float]) -> None:
    verdict = steady_state.judge(values)
    assert verdict.verdict == "unknown"
    assert not verdict.steady


def test_standing_still_is_not_steady() -> None:
    assert steady_state.judge([0.0] * 10).verdict == "unsteady"


def interval(client: str, second: float, iops: float, length_s: float = 1.0, direction: str = "read") -> Interval:
    return Interval(
        0, client, direction, round(second * SECOND_NS), round(length_s * SECOND_NS), iops, iops * 4096, 1e6
    )


def test_clients_add_up_although_their_clocks_differ() -> None:
    rows = [interval("fio#0", s + 1, 100) for s in range(10)] + [interval("fio#1", s + 1.04, 50) for s in range(10)]
    seconds, rates = steady_state.rate_series(to_table(Interval, rows))
    assert rates.tolist() == [150.0] * 10
    assert seconds.tolist() == list(range(1, 11))


def test_a_silent_second_counts_as_zero() -> None:
    rows = [interval("fio#0", s + 1, 100) for s in range(10) if s not in (4, 5)]
    _, rates = steady_state.rate_series(to_table(Interval, rows))
    assert rates.tolist() == [100.0] * 4 + [0.0] * 2 + [100.0] * 4
    assert steady_state.judge(rates).verdict == "unsteady"


def test_ramp_and_a_last_scrap_do_not_count() -> None:
    rows = [interval("fio#0", s, 100) for s in range(-1, 7)] + [interval("fio#0", 6.2, 3, length_s=0.2)]
    _, rates = steady_state.rate_series(to_table(Interval, rows))
    assert rates.tolist() == [100.0] * 6
    assert steady_state.rate_series(to_table(Interval, []))[1].size == 0
