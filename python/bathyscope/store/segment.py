"""The segment: the one unit in which a run grows. It exists whole or not at all.

    segments/<name>/context.json     what parsing the raw answers needs beside them; the run kind's own
    segments/<name>/segment.json     what the store knows of it: rows, span of time, which segments it replaces
    segments/<name>/raw/<source>.zst every byte that was asked and answered
    segments/<name>/<table>.parquet  the rows of each record

A segment is written in a hidden directory and moved into place by one rename. It is never changed afterwards: a newer
one takes its place, as the next generation (`<name>~2`) or because it names it among those that it replaces. Readers
leave out what is replaced, and the next writer deletes it, so that a killed process neither loses nor doubles a row.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from bathyscope import files
from bathyscope.errors import StoreError, UntrustedError
from bathyscope.store.errors import store_errors
from bathyscope.store.info import read_json

# Arrow is slow to load. Whoever lists runs or opens one does without; reading and writing rows loads it.
if TYPE_CHECKING:
    import pyarrow as pa

    from bathyscope.records import RawAnswer, Record
    from bathyscope.store.run_directory import RunDirectory
    from bathyscope.store.tables import TableWriter

_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_DIRECTORY_NAME = re.compile(rf"({_NAME.pattern})(?:~([1-9][0-9]{{0,8}}))?")


class SegmentFacts(BaseModel):
    """The content of segment.json. `start_ns` and `end_ns` are the least and the greatest time of its samples.

    `resolution_s` is 0 for rows as they were recorded, else the length of the intervals that they were rolled up to.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    replaces: tuple[str, ...] = ()
    resolution_s: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    rows: dict[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Segment:
    """A segment that was committed."""

    name: str
    path: Path
    generation: int = 1

    @functools.cached_property
    def facts(self) -> SegmentFacts:
        """What the store knows of it. Raises StoreError."""
        path = self.path / "segment.json"
        try:
            return SegmentFacts.model_validate(read_json(path, hint=_DAMAGED))
        except ValidationError as error:
            raise StoreError(f"{path} is damaged: {error.errors()[0]['msg']}", hint=_DAMAGED) from error

    def context(self) -> dict[str, Any]:
        """Return what was kept beside the raw answers; empty when nothing was. Raises StoreError."""
        path = self.path / "context.json"
        return read_json(path, hint=_DAMAGED) if path.exists() else {}

    def raw_sources(self) -> list[str]:
        """Return the names of the sources that have raw answers here, in order. Raises StoreError."""
        directory = self.path / "raw"
        if not os.path.lexists(directory):
            return []
        with store_errors("read", directory):
            return [file.stem for file in files.plain_files(directory, ".zst") if is_segment_name(file.stem)]

    def raw(self, source: str) -> list[RawAnswer]:
        """Return the raw answers of a source in the order of their writing, none when it has none.

        Raises ParseError when the file is damaged, StoreError when it cannot be read.
        """
        return list(self.scan_raw(source))

    def scan_raw(self, source: str) -> Iterator[RawAnswer]:
        """Yield what `raw` returns; one answer is held at a time."""
        from bathyscope.store.raw import scan_raw

        return scan_raw(self.path / "raw" / f"{source}.zst") if source in self.raw_sources() else iter(())

    def table(self, record: type[Record]) -> pa.Table:
        """Return the rows of one record, empty when it has none. Raises StoreError."""
        from bathyscope.store import tables

        file = tables.parquet_files(self.path).get(record.TABLE)
        return tables.read(record.TABLE, [file] if file else [])


class SegmentWriter:
    """A segment under way: a hidden directory that `commit` moves into place. Leaving without commit discards it."""

    def __init__(
        self,
        run: RunDirectory,
        name: str,
        facts: SegmentFacts,
        *,
        old: Segment | None = None,
        keep_raw: bool = True,
    ) -> None:
        """`facts`: which segments it replaces, its resolution, and what holds of the tables of `old` that it links."""
        self._run = run
        self._old = old
        self._keep_raw = keep_raw
        self._linked: list[str] = []
        generation = 1 if old is None else old.generation + 1
        directory = name if generation == 1 else f"{name}~{generation}"
        self._final = Segment(name, run.path / "segments" / directory, generation)
        self._known = facts
        self._tables: dict[str, TableWriter] = {}
        with store_errors("make", self._final.path):
            self._partial: Path | None = files.partial_directory(self._final.path)

    @property
    def name(self) -> str:
        """Name of the segment."""
        return self._final.name

    def raw(self, source: str, answers: Iterable[RawAnswer]) -> None:
        """Keep the raw answers of a source, once; of a generator, one is held at a time. Raises StoreError."""
        from bathyscope.store.raw import write_raw

        if not is_segment_name(source):
            raise StoreError(f"'{source}' is not a name for raw answers")
        directory = self._open() / "raw"
        with store_errors("make", directory):
            directory.mkdir(exist_ok=True)
        write_raw(directory / f"{source}.zst", answers)

    def context(self, values: Mapping[str, Any]) -> None:
        """Keep JSON values beside the raw answers; what was kept before is replaced. Raises StoreError."""
        path = self._open() / "context.json"
        with store_errors("write", path):
            path.write_text(json.dumps(values, indent=1) + "\n")

    def table(self, record: type[Record], rows: pa.Table | Iterable[Record]) -> None:
        """Add rows of a record, with the run's id. They may come in any number of calls. Raises StoreError."""
        from bathyscope.store.tables import stored_table

        self.append(record.TABLE, stored_table(record, rows, self._run.id), time_column=record.TIME)

    def append(self, table: str, rows: pa.Table | pa.RecordBatch, *, time_column: str | None) -> None:
        """Add rows that have the schema of the store already (run_id first). Raises StoreError."""
        from bathyscope.store.tables import TableWriter

        partial = self._open()
        if rows.num_rows:
            with store_errors("write", self._final.path):
                if table not in self._tables:
                    path = partial / f"{table}.parquet"
                    self._tables[table] = TableWriter(path, rows.schema, time_column=time_column)
                self._tables[table].append(rows)

    def link(self, table: str) -> None:
        """Take over a table of the segment that this one takes the place of, as it is. Raises StoreError."""
        if self._old is not None:
            with store_errors("keep", self._old.path):
                _link(self._old.path / f"{table}.parquet", self._open() / f"{table}.parquet")
            self._linked.append(table)

    def commit(self) -> Segment:
        """Flush everything and make the segment visible with one rename.

        Raw answers and the context of the segment that it takes the place of are kept unless new ones were given.
        Raises StoreError (disk full above all); then nothing of it is visible, and the earlier segments stand.
        """
        partial = self._open()
        try:
            with store_errors("write", self._final.path):
                for writer in self._tables.values():
                    writer.close()
                self._carry_over(partial)
                facts = self._facts()
                (partial / "segment.json").write_text(facts.model_dump_json() + "\n")
                self._run.drop_joined_tables()
                files.put_directory(partial, self._final.path)
        except BaseException:
            self.discard()
            raise
        self._partial = None
        return self._final

    def discard(self) -> None:
        """Throw the segment away; harmless after commit."""
        if self._partial is not None:
            for writer in self._tables.values():
                # What cannot be written is thrown away here all the same.
                with contextlib.suppress(Exception):
                    writer.close()
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial = None

    def _carry_over(self, partial: Path) -> None:
        if self._old is None:
            return
        kept = [Path("context.json")]
        if self._keep_raw:
            kept += [Path("raw") / f"{source}.zst" for source in self._old.raw_sources()]
        for file in kept:
            if (self._old.path / file).exists() and not (partial / file).exists():
                (partial / file).parent.mkdir(exist_ok=True)
                _link(self._old.path / file, partial / file)

    def _facts(self) -> SegmentFacts:
        before = self._known if self._linked else SegmentFacts()
        rows = {name: writer.rows for name, writer in self._tables.items()}
        rows |= {name: before.rows.get(name, 0) for name in self._linked}
        starts = [before.start_ns, *(writer.start_ns for writer in self._tables.values())]
        ends = [before.end_ns, *(writer.end_ns for writer in self._tables.values())]
        return SegmentFacts(
            replaces=self._known.replaces,
            resolution_s=self._known.resolution_s,
            start_ns=min((time for time in starts if time is not None), default=None),
            end_ns=max((time for time in ends if time is not None), default=None),
            rows=dict(sorted(rows.items())),
        )

    def _open(self) -> Path:
        if self._partial is None:
            raise StoreError(f"segment {self.name} has been closed")
        return self._partial

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def is_segment_name(name: str) -> bool:
    """Return whether a segment (or a source's raw answers) can have this name."""
    return _NAME.fullmatch(name) is not None


def on_disk(directory: Path) -> list[Segment]:
    """Return all segments in a directory in the order of their names, replaced ones and older generations too."""
    if not os.path.lexists(directory):
        return []
    segments = []
    with store_errors("read", directory):
        for name, kind in files.listed(directory).items():
            match = _DIRECTORY_NAME.fullmatch(name)
            if match is not None and kind == "other":
                raise UntrustedError(f"{directory / name} is not a directory", hint=_DAMAGED)
            if match is not None and kind == "directory":
                segments.append(Segment(match[1], directory / name, int(match[2] or 1)))
    return sorted(segments, key=lambda segment: (segment.name, segment.generation))


def in_force(segments: Iterable[Segment]) -> dict[str, Segment]:
    """Return the segments that readers see, by name, in order: the newest generation of those that none replaces."""
    newest = {segment.name: segment for segment in segments}
    replaced = {name for segment in newest.values() for name in _replaced_by(segment)}
    return {name: segment for name, segment in newest.items() if name not in replaced}


def _replaced_by(segment: Segment) -> tuple[str, ...]:
    try:
        return segment.facts.replaces
    except StoreError:
        # A writer may have deleted a replaced segment since the directory was listed.
        if segment.path.exists():
            raise
        return ()


def _link(source: Path, target: Path) -> None:
    """Make `target` another name of a file that nobody changes; a copy where the file system has no such links."""
    try:
        os.link(source, target)
    except OSError:
        with os.fdopen(files.open_plain(source), "rb") as old, target.open("xb") as new:
            shutil.copyfileobj(old, new)


_DAMAGED = "move the segment's directory away; the others of the run stay readable"
