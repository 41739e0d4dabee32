"""Every image that did I/O: how much, how fast, and who has it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.attachments import attached
from bathyscope.analysis.see import words
from bathyscope.analysis.see.images import IMAGES, Images
from bathyscope.analysis.see.shape import Question, View, finding_of, seconds_of, seen, sums, within
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable

_COLUMNS = (
    ActivityColumn("image", help="pool/image, or pool/namespace/image; the id where the name is not known"),
    ActivityColumn("size", "bytes", "provisioned size", rank=2),
    *words.COUNTS,
    *words.LATENCIES,
    ActivityColumn("attached to", help="host:VM that uses it, as far as it is known", rank=1),
    ActivityColumn("clients", help="addresses of the clients that did it", rank=2),
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
        return {
            "seen": seen(question, *words.IMAGE_SOURCES),
            "io": f"SELECT pool, namespace, image, image_id, {sums(*words.COUNTED)}, "
            "string_agg(DISTINCT client_address, ', ' ORDER BY client_address) AS clients "
            f"FROM image_io WHERE {within(question)} GROUP BY pool, namespace, image, image_id",
            "images": IMAGES,
            "attachments": "SELECT * EXCLUDE (run_id) FROM attachment",
            "users": "SELECT DISTINCT io.pool, io.namespace, io.client_address, "
            "coalesce(io.image, known.image) AS image "
            "FROM image_io AS io LEFT JOIN image AS known ON known.pool = io.pool AND known.image_id = io.image_id "
            "WHERE io.client_address IS NOT NULL",
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each image, the busiest first."""
        known = Images(tables["images"])
        rows = tables["io"].to_pylist()
        rows.sort(key=lambda row: (-(row["read_count"] + row["write_count"]), known.name(row)))
        names = [known.name(row) for row in rows]
        keys = [known.key(row) for row in rows]
        hosts = attached(tables["attachments"], tables["users"], {}, keys)
        ops = [row["read_count"] + row["write_count"] for row in rows]
        total, seconds = sum(ops), seconds_of(tables["seen"])
        cells = tuple(
            (
                name,
                known.size_bytes(row),
                *words.counts(row, total, seconds),
                *words.latencies(row),
                hosts.get(key),
                row["clients"],
            )
            for name, key, row in zip(names, keys, rows, strict=True)
        )
        unseen = [_NO_IO] if not rows else []
        if rows and not any(row["clients"] for row in rows):
            unseen.append(_NO_CLIENTS)
        sentence = words.standing_out("image", names, ops, seconds)
        return finding_of(self, question, sentence, ActivityTable("images", _COLUMNS, cells), unseen=tuple(unseen))


VIEW: View = Devices()
