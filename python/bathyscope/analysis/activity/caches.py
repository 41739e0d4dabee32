"""What the caches over OSDs served: of each OSD and node how much is cached, and how often that was enough."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from bathyscope.analysis.activity.shape import Question, View, finding_of, seconds_of, seen, sums
from bathyscope.analysis.window import overlaps
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_bytes, format_percent

_COUNTED = (
    *("read_count", "read_hit_count", "read_bytes", "read_hit_bytes"),
    *("write_count", "write_hit_count", "write_bytes"),
)
_COLUMNS = (
    Column("cached_bytes", "cached", "bytes", "bytes in the cache at the end of the time shown"),
    Column("capacity_share_ratio", "of capacity", "ratio", "share of the OSDs' capacity that is cached", rank=2),
    Column("files", "files", "count", "files with something in the cache; a BlueStore device is one", rank=3),
    Column("reads", "reads", "count", "reads that the cache was asked for", live=4),
    Column("hit_ratio", "hit", "ratio", "share of the reads that came from the cache alone"),
    Column("read_iops", "read IOPS", "1/s", "reads a second", rank=2),
    Column("read_bytes", "read", "bytes", "bytes read", rank=3),
    Column("from_cache_ratio", "from cache", "ratio", "share of the bytes read that came from the cache", rank=1),
    Column("writes", "writes", "count", "writes, each of which went to the disk as well", rank=1, live=4),
    Column("to_cached_ratio", "to cached", "ratio", "share of the writes to what was cached", rank=3),
    Column("written_bytes", "written", "bytes", "bytes written", rank=3),
)
_HERE_ONLY = "Caches on other machines than that of the recording are not seen."
_NONE = "No cache over an OSD of this machine was asked."
_NO_OBJECTS = (
    "A cache over a BlueStore OSD sees offsets of its device, so it is not recorded which objects are cached. `bathy "
    "cache objects` says what is cached now: of FileStore OSDs, and with --recording RUN of BlueStore OSDs of Ceph 20."
)


class Caches(View):
    """The caches over OSDs."""

    name = "caches"
    help = "caches over OSDs (`bathy cache`): what is cached of each OSD and node, hits, bytes"
    tables = ("cached_osds", "cached_nodes")

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each directory that a cache serves, and the OSDs."""
        last = ", ".join(f"arg_max({name}, at_ns) AS {name}" for name in ("capacity_bytes", "used_bytes", "file_count"))
        return {
            "sources": "SELECT cache, source, directory, any_value(osd) AS osd, "
            f"{sums(question, *_COUNTED)}, {last} FROM cache_sample "
            f"WHERE {overlaps(question)} GROUP BY cache, source, directory ORDER BY osd, directory",
            "osds": "SELECT osd, any_value(host) AS host, max(size_bytes) AS size_bytes FROM placement GROUP BY osd",
            "seen": seen(question, "caches"),
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each OSD, or other directory, and one for each node."""
        osds = {row["osd"]: row for row in tables["osds"].to_pylist()}
        rows = tables["sources"].to_pylist()
        for row in rows:
            placed = osds.get(row["osd"], {})
            row |= {"node": placed.get("host"), "size_bytes": placed.get("size_bytes")}
        rows = [row for row in rows if question.node in (None, row["node"])]
        seconds = seconds_of(tables["seen"])
        nodes: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            nodes.setdefault(row["node"] or "(not known)", []).append(row)
        by_osd = tuple((_name(row), row["node"], row["cache"], *_cells(row, seconds)) for row in rows)
        by_node = tuple(
            (name, len(members), *_cells(_joined(members), seconds)) for name, members in sorted(nodes.items())
        )
        first = (
            Column("osd", "OSD", help="the OSD, else the directory"),
            Column("node", "node", help="CRUSH host bucket", rank=3),
            Column("cache", "cache", help="name of the cache, else its SSD", rank=3),
        )
        of_nodes = (
            Column("node", "node", help="CRUSH host bucket"),
            Column("osds", "OSDs", "count", "OSDs with a cache", rank=2),
        )
        return finding_of(
            self,
            question,
            _sentence(rows),
            Table("cached_osds", "cached OSDs", (*first, *_COLUMNS), by_osd),
            Table("cached_nodes", "nodes", (*of_nodes, *_COLUMNS), by_node),
            unseen=tuple(_remarks(rows)),
        )


VIEW: View = Caches()


def _name(row: Mapping[str, Any]) -> str:
    return str(row["directory"]) if row["osd"] is None else f"osd.{row['osd']}"


def _cells(row: Mapping[str, Any], seconds: float) -> tuple[float | None, ...]:
    return (
        row["used_bytes"],
        _ratio(row["used_bytes"], row["size_bytes"]),
        row["file_count"],
        row["read_count"],
        _ratio(row["read_hit_count"], row["read_count"]),
        None if math.isinf(seconds) else row["read_count"] / seconds,
        row["read_bytes"],
        _ratio(row["read_hit_bytes"], row["read_bytes"]),
        row["write_count"],
        _ratio(row["write_hit_count"], row["write_count"]),
        row["write_bytes"],
    )


def _ratio(of: float | None, whole: float | None) -> float | None:
    return None if of is None or not whole else of / whole


def _joined(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the sum of several rows; what is not known of one is not known of all."""
    joined: dict[str, float | None] = {}
    for name in (*_COUNTED, "used_bytes", "size_bytes", "file_count"):
        values = [row[name] for row in rows]
        joined[name] = None if None in values else sum(values)
    return joined


def _sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "No cache was seen at work."
    whole = _joined(rows)
    reads, hits, used = whole["read_count"] or 0, whole["read_hit_count"] or 0, whole["used_bytes"]
    cached = "" if used is None else f", with {format_bytes(int(used))} cached"
    if not reads:
        return f"Nothing was read through the caches of {_count(rows)}{cached}."
    return f"{format_percent(hits / reads)} of the reads of {_count(rows)} came from the cache{cached}."


def _count(rows: Sequence[Any]) -> str:
    return "1 OSD" if len(rows) == 1 else f"{len(rows)} OSDs"


def _remarks(rows: Sequence[Any]) -> Iterator[str]:
    yield _HERE_ONLY
    yield _NO_OBJECTS if rows else _NONE
