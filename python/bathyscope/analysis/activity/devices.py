"""Every image that did I/O: how much, how fast, and who has it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity import clones, ops, timed, words
from bathyscope.analysis.activity.attachments import MACHINES, attached, failures, in_force
from bathyscope.analysis.activity.images import IMAGES, Images
from bathyscope.analysis.activity.shape import Question, View, finding_of, literal, only, seen, sums, trend, was_seen
from bathyscope.analysis.window import overlaps
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table

_COLUMNS = (
    Column("image", "image", help="pool/image, or pool/namespace/image; the id where the name is not known"),
    Column("size_bytes", "size", "bytes", "provisioned size", rank=2),
    *words.COUNTS,
    *words.LATENCIES,
    words.TREND,
    Column("attached_to", "attached to", help="host:VM that uses it, as far as it is known", rank=1),
    Column("clients", "clients", help="addresses of the clients that did it", rank=2),
    *ops.DETAILS[2:],
    Column("for_clones", "for clones", help="of a parent: for which of its clones it was read", prose=True, rank=2),
    *timed.COLUMNS,
)
_NO_IO = (
    "Images are not counted: neither the manager module bathyscope (`bathy mgr install`; cap mgr 'allow r') nor "
    "Ceph's own image statistics (`bathy collect --image-statistics`, see SECURITY.md; cap mgr 'profile "
    "rbd-read-only') have answered. Both begin some 10 s after the first question."
)
_CLIENTS = "string_agg(DISTINCT client_address, ', ' ORDER BY client_address) AS clients"
# The module names the client of all that it counts, also one whose address is not known; the manager itself none.
_TOLD = "count(client) AS told_count"
_OWN_STATISTICS = (
    "Counts are the manager's own image statistics: of the 64 images that are busiest by each of six measures, up to "
    "3 % too small, and without what was done in the last 10 s. Clients are not told apart. The manager module "
    "bathyscope counts all images exactly, and their clients (`bathy mgr install`)."
)


class Devices(View):
    """All images of the time that is asked for."""

    name = "devices"
    help = "every image: reads, writes, bytes, latency, clients"
    tables = ("images",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each image, and what the images are."""
        narrowed = _in_pool(question.pool) + only({"coalesce(client_address, client)": question.client})
        keys = "pool, namespace, image, image_id"
        return {
            "seen": seen(question, *words.IMAGE_SOURCES),
            "uncounted": words.uncounted(question, *words.IMAGE_SOURCES),
            "io": ops.sums(
                question,
                f"{ops.IMAGE_GROUPS}, coalesce(client_address, client) AS client_address",
                ops.IMAGE_KEYS,
                _CLIENTS,
                condition=f"true{_in_pool(question.pool, ops.POOL)}{only({'client_address': question.client})}",
            )
            if question.of_ops
            else f"SELECT {keys}, {sums(question, *words.COUNTED)}, {_CLIENTS}, {_TOLD} "
            f"FROM image_io WHERE {overlaps(question)}{narrowed} GROUP BY {keys}",
            "trend": trend(question, "image_io", keys, condition=f"true{narrowed}"),
            **({} if question.of_ops else timed.queries(question)),
            "images": IMAGES,
            **clones.queries(question),
            "attachments": in_force(question),
            "machines": MACHINES,
            "failures": failures(question),
            "users": "SELECT DISTINCT io.pool, io.namespace, io.client_address, "
            "coalesce(io.image, known.image) AS image FROM (SELECT DISTINCT pool, namespace, image, image_id, "
            f"client_address FROM image_io WHERE client_address IS NOT NULL AND {overlaps(question)}) AS io "
            f"LEFT JOIN ({IMAGES}) AS known ON known.pool = io.pool AND known.image_id = io.image_id",
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each image, the busiest first."""
        images = Images(tables["images"])
        remarks, seconds = words.counted(tables, question)
        rows = tables["io"].to_pylist()
        rows.sort(key=lambda row: (-(row["read_count"] + row["write_count"]), images.name(row)))
        names = [images.name(row) for row in rows]
        keys = [images.key(row) for row in rows]
        hosts = attached(tables["attachments"], tables["users"], tables["machines"], keys)
        trends = {images.key(row): row["trend"] for row in tables["trend"].to_pylist()}
        counts = [row["read_count"] + row["write_count"] for row in rows]
        total = sum(counts)
        readers = clones.readers_of(tables, images)
        took = {} if question.of_ops else timed.read(tables["timed"])
        of_rows = [timed.of_row(row) if question.of_ops else took.get(images.image_id(row) or "", {}) for row in rows]
        cells = tuple(
            (
                name,
                images.size_bytes(row),
                *words.counts(row, total, seconds),
                *words.latencies(row),
                trends.get(key),
                hosts.get(key),
                row["clients"],
                *ops.detail_cells(row)[2:],
                readers.get(name),
                *timed.cells(timed_ops),
            )
            for name, key, row, timed_ops in zip(names, keys, rows, of_rows, strict=True)
        )
        unseen = [] if rows or was_seen(tables["seen"]) else [_NO_IO]
        if rows and not question.of_ops and not any(row["told_count"] for row in rows):
            unseen.append(_OWN_STATISTICS)
        failed = [f"{row['source']}: {row['problem']}" for row in tables["failures"].to_pylist()]
        unseen += [f"Who has the images is known in part only. {problem}" for problem in failed]
        unseen += timed.remarks(of_rows, question)
        unseen += remarks
        sentence = words.standing_out("image", names, counts, seconds)
        return finding_of(self, question, sentence, Table("images", "images", _COLUMNS, cells), unseen=tuple(unseen))


def _in_pool(pool: str | None, data_pool: str | None = None) -> str:
    """Return the SQL condition, after an AND, for rows of images with their header or their data in a pool.

    `data_pool` is the SQL for the latter; without it, it is looked up.
    """
    if pool is None:
        return ""
    name = literal(pool)
    with_data = f"FROM image WHERE data_pool = {name}"
    in_data_pool = (
        f"{data_pool} = {name}"
        if data_pool
        else (
            f"(pool, namespace, image) IN (SELECT pool, namespace, image {with_data}) "
            f"OR (pool, namespace, image_id) IN (SELECT pool, namespace, image_id {with_data})"
        )
    )
    return f" AND (pool = {name} OR {in_data_pool})"


VIEW: View = Devices()
