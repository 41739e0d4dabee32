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

from bathyscope.records.activity_finding import ActivityFinding, ActivityTable, HeatMap

_OF_OPS = (
    "Counts are those of the operations in the imported logs: of the OSDs whose logs they are, while they were logged. "
    "Latencies from logs at debug_ms 1 are as coarse as the times in them, 1 to 4 ms."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a view: of which run, of which time (ns since the Unix epoch), of which image.

    `of_ops`: the run has single operations and no counters, so the operations are counted.
    """

    run_id: str
    target: str
    start_ns: int
    end_ns: int
    image: str | None = None
    zones: int = 10
    of_ops: bool = False


class View(Protocol):
    """One view. `of_image`: it is of one image, which the question names."""

    name: str
    help: str
    of_image: bool

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return name → SELECT over the records of the run, whose answers `build` gets by these names."""
        ...

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return the finding. Raises AnalysisError when the run has nothing for this view."""
        ...


def within(question: Question) -> str:
    """Return the SQL condition for intervals that reach into the time that is asked for; `part` weighs them."""
    return f"at_ns > {question.start_ns} AND at_ns - duration_ns < {question.end_ns} AND duration_ns > 0"


def part(question: Question) -> str:
    """Return the SQL for the share of an interval that lies in the time that is asked for."""
    overlap = f"least(at_ns, {question.end_ns}) - greatest(at_ns - duration_ns, {question.start_ns})"
    return f"(({overlap}) / duration_ns)"


def literal(text: str) -> str:
    """Return a text as an SQL literal: names of images come from outside."""
    return "'" + text.replace("'", "''") + "'"


def sums(question: Question, *columns: str) -> str:
    """Return the SQL that adds up each of `columns` under its own name, of an interval at the edge its part.

    What is counted in whole intervals stays exact.
    """
    weight = part(question)
    return ", ".join(f"CAST(round(sum({name} * {weight})) AS BIGINT) AS {name}" for name in columns)


def spread(question: Question, table: str, bin_ns: int, condition: str = "true") -> str:
    """Return the SQL of the rows of a table for each bin of `bin_ns` that they reach into: `place`, and their `weight`.

    An interval may be longer than a bin, or shorter; what it counted is spread evenly over its length.
    """
    start, end = question.start_ns, question.end_ns
    first = f"(greatest(at_ns - duration_ns, {start}) - {start}) // {bin_ns}"
    last = f"(least(at_ns, {end}) - 1 - {start}) // {bin_ns}"
    begins, ends = f"{start} + place * {bin_ns}", f"{start} + (place + 1) * {bin_ns}"
    return (
        f"(SELECT *, (least(at_ns, {ends}) - greatest(at_ns - duration_ns, {begins})) / duration_ns AS weight FROM "
        f"(SELECT *, unnest(range(CAST({first} AS BIGINT), CAST({last} AS BIGINT) + 1)) AS place FROM {table} "
        f"WHERE {within(question)} AND {condition}))"
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


def seen_bins(span: pa.Table, question: Question, bin_ns: int, count: int) -> npt.NDArray[np.bool_]:
    """Return of each of `count` bins whether at least half of it lies in what `seen` answered."""
    if not span.num_rows:
        return np.zeros(count, dtype=bool)
    (row,) = span.to_pylist()
    begins = question.start_ns + np.arange(count) * bin_ns
    # The last bin may be cut off by the end of the time that is asked for.
    ends = np.minimum(begins + bin_ns, question.end_ns)
    return np.asarray((begins >= row["start_ns"] - bin_ns // 2) & (ends <= row["end_ns"] + bin_ns // 2))


def was_seen(span: pa.Table) -> bool:
    """Whether a source was looking in the time that is asked for, by what `seen` answered."""
    return seconds_of(span) < math.inf


def finding_of(
    view: View,
    question: Question,
    sentence: str,
    *tables: ActivityTable,
    facts: Sequence[tuple[str, str]] = (),
    unseen: Sequence[str] = (),
    heat_maps: Sequence[HeatMap] = (),
) -> ActivityFinding:
    """Return the finding of a view."""
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
