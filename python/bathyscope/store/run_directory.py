"""One run on disk: run.json, steps that exist whole or not at all, and the final tables.

    <run>/run.json                     status, plan, target, versions; replaced by rename
    <run>/lock                         held by the process that writes
    <run>/parts/<part>.<table>.parquet records of the whole run (environment, placement, run, …)
    <run>/steps/<n>/raw/…              what each tool printed
    <run>/steps/<n>/tables/*.parquet   the records of the step
    <run>/tables/*.parquet             everything joined, once the run has ended

`tables/` is a copy for people and their tools: whoever adds to the run takes it away first, so it is
never out of date. Reading works at any moment, with or without it.
"""

from __future__ import annotations

import dataclasses
import errno
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from bathyscope.errors import StoreError
from bathyscope.records import ALL_RECORDS, RECORDS_BY_TABLE, Record, Step, from_table, schema_of, to_table
from bathyscope.store import atomic
from bathyscope.store.errors import store_errors
from bathyscope.store.info import RunInfo, info_bytes, read_info
from bathyscope.store.lock import FileLock, is_held

Rows = Mapping[type[Record], Iterable[Record]]


@dataclasses.dataclass(frozen=True, slots=True)
class FinishedStep:
    """A step that was committed."""

    index: int
    path: Path

    @property
    def raw_directory(self) -> Path:
        """Directory of what the tools printed."""
        return self.path / "raw"

    def table(self, record: type[Record]) -> pa.Table:
        """Return the step's rows of one record, empty when it has none. Raises StoreError."""
        file = self.path / "tables" / f"{record.TABLE}.parquet"
        return _read_table(record, [file] if file.exists() else [])

    def step(self) -> Step:
        """Return the step's own row. Raises StoreError when there is not exactly one."""
        rows = from_table(Step, self.table(Step))
        if len(rows) != 1:
            raise StoreError(f"{self.path} holds {len(rows)} step rows instead of one")
        return rows[0]


