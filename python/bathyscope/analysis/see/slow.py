"""The slowest operations: where each spent its time, and which replica it waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bathyscope.analysis.see.shape import Question, View, finding_of
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable
from bathyscope.units import format_duration_ns, format_percent

_COLUMNS = (
    ActivityColumn("took", "ns", "from receipt to done in the primary OSD"),
    ActivityColumn("op", help="read or write"),
    ActivityColumn("OSD", help="primary OSD"),
    ActivityColumn("most of it", help="the stage that took longest; of a wait for replicas the one that came last"),
    ActivityColumn("queue", "ns", "received to taken up by a worker", rank=1),
    ActivityColumn("prepare", "ns", "taken up to started or sent to replicas", rank=3),
    ActivityColumn("store", "ns", "in the primary's own store", rank=1),
    ActivityColumn("replicas", "ns", "waited for replicas beyond that", rank=1),
    ActivityColumn("reply", "ns", "the rest", rank=3),
    ActivityColumn("length", "bytes", "length of the operation", rank=2),
    ActivityColumn("client", help="address of the client", rank=2),
    ActivityColumn("object", help="name of the object", rank=2),
    ActivityColumn("at", "time", "when it began", rank=3),
)
_ROWS = 100
# Slow is five times the median. Who is behind more than half of these, of ten at least, is named, if that is half as
# much again as its share of all operations.
_SLOW_RATIO = 5.0
_BLAME_RATIO = 0.5
_BLAME_LEAST = 10
_MORE_THAN_ITS_SHARE = 1.5
_STAGES = {
    "queue": "queue_ns",
    "prepare": "prepare_ns",
    "store": "store_ns",
    "replicas": "replica_wait_ns",
    "reply": "reply_ns",
}
_NOTHING = "No operations were recorded: imported OSD logs have them (`bathy import osd-log`)."


class Slow:
    """The slowest operations of the time that is asked for, also those of a history that was full."""

    name = "slow"
    help = "the slowest operations: their stages, and the OSD that they waited for"
    of_image = False

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the slowest operations, and how many there are."""
        inside = f"started_ns BETWEEN {question.start_ns} AND {question.end_ns} AND op IN ('read', 'write')"
        return {
            "slowest": f"SELECT * FROM op WHERE {inside} ORDER BY duration_ns DESC LIMIT {_ROWS}",
            "all": f"SELECT count(*) AS count, approx_quantile(duration_ns, 0.5) AS median_ns FROM op WHERE {inside}",
            "by_osd": f"SELECT 'osd.' || osd AS osd, count(*) AS count FROM op WHERE {inside} GROUP BY osd",
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each, the slowest first."""
        rows = tables["slowest"].to_pylist()
        (whole,) = tables["all"].to_pylist()
        served = {row["osd"]: row["count"] for row in tables["by_osd"].to_pylist()}
        cells = tuple(
            (
                row["duration_ns"],
                row["op"],
                f"osd.{row['osd']}",
                _most(row)[0],
                *(row[name] for name in _STAGES.values()),
                row["length_bytes"],
                row["client_address"],
                row["object_name"],
                row["started_ns"],
            )
            for row in rows
        )
        return finding_of(
            self,
            question,
            _sentence(rows, whole, served),
            ActivityTable("operations", _COLUMNS, cells),
            unseen=() if rows else (_NOTHING,),
        )


VIEW: View = Slow()


def _most(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the stage that took longest, in words, and who is to blame for it."""
    known = {stage: row[name] for stage, name in _STAGES.items() if row[name] is not None}
    own = f"osd.{row['osd']}"
    if not known:
        return "", own
    stage = max(known, key=lambda name: known[name])
    if stage == "replicas":
        peer = row["slowest_peer"]
        return ("replicas", "") if peer is None else (f"replica osd.{peer}", f"osd.{peer}")
    return stage, own


def _sentence(rows: Sequence[Mapping[str, Any]], whole: Mapping[str, Any], served: Mapping[str, int]) -> str:
    if not rows:
        return "No slow operation was recorded."
    stage, _ = _most(rows[0])
    words = f"The slowest of {whole['count']:,} operations took {format_duration_ns(rows[0]['duration_ns'])}"
    words += f", most of it {stage}" if stage else ""
    words += f"; half of all took less than {format_duration_ns(whole['median_ns'])}."
    slow = [row for row in rows if row["duration_ns"] >= _SLOW_RATIO * whole["median_ns"]]
    blamed = Counter(who for row in slow if (who := _most(row)[1]))
    if not blamed or len(slow) < _BLAME_LEAST:
        return words
    who, count = blamed.most_common(1)[0]
    share = count / len(slow)
    if share <= _BLAME_RATIO or share < _MORE_THAN_ITS_SHARE * served.get(who, 0) / whole["count"]:
        return words
    return f"{who} is behind {format_percent(share)} of the {len(slow)} slowest operations. {words}"
