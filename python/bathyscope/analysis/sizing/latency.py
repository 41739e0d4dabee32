"""Expected read latency behind a cache: the mix of a hit distribution and a miss distribution."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, slots=True)
class LatencyDistribution:
    """A latency distribution as a histogram. `values_ns` (n,) increasing, `weights` (n,) positive.

    `source` says where it comes from, for the sentence beside the figure.
    """

    values_ns: NDArray[np.float64]
    weights: NDArray[np.float64]
    source: str

    @property
    def mean_ns(self) -> float:
        """Mean latency."""
        return float(np.average(self.values_ns, weights=self.weights))

    @classmethod
    def from_samples(cls, samples_ns: NDArray[np.float64], source: str) -> LatencyDistribution:
        """Return the distribution of samples; equal values are joined. Raises ValueError when there are none."""
        if len(samples_ns) == 0:
            raise ValueError("a distribution needs samples")
        values, counts = np.unique(samples_ns, return_counts=True)
        return cls(values.astype(np.float64), counts.astype(np.float64), source)

    @classmethod
    def constant(cls, value_ns: float, source: str) -> LatencyDistribution:
        """Return the distribution of a latency that is always the same: an assumption, not a measurement."""
        return cls(np.asarray([value_ns]), np.asarray([1.0]), source)

    @property
    def is_measured(self) -> bool:
        """Whether it has a tail at all; a constant has none, so no p99 follows from it."""
        return len(self.values_ns) > 1


def mixed_mean_ns(hit: LatencyDistribution, miss: LatencyDistribution, hit_ratio: float) -> float:
    """Return the mean read latency at `hit_ratio`."""
    return hit_ratio * hit.mean_ns + (1.0 - hit_ratio) * miss.mean_ns


def mixed_quantile_ns(hit: LatencyDistribution, miss: LatencyDistribution, hit_ratio: float, quantile: float) -> float:
    """Return a quantile of the mix: the distributions are mixed, percentiles are never averaged."""
    values = np.concatenate((hit.values_ns, miss.values_ns))
    weights = np.concatenate(
        (hit.weights / hit.weights.sum() * hit_ratio, miss.weights / miss.weights.sum() * (1.0 - hit_ratio))
    )
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    index = int(np.searchsorted(cumulative, quantile * cumulative[-1] * (1 - 1e-12), side="left"))
    return float(values[order][min(index, len(values) - 1)])
