"""Every OSD and pool: what the OSD did for the pool's clients as their primary."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity import ops, words
from bathyscope.analysis.activity.shape import Question, View, finding_of, only, seen, sums, trend, was_seen
from bathyscope.analysis.columns import where
from bathyscope.analysis.window import overlaps
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table

_COLUMNS = (
    Column("osd", "OSD", help="number of the OSD"),
    Column("pool", "pool", help="pool of the objects"),
    *words.COUNTS,
    *words.LATENCIES,
    words.TREND,
    *ops.DETAILS,
)
_LATE = (
    "Counts come from placement groups' statistics, up to 5 s late and without latencies: the manager module "
    "bathyscope counts OSDs and pools completely (`bathy mgr install`)."
)
_SOURCES = {"counters": "mgr_counters", "groups": "pg_stats"}
_UNSEEN = "OSDs and pools are not counted: neither the manager's module nor placement groups' statistics were read."


class OsdPools(View):
    """All pairs of an OSD and a pool with I/O."""

    name = "osd_pools"
    help = "every OSD and pool: reads, writes, bytes, latency, as the primary of the pool's operations"
    tables = ("osd_pools",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each pair, from the manager's module and from the placement groups."""
        keys = "'osd.' || osd AS osd, pool"
        narrowed = only({"'osd.' || osd": question.osd, "pool": question.pool})
        of_ops = only({"'osd.' || number": question.osd, "pool": question.pool})
        counted = ("read_count", "write_count", "read_bytes", "write_bytes")
        return {
            "counters_seen": seen(question, "mgr_counters"),
            "counters": ops.sums(
                question,
                "osd AS number, pool_id",
                {"osd": "'osd.' || number", "pool": ops.POOL},
                condition=f"true{of_ops}",
            )
            if question.of_ops
            else f"SELECT {keys}, {sums(question, *words.COUNTED)} "
            f"FROM osd_io WHERE {overlaps(question)}{narrowed} GROUP BY ALL",
            "uncounted": words.uncounted(question, "mgr_counters", "pg_stats"),
            "counters_trend": trend(question, "osd_io", keys, condition=f"true{narrowed}"),
            "groups_seen": seen(question, "pg_stats"),
            "groups": f"SELECT {keys}, {sums(question, *counted)}, NULL AS read_latency_ns_sum, "
            f"NULL AS write_latency_ns_sum FROM pg_io WHERE {overlaps(question)}{narrowed} GROUP BY ALL",
            "groups_trend": trend(question, "pg_io", keys, condition=f"true{narrowed}"),
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each pair, the busiest first."""
        source = "counters" if was_seen(tables["counters_seen"]) else "groups"
        rows = tables[source].to_pylist()
        rows.sort(key=lambda row: (-(row["read_count"] + row["write_count"]), row["osd"], row["pool"]))
        trends = {(row["osd"], row["pool"]): row["trend"] for row in tables[f"{source}_trend"].to_pylist()}
        counts = [row["read_count"] + row["write_count"] for row in rows]
        spans = where(tables["uncounted"], source=(_SOURCES[source], words.OSD_LOST))
        remarks, seconds = words.counted({"seen": tables[f"{source}_seen"], "uncounted": spans}, question)
        cells = tuple(
            (
                row["osd"],
                row["pool"],
                *words.counts(row, sum(counts), seconds),
                *words.latencies(row),
                trends.get((row["osd"], row["pool"])),
                *ops.detail_cells(row),
            )
            for row in rows
        )
        names = [f"{row['pool']} on {row['osd']}" for row in rows]
        sentence = words.standing_out("pool of an OSD", names, counts, seconds)
        late = () if source == "counters" else (_LATE,) if was_seen(tables["groups_seen"]) else (_UNSEEN,)
        unseen = (*late, *remarks)
        return finding_of(
            self, question, sentence, Table("osd_pools", "OSDs and pools", _COLUMNS, cells), unseen=unseen
        )


VIEW: View = OsdPools()
