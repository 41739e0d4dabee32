"""Whether one placement group, or one object in it, takes the load: from the operations in the OSDs' histories.

The histories may have kept the slow operations only. A group that takes a part of the load would then be seen too
often; one that takes all of it is the only one in either case, so only such a share is told.
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.records.figure import Figure

_OPS_MIN = 20
HOT_SHARE = 0.8


@dataclasses.dataclass(frozen=True, slots=True)
class HotSpot:
    """A placement group that takes `share` (0 to 1) of the operations, its primary, and the object, if it is one."""

    pg: str
    osd: int
    object_name: str | None
    share: float
    samples: int


def pgs_seen(ops: pa.Table) -> Figure:
    """Return how many placement groups the operations of the histories went to: at least so many took the load."""
    ops = _placed(ops)
    count = len(pc.unique(ops.column("pg"))) if ops.num_rows else None
    return Figure(count, "placement groups", samples=ops.num_rows)


def _placed(ops: pa.Table) -> pa.Table:
    """Return the reads and writes whose placement group is known."""
    if not ops.num_rows:
        return ops
    return ops.filter(pc.and_(pc.is_valid(ops.column("pg")), pc.is_in(ops.column("op"), pa.array(["read", "write"]))))


def hot_spot(ops: pa.Table) -> HotSpot | None:
    """Return the placement group that at least HOT_SHARE of the operations go to, or None."""
    ops = _placed(ops)
    if ops.num_rows < _OPS_MIN:
        return None
    pg, osd, count = _most(ops, "pg", "osd")
    if count < HOT_SHARE * ops.num_rows:
        return None
    name, _, of_object = _most(ops, "object_name", "osd")
    hot = name if of_object >= HOT_SHARE * ops.num_rows else None
    return HotSpot(pg, osd, hot, count / ops.num_rows, ops.num_rows)


def _most(ops: pa.Table, *keys: str) -> tuple[str, int, int]:
    grouped = (
        ops.group_by(list(keys), use_threads=False)
        .aggregate([([], "count_all")])
        .sort_by([("count_all", "descending")])
    )
    first = grouped.slice(0, 1).to_pylist()[0]
    return first[keys[0]], first[keys[1]], first["count_all"]
