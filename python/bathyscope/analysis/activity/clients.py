"""Every client that did I/O on images: how much, and on which images."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity import ops, words
from bathyscope.analysis.activity.shape import Question, View, finding_of, seen, sums, trend, was_seen
from bathyscope.analysis.window import overlaps
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table

_COLUMNS = (
    Column("client", "client", help="address of the client, or its instance where the address is not known"),
    *words.COUNTS,
    *words.LATENCIES,
    words.TREND,
    Column("images", "images", "count", "images that it did I/O on", rank=1),
    Column(
        "instances", "instances", "count", "connections with a number of their own: one for each open client", rank=3
    ),
    *ops.DETAILS,
)
_UNSEEN = "Clients are not counted: install the manager module bathyscope with `bathy mgr install`."


class Clients(View):
    """All clients of the time that is asked for."""

    name = "clients"
    help = "every client address: reads, writes, bytes, latency, images"
    tables = ("clients",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each client."""
        client = "coalesce(client_address, client) AS client"
        return {
            "seen": seen(question, "mgr_counters"),
            "uncounted": words.uncounted(question, *words.IMAGE_SOURCES),
            "trend": trend(question, "image_io", client, condition="client IS NOT NULL"),
            "io": ops.sums(
                question,
                "client AS instance, client_address",
                {"client": "coalesce(client_address, instance)"},
                "count(DISTINCT instance) AS instances",
            )
            if question.of_ops
            else f"SELECT {client}, {sums(question, *words.COUNTED)}, "
            "count(DISTINCT (pool, namespace, image, image_id)) AS images, count(DISTINCT client) AS instances "
            f"FROM image_io WHERE client IS NOT NULL AND {overlaps(question)} GROUP BY ALL",
            **({"images": _images_of_ops(question, client)} if question.of_ops else {}),
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each client, the busiest first."""
        rows = tables["io"].to_pylist()
        rows.sort(key=lambda row: (-(row["read_count"] + row["write_count"]), row["client"]))
        counts = [row["read_count"] + row["write_count"] for row in rows]
        names = [row["client"] for row in rows]
        trends = {row["client"]: row["trend"] for row in tables["trend"].to_pylist()}
        remarks, seconds = words.counted(tables, question)
        total = sum(counts)
        used = {row["client"]: row["images"] for row in tables["images"].to_pylist()} if question.of_ops else {}
        cells = tuple(
            (
                row["client"],
                *words.counts(row, total, seconds),
                *words.latencies(row),
                trends.get(row["client"]),
                used.get(row["client"], 0) if question.of_ops else row["images"],
                row["instances"],
                *ops.detail_cells(row),
            )
            for row in rows
        )
        sentence = words.standing_out("client", names, counts, seconds)
        unseen = remarks if rows or was_seen(tables["seen"]) else (_UNSEEN, *remarks)
        return finding_of(self, question, sentence, Table("clients", "clients", _COLUMNS, cells), unseen=unseen)


def _images_of_ops(question: Question, client: str) -> str:
    """Return the SELECT of how many images the operations of each client were on."""
    touched = f"SELECT DISTINCT {client}, pool_id, image_pool_id, image_id FROM op"
    chosen = f"{touched} WHERE image_id <> '' AND {ops.of_time(question)}"
    return f"SELECT client, count(*) AS images FROM ({chosen}) GROUP BY client"


VIEW: View = Clients()
