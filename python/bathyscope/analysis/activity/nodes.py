"""Every node: what its OSDs did for clients, and what of all that was."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity import osd_sums, words
from bathyscope.analysis.activity.osd_sums import OsdSum
from bathyscope.analysis.activity.shape import Question, View, finding_of
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table

_COLUMNS = (
    Column("node", "node", help="CRUSH host bucket"),
    Column("osds", "OSDs", "count", "OSDs of the node", rank=1),
    *words.COUNTS,
    *words.LATENCIES,
    words.TREND,
)


class Nodes(View):
    """All nodes of the map."""

    name = "nodes"
    help = "every node: reads, writes, bytes, latency of its OSDs"
    tables = ("nodes",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each OSD."""
        return osd_sums.queries(question)

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each node, in order of their names."""
        osds, seconds, has_latency = osd_sums.read(tables)
        by_node: dict[str, list[OsdSum]] = {}
        for osd in osds:
            by_node.setdefault(osd.node, []).append(osd)
        nodes = [(name, len(osds), _joined(osds)) for name, osds in sorted(by_node.items())]
        total = sum(osd.ops for osd in osds)
        cells = tuple(
            (
                name,
                count,
                *words.counts(vars(node), total, seconds),
                *words.latencies(vars(node)),
                node.trend,
            )
            for name, count, node in nodes
        )
        ops = [node.ops for _, _, node in nodes]
        sentence = words.standing_out("node", [name for name, _, _ in nodes], ops, seconds)
        return finding_of(
            self,
            question,
            sentence,
            Table("nodes", "nodes", _COLUMNS, cells),
            unseen=osd_sums.remarks(tables, question, has_counters=has_latency),
        )


VIEW: View = Nodes()


def _joined(osds: list[OsdSum]) -> OsdSum:
    """Return the sum of several OSDs."""
    joined = OsdSum(osd=-1)
    for name in words.COUNTED:
        values = [getattr(osd, name) for osd in osds]
        setattr(joined, name, None if None in values else sum(values))
    parts = zip(*(osd.trend for osd in osds if osd.trend is not None), strict=True)
    joined.trend = [None if None in rates else sum(filter(None, rates)) for rates in parts] or None
    return joined
