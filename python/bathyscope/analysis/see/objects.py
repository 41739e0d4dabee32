"""Every object of one image that something was done to: where it lies in the image, how often, when, on which OSD."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.see import touched
from bathyscope.analysis.see.shape import Question, View, finding_of
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable
from bathyscope.units import format_bytes, format_percent

_COLUMNS = (
    ActivityColumn("offset", "bytes", "where the object, or the zone of objects, begins in the image"),
    ActivityColumn("length", "bytes", "how much of the image it is", rank=3),
    ActivityColumn("object", "count", "number of the object", rank=1),
    ActivityColumn("OSD", help="primary OSD"),
    ActivityColumn("node", help="its CRUSH host bucket", rank=2),
    ActivityColumn("reads", "count"),
    ActivityColumn("writes", "count"),
    ActivityColumn("read", "bytes", "bytes read", rank=2),
    ActivityColumn("written", "bytes", "bytes written", rank=2),
    ActivityColumn("first access", "time", rank=3),
    ActivityColumn("last access", "time", rank=1),
)


class Objects:
    """The objects of an image, the busiest first."""

    name = "objects"
    help = "every object of an image: offset, reads, writes, first and last access, OSD and node"
    of_image = True

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each object."""
        return touched.queries(question)

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each object and OSD."""
        image = touched.read(tables, question)
        rows = sorted(image.rows, key=lambda row: (-(row["read_count"] + row["write_count"]), row["first_object"]))
        cells = tuple(
            (
                image.offset_of(row["first_object"]),
                row["object_count"] * image.object_bytes,
                row["first_object"],
                f"osd.{row['osd']}",
                image.hosts.get(row["osd"], ""),
                row["read_count"],
                row["write_count"],
                row["read_bytes"],
                row["write_bytes"],
                row["first_ns"],
                row["last_ns"],
            )
            for row in rows
        )
        sentence = f"Nothing was seen of single objects of {image.name}."
        if rows:
            first = rows[0]
            share = format_percent((first["read_count"] + first["write_count"]) / max(1, image.ops))
            sentence = (
                f"The busiest of {len(rows)} objects of {image.name} lies at {format_bytes(cells[0][0])} "
                f"and has {share} of its {image.ops:,} operations."
            )
        return finding_of(
            self, question, sentence, ActivityTable("objects", _COLUMNS, cells), facts=image.facts, unseen=image.remarks
        )


VIEW: View = Objects()
