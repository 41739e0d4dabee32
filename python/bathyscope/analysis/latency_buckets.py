"""Percentiles of the OSDs' own latency histograms: of merged buckets, never averages of percentiles.

A bucket is as wide as its lower bound, so a percentile is known within a factor of two, and in the first and the last
bucket on one side only. The bounds of its bucket are the answer.
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.columns import ints, where
from bathyscope.analysis.latency import LatencyHistogram, merge


@dataclasses.dataclass(frozen=True, slots=True)
class BucketPercentile:
    """A percentile that lies from `min_ns` to below `max_ns`; in the last bucket nothing bounds it (None).

    `op_count` is the number of operations that it rests on.
    """

    min_ns: int
    max_ns: int | None
    op_count: int


def percentile(buckets: pa.Table, quantile: float) -> BucketPercentile | None:
    """Return a percentile of all rows of `osd_latency_bucket` together: of OSDs, intervals and operations.

    None when fewer than ten operations lie beyond it.
    """
    rows = LatencyHistogram(ints(buckets, "latency_min_ns"), ints(buckets, "op_count"))
    merged = merge([rows])
    at = merged.quantile_ns(quantile) if merged.has_tail(quantile) else None
    if at is None:
        return None
    bounds = where(buckets, latency_min_ns=int(at)).column("latency_max_ns")
    return BucketPercentile(int(at), None if bounds.null_count else pc.max(bounds).as_py(), merged.io_count)