class StepWriter:
    """A step under way: a hidden directory that `commit` moves into place. Leaving without commit discards it.

    A full disk met by whoever writes raw files inside the `with` block leaves it as StoreError, like one met here.
    """

    def __init__(self, run: RunDirectory, index: int, partial: Path) -> None:
        self._run = run
        self._partial: Path | None = partial
        self.index = index

    @property
    def raw_directory(self) -> Path:
        """Directory for what the tools print; it moves with the step at commit."""
        if self._partial is None:
            raise StoreError(f"step {self.index} has been closed")
        return self._partial / "raw"

    def raw(self, name: str) -> Path:
        """Return the path for a raw file. Raises StoreError when `name` would leave the directory."""
        if not name or name.startswith((".", "/")) or ".." in Path(name).parts or "\0" in name:
            raise StoreError(f"'{name}' is not a name for a raw file")
        path = self.raw_directory / name
        with store_errors("make", path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def commit(self, rows: Rows) -> FinishedStep:
        """Write the records, flush everything, and make the step visible with one rename.

        Raises StoreError (disk full above all); then nothing of the step is visible, and the earlier steps stand.
        """
        partial = self._partial
        if partial is None:
            raise StoreError(f"step {self.index} has been closed")
        final = self._run.path / "steps" / str(self.index)
        try:
            with store_errors("write", final):
                (partial / "tables").mkdir()
                for record, records in rows.items():
                    table = to_table(record, records)
                    if table.num_rows:
                        atomic.write_parquet(partial / "tables" / f"{record.TABLE}.parquet", table)
                self._run.drop_final_tables()
                atomic.put_directory(partial, final)
        except BaseException:
            self.discard()
            raise
        self._partial = None
        return FinishedStep(self.index, final)

    def discard(self) -> None:
        """Throw the step away; harmless after commit."""
        if self._partial is not None:
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            with store_errors("write", self._run.path / "steps" / str(self.index)):
                raise error


class RunDirectory:
    """A run. Opened for reading unless it holds the lock; `close` (or `with`) gives the lock back."""

    def __init__(self, path: Path, *, locks: tuple[FileLock, ...] = ()) -> None:
        self.path = path
        self.info: RunInfo = read_info(path / "run.json")
        self._locks = locks

    @property
    def id(self) -> str:
        """Identifier of the run."""
        return self.info.id

    @property
    def status(self) -> str:
        """Status as it is: a run that says "running" while nobody holds its lock was interrupted."""
        if self.info.status == "running" and not is_held(self.path / "lock"):
            return "interrupted"
        return self.info.status

    @property
    def writable(self) -> bool:
        """Whether this object holds the run's lock."""
        return bool(self._locks) and all(lock.held for lock in self._locks)

    def update(self, **changes: Any) -> RunInfo:
        """Replace fields of run.json in one rename and return the new content. Raises StoreError."""
        self._must_be_writable()
        unknown = set(changes) - set(RunInfo.model_fields) - {"format_version", "id"}
        if unknown or {"format_version", "id"} & set(changes):
            raise StoreError(f"run.json has no field to change named {', '.join(sorted(unknown or {'id'}))}")
        info = RunInfo.model_validate({**self.info.model_dump(), **changes})
        with store_errors("write", self.path / "run.json"):
            atomic.write_file(self.path / "run.json", info_bytes(info))
        self.info = info
        return info

    def finished_steps(self) -> dict[int, FinishedStep]:
        """Return the committed steps by index, in order."""
        directory = self.path / "steps"
        with store_errors("read", directory):
            names = [entry.name for entry in directory.iterdir() if entry.is_dir()] if directory.is_dir() else []
        indices = sorted(int(name) for name in names if name.isascii() and name.isdigit())
        return {index: FinishedStep(index, directory / str(index)) for index in indices}

    def begin_step(self, index: int) -> StepWriter:
        """Return a writer for step `index`. Raises StoreError when it is finished already or cannot be made."""
        self._must_be_writable()
        final = self.path / "steps" / str(index)
        if index < 0 or final.exists():
            raise StoreError(f"step {index} of run {self.id} exists already", hint="a finished step is never repeated")
        with store_errors("make", final):
            partial = atomic.partial_directory(final)
            (partial / "raw").mkdir()
        return StepWriter(self, index, partial)

    def write_run_tables(self, rows: Rows, *, part: str = "run") -> None:
        """Write records of the whole run. Each (part, table) replaces what it held; parts add up. Raises StoreError.

        Use a part of its own for what is known at another moment: "before", "after".
        """
        self._must_be_writable()
        if not part.isidentifier():
            raise StoreError(f"'{part}' is not a name for a part of a run")
        with store_errors("write", self.path / "parts"):
            (self.path / "parts").mkdir(exist_ok=True)
            self.drop_final_tables()
            for record, records in rows.items():
                table = to_table(record, records)
                atomic.write_parquet(self.path / "parts" / f"{part}.{record.TABLE}.parquet", table)

    def files(self) -> dict[str, list[Path]]:
        """Return the Parquet files that together hold each table; empty lists for tables without rows."""
        final = self.path / "tables"
        if final.is_dir():
            return {r.TABLE: _existing([final / f"{r.TABLE}.parquet"]) for r in ALL_RECORDS}
        found: dict[str, list[Path]] = {record.TABLE: [] for record in ALL_RECORDS}
        with store_errors("read", self.path):
            for file in sorted((self.path / "parts").glob("*.parquet")):
                table = file.name.split(".")[-2]
                if not file.name.startswith(".") and table in found:
                    found[table].append(file)
            for step in self.finished_steps().values():
                for file in sorted((step.path / "tables").glob("*.parquet")):
                    if file.stem in found:
                        found[file.stem].append(file)
        return found

    def tables(self) -> dict[str, pa.Table]:
        """Return every record's table, over the whole run and all finished steps. Raises StoreError."""
        return {name: _read_table(RECORDS_BY_TABLE[name], files) for name, files in self.files().items()}

    def finalize(self) -> None:
        """Write the joined tables to tables/, whole or not at all. Raises StoreError."""
        self._must_be_writable()
        self.drop_final_tables()
        tables = self.tables()
        final = self.path / "tables"
        partial: Path | None = None
        with store_errors("write", final):
            try:
                partial = atomic.partial_directory(final)
                for name, table in tables.items():
                    atomic.write_parquet(partial / f"{name}.parquet", table)
                atomic.put_directory(partial, final)
            except BaseException:
                if partial is not None:
                    shutil.rmtree(partial, ignore_errors=True)
                raise

    def drop_final_tables(self) -> None:
        """Take tables/ away before the run changes; the parts and steps still hold everything."""
        if (self.path / "tables").exists():
            with store_errors("replace", self.path / "tables"):
                atomic.remove_directory(self.path / "tables")

    def close(self) -> None:
        """Give the locks back."""
        for lock in self._locks:
            lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _must_be_writable(self) -> None:
        if not self.writable:
            raise StoreError(f"run {self.id} is open for reading only", hint="open it with exclusive=True")


def _existing(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.exists()]


def _read_table(record: type[Record], files: list[Path]) -> pa.Table:
    schema = schema_of(record)
    tables = []
    for file in files:
        with store_errors("read", file):
            tables.append(_conform(pq.read_table(file, partitioning=None), schema, file))
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _conform(table: pa.Table, schema: pa.Schema, file: Path) -> pa.Table:
    """Return `table` with exactly `schema`: unknown columns dropped, missing nullable ones empty."""
    arrays = []
    for field in schema:
        if field.name in table.column_names:
            arrays.append(table.column(field.name).cast(field.type))
        elif field.nullable:
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            raise StoreError(f"{file} lacks the column {field.name}")
    return pa.table(arrays, schema=schema)
