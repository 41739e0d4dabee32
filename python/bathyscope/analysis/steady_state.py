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
    """The verdict, and its figures in a sentence."""

    verdict: Literal["steady", "unsteady", "unknown"]
    sentence: str

    @property
    def steady(self) -> bool:
        """Whether it is known to be steady."""
        return self.verdict == "steady"


def judge(values: Sequence[float] | Floats) -> SteadyState:
    """Judge a time series of equal intervals (IOPS per second, say), shape (n,), in order of time.

    Fewer than ROUNDS points cannot be judged. More are joined to ROUNDS rounds by their means.
    """
    data = clean(values)
    if data.size < ROUNDS:
        text = f"{data.size} intervals were recorded; {ROUNDS} are needed to judge steadiness"
        return SteadyState("unknown", text)
    means = np.array([part.mean() for part in np.array_split(data, ROUNDS)])
    mean = float(means.mean())
    if mean <= 0:
        return SteadyState("unsteady", "nothing moved in the window")
    range_ratio = float(means.max() - means.min()) / mean
    slope = float(np.polyfit(np.arange(ROUNDS), means, 1)[0])
    slope_ratio = abs(slope) * (ROUNDS - 1) / mean
    steady = range_ratio <= RANGE_LIMIT and slope_ratio <= SLOPE_LIMIT
    text = (
        f"over {ROUNDS} rounds the rate ranged by {format_percent(range_ratio)} of its mean (limit "
        f"{format_percent(RANGE_LIMIT)}) and its trend moved it by {format_percent(slope_ratio)} (limit "
        f"{format_percent(SLOPE_LIMIT)})"
    )
    return SteadyState("steady" if steady else "unsteady", text)


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
