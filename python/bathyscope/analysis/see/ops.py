"""Counts made of single operations: what an imported log has in place of counters.

`table` gives a view the rows that it counts: the record of that name, or rows with the same columns that are made of
the operations. `sums` adds up the operations in one pass, with what only they tell: percentiles, operations that move
no data, failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bathyscope.analysis.see.shape import NOT_KNOWN, Question
from bathyscope.rbd_names import IMAGE_ID_SQL, POOL_ID_SQL, START_SQL
from bathyscope.records.activity_finding import ActivityColumn

OTHER_OBJECTS = "(other objects)"
"""In place of an image's name: objects that are no data of an image."""

DETAILS = (
    ActivityColumn(
        "read p99", "ns", "99 % of the reads took no longer; of 1,000 at least, at most 2 % above the truth", rank=2
    ),
    ActivityColumn(
        "write p99", "ns", "99 % of the writes took no longer; of 1,000 at least, at most 2 % above the truth", rank=2
    ),
    ActivityColumn(
        "attribute ops", "count", "operations that move no data: stat, attributes, omap, calls of classes", rank=2
    ),
    ActivityColumn("failed", "count", "operations that failed, counted nowhere else", rank=3),
)

COMPLETE = "complete_sample AND started_ns >= complete_since_ns"
"""Since when a history, or a log, holds every operation."""

# A recording has many millions of operations, and few images: what is made of texts is made of groups of operations.
IMAGE_GROUPS = f"pool_id, {START_SQL} AS start"
IMAGE_KEYS: Mapping[str, str] = {
    "pool": f"coalesce('pool ' || {POOL_ID_SQL}, '{NOT_KNOWN}')",
    "namespace": "''",
    "image": f"CASE WHEN {IMAGE_ID_SQL} IS NULL THEN '{OTHER_OBJECTS}' END",
    "image_id": IMAGE_ID_SQL,
}
POOL = f"coalesce('pool ' || pool_id, '{NOT_KNOWN}')"

# What a failed operation returned is below zero; what a log_op_stats line tells has succeeded.
_GOOD = "coalesce(result, 0) >= 0"
_KINDS = ("read", "write")
_QUANTILE = 0.99
# Ten lie beyond it, as `timed` asks.
_OPS_LEAST = 1000
_BUCKET_RATIO = 1.02


def of_time(question: Question) -> str:
    """Return the SQL condition for operations that began in the time, of samples that hold every operation."""
    return f"{COMPLETE} AND started_ns BETWEEN {question.start_ns} AND {question.end_ns}"


def moved(question: Question) -> str:
    """Return the SQL condition for operations of the time that moved data."""
    return f"{of_time(question)} AND {_GOOD} AND op IN ('read', 'write')"


def sums(
    question: Question, groups: str, keys: Mapping[str, str], *more: str, condition: str = "true", tails: bool = True
) -> str:
    """Return the SELECT of the sums of all operations of the time, for each value of `keys` (name → SQL).

    The keys, and what `more` adds up, are made of the columns that `groups` lists, which have other names; a
    `condition` is of both. The columns are those of `words.COUNTED`, and what `detail_cells` shows. Percentiles are of
    buckets, so that memory holds a bucket and not an operation each; without `tails` there are none, which takes half.
    """
    bucket = f"ceil(ln(greatest(duration_ns, 1)) / ln({_BUCKET_RATIO}))" if tails else "0"
    named = ", ".join(f"{value} AS {name}" for name, value in keys.items())
    listed = ", ".join(keys)
    columns = ", ".join(
        f"CAST(coalesce(sum({value}) FILTER (WHERE good AND op = '{kind}'), 0) AS BIGINT) AS {kind}_{name}"
        for kind in _KINDS
        for name, value in (("count", "n"), ("bytes", "size"), ("latency_ns_sum", "took_ns"))
    )
    p99s = ", ".join(
        f"min(bucket_greatest_ns) FILTER (WHERE good AND op = '{kind}' AND whole >= {_OPS_LEAST} "
        f"AND below >= {_QUANTILE} * whole) AS {kind}_p99_ns"
        if tails
        else f"NULL AS {kind}_p99_ns"
        for kind in _KINDS
    )
    return (
        f"WITH grouped AS (SELECT {groups}, op, {_GOOD} AS good, "
        f"CAST({bucket} AS SMALLINT) AS bucket, count(*) AS n, "
        "sum(length_bytes) AS size, sum(duration_ns) AS took_ns, max(duration_ns) AS greatest_ns "
        f"FROM op WHERE {of_time(question)} GROUP BY ALL), "
        f"named AS (SELECT {named}, * FROM grouped), "
        "ranked AS (SELECT *, sum(n) OVER (line ORDER BY bucket) AS below, sum(n) OVER line AS whole, "
        f"max(greatest_ns) OVER (PARTITION BY {listed}, op, good, bucket) AS bucket_greatest_ns "
        f"FROM named WHERE {condition} "
        f"WINDOW line AS (PARTITION BY {listed}, op, good)) "
        f"SELECT {', '.join((listed, columns, p99s, *more))}, "
        "CAST(coalesce(sum(n) FILTER (WHERE good AND op = 'other'), 0) AS BIGINT) AS other_count, "
        "CAST(coalesce(sum(n) FILTER (WHERE NOT good), 0) AS BIGINT) AS failed_count "
        f"FROM ranked GROUP BY {listed}"
    )


