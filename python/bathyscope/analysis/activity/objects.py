"""Every object of one image that something was done to: where it lies in the image, how often, when, on which OSD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bathyscope.analysis.activity import image_objects
from bathyscope.analysis.activity.image_objects import ImageObjects
from bathyscope.analysis.activity.shape import Question, View, finding_of
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_bytes, format_percent

_COLUMNS = (
    Column("offset_bytes", "offset", "bytes", "where the object, or the zone of objects, begins in the image"),
    Column("length_bytes", "length", "bytes", "how much of the image it is", rank=3),
    Column("object_number", "object", "count", "number of the object", rank=1),
    Column("osd", "OSD", help="primary OSD"),
    Column("node", "node", help="its CRUSH host bucket", rank=2),
    Column("held_by", "held by", help="OSDs that hold it by the map of placement groups, the primary first", rank=1),
    Column("reads", "reads", "count"),
    Column("writes", "writes", "count"),
    Column("read_bytes", "read", "bytes", "bytes read", rank=2),
    Column("written_bytes", "written", "bytes", "bytes written", rank=2),
    Column("first_access_ns", "first access", "time", rank=3),
    Column("last_access_ns", "last access", "time", rank=1),
)


_MOVED = (
    "Some objects were served by an OSD that does not hold them by the map of placement groups: they moved meanwhile."
)
_NO_MAP = "Where the other objects lie is not known: the run has no map of the placement groups of their pool."


class Objects(View):
    """The objects of an image, the busiest first."""

    name = "objects"
    help = "every object of an image: offset, reads, writes, first and last access, OSD and node"
    of_image = True
    tables = ("objects",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each object."""
        return image_objects.queries(question)

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each object and OSD."""
        image = image_objects.read(tables, question)
        rows = sorted(image.rows, key=lambda row: (-(row["read_count"] + row["write_count"]), row["first_object"]))
        cells: list[tuple[Any, ...]] = [
            (
                image.offset_of(row["first_object"]),
                row["object_count"] * image.object_bytes,
                row["first_object"],
                f"osd.{row['osd']}",
                image.hosts.get(row["osd"], ""),
                _names(_holders(image, row)),
                row["read_count"],
                row["write_count"],
                row["read_bytes"],
                row["write_bytes"],
                row["first_ns"],
                row["last_ns"],
            )
            for row in rows
        ]
        sentence = f"No object of {image.name} was counted."
        if rows:
            first = rows[0]
            share = format_percent((first["read_count"] + first["write_count"]) / max(1, image.ops))
            sentence = (
                f"The busiest of {len(rows)} objects of {image.name} lies at {format_bytes(cells[0][0])} "
                f"and has {share} of its {image.ops:,} operations."
            )
        unseen = [*image.remarks]
        if any(osds and row["osd"] not in osds for row in rows for osds in [_holders(image, row)]):
            unseen.append(_MOVED)
        if question.every_object:
            cells += _others(image)
            unseen += [_NO_MAP] if image.held is None else []
        table = Table("objects", "objects", _COLUMNS, tuple(cells))
        return finding_of(self, question, sentence, table, facts=image.facts, unseen=unseen)


VIEW: View = Objects()


def _holders(image: ImageObjects, row: Mapping[str, int]) -> tuple[int, ...]:
    """Return the OSDs that hold the object of a row; none for a zone of several, and where no map is known."""
    return image.held.osds(row["first_object"]) if image.held is not None and row["object_count"] == 1 else ()


def _names(osds: Sequence[int]) -> str | None:
    return " ".join(f"osd.{osd}" for osd in osds) or None


def _others(image: ImageObjects) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each object that nothing was seen of. What was not counted is not zero."""
    if image.held is None:
        return
    seen = np.zeros(len(image.held.groups), dtype=bool)
    for row in image.rows:
        seen[row["first_object"] : row["first_object"] + row["object_count"]] = True
    counts = (0 if image.rows and image.rows[0]["counted"] else None,) * 4
    size = image.object_bytes
    for number in np.flatnonzero(~seen).tolist():
        osds = image.held.osds(number)
        primary, node = (f"osd.{osds[0]}", image.hosts.get(osds[0], "")) if osds else (None, None)
        yield (image.offset_of(number), size, number, primary, node, _names(osds), *counts, None, None)
