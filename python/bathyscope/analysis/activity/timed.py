"""Percentiles of the operations that were recorded one by one, image by image, and how many they rest on.

`ops.sums` makes them. A history that was full has kept the slowest, so its operations make no percentiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bathyscope.analysis.activity import ops
from bathyscope.analysis.activity.shape import Question
from bathyscope.records.blocks import Column
from bathyscope.units import format_duration_ns

COLUMNS = (
    Column(
        "read_p50_ns", "read p50", "ns", "half of the timed reads took no longer; at most 1 % above the truth", rank=3
    ),
    Column(
        "read_p99_ns",
        "read p99",
        "ns",
        "99 % of the timed reads took no longer; of 1,000 at least, at most 1 % above the truth",
        rank=2,
    ),
    Column(
        "write_p50_ns",
        "write p50",
        "ns",
        "half of the timed writes took no longer; at most 1 % above the truth",
        rank=3,
    ),
    Column(
        "write_p99_ns",
        "write p99",
        "ns",
        "99 % of the timed writes took no longer; of 1,000 at least, at most 1 % above the truth",
        rank=2,
    ),
    Column("timed_ops", "timed ops", "count", "operations that the percentiles rest on: recorded one by one", rank=2),
)
"""The columns of `cells`."""

TAIL = (
    "{count:,} operations are from op histories that were full, which have kept the slowest: they are shown, and not "
    "counted."
)
"""What is said where operations of full histories are shown."""


def queries(question: Question, ids: str | None = None) -> Mapping[str, str]:
    """Return what `read` needs; `ids` is the SQL list of the images' ids, None for all."""
    chosen = "image_id <> ''" if ids is None else f"image_id IN {ids}"
    chosen += " AND op IN ('read', 'write')"
    return {"timed": ops.sums(question, "image_id AS of_image", {"image_id": "of_image"}, of_rows=chosen)}


Timed = Mapping[str, Mapping[str, Any]]
"""read and write → count, tail_count, p50_ns, p99_ns of one image; percentiles None for too few operations."""


def read(table: pa.Table) -> dict[str, Timed]:
    """Return what was timed of each image, by its id."""
    return {row["image_id"]: of_row(row) for row in table.to_pylist()}


def of_row(row: Mapping[str, Any]) -> Timed:
    """Return what was timed of a row of `ops.sums`."""
    names = ("count", "tail_count", *(f"{name}_ns" for name in ops.QUANTILES))
    return {
        kind: {name: row[f"{kind}_{name}"] for name in names}
        for kind in ops.KINDS
        if row[f"{kind}_count"] or row[f"{kind}_tail_count"]
    }


def cells(timed: Timed | None) -> tuple[float | None, ...]:
    """Return the values of COLUMNS for an image; None where nothing is known."""
    if not timed:
        return (None,) * len(COLUMNS)
    known = [timed.get(kind, {}).get(f"{name}_ns") for kind in ops.KINDS for name in ops.QUANTILES]
    return *known, sum(row["count"] for row in timed.values())


def facts(timed: Timed | None) -> list[tuple[str, str]]:
    """Return the percentiles of an image in words."""
    pairs = []
    for kind in ops.KINDS:
        row = (timed or {}).get(kind)
        if row is None:
            continue
        figures = [
            f"{name} {'cannot tell' if row[f'{name}_ns'] is None else format_duration_ns(row[f'{name}_ns'])}"
            for name in ops.QUANTILES
        ]
        pairs.append((f"{kind.capitalize()} latency", f"{', '.join(figures)}, of {row['count']:,} timed {kind}s"))
    return pairs


def remarks(timed: Sequence[Timed], question: Question) -> tuple[str, ...]:
    """Return why percentiles are missing where operations of these images were recorded."""
    rows = [row for image in timed for row in image.values()]
    texts = []
    if any(row["p99_ns"] is None for row in rows):
        texts.append(
            "Percentiles are given where ten operations at least are beyond them: p50 of 20 timed operations, p99 of "
            f"1,000.{'' if question.of_ops else ' A longer recording with --depth deep has more.'}"
        )
    if any(row["tail_count"] for row in rows):
        texts.append(
            "Of OSDs that did more operations than their history holds only the slowest are there, and these make no "
            "percentiles."
        )
    return tuple(texts)
