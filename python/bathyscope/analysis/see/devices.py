"""Every image that did I/O: how much, how fast, and who has it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.see import clones, timed, words
from bathyscope.analysis.see.attachments import MACHINES, attached, failures, in_force
from bathyscope.analysis.see.images import IMAGES, Images
from bathyscope.analysis.see.shape import (
    DATA_OBJECT,
    Question,
    View,
    finding_of,
    only,
    seconds_of,
    seen,
    sums,
    trend,
    was_seen,
    within,
)
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable

_COLUMNS = (
    ActivityColumn("image", help="pool/image, or pool/namespace/image; the id where the name is not known"),
    ActivityColumn("size", "bytes", "provisioned size", rank=2),
    *words.COUNTS,
    *words.LATENCIES,
    words.TREND,
    ActivityColumn("attached to", help="host:VM that uses it, as far as it is known", rank=1),
    ActivityColumn("clients", help="addresses of the clients that did it", rank=2),
    ActivityColumn("for clones", help="of a parent: for which of its clones it was read", prose=True, rank=2),
    *timed.COLUMNS,
)
_NO_IO = (
    "Nothing is known of images: the manager's image statistics were not answered. They need the cap mgr 'profile "
    "rbd-read-only' (or 'allow r' with the module bathyscope), and begin some 10 s after the first question."
)
_NO_CLIENTS = "Clients are not told apart: the manager module bathyscope would (`bathy mgr install`)."


class Devices:
    """All images of the time that is asked for."""

    name = "devices"
    help = "every image: reads, writes, bytes, latency, clients"
    of_image = False

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each image, and what the images are."""
        narrowed = only({"pool": question.pool, "coalesce(client_address, client)": question.client})
        keys = "pool, namespace, image, image_id"
        return {
            "seen": seen(question, *words.IMAGE_SOURCES),
            "uncounted": words.uncounted(question),
            "io": f"SELECT {keys}, {sums(question, *words.COUNTED)}, "
            "string_agg(DISTINCT client_address, ', ' ORDER BY client_address) AS clients "
            f"FROM image_io WHERE {within(question)}{narrowed} GROUP BY {keys}",
            "trend": trend(question, "image_io", keys, condition=f"true{narrowed}"),
            "ops": _ops(question),
            **timed.queries(question),
            "images": IMAGES,
            **clones.queries(question),
            "attachments": in_force(question),
            "machines": MACHINES,
            "failures": failures(question),
            "users": "SELECT DISTINCT io.pool, io.namespace, io.client_address, "
            "coalesce(io.image, known.image) AS image FROM (SELECT DISTINCT pool, namespace, image, image_id, "
            f"client_address FROM image_io WHERE client_address IS NOT NULL AND {within(question)}) AS io "
            f"LEFT JOIN ({IMAGES}) AS known ON known.pool = io.pool AND known.image_id = io.image_id",
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each image, the busiest first."""
        known = Images(tables["images"])
        # Of an imported log operations are all there is.
        remarks, uncounted_s = words.not_counted(tables["uncounted"], question)
        rows, seconds = tables["io"].to_pylist(), max(0.0, seconds_of(tables["seen"]) - uncounted_s) or math.inf
        if not rows and tables["ops"].num_rows:
            rows, seconds = tables["ops"].to_pylist(), (question.end_ns - question.start_ns) / 1e9
        rows.sort(key=lambda row: (-(row["read_count"] + row["write_count"]), known.name(row)))
        names = [known.name(row) for row in rows]
        keys = [known.key(row) for row in rows]
        hosts = attached(tables["attachments"], tables["users"], tables["machines"], keys)
        trends = {known.key(row): row["trend"] for row in tables["trend"].to_pylist()}
        ops = [row["read_count"] + row["write_count"] for row in rows]
        total = sum(ops)
        readers = clones.readers_of(tables, known)
        took = timed.read(tables)
        of_rows = [took.get(known.image_id(row) or "", {}) for row in rows]
        cells = tuple(
            (
                name,
                known.size_bytes(row),
                *words.counts(row, total, seconds),
                *words.latencies(row),
                trends.get(key),
                hosts.get(key),
                row["clients"],
                readers.get(name),
                *timed.cells(timed_ops),
            )
            for name, key, row, timed_ops in zip(names, keys, rows, of_rows, strict=True)
        )
        unseen = [] if rows or was_seen(tables["seen"]) else [_NO_IO]
        if rows and not any(row["clients"] for row in rows):
            unseen.append(_NO_CLIENTS)
        failed = [f"{row['source']}: {row['problem']}" for row in tables["failures"].to_pylist()]
        unseen += [f"Who has the images is known in part only. {problem}" for problem in failed]
        unseen += timed.remarks(of_rows)
        unseen += remarks
        sentence = words.standing_out("image", names, ops, seconds)
        return finding_of(self, question, sentence, ActivityTable("images", _COLUMNS, cells), unseen=tuple(unseen))


VIEW: View = Devices()


def _ops(question: Question) -> str:
    """Return the SELECT of the same columns from single operations: those that succeeded, of complete samples."""
    sums = ", ".join(
        f"CAST(coalesce(sum({value}) FILTER (WHERE op = '{kind}'), 0) AS BIGINT) AS {kind}_{name}"
        for kind in ("read", "write")
        for name, value in (("count", "1"), ("bytes", "length_bytes"), ("latency_ns_sum", "duration_ns"))
    )
    return (
        "WITH named AS (SELECT *, regexp_extract(object_name, " + DATA_OBJECT + ", 1) AS id FROM op) "
        f"SELECT 'pool ' || pool_id AS pool, '' AS namespace, NULL AS image, id AS image_id, {sums}, "
        "string_agg(DISTINCT client_address, ', ' ORDER BY client_address) AS clients FROM named "
        "WHERE id <> '' AND complete_sample AND started_ns >= complete_since_ns AND coalesce(result, 0) >= 0 "
        f"AND started_ns BETWEEN {question.start_ns} AND {question.end_ns} AND op IN ('read', 'write') "
        "GROUP BY pool_id, id"
    )
