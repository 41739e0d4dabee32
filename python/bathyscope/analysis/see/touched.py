"""What was done to each object of one image: from recorded operations, and from zones of single objects.

The manager's module counts zones of an image's objects, down to single ones. Operations come from imported OSD logs and
from op histories, of which only complete ones count: a full one has kept the slowest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from bathyscope.analysis.see import ops
from bathyscope.analysis.see.shape import Question, literal, within
from bathyscope.errors import AnalysisError
from bathyscope.rbd_names import NUMBER_SQL, of_images_sql
from bathyscope.units import format_bytes

DEFAULT_OBJECT_BYTES = 4 << 20
NOTHING = (
    "Nothing is known of single objects: a recording has those of the images that it was told "
    "(`bathy collect --image`), imported OSD logs have all (`bathy import osd-log`)."
)
_SAMPLE = "Counts are those of the operations that were recorded one by one, in bursts."
_COARSE = (
    "Of some objects only zones are counted, as the image has more than the manager counts one by one: how many were "
    "touched is not known there."
)


def queries(question: Question) -> Mapping[str, str]:
    """Return what `read` needs. Raises AnalysisError without the name of an image."""
    if question.image is None:
        raise AnalysisError("the view is of one image", hint="name it: bathy analyze RUN --view image POOL/IMAGE")
    ids, named = ids_of(question.image), _named(question.image)
    return {
        "about": "SELECT pool, namespace, image, image_id, arg_max(size_bytes, at_ns) AS size_bytes, "
        "arg_max(object_size_bytes, at_ns) AS object_size_bytes, arg_max(data_pool, at_ns) AS data_pool, "
        f"arg_max(parent, at_ns) AS parent FROM image WHERE {named} OR image_id = {literal(question.image)} "
        "GROUP BY ALL",
        "objects": "WITH named AS (SELECT object_name, osd, op, count(*) AS n, "
        "coalesce(sum(length_bytes), 0) AS size, min(started_ns) AS first_ns, max(started_ns) AS last_ns FROM op "
        f"WHERE {of_images_sql(ids)} AND {ops.moved(question)} GROUP BY object_name, osd, op), touched AS ("
        f"SELECT {NUMBER_SQL} AS first_object, 1 AS object_count, false AS counted, osd, "
        "CASE WHEN op = 'read' THEN n ELSE 0 END AS read_count, "
        "CASE WHEN op = 'write' THEN n ELSE 0 END AS write_count, "
        "CASE WHEN op = 'read' THEN size ELSE 0 END AS read_bytes, "
        "CASE WHEN op = 'write' THEN size ELSE 0 END AS write_bytes, first_ns, last_ns FROM named "
        "UNION ALL SELECT first_object, object_count, true, osd, read_count, write_count, read_bytes, write_bytes, "
        "at_ns - duration_ns, at_ns FROM zone_io "
        f"WHERE image_id IN {ids} AND {within(question)}) "
        "SELECT first_object, object_count, counted, osd, CAST(sum(read_count) AS BIGINT) AS read_count, "
        "CAST(sum(write_count) AS BIGINT) AS write_count, CAST(sum(read_bytes) AS BIGINT) AS read_bytes, "
        "CAST(sum(write_bytes) AS BIGINT) AS write_bytes, min(first_ns) AS first_ns, max(last_ns) AS last_ns "
        "FROM touched WHERE first_object IS NOT NULL GROUP BY first_object, object_count, counted, osd "
        "ORDER BY first_object, osd",
        "hosts": "SELECT DISTINCT osd, host FROM placement",
    }


def ids_of(image: str) -> str:
    """Return the SQL of the list of ids of an image, which may be named by its id."""
    return f"(SELECT image_id FROM image WHERE {_named(image)} UNION SELECT {literal(image)})"


def _named(image: str) -> str:
    *path, name = image.split("/")
    pool = literal(path[0]) if path else "pool"
    namespace = literal(path[1]) if len(path) > 1 else "namespace"
    return f"image = {literal(name)} AND pool = {pool} AND namespace = {namespace}"


@dataclasses.dataclass(frozen=True)
class Touched:
    """The objects of one image that something was done to, and what the image is. Sizes as far as they are known."""

    name: str
    facts: tuple[tuple[str, str], ...]
    size_bytes: int | None
    object_bytes: int
    rows: tuple[Mapping[str, Any], ...]
    hosts: Mapping[int, str]
    of_ops: bool = False

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the counts are not."""
        if not self.rows:
            return (NOTHING,)
        if not self.rows[0]["counted"]:
            return () if self.of_ops else (_SAMPLE,)
        return (_COARSE,) if any(row["object_count"] > 1 for row in self.rows) else ()

    @property
    def ops(self) -> int:
        """All operations."""
        return sum(row["read_count"] + row["write_count"] for row in self.rows)

    @property
    def objects(self) -> int | None:
        """How many objects the image has when all are written."""
        return None if self.size_bytes is None else -(-self.size_bytes // self.object_bytes)


def read(tables: Mapping[str, pa.Table], question: Question) -> Touched:
    """Return what was done to the image of the question."""
    about = tables["about"].to_pylist()
    rows = tables["objects"].to_pylist()
    # Operations that were recorded one by one are among those that the manager's module has counted.
    counted = [row for row in rows if row["counted"]]
    hosts = {row["osd"]: row["host"] for row in tables["hosts"].to_pylist()}
    shown = tuple(counted or rows)
    if not about:
        return Touched(str(question.image), (), None, DEFAULT_OBJECT_BYTES, shown, hosts, question.of_ops)
    first = about[0]
    name = "/".join(part for part in (first["pool"], first["namespace"], first["image"]) if part)
    facts = [
        ("Size", format_bytes(first["size_bytes"])),
        ("Object size", format_bytes(first["object_size_bytes"])),
        ("Id", first["image_id"]),
        *[(word, str(first[key])) for word, key in (("Data pool", "data_pool"), ("Parent", "parent")) if first[key]],
    ]
    return Touched(name, tuple(facts), first["size_bytes"], first["object_size_bytes"], shown, hosts, question.of_ops)


def objects_of(rows: Iterable[Mapping[str, Any]]) -> int | None:
    """Return how many objects something was done to; None where only zones of several were counted."""
    rows = list(rows)
    return None if any(row["object_count"] > 1 for row in rows) else len({row["first_object"] for row in rows})
