"""Roll-ups: samples of a recording joined to longer intervals as they age, 5 s → 1 min → 1 h, and retention.

All segments of an hour that are old enough are joined to one segment of minutes that replaces them, all of a day to one
of hours. Each span of time is therefore there once, at the finest resolution kept. The one rename by which the joined
segment appears is the moment of the change: a killed roll-up has either happened or not.

Only records with `at_ns` and a `duration_ns` that can be added up are joined. The rows of all others are taken over as
they are until their own time is up.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bathyscope import files
from bathyscope.records import RECORDS_BY_TABLE, Collection, Record
from bathyscope.store import tables
from bathyscope.store.errors import store_errors
from bathyscope.store.run_directory import RunDirectory
from bathyscope.store.segment import Segment, SegmentWriter

# Only segments of a recording are rolled up: their names begin with the time of their start.
_NAME = re.compile(r"([0-9]{8}T[0-9]{6})\.([0-9]{3})Z(?:-[0-9A-Za-z._-]+)?")
_HOUR_S = 3600
_DAY_S = 86400


@dataclasses.dataclass(frozen=True, slots=True)
class Retention:
    """How long what is kept, in seconds of age; infinite for as long as the run lies there.

    `raw_s`: raw answers. `recorded_s`, `minute_s`, `hour_s`: samples as recorded, joined to minutes, joined to hours.
    `event_s`: rows that cannot be joined (ops, cluster status); those without a time (the map) stay. Collections cannot
    be joined either, but every gap is stated from them, so they are kept as long as samples. Samples are not joined
    before their raw answers are gone, so that what a run can be parsed again from fits its tables.
    """

    raw_s: float = 6 * _HOUR_S
    recorded_s: float = _DAY_S
    minute_s: float = 30 * _DAY_S
    hour_s: float = math.inf
    event_s: float = 7 * _DAY_S


def can_be_rolled_up(record: type[Record]) -> bool:
    """Return whether rows of a record can be joined to longer intervals."""
    schema = tables.stored_schema(record)
    if record.TIME != "at_ns" or "duration_ns" not in schema.names:
        return False
    return (schema.field("duration_ns").metadata or {}).get(b"roll_up") in (b"sum", b"sum by daemon")


def roll_up(run: RunDirectory, now_ns: int, retention: Retention | None = None) -> list[str]:
    """Join what is old enough, delete what is too old, and return the names of the segments written.

    `now_ns` is nanoseconds since the Unix epoch. To be called now and then by the process that records; segments that
    were replaced are deleted by the call after, so that readers that listed them a moment ago still find them. Memory
    is bounded. Raises StoreError; what was done until then stands.
    """
    retention = retention or Retention()
    run.sweep()
    written = _expire(run, now_ns, retention)
    finest_s = max(retention.recorded_s, retention.raw_s)
    written += _join(run, now_ns, retention, from_s=0, to_s=60, window_s=_HOUR_S, age_s=finest_s)
    written += _join(run, now_ns, retention, from_s=60, to_s=_HOUR_S, window_s=_DAY_S, age_s=retention.minute_s)
    return written


def _join(
    run: RunDirectory,
    now_ns: int,
    retention: Retention,
    *,
    from_s: int,
    to_s: int,
    window_s: int,
    age_s: float,
) -> list[str]:
    """Join the segments of each window that has ended `age_s` ago."""
    windows: dict[int, list[Segment]] = {}
    for segment in run.segments().values():
        start_ns = _start_ns(segment)
        if start_ns is not None and segment.facts.resolution_s == from_s:
            windows.setdefault(start_ns // (window_s * 10**9), []).append(segment)
    written = []
    for window, segments in sorted(windows.items()):
        if (window + 1) * window_s * 10**9 + age_s * 1e9 <= now_ns:
            events_from_ns = max(0, now_ns - retention.event_s * 1e9)
            written.append(_join_segments(run, segments, to_s, round(events_from_ns)))
    return written


def _join_segments(run: RunDirectory, segments: Sequence[Segment], to_s: int, events_from_ns: int) -> str:
    from bathyscope.store import duck

    files_by_table: dict[str, list[Path]] = {}
    for segment in segments:
        for table, file in tables.parquet_files(segment.path).items():
            files_by_table.setdefault(table, []).append(file)
    name = f"{segments[0].name.partition('Z')[0]}Z-rolled-{to_s}s"
    with run.begin_segment(name, replaces=segments, resolution_s=to_s) as writer:
        for table, paths in sorted(files_by_table.items()):
            record = RECORDS_BY_TABLE.get(table)
            if record is not None and can_be_rolled_up(record):
                with store_errors("make", run.path):
                    spill = tempfile.TemporaryDirectory(prefix=".partial-", dir=run.path, ignore_cleanup_errors=True)
                with spill, duck.rolled_up(record, paths, to_s, Path(spill.name)) as batches:
                    for batch in batches:
                        writer.append(table, batch, time_column=record.TIME)
            else:
                _copy(writer, table, paths, None if record is Collection else events_from_ns)
        return writer.commit().name


def _copy(writer: SegmentWriter, table: str, paths: Sequence[Path], from_ns: int | None) -> None:
    record = RECORDS_BY_TABLE.get(table)
    time = None if record is None else record.TIME
    schema = tables.schema_on_disk(table, paths)
    for batch in tables.scan(table, paths, schema, start_ns=None if time is None else from_ns):
        writer.append(table, batch, time_column=time)


def _expire(run: RunDirectory, now_ns: int, retention: Retention) -> list[str]:
    """Let go of raw answers, samples and events whose time is up; return the names of the segments written anew."""
    written = []
    for segment in run.segments().values():
        start_ns = _start_ns(segment)
        if start_ns is None:
            continue
        facts = segment.facts
        # A segment's own events may be older than itself: an op history reaches back.
        end_ns = max(start_ns, facts.end_ns or 0)
        raw_too = bool(segment.raw_sources()) and not _is_over(end_ns, now_ns, retention.raw_s)
        there = list(tables.parquet_files(segment.path))
        kept = [table for table in there if not _is_over(end_ns, now_ns, _age(table, facts.resolution_s, retention))]
        if kept == there and raw_too == bool(segment.raw_sources()):
            continue
        if not kept and not raw_too:
            with store_errors("remove", segment.path):
                run.drop_joined_tables()
                files.remove_directory(segment.path)
            continue
        with run.replace_segment(segment.name, keep_raw=raw_too) as writer:
            for table in kept:
                writer.link(table)
            written.append(writer.commit().name)
    return written


def _age(table: str, resolution_s: int, retention: Retention) -> float:
    record = RECORDS_BY_TABLE.get(table)
    if record is not None and record.TIME is None:
        # The map is read once, and holds for the whole run.
        return math.inf
    if record is not Collection and (record is None or not can_be_rolled_up(record)):
        return retention.event_s
    # Samples as recorded and of minutes do not end, they are joined.
    return retention.hour_s if resolution_s == _HOUR_S else math.inf


def _start_ns(segment: Segment) -> int | None:
    """Return the start of a segment of a recording by its name, None for any other."""
    match = _NAME.fullmatch(segment.name)
    if match is None:
        return None
    try:
        moment = datetime.datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 10**9 + int(match[2]) * 10**6


def _is_over(end_ns: int, now_ns: int, age_s: float) -> bool:
    return end_ns + age_s * 1e9 < now_ns
