"""One image cut into zones of equal length: which of them are read and written, and how much of each."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity import image_objects
from bathyscope.analysis.activity.shape import Question, View, finding_of
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_bytes, format_percent

_COLUMNS = (
    Column("offset_bytes", "offset", "bytes", "where the zone begins in the image"),
    Column("end_bytes", "end", "bytes", "where it ends", rank=1),
    Column("objects", "objects", "count", "objects of the zone that something was done to"),
    Column("touched_ratio", "touched", "ratio", "their share of the zone's objects", rank=1),
    Column("reads", "reads", "count"),
    Column("read_share_ratio", "of reads", "ratio", "share of the image's reads", rank=1),
    Column("writes", "writes", "count"),
    Column("write_share_ratio", "of writes", "ratio", "share of the image's writes", rank=1),
    Column("read_bytes", "read", "bytes", "bytes read", rank=2),
    Column("written_bytes", "written", "bytes", "bytes written", rank=2),
)


class Zones(View):
    """The zones of an image in order."""

    name = "zones"
    help = "an image in zones of equal length (--zones): reads, writes, objects touched"
    of_image = True
    tables = ("zones",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each object."""
        return image_objects.queries(question)

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each zone."""
        image = image_objects.read(tables, question, where=False)
        last = max((row["first_object"] + row["object_count"] for row in image.rows), default=0)
        objects = image.objects or last
        # Zones are whole objects, and no smaller than what was counted together, or than the objects that stripes go
        # round: together these are one piece of the image. An image of few objects has as many zones.
        coarsest = math.lcm(max((row["object_count"] for row in image.rows), default=1), image.stripe_count)
        width = max(1, -(-objects // question.zones)) if objects else 1
        width = -(-width // coarsest) * coarsest
        reads = sum(row["read_count"] for row in image.rows)
        writes = sum(row["write_count"] for row in image.rows)
        cells = []
        # Where nothing looked at single objects, a row of zeros would be a count.
        for first in range(0, objects if image.rows else 0, width):
            inside = [row for row in image.rows if first <= row["first_object"] < first + width]
            wide = min(width, objects - first)
            touched_count = image_objects.objects_of(inside)
            zone_reads = sum(row["read_count"] for row in inside)
            zone_writes = sum(row["write_count"] for row in inside)
            cells.append(
                (
                    first * image.object_bytes,
                    min((first + width) * image.object_bytes, image.size_bytes or math.inf),
                    touched_count,
                    None if touched_count is None else touched_count / wide,
                    zone_reads,
                    zone_reads / reads if reads else None,
                    zone_writes,
                    zone_writes / writes if writes else None,
                    sum(row["read_bytes"] for row in inside),
                    sum(row["write_bytes"] for row in inside),
                )
            )
        sentence = f"No zone of {image.name} was counted."
        if image.rows:
            busiest = max(cells, key=lambda row: row[4] + row[6])
            share = format_percent((busiest[4] + busiest[6]) / max(1, reads + writes))
            sentence = (
                f"{share} of the operations of {image.name} lie from {format_bytes(busiest[0])} to "
                f"{format_bytes(busiest[1])}, the busiest of {len(cells)} zones."
            )
        return finding_of(
            self,
            question,
            sentence,
            Table("zones", "zones", _COLUMNS, tuple(cells)),
            facts=image.facts,
            unseen=image.remarks,
        )


VIEW: View = Zones()
