"""Intervals for few repeats: what three, five or ten numbers can and cannot say.

The textbook bootstrap of a median is wrong exactly where benchmarks live. With n repeats it can never
leave [min, max], and that range holds the true median with probability 1 − 2^(1−n) only: 75 % at n = 3,
not 95 %. By simulation (see the tests) its coverage is 75 % at n = 3, 87 % at n = 7 and 94 % at n = 10.
Student's t interval keeps 95 % at n = 3 when the noise is roughly normal on a logarithmic scale, but
loses it for skewed noise at n ≥ 10, where it is an interval of the mean rather than of the median.

So an interval here is the bootstrap's, widened to Student's where that reaches further. The union keeps
at least 93 % for normal, log-normal, heavy-tailed (t, 3 degrees of freedom), exponential and two-level
noise at n = 3 … 20. It is honest rather than narrow: at n = 3 it is wide. One repeat gives no interval.

All intervals are of the variation between the repeats of one run. What differs between two runs without
anybody having changed it (placement, age of the store, temperature) is not in them.

References: Efron & Tibshirani, An Introduction to the Bootstrap (1993), ch. 13; Student, Biometrika 6
(1908); Welch, Biometrika 34 (1947).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import numpy.typing as npt

from bathyscope.analysis.columns import Floats
from bathyscope.records.figure import Figure

CONFIDENCE = 0.95
_RESAMPLES = 2000
_SEED = 20230823
_BLOCKS_MIN = 5
_QUANTILES = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """A value, its 95 % interval (None when none can be given), and the number of values behind it."""

    value: float | None
    low: float | None = None
    high: float | None = None
    samples: int = 0

    def figure(self, unit: str, relative_error: float = 0.0) -> Figure:
        """Return it as a figure for views."""
        return Figure(self.value, unit, self.low, self.high, relative_error, self.samples)


@dataclasses.dataclass(frozen=True, slots=True)
class Contrast:
    """Two groups of repeats compared: the estimate, and Welch's two-sided p-value (None below two values each)."""

    estimate: Estimate
    p_value: float | None


def clean(values: Sequence[float] | Floats) -> Floats:
    """Return the finite values, shape (n,)."""
    array = np.asarray(values, dtype=np.float64).ravel()
    return array[np.isfinite(array)]


def median(values: Sequence[float] | Floats, *, at: float | None = None) -> Estimate:
    """Return the median of repeats with its 95 % interval.

    `at` replaces the value (a percentile from merged histograms, say, whose repeats only give the interval);
    the interval always holds the value.
    """
    data = clean(values)
    if data.size == 0:
        return Estimate(at)
    value = float(np.median(data)) if at is None else at
    if data.size == 1:
        return Estimate(value, samples=1)
    low, high = np.quantile(_resampled_medians(data), _QUANTILES)
    t_low, t_high = student_interval(data)
    return Estimate(value, min(low, t_low, value), max(high, t_high, value), int(data.size))


def student_interval(values: Floats) -> tuple[float, float]:
    """Return Student's 95 % interval of at least two values; on logarithms when all are positive."""
    logarithmic = bool(np.all(values > 0))
    scale = np.log(values) if logarithmic else values
    half = float(_t_quantile(values.size - 1) * scale.std(ddof=1) / np.sqrt(values.size))
    return _ends(float(scale.mean()), half, logarithmic=logarithmic)


def _ends(centre: float, half: float, *, logarithmic: bool) -> tuple[float, float]:
    """Return both ends of an interval, of logarithms as of the values themselves."""
    # Two wildly different repeats give an interval beyond any float: it is then no interval but a shrug.
    ends = np.array([centre - half, centre + half])
    low, high = np.exp(np.clip(ends, -700.0, 700.0)) if logarithmic else ends
    return float(low), float(high)


def ratio(
    below: Sequence[float] | Floats, above: Sequence[float] | Floats, *, at: tuple[float, float] | None = None
) -> Contrast:
    """Return above/below as a ratio of medians with its 95 % interval; all values must be positive.

    The interval is the bootstrap's of the ratio of medians, widened to Welch's on logarithms. `at` gives the
    pair of values (below, above) whose ratio is the estimate, when they are better known than by the medians.
    """
    a, b = clean(below), clean(above)
    a, b = a[a > 0], b[b > 0]
    if a.size == 0 or b.size == 0:
        return Contrast(Estimate(None), None)
    x, y = at if at is not None else (float(np.median(a)), float(np.median(b)))
    return _contrast(a, b, y / x, logarithmic=True)


def difference(below: Sequence[float] | Floats, above: Sequence[float] | Floats) -> Contrast:
    """Return above − below as a difference of medians with its 95 % interval, as `ratio` does for ratios."""
    a, b = clean(below), clean(above)
    if a.size == 0 or b.size == 0:
        return Contrast(Estimate(None), None)
    return _contrast(a, b, float(np.median(b) - np.median(a)), logarithmic=False)


