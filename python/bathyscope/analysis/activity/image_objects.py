"""What was done to each object of one image: from recorded operations, and from zones of single objects.

The manager's module counts zones of an image's objects, down to single ones. Operations come from imported OSD logs and
from op histories, of which only complete ones count: a full one has kept the slowest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from bathyscope.analysis.activity import ops, words
from bathyscope.analysis.activity.object_osds import ObjectOsds, osds_of_objects, query
from bathyscope.analysis.activity.shape import Question, literal
from bathyscope.analysis.window import overlaps, share
from bathyscope.errors import AnalysisError
from bathyscope.rbd_names import NUMBER_SQL
from bathyscope.units import format_bytes

DEFAULT_OBJECT_BYTES = 4 << 20
_COUNTED = ("read_count", "write_count", "read_bytes", "write_bytes")
NOTHING = (
    "Single objects are not counted: a recording has those of the images that are named "
    "(`bathy collect --image`), a deep one a sample of all (`--depth deep`), imported OSD logs have all "
    "(`bathy import osd-log`)."
)
_SAMPLE = (
    "Counts are those of the operations that were recorded one by one: what was logged, or what bursts of some seconds "
    "saw of a few OSDs at a time."
)
_COARSE = (
    "Of some objects only zones are counted, as the image has more than the manager counts one by one: how many were "
    "touched is not known there."
)


def queries(question: Question) -> Mapping[str, str]:
    """Return what `read` needs. Raises AnalysisError without the name of an image."""
    if question.image is None:
        raise AnalysisError("the view is of one image", hint="name it: bathy analyze RUN --view image POOL/IMAGE")
    ids, named = ids_of(question.image), _named(question.image)
    images = f"FROM image WHERE {named} OR image_id = {literal(_name(question.image))}"
    return {
        "about": "SELECT pool, namespace, image, image_id, arg_max(size_bytes, at_ns) AS size_bytes, "
        "arg_max(object_size_bytes, at_ns) AS object_size_bytes, arg_max(data_pool, at_ns) AS data_pool, "
        "arg_max(stripe_unit_bytes, at_ns) AS stripe_unit_bytes, arg_max(stripe_count, at_ns) AS stripe_count, "
        f"arg_max(parent, at_ns) AS parent {images} GROUP BY ALL",
        "groups": query(question, images),
        "objects": "WITH named AS (SELECT object_name, osd, op, count(*) AS n, "
        "coalesce(sum(length_bytes), 0) AS size, min(started_ns) AS first_ns, max(started_ns) AS last_ns FROM op "
        f"WHERE image_id IN {ids} AND {ops.moved(question)} GROUP BY object_name, osd, op), touched AS ("
        f"SELECT {NUMBER_SQL} AS first_object, 1 AS object_count, false AS counted, osd, "
        "CASE WHEN op = 'read' THEN n ELSE 0 END AS read_count, "
        "CASE WHEN op = 'write' THEN n ELSE 0 END AS write_count, "
        "CASE WHEN op = 'read' THEN size ELSE 0 END AS read_bytes, "
        "CASE WHEN op = 'write' THEN size ELSE 0 END AS write_bytes, first_ns, last_ns FROM named "
        "UNION ALL SELECT first_object, object_count, true, osd, "
        f"{', '.join(f'{name} * {share(question)}' for name in _COUNTED)}, "
        "at_ns - duration_ns, at_ns FROM zone_io "
        f"WHERE image_id IN {ids} AND {overlaps(question)}) "
        "SELECT first_object, object_count, counted, osd, "
        f"{', '.join(f'CAST(round(sum({name})) AS BIGINT) AS {name}' for name in _COUNTED)}, "
        "min(first_ns) AS first_ns, max(last_ns) AS last_ns "
        "FROM touched WHERE first_object IS NOT NULL GROUP BY first_object, object_count, counted, osd "
        "ORDER BY first_object, osd",
        "hosts": "SELECT DISTINCT osd, host FROM placement",
        "uncounted": words.uncounted(question, *words.IMAGE_SOURCES),
    }


def ids_of(image: str) -> str:
    """Return the SQL of the list of ids of an image, which may be named by its id."""
    return f"(SELECT image_id FROM image WHERE {_named(image)} UNION SELECT {literal(_name(image))})"


def _name(image: str) -> str:
    """Return the name of an image without its pool; its id where a view knows nothing but that."""
    name = image.rpartition("/")[2]
    return name.removeprefix("(id ").removesuffix(")") if name.startswith("(id ") else name


def _named(image: str) -> str:
    path, name = image.split("/")[:-1], _name(image)
    pool = literal(path[0]) if path else "pool"
    namespace = literal(path[1]) if len(path) > 1 else "namespace"
    return f"image = {literal(name)} AND pool = {pool} AND namespace = {namespace}"


@dataclasses.dataclass(frozen=True)
class ImageObjects:
    """The objects of one image that something was done to, and what the image is. Sizes as far as they are known.

    Stripes of `stripe_unit_bytes` go round `stripe_count` objects until these are full, then round the next ones.
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    size_bytes: int | None
    object_bytes: int
    rows: tuple[Mapping[str, Any], ...]
    hosts: Mapping[int, str]
    stripe_unit_bytes: int = DEFAULT_OBJECT_BYTES
    stripe_count: int = 1
    held: ObjectOsds | None = None
    uncounted: tuple[str, ...] = ()
    of_ops: bool = False

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the counts are not."""
        if not self.rows:
            return (NOTHING,)
        if not self.rows[0]["counted"]:
            return (*(() if self.of_ops else (_SAMPLE,)), *self._striped)
        coarse = (_COARSE,) if any(row["object_count"] > 1 for row in self.rows) else ()
        return (*coarse, *self.uncounted, *self._striped)

    @property
    def _striped(self) -> tuple[str, ...]:
        if self.stripe_count == 1:
            return ()
        unit, every = (format_bytes(self.stripe_unit_bytes * times) for times in (1, self.stripe_count))
        return (f"The image is striped: an object holds {unit} of every {every} from its offset on.",)

    @property
    def ops(self) -> int:
        """All operations."""
        return sum(row["read_count"] + row["write_count"] for row in self.rows)

    @property
    def objects(self) -> int | None:
        """How many objects the image has when all are written."""
        if self.size_bytes is None:
            return None
        return _object_count(self.size_bytes, self.object_bytes, self.stripe_unit_bytes, self.stripe_count)

    def offset_of(self, number: int) -> int:
        """Return where in the image the first byte of an object lies."""
        of_set, index = divmod(number, self.stripe_count)
        return of_set * self.stripe_count * self.object_bytes + index * self.stripe_unit_bytes


def read(tables: Mapping[str, pa.Table], question: Question, *, where: bool = True) -> ImageObjects:
    """Return what was done to the image of the question; `where`: and which OSDs hold its objects."""
    about = tables["about"].to_pylist()
    object_bytes, stripe_count = DEFAULT_OBJECT_BYTES, 1
    if about:
        object_bytes, stripe_count = about[0]["object_size_bytes"], about[0]["stripe_count"]
    rows = [row for row in tables["objects"].to_pylist() if _is_asked_for(row, object_bytes, stripe_count, question)]
    # Operations that were recorded one by one are among those that the manager's module has counted.
    counted = [row for row in rows if row["counted"]]
    hosts = {row["osd"]: row["host"] for row in tables["hosts"].to_pylist()}
    remarks, _ = words.not_counted(tables["uncounted"], question)
    if not about:
        name = str(question.image)
        return ImageObjects(
            name,
            (),
            None,
            DEFAULT_OBJECT_BYTES,
            tuple(counted or rows),
            hosts,
            uncounted=remarks,
            of_ops=question.of_ops,
        )
    first = about[0]
    name = "/".join(part for part in (first["pool"], first["namespace"], first["image"]) if part)
    facts = [
        ("Size", format_bytes(first["size_bytes"])),
        ("Object size", format_bytes(first["object_size_bytes"])),
        ("Id", first["image_id"]),
        *[(word, str(first[key])) for word, key in (("Data pool", "data_pool"), ("Parent", "parent")) if first[key]],
    ]
    shape = (first["object_size_bytes"], first["stripe_unit_bytes"], first["stripe_count"])
    return ImageObjects(
        name,
        tuple(facts),
        first["size_bytes"],
        first["object_size_bytes"],
        tuple(counted or rows),
        hosts,
        first["stripe_unit_bytes"],
        first["stripe_count"],
        osds_of_objects(first, tables["groups"], _object_count(first["size_bytes"], *shape)) if where else None,
        remarks,
        question.of_ops,
    )


def _object_count(size_bytes: int, object_bytes: int, stripe_unit_bytes: int, stripe_count: int) -> int:
    """Return how many objects an image has when all are written."""
    sets, rest = divmod(size_bytes, object_bytes * stripe_count)
    return sets * stripe_count + min(stripe_count, -(-rest // stripe_unit_bytes))


def _is_asked_for(row: Mapping[str, Any], object_bytes: int, stripe_count: int, question: Question) -> bool:
    """Return whether an object, or a zone of objects, reaches into the part of the image that is asked for."""
    first, end = row["first_object"], row["first_object"] + row["object_count"]
    if question.object_number is not None and not first <= question.object_number < end:
        return False
    # Objects that stripes go round share the bytes of all of them.
    set_bytes = object_bytes * stripe_count
    begins_bytes, ends_bytes = first // stripe_count * set_bytes, -(-end // stripe_count) * set_bytes
    begins = question.from_bytes is None or ends_bytes > question.from_bytes
    return begins and (question.to_bytes is None or begins_bytes < question.to_bytes)


def objects_of(rows: Iterable[Mapping[str, Any]]) -> int | None:
    """Return how many objects something was done to; None where only zones of several were counted."""
    rows = list(rows)
    return None if any(row["object_count"] > 1 for row in rows) else len({row["first_object"] for row in rows})
