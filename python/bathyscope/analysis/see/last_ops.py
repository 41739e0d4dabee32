"""The last operations of one image, or of one object: what each did, where its time went."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.see import op_rows, timed, touched
from bathyscope.analysis.see.shape import Question, View, finding_of, literal
from bathyscope.errors import AnalysisError
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable
from bathyscope.units import format_duration_ns

_COLUMNS = (
    ActivityColumn("at", "time", "when it began"),
    ActivityColumn("client", help="address of the client", rank=1),
    ActivityColumn("object", help="name of the object", rank=3),
    ActivityColumn("number", "count", "number of the object in the image", rank=1),
    ActivityColumn("offset", "bytes", "offset inside the object", rank=1),
    ActivityColumn("length", "bytes", "length of the operation"),
    *op_rows.COLUMNS,
)
_ROWS = 200


class LastOps:
    """The last operations that were recorded, also those of a history that was full."""

    name = "ops"
    help = "the last operations of an image, or of an object by its name: client, offset, length, stages"
    of_image = True

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the last operations. Raises AnalysisError without the name of an image or object."""
        if question.image is None:
            raise AnalysisError("the view is of one image", hint="name it: bathy analyze RUN --view ops POOL/IMAGE")
        chosen = (
            f"(object_name = {literal(question.image)} OR {timed.IMAGE_ID} IN {touched.ids_of(question.image)}) "
            f"AND started_ns BETWEEN {question.start_ns} AND {question.end_ns}"
        )
        number = "TRY_CAST('0x' || split_part(object_name, '.', -1) AS BIGINT)"
        return {
            "last": f"SELECT *, CASE WHEN {timed.IMAGE_ID} IS NOT NULL THEN {number} END AS number "
            f"FROM op WHERE {chosen} ORDER BY started_ns DESC LIMIT {_ROWS}",
            "all": "SELECT count(*) AS count, count(*) FILTER (WHERE NOT complete_sample) AS tail_count "
            f"FROM op WHERE {chosen}",
            "bursts": op_rows.ARE_BURSTS,
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each, the last first."""
        rows = tables["last"].to_pylist()
        ((whole,), (bursts,)) = (tables[name].to_pylist() for name in ("all", "bursts"))
        cells = tuple(
            (
                row["started_ns"], row["client_address"], row["object_name"], row["number"], row["offset_bytes"],
                row["length_bytes"], *op_rows.cells(row),
            )
            for row in rows
        )  # fmt: skip
        unseen = [] if rows else [op_rows.NOTHING]
        if rows and bursts["count"]:
            unseen.append(op_rows.BURSTS)
        if whole["tail_count"]:
            unseen.append(timed.TAIL.format(count=whole["tail_count"]))
        sentence = f"No operation of {question.image} was recorded."
        if rows:
            slowest = max(rows, key=lambda row: row["duration_ns"])
            stage, _ = op_rows.longest(slowest)
            sentence = (
                f"The last {len(rows):,} of {whole['count']:,} recorded operations of {question.image}; the slowest of "
                f"them took {format_duration_ns(slowest['duration_ns'])}{f', most of it {stage}' if stage else ''}."
            )
        return finding_of(self, question, sentence, ActivityTable("operations", _COLUMNS, cells), unseen=unseen)


VIEW: View = LastOps()
