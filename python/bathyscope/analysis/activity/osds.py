"""Every OSD: what it did for clients as their primary, and how fast."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity import ops, osd_sums, words
from bathyscope.analysis.activity.shape import Question, View, finding_of
from bathyscope.analysis.columns import where
from bathyscope.analysis.latency_buckets import percentile
from bathyscope.analysis.window import overlaps
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table

_COLUMNS = (
    Column("osd", "OSD", help="number of the OSD"),
    Column("host", "host", help="CRUSH host bucket", rank=1),
    Column("class", "class", help="CRUSH device class", rank=3),
    *words.COUNTS,
    *words.LATENCIES,
    words.TREND,
    Column(
        "p99_below_ns",
        "p99 below",
        "ns",
        "99 % of its operations took less: a bucket's bound, from 100 µs on at most twice the truth",
        rank=2,
    ),
    Column("busy_pgs", "busy PGs", "count", "placement groups with I/O whose primary it is", rank=3),
    *ops.DETAILS,
)


class Osds(View):
    """All OSDs of the map."""

    name = "osds"
    help = "every OSD: reads, writes, bytes, latency, as the primary of clients' operations"
    tables = ("osds",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each OSD."""
        return {
            **osd_sums.queries(question, tails=True),
            "buckets": "SELECT osd, latency_min_ns, latency_max_ns, CAST(sum(op_count) AS BIGINT) AS op_count "
            f"FROM osd_latency_bucket WHERE {overlaps(question)} GROUP BY osd, latency_min_ns, latency_max_ns",
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each OSD, in order of their numbers."""
        every, seconds, has_latency = osd_sums.read(tables)
        osds = [osd for osd in every if question.node in (None, osd.node)]
        total = sum(osd.ops for osd in osds)
        buckets = tables["buckets"]
        cells = tuple(
            (
                f"osd.{osd.osd}",
                osd.host,
                osd.device_class,
                *words.counts(vars(osd), total, seconds),
                *words.latencies(vars(osd)),
                osd.trend,
                _p99_below_ns(where(buckets, osd=osd.osd)),
                osd.pg_count,
                *osd.details,
            )
            for osd in osds
        )
        names = [f"osd.{osd.osd}" for osd in osds]
        sentence = words.standing_out("OSD", names, [osd.ops for osd in osds], seconds)
        return finding_of(
            self,
            question,
            sentence,
            Table("osds", "OSDs", _COLUMNS, cells),
            unseen=osd_sums.remarks(tables, question, has_counters=has_latency),
        )


VIEW: View = Osds()


def _p99_below_ns(buckets: pa.Table) -> int | None:
    """Return what 99 % of the operations in these buckets took less than; None where too few lie beyond it."""
    bucket = percentile(buckets, 0.99)
    return None if bucket is None else bucket.max_ns