def image_io(question: Question, bin_ns: int, *, clients: bool = False) -> str:
    """Return what stands after FROM for the I/O of images in intervals: the record, or rows made of operations.

    These have intervals of `bin_ns` from the start of the time on, and either the columns of images or, with `clients`,
    those of clients.
    """
    if not question.of_ops:
        return "image_io"
    if clients:
        return _intervals(question, bin_ns, "client, client_address", "client, client_address")
    named = ", ".join(f"{value} AS {name}" for name, value in IMAGE_KEYS.items())
    return _intervals(question, bin_ns, IMAGE_GROUPS, named)


def perf_counter(question: Question, bin_ns: int) -> str:
    """Return what stands after FROM for the counters of OSDs in intervals: the record, or rows made of operations."""
    if not question.of_ops:
        return "perf_counter"
    # Ceph's averages are seconds.
    counters = {
        f"op_{kind[0]}{name}": f"CAST({kind}_{value} AS DOUBLE){scale}"
        for kind in _KINDS
        for name, value, scale in (("", "count", ""), ("_latency", "latency_ns_sum", " / 1e9"))
    }
    listed = ", ".join(f"{value} AS {name}" for name, value in counters.items())
    counted = _intervals(question, bin_ns, "osd", "'osd.' || osd AS daemon")
    return (
        "(SELECT at_ns, duration_ns, daemon, 'osd' AS section, name, delta, "
        "CASE name WHEN 'op_r_latency' THEN read_count WHEN 'op_w_latency' THEN write_count END AS count "
        f"FROM (SELECT *, {listed} FROM {counted}) "
        f"UNPIVOT (delta FOR name IN ({', '.join(counters)})))"
    )


def _intervals(question: Question, bin_ns: int, groups: str, named: str) -> str:
    start, end = question.start_ns, question.end_ns
    begins = f"{start} + place * {bin_ns}"
    # A log's last operation may begin and end with it.
    place = f"(least(started_ns, {end - 1}) - {start}) // {bin_ns}"
    counts = ", ".join(
        f"CAST(coalesce(sum({value}) FILTER (WHERE op = '{kind}'), 0) AS BIGINT) AS {kind}_{name}"
        for kind in _KINDS
        for name, value in (("count", "1"), ("latency_ns_sum", "duration_ns"))
    )
    return (
        f"(SELECT least({begins} + {bin_ns}, {end}) AS at_ns, least({begins} + {bin_ns}, {end}) - ({begins}) "
        f"AS duration_ns, {named}, read_count, write_count, read_latency_ns_sum, write_latency_ns_sum FROM "
        f"(SELECT {place} AS place, {groups}, {counts} FROM op WHERE {moved(question)} GROUP BY ALL))"
    )


def detail_cells(row: Mapping[str, Any] | None) -> tuple[float | None, ...]:
    """Return the values of DETAILS of a row of `sums`; None of counters, which do not tell."""
    known = row or {}
    return tuple(known.get(name) for name in ("read_p99_ns", "write_p99_ns", "other_count", "failed_count"))
