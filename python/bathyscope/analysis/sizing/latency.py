"""Expected read latency behind a cache: the mix of a hit distribution and a miss distribution."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

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

    def later_by(self, delay_ns: float) -> LatencyDistribution:
        """Return the distribution of latencies that are all longer by so much."""
        return LatencyDistribution(self.values_ns + delay_ns, self.weights, self.source)

    def as_plain(self) -> dict[str, Any]:
        """Return the distribution as JSON values."""
        return {"values_ns": self.values_ns.tolist(), "weights": self.weights.tolist(), "source": self.source}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> LatencyDistribution:
        """Return what `as_plain` gave."""
        return cls(np.asarray(plain["values_ns"], float), np.asarray(plain["weights"], float), str(plain["source"]))

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
