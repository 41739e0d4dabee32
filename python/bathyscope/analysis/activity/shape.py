"""The shape of a view: which rows it needs, as SQL, and the finding that it makes of them.

A recording may hold tens of millions of rows. So a view says in SQL what it needs already added up, the store answers
it out of core, and `build` makes a finding of the answers. Both are pure. To add a view, add a file with a `VIEW` of
this shape to this package.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope.analysis.window import SqlSpan, overlaps, share
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import HeatMap, Table

# A trend shows so many rates.
TREND_PARTS = 8

_OF_OPS = (
    "Counts are those of the operations in the imported logs: of the OSDs whose logs they are, while they were logged. "
    "Latencies from logs at debug_ms 1 are as coarse as the times in them, 1 to 4 ms."
)


NOT_KNOWN = "(not known)"
"""In place of the name of a node or pool."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a view: of which run, of which time (ns since the Unix epoch), of which image.

    `client`, `osd`, `node` and `pool` narrow views of more than one of them, named as the views name them;
    `from_bytes`, `to_bytes` and `object_number` narrow views of an image. What does not apply to a view changes nothing
    there. `history_start_ns` is where trends and the cluster's health begin, by default with that time. `every_object`:
    of an image also the objects that nothing was done to. `of_ops`: the run has single operations and no counters, so
    the operations are counted.
    """

    run_id: str
    target: str
    start_ns: int
    end_ns: int
    image: str | None = None
    zones: int = 10
    client: str | None = None
    osd: str | None = None
    node: str | None = None
    pool: str | None = None
    from_bytes: int | None = None
    to_bytes: int | None = None
    object_number: int | None = None
    history_start_ns: int | None = None
    every_object: bool = False
    of_ops: bool = False


class View(Protocol):
    """One view. `of_image`: it is of one image, which the question names. `tables`: the keys of its tables."""

    name: str
    help: str
    tables: tuple[str, ...]
    of_image: bool = False

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return name → SELECT over the records of the run, whose answers `build` gets by these names."""
        ...

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return the finding. Raises AnalysisError when the run has nothing for this view."""
        ...


def history_start_ns(question: Question) -> int:
    """Return where what led to the time that is asked for begins."""
    return question.start_ns if question.history_start_ns is None else question.history_start_ns


def literal(text: str) -> str:
    """Return a text as an SQL literal: names of images come from outside."""
    return "'" + text.replace("'", "''") + "'"


def only(wanted: Mapping[str, str | None]) -> str:
    """Return the SQL conditions, each after an AND, for columns that must have a value; None is any value."""
    return "".join(f" AND {column} = {literal(value)}" for column, value in wanted.items() if value is not None)


def greatest(rows: str, column: str, count: int) -> str:
    """Return the SELECT of the `count` rows with the greatest `column`, these first; `rows` is FROM what WHERE which.

    The column alone says first how great they are: all columns of many millions of rows take far more memory and time.
    """
    least = f"SELECT min({column}) FROM (SELECT {column} FROM {rows} ORDER BY {column} DESC LIMIT {count})"
    return f"SELECT * FROM {rows} AND {column} >= ({least}) ORDER BY {column} DESC LIMIT {count}"


def sums(question: Question, *columns: str) -> str:
    """Return the SQL that adds up each of `columns` under its own name, of an interval at the edge its part.

    What is counted in whole intervals stays exact.
    """
    weight = share(question)
    return ", ".join(f"CAST(round(sum({name} * {weight})) AS BIGINT) AS {name}" for name in columns)


def spread(question: Question, table: str, bin_ns: int, condition: str = "true") -> str:
    """Return the SQL of the rows of a table for each bin of `bin_ns` that they reach into: `place`, and their `weight`.

    An interval may be longer than a bin, or shorter; what it counted is spread evenly over its length.
    """
    start, end = question.start_ns, question.end_ns
    first = f"(greatest(at_ns - duration_ns, {start}) - {start}) // {bin_ns}"
    last = f"(least(at_ns, {end}) - 1 - {start}) // {bin_ns}"
    one_bin = SqlSpan(f"{start} + place * {bin_ns}", f"{start} + (place + 1) * {bin_ns}")
    return (
        f"(SELECT *, {share(one_bin)} AS weight FROM "
        f"(SELECT *, unnest(range(CAST({first} AS BIGINT), CAST({last} AS BIGINT) + 1)) AS place FROM {table} "
        f"WHERE {overlaps(question)} AND {condition}))"
    )


def trend(
    question: Question, table: str, keys: str, ops: str = "read_count + write_count", condition: str = "true"
) -> str:
    """Return the SELECT of `keys` and `trend`: a rate for each of TREND_PARTS equal parts of the time, the latest last.

    The last part ends with the last row: reports are late, and what is not yet reported would look like a fall. Where
    nobody counted anything the rate is NULL: maybe nothing looked.
    """
    part_ns = max(1, (question.end_ns - history_start_ns(question)) // TREND_PARTS)
    rates = []
    for part in range(TREND_PARTS):
        begins, ends = (f"(last_ns - {(TREND_PARTS - part - more) * part_ns})" for more in (0, 1))
        counted = f"sum(({ops}) * greatest(0, {share(SqlSpan(begins, ends))}))"
        rates.append(f"CASE WHEN sum({counted}) OVER () > 0 THEN {counted} / {part_ns / 1e9} END")
    return (
        f"SELECT {keys}, [{', '.join(rates)}] AS trend FROM {table}, "
        f"(SELECT max(at_ns) AS last_ns FROM {table} WHERE at_ns <= {question.end_ns} AND {condition}) "
        f"WHERE at_ns > last_ns - {TREND_PARTS * part_ns} AND at_ns - duration_ns < last_ns AND duration_ns > 0 "
        f"AND {condition} GROUP BY ALL"
    )


def seen(question: Question, *sources: str) -> str:
    """Return the SELECT for the time in which one of `sources` was looking, as (start_ns, end_ns); empty for none.

    What was counted lies between the first good look and the last one: a rate over the whole run would be too small.
    A log holds all of its time.
    """
    if question.of_ops:
        return f"SELECT {question.start_ns} AS start_ns, {question.end_ns} AS end_ns"
    listed = ", ".join(map(literal, sources))
    return (
        f"SELECT greatest(min(at_ns + duration_ns), {question.start_ns}) AS start_ns, "
        f"least(max(at_ns + duration_ns), {question.end_ns}) AS end_ns "
        f"FROM collection WHERE failure_count < request_count AND source IN ({listed}) HAVING count(*) > 1"
    )


def seconds_of(span: pa.Table) -> float:
    """Return the length of what `seen` answered, in seconds; infinite for nothing, so that rates are 0."""
    if not span.num_rows:
        return math.inf
    (row,) = span.to_pylist()
    return max(0.0, (row["end_ns"] - row["start_ns"]) / 1e9) or math.inf


def seen_bins(span: pa.Table, question: Question, bin_ns: int, count: int) -> npt.NDArray[np.float64]:
    """Return of each of `count` bins the share of it that lies in what `seen` answered; NaN for less than half.

    What was counted in a bin at the edge is of that share of its time.
    """
    if not span.num_rows:
        return np.full(count, np.nan)
    (row,) = span.to_pylist()
    begins = question.start_ns + np.arange(count) * bin_ns
    inside = np.minimum(begins + bin_ns, row["end_ns"]) - np.maximum(begins, row["start_ns"])
    return np.where(inside >= bin_ns / 2, inside / bin_ns, np.nan)


def was_seen(span: pa.Table) -> bool:
    """Whether a source was looking in the time that is asked for, by what `seen` answered."""
    return seconds_of(span) < math.inf


def finding_of(
    view: View,
    question: Question,
    sentence: str,
    *tables: Table,
    facts: Sequence[tuple[str, str]] = (),
    unseen: Sequence[str] = (),
    heat_maps: Sequence[HeatMap] = (),
) -> ActivityFinding:
    """Return the finding of a view. Raises ValueError for a table that is none of the view's."""
    if strange := {table.key for table in tables}.difference(view.tables):
        raise ValueError(f"the view {view.name} does not name its table {strange}")
    return ActivityFinding(
        view.name,
        question.run_id,
        question.target,
        question.start_ns,
        question.end_ns,
        sentence,
        tuple(facts),
        tables,
        (*unseen, _OF_OPS) if question.of_ops else tuple(unseen),
        tuple(heat_maps),
    )
