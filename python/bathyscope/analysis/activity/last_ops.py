"""The last operations of one image, or of one object: what each did, where its time went."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity import image_objects, op_rows
from bathyscope.analysis.activity.shape import Question, View, finding_of, greatest, literal, only
from bathyscope.errors import AnalysisError
from bathyscope.rbd_names import NUMBER_SQL
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_duration_ns

_COLUMNS = (
    Column("at_ns", "at", "time", "when it began"),
    Column("client", "client", help="address of the client", rank=1),
    Column("object_number", "object", "count", "number of the object in the image", rank=1),
    Column("object_name", "object name", help="its name", rank=4),
    Column("offset_bytes", "offset", "bytes", "offset inside the object", rank=1),
    Column("length_bytes", "length", "bytes", "length of the operation"),
    *op_rows.COLUMNS,
)
_ROWS = 200


class LastOps(View):
    """The last operations that were recorded, also those of a history that was full."""

    name = "ops"
    help = "the last operations of an image, or of an object by its name: client, offset, length, stages"
    of_image = True
    tables = ("operations",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the last operations. Raises AnalysisError without the name of an image or object."""
        if question.image is None:
            raise AnalysisError("the view is of one image", hint="name it: bathy analyze RUN --view ops POOL/IMAGE")
        ops = _chosen(question, question.image)
        return {
            "last": greatest(ops, "started_ns", _ROWS),
            "all": f"SELECT count(*) AS count, count(*) FILTER (WHERE NOT complete_sample) AS tail_count FROM {ops}",
            "bursts": op_rows.ARE_BURSTS,
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each, the last first."""
        rows = tables["last"].to_pylist()
        ((whole,), (bursts,)) = (tables[name].to_pylist() for name in ("all", "bursts"))
        cells = tuple(
            (
                row["started_ns"], row["client_address"], row["number"], row["object_name"], row["offset_bytes"],
                row["length_bytes"], *op_rows.cells(row),
            )
            for row in rows
        )  # fmt: skip
        unseen = op_rows.unseen(rows, is_of_bursts=bursts["count"] > 0, tail_count=whole["tail_count"])
        what = f"object {question.object_number} of " if question.object_number is not None else ""
        sentence = f"No operation of {what}{question.image} was recorded."
        if rows:
            slowest = max(rows, key=lambda row: row["duration_ns"])
            stage, _ = op_rows.longest(slowest)
            most = f", most of it {stage}" if stage else ""
            sentence = (
                f"The last {len(rows):,} of {whole['count']:,} recorded operations of {what}{question.image}; "
                f"the slowest of them took {format_duration_ns(slowest['duration_ns'])}{most}."
            )
        return finding_of(self, question, sentence, Table("operations", "operations", _COLUMNS, cells), unseen=unseen)


VIEW: View = LastOps()


def _chosen(question: Question, image: str) -> str:
    """Return what stands after FROM for the operations of an image, or of the part of it that is asked for."""
    ids = image_objects.ids_of(image)
    narrowed = only({"coalesce(client_address, client)": question.client, "'osd.' || osd": question.osd})
    # Objects that stripes go round share the bytes of all of them.
    stripes = f"coalesce((SELECT max(stripe_count) FROM image WHERE image_id IN {ids}), 1)"
    size = (
        f"{stripes} * coalesce((SELECT max(object_size_bytes) FROM image WHERE image_id IN {ids}), "
        f"{image_objects.DEFAULT_OBJECT_BYTES})"
    )
    if question.object_number is not None:
        narrowed += f" AND number = {question.object_number}"
    if question.from_bytes is not None:
        narrowed += f" AND (number // {stripes} + 1) * {size} > {question.from_bytes}"
    if question.to_bytes is not None:
        narrowed += f" AND number // {stripes} * {size} < {question.to_bytes}"
    number = f"CASE WHEN image_id <> '' THEN {NUMBER_SQL} END"
    return (
        f"(SELECT *, {number} AS number FROM op WHERE (object_name = {literal(image)} OR image_id IN {ids}) "
        f"AND started_ns BETWEEN {question.start_ns} AND {question.end_ns}) WHERE true{narrowed}"
    )
