"""The files, or Ceph objects, with the most requests: answers of the daemons in, findings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from bathyscope.cache.filestore import object_of
from bathyscope.cache.snapshots import Snapshot, Span, source_name
from bathyscope.fields import as_dict, as_list, parsing
from bathyscope.rbd_names import NUMBER_DIGITS, image_id_of
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table, Unit

Kind = Literal["files", "objects"]
# The columns that a kind has of its own, their cells for each file, and what is not shown.
_Places = tuple[tuple[Column, ...], list[tuple[tuple[Any, ...], Span]], list[str]]

_FIGURES: tuple[tuple[str, str, Unit, str, int], ...] = (
    ("reads", "Reads", "count", "reads.requests", 0),
    ("read_hits", "Read hits", "count", "reads.requests_hit", 0),
    ("read_bytes", "Read data", "bytes", "reads.bytes", 2),
    ("writes", "Writes", "count", "writes.requests", 1),
    ("cached_bytes", "Cached", "bytes", "cached_bytes", 0),
    ("size_bytes", "Size", "bytes", "size_bytes", 3),
    ("last_used_s", "Last used", "s", "last_access_s_ago", 1),
    ("residence_s", "Residence", "s", "residence_s_mean", 4),
    ("residence_sample", "Residence sample", "count", "residence.lines_left", 6),
    ("oldest_line_s", "Oldest line", "s", "residence.age_s_max", 5),
)
_HELP = {
    "residence_s": "mean time from entering the cache to leaving it, of sampled lines, 1 of 128",
    "residence_sample": "sampled lines that entered since the start and left, which the mean is of",
    "oldest_line_s": "time since the first of the sampled lines that are present entered; of those since the start",
}
_FIGURE_COLUMNS = tuple(
    Column(key, heading, unit, rank=rank, help=_HELP.get(key, "")) for key, heading, unit, _, rank in _FIGURES
)
_BLOCK_NAMES = ("block", "block.db", "block.wal")


def top_objects(
    kind: Kind,
    snapshots: Sequence[Snapshot],
    answers: Mapping[str, dict[str, Any]],
    *,
    source: str | None,
    limit: int,
    remarks: Sequence[str] = (),
) -> ActivityFinding:
    """Return the files with the most requests of each source, or the objects of each FileStore OSD."""
    spans = _asked(snapshots, answers, source, limit)
    other_columns, places, unseen = _objects(spans) if kind == "objects" else _files(spans)
    columns = (*other_columns, Column("source", "Source", rank=1), *_FIGURE_COLUMNS)
    rows = tuple((*place, span.name, *_figures(span)) for place, span in places)
    end_ns = max(snapshot.at_ns for snapshot in snapshots)
    start_ns = end_ns - round(max(snapshot.uptime_s for snapshot in snapshots) * 1e9)
    return ActivityFinding(
        view=f"cache {kind}",
        run_id="",
        target="cache " + ", ".join(snapshot.cache for snapshot in snapshots),
        start_ns=start_ns,
        end_ns=end_ns,
        sentence=f"{kind.capitalize()} with the most requests: {len(rows):,}." if rows else f"No {kind} are known.",
        tables=(Table(kind, kind.capitalize(), columns, rows),),
        unseen=(*remarks, *unseen),
    )


def _files(spans: Sequence[Span]) -> _Places:
    places = [((_path_of(span) or f"handle {span.text('handle')}",), span) for span in spans]
    unseen = "A file that is shown by its handle has no name any more, or its name is not known at the moment."
    return (Column("file", "File"),), places, [unseen]


def _objects(spans: Sequence[Span]) -> _Places:
    """Return the objects, and which sources have none that are known."""
    columns = (
        Column("object_name", "Object"),
        Column("image_id", "Image id", rank=2),
        Column("pool_id", "Pool id", rank=3),
        Column("namespace", "Namespace", rank=9),
        Column("snapshot", "Snapshot", rank=8),
    )
    places: list[tuple[tuple[Any, ...], Span]] = []
    block_stores, others = set(), 0
    for span in spans:
        path = _path_of(span) or ""
        cached_object = object_of(path)
        if path in _BLOCK_NAMES:
            block_stores.add(span.name)
        elif cached_object is None:
            others += 1
        else:
            name, pool = cached_object.name, cached_object.pool
            image = image_id_of(name[: -NUMBER_DIGITS - 1].encode())
            places.append(((name, image, pool, cached_object.namespace, cached_object.snapshot), span))
    unseen = []
    if block_stores:
        unseen.append(
            f"{', '.join(sorted(block_stores))}: BlueStore. Which objects lie where on its device is not known; OSDs "
            "of Ceph 20 say so for the objects of a recording (bathy collect --depth deep): add --recording RUN."
        )
    if others:
        unseen.append(
            f"{others} of the busiest files are not shown: they are not objects, or their names are hashed. "
            "bathy cache files shows them."
        )
    return columns, places, unseen


def _path_of(span: Span) -> str | None:
    path = span.text("path")
    return None if path is None else path.lstrip("/")


def _figures(span: Span) -> tuple[Any, ...]:
    return tuple(span.gauge(path) for _, _, _, path, _ in _FIGURES)


def _asked(
    snapshots: Sequence[Snapshot], answers: Mapping[str, dict[str, Any]], source: str | None, limit: int
) -> list[Span]:
    """Return what is known of each file, named by its source, those with the most requests first."""
    spans = []
    for snapshot in snapshots:
        with parsing(f"the files of the cache '{snapshot.cache}'"):
            for entry in as_list(answers[snapshot.cache]["sources"]):
                name = source_name(entry)
                if source in (None, name):
                    # A cache without its SSD counts no files.
                    every = as_list(entry.get("files") or [])[:limit]
                    spans += [
                        Span(snapshot.cache, name, snapshot.uptime_s, snapshot.uptime_s, as_dict(file))
                        for file in every
                    ]
    return sorted(spans, key=lambda span: -_requests(span))


def _requests(span: Span) -> float:
    return (span.gauge("reads.requests") or 0) + (span.gauge("writes.requests") or 0)
