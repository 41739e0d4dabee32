"""Where one is in the cluster, and what lies below a row: from the cluster to images, zones, objects, operations.

What a row is about is said by the keys of its columns, which every view shares. So one more view that has a column
"image" can be entered like the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bathyscope.records.blocks import Table
from bathyscope.views.cells import cell

OPS = "ops"
"""The view of single operations."""

# The column whose value names a thing → the columns that narrow a view to it, the fields of a question that they
# become, and the views of the thing.
_INTO: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "image": (("image",), ("image",), ("zones", "objects", OPS, "image")),
    "client": (("client",), ("client",), ("devices",)),
    "node": (("node",), ("node",), ("osds",)),
    "osd": (("osd",), ("osd",), ("osd_pools",)),
    "pool": (("pool",), ("pool",), ("devices", "osd_pools")),
    "offset_bytes": (("offset_bytes", "end_bytes"), ("from_bytes", "to_bytes"), ("objects",)),
    "object_number": (("object_number",), ("object_number",), (OPS,)),
}
# Zones and objects are parts of an image, which stays named; any other thing is looked at for itself.
_PARTS = ("from_bytes", "object_number")


@dataclasses.dataclass
class Place:
    """What a screen shows: one of the views of a thing. `only` narrows them to it, `facts` are what its row said."""

    title: str
    views: Sequence[str]
    view: str
    only: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    facts: tuple[tuple[str, str], ...] = ()


def of_image(image: str) -> Place:
    """Return the place of an image."""
    _, (field,), views = _INTO["image"]
    return Place(image, views, views[0], {field: image})


def below(place: Place, table: Table, row: Sequence[Any]) -> Place | None:
    """Return the place that a row leads to, None where nothing lies below it.

    The first column that names a thing counts. What the place is narrowed to already is not
    entered again: in the pools of an OSD a row leads to the pool.
    """
    at = {column.key: number for number, column in enumerate(table.columns)}
    for name in at:
        wanted, fields, views = _INTO.get(name, ((), (), ()))
        if not wanted or not at.keys() >= set(wanted) or fields[0] in place.only:
            continue
        values = [row[at[each]] for each in wanted]
        if None in values:
            continue
        words = "–".join(cell(table.columns[at[each]], value) for each, value in zip(wanted, values, strict=True))
        kept = {"image": place.only["image"]} if fields[0] in _PARTS and "image" in place.only else {}
        facts = (
            (column.heading, cell(column, value))
            for column, value in zip(table.columns, row, strict=True)
            if not column.unit and column.key not in wanted and value
        )
        return Place(
            f"object {words}" if name == "object_number" else words,
            views,
            views[0],
            {**kept, **dict(zip(fields, values, strict=True))},
            tuple(facts),
        )
    return None
