"""Percentiles of the operations that were recorded one by one, image by image, and how many they rest on.

Only of samples that hold every operation of their time: a history that was full has kept the slowest, so its
percentiles would be those of the slow ones. A percentile needs operations beyond it: with fewer than ten slower ones it
would be the accident of a few, and is not given (as in `analysis.latency`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bathyscope.analysis.see import ops
from bathyscope.analysis.see.shape import Question
from bathyscope.rbd_names import IMAGE_ID_SQL, START_SQL
from bathyscope.records.activity_finding import ActivityColumn
from bathyscope.units import format_duration_ns

_QUANTILES = {"p50": 0.5, "p99": 0.99}
_BEYOND_LEAST = 10
_KINDS = ("read", "write")

COLUMNS = (
    ActivityColumn("read p50", "ns", "half of the timed reads took less", rank=3),
    ActivityColumn("read p99", "ns", "99 % of the timed reads took less; of 1,000 at least", rank=2),
    ActivityColumn("write p50", "ns", "half of the timed writes took less", rank=3),
    ActivityColumn("write p99", "ns", "99 % of the timed writes took less; of 1,000 at least", rank=2),
    ActivityColumn("timed ops", "count", "operations that the percentiles rest on: recorded one by one", rank=2),
)
"""The columns of `cells`."""

TAIL = (
    "{count:,} operations are from op histories that were full, which have kept the slowest: they are shown, and not "
    "counted."
)
"""What is said where operations of full histories are shown."""

# What a row is of: a sample that holds every operation, one that keeps the slowest, or the time before a sample.
_WHOLE, _TAIL, _EARLY = 0, 1, 2


def queries(question: Question, ids: str | None = None) -> Mapping[str, str]:
    """Return what `read` needs; `ids` is the SQL list of the images' ids, None for all.

    Operations are counted in buckets of 1 %, and images told apart by what their objects' names begin with: there may
    be many millions of operations, and a percentile of an image needs memory for its buckets only.
    """
    chosen = "true" if ids is None else f"image_id IN {ids}"
    quantiles = ", ".join(
        f"min(most_ns) FILTER (WHERE state = {_WHOLE} AND below >= {q} * whole) AS {name}_ns"
        for name, q in _QUANTILES.items()
    )
    line = "PARTITION BY image_id, op, state"
    return {
        "timed": f"WITH counted AS (SELECT {START_SQL} AS start, op, CASE WHEN NOT complete_sample THEN "
        f"{_TAIL} WHEN {ops.COMPLETE} THEN {_WHOLE} ELSE {_EARLY} END AS state, "
        "CAST(ceil(ln(greatest(duration_ns, 1)) / ln(1.01)) AS SMALLINT) AS bucket, count(*) AS n, "
        "max(duration_ns) AS most_ns FROM op WHERE starts_with(object_name, 'rbd_data.') AND op IN ('read', 'write') "
        f"AND coalesce(result, 0) >= 0 AND started_ns BETWEEN {question.start_ns} AND {question.end_ns} GROUP BY ALL), "
        "ranked AS (SELECT *, sum(n) OVER (" + line + " ORDER BY bucket) AS below, sum(n) OVER (" + line + ") AS whole "
        f"FROM (SELECT *, {IMAGE_ID_SQL} AS image_id FROM counted) WHERE {chosen}) "
        f"SELECT image_id, op, CAST(coalesce(max(whole) FILTER (WHERE state = {_WHOLE}), 0) AS BIGINT) AS count, "
        f"CAST(coalesce(max(whole) FILTER (WHERE state = {_TAIL}), 0) AS BIGINT) AS tail_count, {quantiles} "
        "FROM ranked GROUP BY image_id, op"
    }


Timed = Mapping[str, Mapping[str, Any]]
"""read and write → count, tail_count, p50_ns, p99_ns of one image; percentiles None for too few operations."""


def read(tables: Mapping[str, pa.Table]) -> dict[str, Timed]:
    """Return what was timed of each image, by its id."""
    found: dict[str, Timed] = {}
    for row in tables["timed"].to_pylist():
        known = {
            f"{name}_ns": row[f"{name}_ns"] if round(row["count"] * (1 - q), 6) >= _BEYOND_LEAST else None
            for name, q in _QUANTILES.items()
        }
        image = found.get(row["image_id"], {})
        found[row["image_id"]] = {**image, row["op"]: {**row, **known}}
    return found


def cells(timed: Timed | None) -> tuple[float | None, ...]:
    """Return the values of COLUMNS for an image; None where nothing is known."""
    if not timed:
        return (None,) * len(COLUMNS)
    known = [timed.get(kind, {}).get(f"{name}_ns") for kind in _KINDS for name in _QUANTILES]
    return *known, sum(row["count"] for row in timed.values())


def facts(timed: Timed | None) -> list[tuple[str, str]]:
    """Return the percentiles of an image in words."""
    found = []
    for kind in _KINDS:
        row = (timed or {}).get(kind)
        if row is None:
            continue
        figures = [
            f"{name} {'cannot tell' if row[f'{name}_ns'] is None else format_duration_ns(row[f'{name}_ns'])}"
            for name in _QUANTILES
        ]
        found.append((f"{kind.capitalize()} latency", f"{', '.join(figures)}, of {row['count']:,} timed {kind}s"))
    return found


def remarks(timed: Sequence[Timed], question: Question) -> tuple[str, ...]:
    """Return why percentiles are missing where operations of these images were recorded."""
    rows = [row for image in timed for row in image.values()]
    found = []
    if any(row["p99_ns"] is None for row in rows):
        found.append(
            "Percentiles are given where ten operations at least are beyond them: p50 of 20 timed operations, p99 of "
            f"1,000.{'' if question.of_ops else ' A longer recording with --depth deep has more.'}"
        )
    if any(row["tail_count"] for row in rows):
        found.append(
            "Of OSDs that did more operations than their history holds only the slowest are there, and these make no "
            "percentiles."
        )
    return tuple(found)
