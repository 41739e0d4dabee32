"""One run on disk: run.json, the segments in which it grows, and a joined copy of its tables.

    <run>/run.json                 kind, status, spec, target, versions; replaced by rename
    <run>/lock                     held by the process that writes
    <run>/segments/<name>/…        raw answers and rows, see `segment`
    <run>/tables/<table>.parquet   everything joined, once the run has ended
    <run>/report.html

`tables/` is a copy for people and their tools: a writer removes it first, so it is never out of
date. Reading works at any moment, with or without it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bathyscope import files
from bathyscope.errors import StoreError
from bathyscope.store.errors import store_errors
from bathyscope.store.info import RunInfo, info_bytes, read_info
from bathyscope.store.segment import Segment, SegmentFacts, SegmentWriter, in_force, is_segment_name, on_disk

if TYPE_CHECKING:
    import pyarrow as pa

    from bathyscope.records import Record

_STEP = re.compile(r"step-([0-9]{5,9})")


class RunDirectory:
    """A run. Opened for reading unless it holds the lock; `close` (or `with`) gives the lock back.

    Opening raises StoreError, UntrustedError when another user owns it or can write it, FormatVersionError.
    """

    def __init__(self, path: Path, *, locks: contextlib.ExitStack | None = None) -> None:
        with store_errors("open", path):
            self.path = files.own_directory(path)
        self.info: RunInfo = read_info(path / "run.json")
        if path.name != self.info.id:
            raise StoreError(f"the run in {path} is {self.info.id}", hint="a run's directory has the name of its id")
        self._locks = locks

    @property
    def id(self) -> str:
        """Identifier of the run."""
        return self.info.id

    @property
    def status(self) -> str:
        """Status as it is: a "running" run whose lock is free was interrupted."""
        if self.info.status == "running" and not files.is_held(self.path / "lock"):
            return "interrupted"
        return self.info.status

    def update(self, **changes: Any) -> RunInfo:
        """Replace fields of run.json in one rename and return the new content. Raises StoreError."""
        self.must_be_writable()
        unknown = set(changes) - (set(RunInfo.model_fields) - {"format_version", "id"})
        if unknown:
            raise StoreError(f"run.json has no field to change named {', '.join(sorted(unknown))}")
        info = RunInfo.model_validate({**self.info.model_dump(), **changes})
        with store_errors("write", self.path / "run.json"):
            files.write_file(self.path / "run.json", info_bytes(info))
        self.info = info
        return info

    def segments(self) -> dict[str, Segment]:
        """Return the segments by name, in the order of their names; replaced ones are left out. Raises StoreError."""
        return in_force(on_disk(self.path / "segments"))

    def step_segments(self) -> dict[int, Segment]:
        """Return the segments of finished steps (`step_name`) by the step's index, in order. Raises StoreError."""
        steps = ((_STEP.fullmatch(name), segment) for name, segment in self.segments().items())
        return dict(sorted((int(match[1]), segment) for match, segment in steps if match is not None))

    def begin_segment(self, name: str, *, replaces: Iterable[Segment] = (), resolution_s: int = 0) -> SegmentWriter:
        """Return a writer for a new segment. Raises StoreError when there is one of this name, or it cannot be made.

        From its commit on, readers see it instead of those that it `replaces`. `resolution_s` is the length of the
        intervals that its samples were rolled up to, 0 as they were recorded.
        """
        self.must_be_writable()
        segments = on_disk(self.path / "segments")
        if not is_segment_name(name):
            raise StoreError(f"'{name}' is not a name for a segment")
        if any(segment.name == name for segment in segments):
            raise StoreError(f"segment {name} of run {self.id} exists already", hint="a finished segment is kept")
        # What those replaced in their turn may still lie there; it must not come back when they are deleted.
        direct = {segment.name for segment in replaces}
        there = {segment.name for segment in segments}
        indirect = {
            old for segment in segments if segment.name in direct for old in segment.facts.replaces if old in there
        }
        replaced = tuple(sorted(direct | indirect))
        return SegmentWriter(self, name, SegmentFacts(replaces=replaced, resolution_s=resolution_s))

    def replace_segment(self, name: str, *, keep_raw: bool = True) -> SegmentWriter:
        """Return a writer for a segment that takes the place of the one of this name, if there is one, at its commit.

        Raw answers and the context of the old one are kept unless others are given (or `keep_raw` is False); tables
        are not. Raises StoreError.
        """
        self.must_be_writable()
        old = self.segments().get(name)
        if old is None:
            return self.begin_segment(name)
        return SegmentWriter(self, name, old.facts, old=old, keep_raw=keep_raw)

    def sweep(self) -> None:
        """Delete what others replace, and leftovers of killed writers. Raises StoreError.

        Readers that listed the segments a moment ago may still open a replaced one, so it is deleted with the next
        occasion and not at once.
        """
        self.must_be_writable()
        with store_errors("clean up", self.path):
            directory = self.path / "segments"
            # First: what is no directory of ours is refused before anything is deleted.
            segments = on_disk(directory)
            for swept in (self.path, directory):
                files.sweep(swept)
            kept = set(in_force(segments).values())
            for segment in segments:
                if segment not in kept:
                    files.remove_directory(segment.path)

    def files(self, *, start_ns: int | None = None, end_ns: int | None = None) -> dict[str, list[Path]]:
        """Return the Parquet files that together hold each table; tables without rows are left out.

        With a window, files of segments that have no sample in it may be left out. Raises StoreError.
        """
        from bathyscope.store.tables import parquet_files

        joined = self.path / "tables"
        if os.path.lexists(joined):
            return {name: [file] for name, file in parquet_files(joined).items()}
        files_by_table: dict[str, list[Path]] = {}
        for segment in self.segments().values():
            if _may_hold(segment, start_ns, end_ns):
                for name, file in parquet_files(segment.path).items():
                    files_by_table.setdefault(name, []).append(file)
        return files_by_table

    def table(
        self,
        record: type[Record],
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return the rows of one record with start_ns <= its time < end_ns (ns since the Unix epoch), or all.

        Only what is asked for is read: `columns`, and row groups that have rows of the window. Raises StoreError, and
        ValueError when a window is asked of a record whose rows have no time.
        """
        from bathyscope.store import tables

        files = self.files(start_ns=start_ns, end_ns=end_ns).get(record.TABLE, [])
        return tables.read(record.TABLE, files, start_ns=start_ns, end_ns=end_ns, columns=columns)

    def tables(self) -> dict[str, pa.Table]:
        """Return whole tables by name: every record's and what else lies there. Raises StoreError."""
        from bathyscope.records import RECORDS_BY_TABLE
        from bathyscope.store import tables
        from bathyscope.store.parquet_bounds import must_fit

        files = self.files()
        must_fit(path for paths in files.values() for path in paths)
        return {name: tables.read(name, files.get(name, [])) for name in dict.fromkeys([*RECORDS_BY_TABLE, *files])}

    def row_counts(self) -> dict[str, int]:
        """Return table → number of rows of the tables that have any, by name. Raises StoreError."""
        counts: dict[str, int] = {}
        for segment in self.segments().values():
            for table, rows in segment.facts.rows.items():
                counts[table] = counts.get(table, 0) + rows
        return dict(sorted(counts.items()))

    def compact(self) -> None:
        """Write the joined tables to tables/, whole or not at all, in bounded memory. Raises StoreError."""
        from bathyscope.store import tables

        self.must_be_writable()
        self.drop_joined_tables()
        self.sweep()
        final = self.path / "tables"
        with store_errors("write", final), files.making_directory(final) as partial:
            for name, parts in self.files().items():
                schema = tables.schema_on_disk(name, parts)
                with contextlib.closing(
                    tables.TableWriter(partial / f"{name}.parquet", schema, described=True)
                ) as writer:
                    for batch in tables.scan(name, parts, schema):
                        writer.append(batch)

    def drop_joined_tables(self) -> None:
        """Take tables/ away before the run changes; the segments still hold everything. Raises StoreError."""
        if os.path.lexists(self.path / "tables"):
            with store_errors("replace", self.path / "tables"):
                files.remove_directory(self.path / "tables")

    def must_be_writable(self) -> None:
        """Raise StoreError when this object does not hold the run's lock."""
        if self._locks is None:
            raise StoreError(f"run {self.id} is open for reading only", hint="open it with exclusive=True")

    def close(self) -> None:
        """Give the locks back."""
        if self._locks is not None:
            self._locks.close()
            self._locks = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def step_name(index: int) -> str:
    """Return the name of the segment of a step: step-00012. Raises StoreError for what is no index."""
    if not 0 <= index < 10**9:
        raise StoreError(f"{index} is not the index of a step")
    return f"step-{index:05d}"


def _may_hold(segment: Segment, start_ns: int | None, end_ns: int | None) -> bool:
    facts = segment.facts
    if facts.start_ns is None or facts.end_ns is None:
        return True
    return (start_ns is None or start_ns <= facts.end_ns) and (end_ns is None or facts.start_ns < end_ns)
