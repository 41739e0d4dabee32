"""Latency histograms of OSDs: what an interval added to each bucket, and the percentiles of merged buckets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bathyscope.analysis.latency_buckets import BucketPercentile, percentile
from bathyscope.errors import ParseError
from bathyscope.host import CephRequest
from bathyscope.records import OsdLatencyBucket, RawAnswer, from_table, to_table
from bathyscope.sources.osd_latency_histograms import ASKED_MAX, SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
SCOPE = Scope(target=Target(name="t"))
SECOND = 10**9
FIXTURES = Path(__file__).parents[2] / "fixtures" / "osd_histograms"
READ, WRITE, BOTH = (
    "op_r_latency_out_bytes_histogram", "op_w_latency_in_bytes_histogram", "op_rw_latency_in_bytes_histogram"
)  # fmt: skip
BUCKETS = 32


def axis(name: str, quant: int) -> dict[str, object]:
    """An axis as PerfHistogramCommon::dump_formatted_axis prints it."""
    ranges: list[dict[str, int]] = [{"max": -1}]
    low = 0
    for bucket in range(1, BUCKETS - 1):
        high = quant << (bucket - 1)
        ranges.append({"min": low, "max": high - 1})
        low = high
    return {
        "name": name, "min": 0, "quant_size": quant, "buckets": BUCKETS, "scale_type": "log2",
        "ranges": [*ranges, {"min": low}],
    }  # fmt: skip


def histogram(counts: Mapping[tuple[int, int], int]) -> dict[str, object]:
    """(latency in ns, bucket of the size) → count, as an OSD counts it."""
    axes = [axis("Latency (usec)", 100_000), axis("Request size (bytes)", 512)]
    values = [[0] * BUCKETS for _ in range(BUCKETS)]
    for (latency_ns, size), count in counts.items():
        bucket = 0 if latency_ns < 0 else min(BUCKETS - 1, (latency_ns // 100_000).bit_length() + 1)
        values[bucket][size] += count
    return {"axes": axes, "values": values}


def look(at_s: int, osd: int = 3, *, exit_code: int = 0, **counts: Mapping[tuple[int, int], int]) -> RawAnswer:
    value = {"osd": {name: histogram(counts.get(name, {})) for name in (READ, WRITE, BOTH)}}
    label = f"osd_histograms-osd.{osd}"
    return RawAnswer(label, (), (), exit_code, json.dumps(value).encode(), b"", at_s * SECOND, at_s * SECOND)


def parse(*answers: RawAnswer) -> list[OsdLatencyBucket]:
    return from_table(OsdLatencyBucket, SOURCE.parse(answers, SCOPE)[OsdLatencyBucket])


@pytest.mark.parametrize("version", ["16.2.15", "20.2.4"])
def test_every_op_that_the_osds_counted_is_in_a_bucket(recorded: Recorded, version: str) -> None:
    looks = [answer for when in ("before", "after") for answer in recorded(f"osd_histograms/{version}/{when}")]
    rows = parse(*looks)
    # What `op_r`, `op_w` and `op_rw` of the same OSDs grew by.
    counted = json.loads((FIXTURES / version / "counted.json").read_text())
    found: Counter[str] = Counter()
    for row in rows:
        found[f"{row.osd} {row.op}"] += row.op_count
    assert found == {name: count for name, count in counted.items() if count}
    assert all(row.latency_max_ns is None or row.latency_min_ns < row.latency_max_ns for row in rows)
    # The load generator saw a mean of 1 to 2 ms for reads.
    table = to_table(OsdLatencyBucket, [row for row in rows if row.op == "read"])
    median = percentile(table, 0.5)
    assert median is not None
    assert median.min_ns < 2_000_000
    assert percentile(table, 0.99) is not None


def test_an_interval_has_what_was_added_to_each_bucket_whatever_the_size() -> None:
    old = look(10, **{READ: {(50_000, 4): 7, (150_000, 4): 1}})
    new = look(
        20, **{READ: {(50_000, 4): 9, (99_999, 5): 1, (150_000, 4): 1, (100_000, 9): 2}, WRITE: {(10**13, 4): 5}}
    )
    rows = [(r.op, r.latency_min_ns, r.latency_max_ns, r.op_count) for r in parse(old, new)]
    assert rows == [
        ("read", 0, 100_000, 3),
        ("read", 100_000, 200_000, 2),
        ("write", 100_000 << 26, 100_000 << 27, 5),
    ]
    assert {(r.at_ns, r.duration_ns, r.osd) for r in parse(old, new)} == {(20 * SECOND, 10 * SECOND, 3)}


def test_the_last_bucket_has_no_end_and_a_clock_that_went_back_took_no_time() -> None:
    rows = parse(look(1), look(2, **{BOTH: {(10**15, 4): 2, (-5, 4): 1}}))
    assert [(r.op, r.latency_min_ns, r.latency_max_ns, r.op_count) for r in rows] == [
        ("read-modify-write", 0, 0, 1),
        ("read-modify-write", 100_000 << (BUCKETS - 3), None, 2),
    ]


def test_a_restarted_osd_has_no_rows_and_a_silent_one_has_a_longer_interval() -> None:
    looks = [
        look(10, **{READ: {(1, 4): 7, (200_000, 4): 1}}),
        look(20, **{READ: {(1, 4): 8}}),
        look(30, exit_code=-110),
        look(40, **{READ: {(1, 4): 10}}),
        look(40, osd=4, **{READ: {(1, 4): 10}}),
    ]
    assert [(r.osd, r.at_ns // SECOND, r.duration_ns // SECOND, r.op_count) for r in parse(*looks)] == [(3, 40, 20, 2)]


def test_an_osd_without_histograms_has_no_rows() -> None:
    nothing = RawAnswer("osd_histograms-osd.3", (), (), 0, b"{}", b"", 0, 0)
    assert parse(nothing, look(1)) == []


def test_an_axis_that_is_not_known_is_an_error() -> None:
    wrong = look(1)
    turned = RawAnswer(wrong.label, (), (), 0, wrong.stdout.replace(b"Latency", b"Size"), b"", 0, 0)
    with pytest.raises(ParseError, match="first axis"):
        parse(turned, wrong)


def test_at_most_so_many_osds_are_asked() -> None:
    requests = SOURCE.plan(SCOPE.model_copy(update={"asked_osds": tuple(range(1000))}))
    assert len(requests) == ASKED_MAX
    assert isinstance(requests[1], CephRequest)
    assert requests[1].daemon == "osd.5"
    assert dict(requests[1].command) == {"prefix": "perf histogram dump", "logger": "osd", "format": "json"}


def bucket(low_ns: int, high_ns: int | None, count: int, osd: int = 1) -> OsdLatencyBucket:
    return OsdLatencyBucket(SECOND, SECOND, osd, "read", low_ns, high_ns, count)


def test_a_percentile_is_that_of_merged_buckets_with_the_bounds_of_its_own() -> None:
    # Of one OSD the 90th percentile is below 0.1 ms, of the other one above 51.2 ms; their mean would be neither.
    rows = [bucket(0, 100_000, 900), bucket(51_200_000, 102_400_000, 60, osd=2), bucket(200_000, 400_000, 40, osd=2)]
    table = to_table(OsdLatencyBucket, rows)
    assert percentile(table, 0.9) == BucketPercentile(0, 100_000, 1000)
    assert percentile(table, 0.92) == BucketPercentile(200_000, 400_000, 1000)
    assert percentile(table, 0.95) == BucketPercentile(51_200_000, 102_400_000, 1000)


def test_a_percentile_in_the_last_bucket_has_no_upper_bound_and_needs_a_tail() -> None:
    table = to_table(OsdLatencyBucket, [bucket(0, 100_000, 10), bucket(53_687_091_200_000, None, 90)])
    assert percentile(table, 0.5) == BucketPercentile(53_687_091_200_000, None, 100)
    assert percentile(table, 0.9) == BucketPercentile(53_687_091_200_000, None, 100)
    assert percentile(table, 0.95) is None
    assert percentile(table.slice(0, 0), 0.5) is None