def _contrast(a: Floats, b: Floats, value: float, *, logarithmic: bool) -> Contrast:
    """Return `value` with its interval, which always holds it, and the p-value: of a ratio, or of a difference."""
    samples = min(a.size, b.size)
    if samples < 2:
        return Contrast(Estimate(value, samples=samples), None)
    below, above = _resampled_medians(a), _resampled_medians(b, stream=1)
    low, high = np.quantile(above / below if logarithmic else above - below, _QUANTILES)
    centre, half, p_value = _welch(np.log(a), np.log(b)) if logarithmic else _welch(a, b)
    w_low, w_high = _ends(centre, half, logarithmic=logarithmic)
    return Contrast(Estimate(value, float(min(low, w_low, value)), float(max(high, w_high, value)), samples), p_value)


def within_repeat(values: Sequence[float] | Floats) -> Estimate:
    """Return the mean of one repeat's time series with an interval from its own variation in time.

    The series is cut into up to ten blocks, whose means are nearly independent even when neighbouring
    seconds are not (batch means; Law, Simulation Modeling and Analysis, ch. 9); Student's interval over the
    block means follows. It knows nothing of the variation between repeats, so it is a lower bound of what
    a second repeat may show. Fewer than five values give no interval.
    """
    data = clean(values)
    if data.size == 0:
        return Estimate(None)
    value = float(data.mean())
    if data.size < _BLOCKS_MIN:
        return Estimate(value, samples=1)
    blocks = np.array([part.mean() for part in np.array_split(data, min(10, data.size))])
    low, high = student_interval(blocks)
    return Estimate(value, min(low, value), max(high, value), 1)


def false_discovery_rate(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for their number (Benjamini & Hochberg 1995); None stays None.

    When nothing differs at all, calling "different" at an adjusted 0.05 is wrong in at most 5 % of whole
    comparisons, however many steps they have.
    """
    known = [i for i, p in enumerate(p_values) if p is not None]
    adjusted: list[float | None] = [None] * len(p_values)
    order = sorted(known, key=lambda i: p_values[i] or 0.0)
    least = 1.0
    for rank, i in reversed(list(enumerate(order, start=1))):
        # Each may be at most its own p × count / rank, and no more than those of greater rank.
        least = min(least, (p_values[i] or 0.0) * len(order) / rank)
        adjusted[i] = least
    return adjusted


def _special() -> ModuleType:
    """Return scipy.special, which most commands never use (scipy.stats takes a second to import)."""
    from scipy import special  # noqa: PLC0415

    return special


def _t_quantile(freedom: float) -> float:
    """Return Student's quantile of the 95 % interval."""
    return float(_special().stdtrit(freedom, _QUANTILES[1]))


def _welch(a: Floats, b: Floats) -> tuple[float, float, float]:
    """Return the difference of means b − a, the half width of its 95 % interval, and the two-sided p-value."""
    part_a, part_b = float(a.var(ddof=1)) / a.size, float(b.var(ddof=1)) / b.size
    centre = float(b.mean() - a.mean())
    error = float(np.sqrt(part_a + part_b))
    # Repeats that agree to the last digit: rounding of the logarithm must not pass for a difference.
    if error <= 1e-12 * max(1.0, abs(float(a.mean()))):
        return centre, 0.0, (1.0 if abs(centre) <= 1e-9 * max(1.0, abs(float(a.mean()))) else 0.0)
    freedom = (part_a + part_b) ** 2 / (part_a**2 / (a.size - 1) + part_b**2 / (b.size - 1))
    half = _t_quantile(freedom) * error
    return centre, half, float(2 * _special().stdtr(freedom, -abs(centre) / error))


def _resampled_medians(data: Floats, stream: int = 0) -> Floats:
    """Return the medians of _RESAMPLES resamples, the same ones at every call.

    Sorting a resample's ranks sorts its values when the data are sorted, so the ranks of the middle are worked
    out once for each size, and a bootstrap is two look-ups.
    """
    lower, upper = _middle_ranks(data.size, stream)
    ordered = np.sort(data)
    return np.asarray((ordered[lower] + ordered[upper]) / 2)


@functools.lru_cache(maxsize=64)
def _middle_ranks(size: int, stream: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the ranks of the one or two middle values of each resample, shape (_RESAMPLES,) each."""
    drawn = np.sort(np.random.default_rng((_SEED, stream, size)).integers(0, size, (_RESAMPLES, size)), axis=1)
    return drawn[:, (size - 1) // 2].copy(), drawn[:, size // 2].copy()
