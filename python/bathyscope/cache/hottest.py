"""The files, or Ceph objects, with the most requests: answers of the daemons in, findings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bathyscope.cache.filestore import object_of
from bathyscope.cache.looks import Look, Span, source_name
from bathyscope.fields import as_dict, as_list, parsing
from bathyscope.rbd_names import NUMBER_DIGITS, image_id_of
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable, Unit

_FIGURES: tuple[tuple[str, Unit, str, int], ...] = (
    ("Reads", "count", "reads.requests", 0),
    ("Read hits", "count", "reads.requests_hit", 0),
    ("Read data", "bytes", "reads.bytes", 2),
    ("Writes", "count", "writes.requests", 1),
    ("Cached", "bytes", "cached_bytes", 0),
    ("Size", "bytes", "size_bytes", 3),
    ("Last used", "s", "last_access_s_ago", 1),
    ("Residence", "s", "residence_s_mean", 4),
    ("Residence sample", "count", "residence.lines_left", 6),
    ("Oldest line", "s", "residence.age_s_max", 5),
)
_HELP = {
    "Residence": "mean time from entering the cache to leaving it, of sampled lines, 1 of 128",
    "Residence sample": "sampled lines that entered since the start and left, which the mean is of",
    "Oldest line": "time since the first of the sampled lines that are present entered; of those since the start",
}
_FIGURE_COLUMNS = tuple(
    ActivityColumn(name, unit, rank=rank, help=_HELP.get(name, "")) for name, unit, _, rank in _FIGURES
)
_BLOCK_NAMES = ("block", "block.db", "block.wal")


def files(
    looks: Sequence[Look],
    answers: Mapping[str, dict[str, Any]],
    *,
    source: str | None,
    limit: int,
    remarks: Sequence[str] = (),
) -> ActivityFinding:
    """Return the files with the most requests of each source."""
    columns = (ActivityColumn("File"), ActivityColumn("Source", rank=1), *_FIGURE_COLUMNS)
    rows = [
        (_path_of(span) or f"handle {span.text('handle')}", span.name, *_figures(span))
        for span in _files(looks, answers, source, limit)
    ]
    unseen = "A file that is shown by its handle has no name any more, or its name is not known at the moment."
    return _finding("files", looks, columns, rows, (*remarks, unseen))


def objects(
    looks: Sequence[Look],
    answers: Mapping[str, dict[str, Any]],
    *,
    source: str | None,
    limit: int,
    remarks: Sequence[str] = (),
) -> ActivityFinding:
    """Return the objects with the most requests of each FileStore OSD, and say which sources are none."""
    columns = (
        ActivityColumn("Object"),
        ActivityColumn("Image id", rank=2),
        ActivityColumn("Pool id", rank=3),
        ActivityColumn("Namespace", rank=9),
        ActivityColumn("Snapshot", rank=8),
        ActivityColumn("Source", rank=1),
        *_FIGURE_COLUMNS,
    )
    rows, block_stores, others = [], set(), 0
    for span in _files(looks, answers, source, limit):
        path = _path_of(span) or ""
        found = object_of(path)
        if path in _BLOCK_NAMES:
            block_stores.add(span.name)
        elif found is None:
            others += 1
        else:
            image = image_id_of(found.name[: -NUMBER_DIGITS - 1].encode())
            place = (image, found.pool, found.namespace, found.snapshot, span.name)
            rows.append((found.name, *place, *_figures(span)))
    unseen = [*remarks]
    if block_stores:
        unseen.append(
            f"{', '.join(sorted(block_stores))}: BlueStore. The map from offsets of its block device to objects is not "
            "known; bathy collect --depth deep records which objects clients use."
        )
    if others:
        unseen.append(
            f"Files that are no objects or have a hashed name: {others} of these; bathy cache files has them."
        )
    return _finding("objects", looks, columns, rows, tuple(unseen))


def _path_of(span: Span) -> str | None:
    path = span.text("path")
    return None if path is None else path.lstrip("/")


def _figures(span: Span) -> tuple[Any, ...]:
    return tuple(span.gauge(path) for _, _, path, _ in _FIGURES)


def _files(looks: Sequence[Look], answers: Mapping[str, dict[str, Any]], source: str | None, limit: int) -> list[Span]:
    """Return what is known of each file, named by its source, those with the most requests first."""
    found = []
    for look in looks:
        with parsing(f"the files of the cache '{look.cache}'"):
            for entry in as_list(answers[look.cache]["sources"]):
                name = source_name(entry)
                if source in (None, name):
                    # A cache without its SSD counts no files.
                    every = as_list(entry.get("files") or [])[:limit]
                    found += [Span(look.cache, name, look.uptime_s, look.uptime_s, as_dict(one)) for one in every]
    return sorted(found, key=lambda span: -_requests(span))


def _requests(span: Span) -> float:
    return (span.gauge("reads.requests") or 0) + (span.gauge("writes.requests") or 0)


def _finding(
    name: str,
    looks: Sequence[Look],
    columns: tuple[ActivityColumn, ...],
    rows: Sequence[tuple[Any, ...]],
    unseen: tuple[str, ...],
) -> ActivityFinding:
    end_ns = max(look.at_ns for look in looks)
    start_ns = end_ns - round(max(look.uptime_s for look in looks) * 1e9)
    return ActivityFinding(
        view=f"cache {name}",
        run_id="",
        target="cache " + ", ".join(look.cache for look in looks),
        start_ns=start_ns,
        end_ns=end_ns,
        sentence=f"{name.capitalize()} with the most requests: {len(rows):,}." if rows else f"No {name} are known.",
        tables=(ActivityTable(name.capitalize(), columns, tuple(rows)),),
        unseen=unseen,
    )
