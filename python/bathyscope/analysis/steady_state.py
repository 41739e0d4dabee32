"""Whether a load has settled: the two criteria of SNIA's Solid State Storage Performance Test Specification.

Over the window, in five rounds of equal length: max − min ≤ 20 % of the mean, and the fitted line rises or
falls by ≤ 10 % of the mean. The specification's rounds are a minute long; ours are a fifth of the window,
because a single second of a slow disk (80 I/Os, say) varies by more than 20 % from counting alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from bathyscope.analysis.bootstrap import clean
from bathyscope.analysis.columns import Floats, floats
from bathyscope.units import format_percent

RANGE_LIMIT = 0.20
SLOPE_LIMIT = 0.10
ROUNDS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class SteadyState:
    """The verdict with its figures, both relative to the mean; None when there are too few points."""

    verdict: Literal["steady", "unsteady", "cannot tell"]
    range_ratio: float | None
    slope_excursion_ratio: float | None
    mean: float | None
    points: int
    sentence: str

    @property
    def steady(self) -> bool:
        """Whether it is known to be steady."""
        return self.verdict == "steady"


def judge(
    values: Sequence[float] | Floats,
    *,
    rounds: int = ROUNDS,
    range_limit: float = RANGE_LIMIT,
    slope_limit: float = SLOPE_LIMIT,
) -> SteadyState:
    """Judge a time series of equal intervals (IOPS per second, say), shape (n,), in order of time.

    Fewer than `rounds` points cannot be judged. More are joined to `rounds` rounds by their means.
    """
    data = clean(values)
    if data.size < rounds:
        text = f"{data.size} intervals were recorded; {rounds} are needed to judge steadiness"
        return SteadyState("cannot tell", None, None, None, int(data.size), text)
    means = np.array([part.mean() for part in np.array_split(data, rounds)])
    mean = float(means.mean())
    if mean <= 0:
        return SteadyState("unsteady", None, None, mean, int(data.size), "nothing moved in the window")
    range_ratio = float(means.max() - means.min()) / mean
    slope = float(np.polyfit(np.arange(rounds), means, 1)[0])
    slope_ratio = abs(slope) * (rounds - 1) / mean
    steady = range_ratio <= range_limit and slope_ratio <= slope_limit
    text = (
        f"over {rounds} rounds the rate ranged by {format_percent(range_ratio)} of its mean (limit "
        f"{format_percent(range_limit)}) and its trend moved it by {format_percent(slope_ratio)} (limit "
        f"{format_percent(slope_limit)})"
    )
    return SteadyState("steady" if steady else "unsteady", range_ratio, slope_ratio, mean, int(data.size), text)


def rate_series(interval: pa.Table, column: str = "iops") -> tuple[Floats, Floats]:
    """Return (seconds since the start of the window, sum of `column` over clients and directions) of one step.

    Clients report at slightly different moments, so rows are binned by the usual length of an interval. A
    bin that no client reported counts as zero: a load that stood still must not vanish from the series. A
    last piece shorter than half an interval is left out.
    """
    if interval.num_rows == 0:
        return np.zeros(0), np.zeros(0)
    end, length, rate = (floats(interval, name) for name in ("offset_ns", "duration_ns", column))
    usual = float(np.median(length))
    keep = (length >= usual / 2) & (end > 0) & np.isfinite(rate)
    if usual <= 0 or not keep.any():
        return np.zeros(0), np.zeros(0)
    bins = np.maximum(np.rint(end[keep] / usual).astype(np.int64) - 1, 0)
    sums: Floats = np.bincount(bins, weights=rate[keep]).astype(np.float64)
    seconds: Floats = (np.arange(sums.size, dtype=np.float64) + 1) * usual / 1e9
    return seconds, sums
