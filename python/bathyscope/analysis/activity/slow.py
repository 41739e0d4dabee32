"""The slowest operations: where each spent its time, and which replica it waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bathyscope.analysis.activity import op_rows, ops
from bathyscope.analysis.activity.shape import Question, View, finding_of, greatest
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_duration_ns, format_percent

_COLUMNS = (
    *op_rows.COLUMNS,
    Column("length_bytes", "length", "bytes", "length of the operation", rank=2),
    Column("client", "client", help="address of the client", rank=2),
    Column("object_name", "object", help="name of the object", rank=2),
    Column("at_ns", "at", "time", "when it began", rank=3),
)
_ROWS = 100
# Slow is five times the median. Who is behind more than half of these, of ten at least, is named, if that is half as
# much again as its share of all operations.
_SLOW_RATIO = 5.0
_BLAME_RATIO = 0.5
_BLAME_LEAST = 10
_MORE_THAN_ITS_SHARE = 1.5


class Slow(View):
    """The slowest operations of the time that is asked for, also those of a history that was full."""

    name = "slow"
    help = "the slowest operations: their stages, and the OSD that they waited for"
    tables = ("operations",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the slowest operations, and how many there are.

        Who is behind them is judged from samples that hold every operation: of an OSD that did more than its history
        holds, only slow ones are there.
        """
        inside = f"started_ns BETWEEN {question.start_ns} AND {question.end_ns} AND op IN ('read', 'write')"
        complete = f"{inside} AND {ops.COMPLETE}"
        return {
            "slowest": greatest(f"op WHERE {inside}", "duration_ns", _ROWS),
            "judged": greatest(f"op WHERE {complete}", "duration_ns", _ROWS),
            "all": f"SELECT count(*) AS count, count(*) FILTER (WHERE {ops.COMPLETE}) AS complete_count, "
            "count(*) FILTER (WHERE NOT complete_sample) AS tail_count, "
            f"approx_quantile(duration_ns, 0.5) FILTER (WHERE {ops.COMPLETE}) AS median_ns FROM op WHERE {inside}",
            "by_osd": f"SELECT 'osd.' || osd AS osd, count(*) AS count FROM op WHERE {complete} GROUP BY osd",
            "bursts": op_rows.ARE_BURSTS,
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each, the slowest first."""
        rows = tables["slowest"].to_pylist()
        ((whole,), (bursts,)) = (tables[name].to_pylist() for name in ("all", "bursts"))
        served = {row["osd"]: row["count"] for row in tables["by_osd"].to_pylist()}
        cells = tuple(
            (
                *op_rows.cells(row),
                row["length_bytes"],
                row["client_address"],
                row["object_name"],
                row["started_ns"],
            )
            for row in rows
        )
        unseen = op_rows.unseen(rows, is_of_bursts=bursts["count"] > 0, tail_count=whole["tail_count"])
        return finding_of(
            self,
            question,
            _blame(tables["judged"].to_pylist(), whole, served) + _sentence(rows, whole),
            Table("operations", "operations", _COLUMNS, cells),
            unseen=unseen,
        )


VIEW: View = Slow()


def _sentence(rows: Sequence[Mapping[str, Any]], whole: Mapping[str, Any]) -> str:
    if not rows:
        return "No slow operation was recorded."
    stage, _ = op_rows.longest(rows[0])
    words = f"The slowest of {whole['count']:,} operations took {format_duration_ns(rows[0]['duration_ns'])}"
    words += f", most of it {stage}" if stage else ""
    complete = whole["complete_count"]
    if not complete:
        return f"{words}."
    of_all = "all" if complete == whole["count"] else f"the {complete:,} that are a complete sample"
    return f"{words}; half of {of_all} took less than {format_duration_ns(whole['median_ns'])}."


def _blame(rows: Sequence[Mapping[str, Any]], whole: Mapping[str, Any], served: Mapping[str, int]) -> str:
    """Return the sentence about the OSD that is behind most of the slowest operations, or nothing."""
    slow = [row for row in rows if row["duration_ns"] >= _SLOW_RATIO * whole["median_ns"]]
    blamed = Counter(who for row in slow if (who := op_rows.longest(row)[1]))
    if not blamed or len(slow) < _BLAME_LEAST:
        return ""
    who, count = blamed.most_common(1)[0]
    share = count / len(slow)
    if share <= _BLAME_RATIO or share < _MORE_THAN_ITS_SHARE * served.get(who, 0) / whole["complete_count"]:
        return ""
    return f"{who} is behind {format_percent(share)} of the {len(slow)} slowest operations. "
