"""Every pool that did I/O, from the statistics of its placement groups: also what is no image."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity import ops, words
from bathyscope.analysis.activity.shape import Question, View, finding_of, seconds_of, seen, sums, trend
from bathyscope.analysis.window import overlaps
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table

_COLUMNS = (
    Column("pool", "pool"),
    *words.COUNTS,
    *words.LATENCIES,
    words.TREND,
    Column("busy_pgs", "busy PGs", "count", "placement groups with I/O", rank=3),
    Column("primaries", "primaries", "count", "OSDs that were their primaries", rank=3),
    *ops.DETAILS,
)
_STAIRCASE = (
    "Counts come from placement groups' statistics, which the OSDs send every 5 s: they are that much late. They count "
    "each operation of a message: one on an image's header has several, and so has a clone's first write to an object."
)


class Pools(View):
    """All pools of the time that is asked for."""

    name = "pools"
    help = "every pool: reads, writes, bytes, from placement groups' statistics"
    tables = ("pools",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each pool."""
        return {
            "seen": seen(question, "pg_stats"),
            "uncounted": words.uncounted(question, "pg_stats"),
            "trend": trend(question, "pg_io", "pool"),
            # A placement group's statistics have no latencies.
            "io": ops.sums(question, "pool_id", {"pool": ops.POOL})
            if question.of_ops
            else "SELECT pool, NULL AS read_latency_ns_sum, NULL AS write_latency_ns_sum, "
            "count(DISTINCT pg) AS pgs, count(DISTINCT osd) AS osds, "
            f"{sums(question, 'read_count', 'write_count', 'read_bytes', 'write_bytes')} "
            f"FROM pg_io WHERE {overlaps(question)} GROUP BY pool",
            "spread": f"SELECT {ops.POOL} AS pool, count(DISTINCT pg) AS pgs, count(DISTINCT osd) AS osds "
            f"FROM op WHERE {ops.moved(question) if question.of_ops else 'false'} GROUP BY pool_id",
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each pool, the busiest first."""
        rows = tables["io"].to_pylist()
        rows.sort(key=lambda row: (-(row["read_count"] + row["write_count"]), row["pool"]))
        counts = [row["read_count"] + row["write_count"] for row in rows]
        total, seconds = sum(counts), seconds_of(tables["seen"])
        wide = {row["pool"]: row for row in tables["spread"].to_pylist()}
        trends = {row["pool"]: row["trend"] for row in tables["trend"].to_pylist()}
        cells = tuple(
            (
                row["pool"],
                *words.counts(row, total, seconds),
                *words.latencies(row),
                trends.get(row["pool"]),
                *(wide.get(row["pool"], row).get(name) for name in ("pgs", "osds")),
                *ops.detail_cells(row),
            )
            for row in rows
        )
        sentence = words.standing_out("pool", [row["pool"] for row in rows], counts, seconds)
        remarks, _ = words.not_counted(tables["uncounted"], question)
        unseen = () if question.of_ops else (_STAIRCASE, *remarks)
        return finding_of(self, question, sentence, Table("pools", "pools", _COLUMNS, cells), unseen=unseen)


VIEW: View = Pools()
