"""Which OSDs hold the objects of an image, also of those that nothing was done to: by the map of placement groups.

Every object that the image can have is counted. Which of them have ever been written, the map does not say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope.analysis.activity.shape import NOT_KNOWN, Question
from bathyscope.analysis.pg_mapping import numbered, seeds
from bathyscope.records.blocks import Column, Table

_AT_ONCE = 1 << 20
_COLUMNS = (
    Column("node", "node", help="CRUSH host bucket"),
    Column(
        "primary_objects", "primary of", "count", "objects whose primary OSD is there: it serves their reads and writes"
    ),
    Column("primary_share_ratio", "primary share", "ratio", "their share of all objects"),
    Column("held_objects", "holds", "count", "objects of which the node has a copy, or a chunk"),
    Column("share_ratio", "share", "ratio", "their share of all objects"),
)
REMARK = (
    "The table of all objects has every object that the image can have, written or not, where the map of placement "
    "groups puts it."
)


def query(question: Question, images: str) -> str:
    """Return the SELECT for the groups of the pools of `images` (a FROM clause), at the end of the time asked for."""
    return (
        "SELECT pool, pool_id, seed, acting FROM pg_placement WHERE at_ns = (SELECT coalesce(max(at_ns) FILTER "
        f"(WHERE at_ns <= {question.end_ns}), min(at_ns)) FROM pg_placement) "
        f"AND pool IN (SELECT unnest([pool, data_pool]) {images}) ORDER BY pool, seed"
    )


@dataclasses.dataclass(frozen=True)
class ObjectOsds:
    """Where the objects of an image lie: the group of each, and the OSDs of each group, the primary first."""

    groups: npt.NDArray[np.int64]
    acting: tuple[tuple[int, ...], ...]

    def osds(self, number: int) -> tuple[int, ...]:
        """Return the OSDs that hold an object; none where it is beyond the image's end."""
        return self.acting[self.groups[number]] if number < len(self.groups) else ()

    def by_node(self, hosts: Mapping[int, str]) -> Table:
        """Return how many of all objects each node serves and holds."""
        counts = np.bincount(self.groups, minlength=len(self.acting))
        serves: dict[str, int] = {}
        holds: dict[str, int] = {}
        for count, osds in zip(counts.tolist(), self.acting, strict=True):
            nodes = [hosts.get(osd, "") or NOT_KNOWN for osd in osds]
            for node in nodes[:1]:
                serves[node] = serves.get(node, 0) + count
            for node in set(nodes):
                holds[node] = holds.get(node, 0) + count
        whole = max(1, len(self.groups))
        rows = tuple(
            (node, serves.get(node, 0), serves.get(node, 0) / whole, count, count / whole)
            for node, count in sorted(holds.items())
        )
        return Table("all_objects", "all objects", _COLUMNS, rows)


def osds_of_objects(about: Mapping[str, Any], groups: pa.Table, count: int) -> ObjectOsds | None:
    """Return where the `count` objects of an image lie; None when no whole map of their pool is known.

    `about` is the image: pool, data_pool, namespace and image_id.
    """
    rows = groups.to_pylist()
    mine = [row for row in rows if row["pool"] == (about["data_pool"] or about["pool"])]
    header = next((row["pool_id"] for row in rows if row["pool"] == about["pool"]), None)
    # The groups of a pool are numbered without a gap: that is also how many there are.
    if header is None or [row["seed"] for row in mine] != list(range(len(mine))) or not mine:
        return None
    of_pool = f"{header}." if about["data_pool"] else ""
    prefix = f"rbd_data.{of_pool}{about['image_id']}."
    batches = [seeds(numbered(prefix, each), about["namespace"], len(mine)) for each in _batches(count)]
    acting = tuple(tuple(map(int, row["acting"].split())) for row in mine)
    return ObjectOsds(np.concatenate([np.empty(0, dtype=np.int64), *batches]), acting)


def _batches(count: int) -> Iterator[npt.NDArray[np.int64]]:
    for first in range(0, count, _AT_ONCE):
        yield np.arange(first, min(count, first + _AT_ONCE))
