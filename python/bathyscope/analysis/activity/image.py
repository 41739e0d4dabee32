"""One image in brief: what it is, how much of it is used, and over which nodes that is spread."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity import image_heat, image_objects, object_osds, timed
from bathyscope.analysis.activity.shape import NOT_KNOWN, Question, View, finding_of
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_percent

_COLUMNS = (
    Column("node", "node", help="CRUSH host bucket of the primary OSDs"),
    Column("objects", "objects", "count", "objects that something was done to there"),
    Column("object_share_ratio", "of objects", "ratio", "their share of the image's objects"),
    Column("reads", "reads", "count"),
    Column("read_share_ratio", "of reads", "ratio", "share of the image's reads"),
    Column("writes", "writes", "count"),
    Column("write_share_ratio", "of writes", "ratio", "share of the image's writes"),
)


class ImageBrief(View):
    """What an image is, and its spread over nodes."""

    name = "image"
    help = "an image in brief: size, objects, share touched, spread over nodes"
    of_image = True
    tables = ("touched_objects", "all_objects")

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each object, and where they are over time."""
        return {
            **image_objects.queries(question),
            **image_heat.queries(question),
            **timed.queries(question, image_objects.ids_of(str(question.image))),
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each node."""
        image = image_objects.read(tables, question)
        nodes: dict[str, list[Mapping[str, int]]] = {}
        for row in image.rows:
            nodes.setdefault(image.hosts.get(row["osd"], "") or NOT_KNOWN, []).append(row)
        whole = image.objects
        reads = sum(row["read_count"] for row in image.rows)
        writes = sum(row["write_count"] for row in image.rows)
        cells = []
        for node, rows in sorted(nodes.items()):
            objects = image_objects.objects_of(rows)
            node_reads, node_writes = (sum(row[name] for row in rows) for name in ("read_count", "write_count"))
            cells.append(
                (
                    node,
                    objects,
                    objects / whole if whole and objects is not None else None,
                    node_reads,
                    node_reads / reads if reads else None,
                    node_writes,
                    node_writes / writes if writes else None,
                )
            )
        # Where nothing looked at single objects, none touched would be a count.
        seen = image_objects.objects_of(image.rows) if image.rows else None
        facts = [*image.facts]
        if whole:
            share = "" if seen is None else f", touched {seen:,} ({format_percent(seen / whole)})"
            facts.append(("Objects", f"{whole:,}{share}"))
        of_image = list(timed.read(tables["timed"]).values())
        facts += [fact for one in of_image for fact in timed.facts(one)]
        on_objects = "" if seen is None else f" on {seen:,} objects"
        nodes_word = "node" if len(nodes) == 1 else "nodes"
        sentence = (
            f"{image.name}: {reads:,} reads and {writes:,} writes{on_objects} of {len(nodes)} {nodes_word}."
            if image.rows
            else f"No object of {image.name} was counted."
        )
        tables_shown = [Table("touched_objects", "objects with I/O", _COLUMNS, tuple(cells))]
        unseen = [*image.remarks, *timed.remarks(of_image, question)]
        if image.held is not None:
            tables_shown.append(image.held.by_node(image.hosts))
            unseen.append(object_osds.REMARK)
        return finding_of(
            self,
            question,
            sentence,
            *tables_shown,
            facts=facts,
            unseen=unseen,
            heat_maps=image_heat.build(tables, question, image),
        )


VIEW: View = ImageBrief()
