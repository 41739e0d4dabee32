"""Percentiles of merged histograms equal those of the I/Os themselves, to the width of a bucket."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.analysis.builders import fio_bucket_ns

from bathyscope.analysis import latency
from bathyscope.analysis.latency import LatencyHistogram
from bathyscope.records import Histogram, to_table


def of(values: np.ndarray) -> LatencyHistogram:
    buckets, counts = np.unique(fio_bucket_ns(values), return_counts=True)
    return LatencyHistogram(buckets, counts)


def exact(values: np.ndarray, quantile: float) -> int:
    rank = max(1, int(np.ceil(round(quantile * values.size, 6))))
    return int(np.sort(values)[rank - 1])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=300), st.floats(0.0, 1.0))
def test_a_quantile_is_off_by_less_than_the_bound(values: list[int], quantile: float) -> None:
    data = np.array(values, dtype=np.int64)
    found = of(data).quantile_ns(quantile)
    true = exact(data, quantile)
    assert abs(found - true) <= true * latency.RELATIVE_ERROR


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 1 << 35), min_size=1, max_size=80), min_size=1, max_size=6))
def test_merging_is_the_histogram_of_all(parts: list[list[int]]) -> None:
    merged = latency.merge([of(np.array(part, dtype=np.int64)) for part in parts])
    whole = of(np.array([v for part in parts for v in part], dtype=np.int64))
    assert np.array_equal(merged.bucket_ns, whole.bucket_ns)
    assert np.array_equal(merged.count, whole.count)


def test_a_percentile_needs_ten_beyond_it() -> None:
    histogram = of(np.arange(1, 1000))
    assert latency.percentile([histogram], 0.99).value is None
    enough = of(np.arange(1, 1001))
    found = latency.percentile([enough], 0.99)
    assert found.value == pytest.approx(990, rel=latency.RELATIVE_ERROR)
    # One repeat gives no interval.
    assert (found.low, found.high, found.samples) == (None, None, 1)
    assert latency.percentile([enough], 0.999).value is None
    assert latency.percentile([enough] * 10, 0.999).value is not None


def test_the_interval_of_a_percentile_covers_the_truth() -> None:
    """Repeats whose speed scatters by 5 %: the interval holds the median repeat's p99 in most trials."""
    random = np.random.default_rng(3)
    base = np.exp(random.normal(np.log(1e6), 0.4, 4000))
    true = float(np.sort(base)[int(0.99 * 4000) - 1])
    held = 0
    for _ in range(200):
        repeats = [of((base * np.exp(random.normal(0, 0.05))).astype(np.int64)) for _ in range(3)]
        found = latency.percentile(repeats, 0.99)
        held += found.low <= true <= found.high
    assert held >= 180


def test_rows_of_clients_and_directions_add_up() -> None:
    rows = [
        Histogram(0, client, direction, kind, 1000 * (i + 1), 5)
        for client in ("fio#0", "fio#1")
        for direction in ("read", "write")
        for kind in ("lat", "clat", "slat")
        for i in range(3)
    ]
    table = to_table(Histogram, rows)
    assert latency.from_rows(table).io_count == 60
    assert latency.from_rows(table, kind="slat").io_count == 60
    only_clat = to_table(Histogram, [r for r in rows if r.kind == "clat"])
    assert latency.from_rows(only_clat).io_count == 60
    assert latency.from_rows(to_table(Histogram, [])).io_count == 0
    assert latency.from_rows(to_table(Histogram, [])).quantile_ns(0.5) is None


def test_a_thinned_distribution_climbs_and_ends_at_the_tail() -> None:
    histogram = of(np.exp(np.random.default_rng(2).normal(14, 0.5, 50_000)).astype(np.int64))
    quantiles, latencies = latency.thinned(histogram)
    assert quantiles.size == latencies.size <= 160
    assert np.all(np.diff(quantiles) > 0)
    assert np.all(np.diff(latencies) >= 0)
    assert quantiles[-1] == pytest.approx(1 - 1 / 50_000)
    assert latencies[-1] <= histogram.bucket_ns[-1]
    for count in (1, 2, 5, 11):
        few = of(np.arange(1, count + 1))
        assert np.all(np.diff(latency.thinned(few)[0]) > 0)
    assert latency.thinned(latency.EMPTY)[0].size == 0
