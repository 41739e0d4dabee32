"""What is cached of the objects of a recording, on BlueStore OSDs: what OSDs and caches answered in, a finding out."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.cache.bluestore import PlacedObject
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_bytes

_COLUMNS = (
    Column("object_name", "Object"),
    Column("image_id", "Image id", rank=2),
    Column("pool_id", "Pool id", rank=3),
    Column("source", "Source", rank=1),
    Column("reads", "Reads", "count", help="of clients, as far as they were recorded"),
    Column("read_bytes", "Read data", "bytes", rank=4, help="what these returned"),
    Column("writes", "Writes", "count", rank=1, help="of clients, as far as they were recorded"),
    Column("allocated_bytes", "Allocated", "bytes", help="extents of the block device that the object has now"),
    Column("cached_bytes", "Cached", "bytes", help="bytes of these extents that are cached now"),
    Column("share_ratio", "Share", "ratio", help="what is cached of what is allocated"),
)
_NO_HITS = "Hits, last use and residence time are not known by object: a cache counts them for the device as a whole."


def placed_objects(
    placed: Sequence[PlacedObject],
    *,
    caches: Sequence[str],
    run_id: str,
    span_ns: tuple[int, int],
    remarks: Sequence[str],
) -> ActivityFinding:
    """Return the objects with the most operations of a run, which were recorded in `span_ns`, the busiest first."""
    ordered = sorted(placed, key=lambda one: -one.recorded.read_count - one.recorded.write_count)
    allocated, cached = (
        sum(placed.allocated_bytes for placed in ordered),
        sum(placed.cached_bytes for placed in ordered),
    )
    sentence = (
        f"Objects with the most operations: {len(ordered):,}; {format_bytes(cached)} of their "
        f"{format_bytes(allocated)} are cached."
    )
    return ActivityFinding(
        view="cache objects",
        run_id=run_id,
        target="cache " + ", ".join(caches),
        start_ns=span_ns[0],
        end_ns=span_ns[1],
        sentence=sentence if ordered else "No objects are known.",
        tables=(Table("objects", "Objects on BlueStore OSDs", _COLUMNS, tuple(map(_row, ordered))),),
        unseen=(*remarks, _NO_HITS),
    )


def _row(placed: PlacedObject) -> tuple[object, ...]:
    recorded = placed.recorded
    return (
        recorded.name, recorded.image_id, recorded.pool_id, placed.source, recorded.read_count, recorded.read_bytes,
        recorded.write_count, placed.allocated_bytes, placed.cached_bytes,
        placed.cached_bytes / placed.allocated_bytes if placed.allocated_bytes else None,
    )  # fmt: skip
