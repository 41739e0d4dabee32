"""Counts made of single operations: what an imported log has in place of counters.

`table` gives a view the rows that it counts: the record of that name, or rows with the same columns that are made of
the operations. `sums` adds up the operations in one pass, with what only they tell: percentiles, operations that move
no data, failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bathyscope.analysis.activity.shape import NOT_KNOWN, Question
from bathyscope.records.blocks import Column

OTHER_OBJECTS = "(other objects)"
"""In place of an image's name: objects that are no data of an image."""

DETAILS = (
    Column(
        "read_p99_ns",
        "read p99",
        "ns",
        "99 % of the reads took no longer; of 1,000 at least, at most 1 % above the truth",
        rank=2,
    ),
    Column(
        "write_p99_ns",
        "write p99",
        "ns",
        "99 % of the writes took no longer; of 1,000 at least, at most 1 % above the truth",
        rank=2,
    ),
    Column(
        "attribute_ops",
        "attribute ops",
        "count",
        "operations that move no data: stat, attributes, omap, calls of classes",
        rank=2,
    ),
    Column("failed", "failed", "count", "operations that failed, counted nowhere else", rank=3),
)

COMPLETE = "complete_sample AND started_ns >= complete_since_ns"
"""Since when a history, or a log, holds every operation."""

# A recording has many millions of operations, and few images: what is made of texts is made of groups of operations.
IMAGE_GROUPS = "pool_id, image_pool_id, image_id AS of_image"
IMAGE_KEYS: Mapping[str, str] = {
    "pool": f"coalesce('pool ' || coalesce(image_pool_id, pool_id), '{NOT_KNOWN}')",
    "namespace": "''",
    "image": f"CASE WHEN of_image = '' THEN '{OTHER_OBJECTS}' END",
    "image_id": "nullif(of_image, '')",
}
POOL = f"coalesce('pool ' || pool_id, '{NOT_KNOWN}')"

# What a failed operation returned is below zero; what a log_op_stats line tells has succeeded.
GOOD = "coalesce(result, 0) >= 0"
KINDS = ("read", "write")
# A percentile needs ten operations beyond it; with fewer it would be the accident of a few (as in `analysis.latency`).
QUANTILES = {"p50": (0.5, 20), "p99": (0.99, 1000)}
_BUCKET_RATIO = 1.01
# What an operation is: counted, failed, the slowest of a full history, or older than a sample of all.
_COUNTED, _FAILED, _TAIL, _EARLY = range(4)
_STATE = (
    f"CASE WHEN {COMPLETE} THEN CASE WHEN {GOOD} THEN {_COUNTED} ELSE {_FAILED} END "
    f"WHEN NOT complete_sample AND {GOOD} THEN {_TAIL} ELSE {_EARLY} END"
)


def of_time(question: Question) -> str:
    """Return the SQL condition for operations that began in the time, of samples that hold every operation."""
    return f"{COMPLETE} AND {_inside(question)}"


def _inside(question: Question) -> str:
    return f"started_ns BETWEEN {question.start_ns} AND {question.end_ns}"


def moved(question: Question) -> str:
    """Return the SQL condition for operations of the time that moved data."""
    return f"{of_time(question)} AND {GOOD} AND op IN ('read', 'write')"


def sums(
    question: Question,
    groups: str,
    keys: Mapping[str, str],
    *more: str,
    of_rows: str = "true",
    condition: str = "true",
    tails: bool = True,
) -> str:
    """Return the SELECT of the sums of all operations of the time, for each value of `keys` (name → SQL).

    The keys, and what `more` adds up, are made of the columns that `groups` lists, which have other names; a
    `condition` is of both, one `of_rows` of the columns of an operation. The columns are those of `words.COUNTED`, and
    what `detail_cells` and `timed` show.

    Percentiles are of buckets of 1 %, so that memory holds a bucket and not an operation each; without `tails` there
    are none, which takes half. They are of samples that hold every operation: a history that was full has kept the
    slowest, which are `read_tail_count` and `write_tail_count`.
    """
    bucket = f"ceil(ln(greatest(duration_ns, 1)) / ln({_BUCKET_RATIO}))" if tails else "0"
    listed = ", ".join(keys)
    counted = {
        **{
            f"{kind}_{name}": (value, f"state = {state} AND op = '{kind}'")
            for kind in KINDS
            for name, value, state in (
                ("count", "n", _COUNTED), ("bytes", "size", _COUNTED), ("latency_ns_sum", "took_ns", _COUNTED),
                ("tail_count", "n", _TAIL),
            )
        },
        "other_count": ("n", f"state = {_COUNTED} AND op = 'other'"),
        "failed_count": ("n", f"state = {_FAILED}"),
    }  # fmt: skip
    columns = [
        f"CAST(coalesce(sum({value}) FILTER (WHERE {which}), 0) AS BIGINT) AS {name}"
        for name, (value, which) in counted.items()
    ]
    columns += [
        # The greatest of the first bucket that holds so many: other groups may have a part of that bucket, too.
        f"-(min((bucket, -greatest_ns)) FILTER (WHERE state = {_COUNTED} AND op = '{kind}' AND whole >= {least} "
        f"AND below >= {quantile} * whole))[2] AS {kind}_{name}_ns"
        for kind in KINDS if tails
        for name, (quantile, least) in QUANTILES.items()
    ]  # fmt: skip
    line = f"PARTITION BY {listed}, op, state"
    return (
        f"WITH grouped AS (SELECT {groups}, op, {_STATE} AS state, CAST({bucket} AS SMALLINT) AS bucket, "
        "count(*) AS n, sum(length_bytes) AS size, sum(duration_ns) AS took_ns, max(duration_ns) AS greatest_ns "
        f"FROM op WHERE {of_time(question) if question.of_ops else _inside(question)} AND {of_rows} GROUP BY ALL), "
        f"named AS (SELECT {', '.join(f'{value} AS {name}' for name, value in keys.items())}, * FROM grouped), "
        f"ranked AS (SELECT *, sum(n) OVER ({line} ORDER BY bucket) AS below, sum(n) OVER ({line}) AS whole "
        f"FROM named WHERE {condition}) "
        f"SELECT {', '.join((listed, *columns, *more))} FROM ranked GROUP BY {listed}"
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
        for kind in KINDS
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
        for kind in KINDS
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
