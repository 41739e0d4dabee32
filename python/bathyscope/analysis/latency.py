"""Latency from histograms: merged by adding buckets, never by averaging percentiles.

fio's buckets are 64 to a power of two, and it reports their middles, so every value read from one is off
by at most 1/128 of itself (fio, stat.h); below 128 ns it is exact. That bound is of the instrument and
stands beside the statistical interval, not in it.

A percentile needs I/Os beyond it: with fewer than ten slower ones, the figure would be the accident of a
few, and is not given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis import bootstrap
from bathyscope.analysis.columns import Floats, Ints, ints, where
from bathyscope.records.figure import Figure

RELATIVE_ERROR = 1 / 128
TAIL_COUNT_MIN = 10


@dataclasses.dataclass(frozen=True, slots=True)
class LatencyHistogram:
    """Counts per bucket: `bucket_ns` strictly ascending, shape (k,), and `count` > 0, shape (k,)."""

    bucket_ns: Ints
    count: Ints

    @property
    def io_count(self) -> int:
        """I/Os in all buckets."""
        return int(self.count.sum())

    def quantile_ns(self, quantile: float) -> float | None:
        """Return the least bucket value that at least `quantile` of the I/Os do not exceed; None when empty.

        This is fio's own rule, so that both give the same figure.
        """
        if self.count.size == 0:
            return None
        cumulative = np.cumsum(self.count)
        # A rounding error of the product must not push the rank to the next I/O.
        rank = max(1, int(np.ceil(round(quantile * int(cumulative[-1]), 6))))
        return float(self.bucket_ns[int(np.searchsorted(cumulative, rank))])

    def has_tail(self, quantile: float) -> bool:
        """Whether at least ten I/Os are expected beyond `quantile`."""
        return round(self.io_count * (1 - quantile), 6) >= TAIL_COUNT_MIN


EMPTY = LatencyHistogram(np.zeros(0, np.int64), np.zeros(0, np.int64))


def merge(histograms: Iterable[LatencyHistogram]) -> LatencyHistogram:
    """Return the sum of histograms: as if all I/Os had been counted in one."""
    parts = list(histograms)
    if not parts:
        return EMPTY
    return _from_arrays(np.concatenate([p.bucket_ns for p in parts]), np.concatenate([p.count for p in parts]))


def from_rows(table: pa.Table, *, kind: str | None = None) -> LatencyHistogram:
    """Return the merged histogram of all rows (clients, directions, steps) of a `histogram` table.

    `kind` None takes lat, or clat when there is no lat (a load generator without submission times).
    """
    for choice in (kind,) if kind else ("lat", "clat"):
        rows = where(table, kind=choice)
        if rows.num_rows:
            return _from_arrays(ints(rows, "bucket_ns"), ints(rows, "count"))
    return EMPTY


def percentile(repeats: Sequence[LatencyHistogram], quantile: float) -> Figure:
    """Return a percentile of the merged repeats, with an interval from the repeats.

    The value comes from the merged histogram. The interval comes from each repeat's own percentile by the
    rule of `bootstrap.median`; for one repeat there is none. None when fewer than ten I/Os lie beyond.
    """
    filled = [h for h in repeats if h.io_count]
    merged = merge(filled)
    if not merged.has_tail(quantile):
        return Figure(None, "ns", relative_error=RELATIVE_ERROR, samples=len(filled))
    quantiles_ns = [h.quantile_ns(quantile) for h in filled]
    estimate = bootstrap.median([v for v in quantiles_ns if v is not None], at=merged.quantile_ns(quantile))
    return estimate.figure("ns", RELATIVE_ERROR)


def thinned(histogram: LatencyHistogram, points_max: int = 160) -> tuple[Floats, Floats]:
    """Return (quantiles, latencies in ns) for drawing: even steps in the bulk, logarithmic ones in the tail.

    Ends at the highest quantile that the I/O count supports; both arrays have at most `points_max` values.
    """
    if histogram.io_count == 0:
        return np.zeros(0), np.zeros(0)
    end = 1.0 - 1.0 / histogram.io_count
    bulk_end, bulk_points = min(end, 0.9), points_max // 2
    quantiles = np.linspace(0.0, bulk_end, bulk_points, endpoint=True)
    if end > bulk_end:
        quantiles = np.concatenate([quantiles[:-1], 1 - np.geomspace(1 - bulk_end, 1 - end, points_max - bulk_points)])
    quantiles = np.unique(quantiles)
    cumulative = np.cumsum(histogram.count)
    ranks = np.clip(np.ceil(quantiles * int(cumulative[-1])), 1, cumulative[-1])
    latencies = histogram.bucket_ns[np.searchsorted(cumulative, ranks)].astype(np.float64)
    return quantiles, latencies


def _from_arrays(buckets: Ints, counts: Ints) -> LatencyHistogram:
    unique, inverse = np.unique(buckets, return_inverse=True)
    summed = np.bincount(inverse.ravel(), weights=counts, minlength=unique.size).astype(np.int64)
    keep = summed > 0
    return LatencyHistogram(unique[keep].astype(np.int64), summed[keep])
