"""DuckDB over any number of runs: one view per record, with the record's name. And the SQL of roll-ups.

This is the only module that imports duckdb.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import dataclasses
import functools
import gc
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from bathyscope import files, interruption
from bathyscope.errors import StoreError, UsageError
from bathyscope.records import RECORDS_BY_TABLE, Record
from bathyscope.records.roll_up import joined
from bathyscope.store import tables
from bathyscope.store.errors import store_errors
from bathyscope.store.parquet_bounds import must_fit, opened
from bathyscope.store.run_directory import RunDirectory
from bathyscope.store.tables import stored_schema
from bathyscope.units import format_seconds

# At the end, DuckDB complains on stderr of what was not collected, and Python looks for cycles in all that was
# imported, which takes a tenth of a short command's time: it need not look into what was there before DuckDB.
gc.freeze()

import duckdb  # noqa: E402

# What does not fit goes to a temporary directory inside a run.
_QUERY_MEMORY = "512MB"
_ROLL_UP_MEMORY = "256MB"
_BATCH_ROWS = 1 << 15


LeftOut = Callable[[RunDirectory, StoreError], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """How long a query may take, and how many rows are read of its answer."""

    timeout_s: float
    rows: int


def query(
    runs: Iterable[RunDirectory], sql: str, *, left_out: LeftOut | None = None, bounds: Bounds | None = None
) -> pa.Table:
    """Return the answer of one SELECT over the views of `runs`; see `query_all`."""
    return query_all(runs, {"": sql}, left_out=left_out, bounds=bounds)[""]


def query_all(
    runs: Iterable[RunDirectory],
    queries: Mapping[str, str],
    *,
    left_out: LeftOut | None = None,
    bounds: Bounds | None = None,
) -> dict[str, pa.Table]:
    """Return the answer of each SELECT over the views of `runs`, over one connection.

    A run with a damaged table that a query names is given to `left_out`, and the others are asked; without it
    StoreError is raised. With `bounds` an answer is cut: one row more than these are is the sign of it. Raises
    UsageError for anything but a SELECT, and for a query that takes longer than its bounds.
    """
    for sql in queries.values():
        _must_only_read(sql)
    named = "\n".join(queries.values())
    chosen = _sound(runs, named, left_out)
    try:
        with _spilling(chosen) as spill, _connected(chosen, named, spill) as connection:
            return {name: _answer(connection, sql, bounds) for name, sql in queries.items()}
    except duckdb.Error as error:
        # What lies behind the footer of a file is looked at only when something failed.
        about_words = isinstance(error, duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException)
        sound = chosen if about_words else _sound(chosen, named, left_out, whole=True)
        if len(sound) < len(chosen):
            return query_all(sound, queries, left_out=left_out, bounds=bounds)
        raise UsageError(f"the query failed: {str(error).splitlines()[0]}", hint=_SCHEMA_HINT) from error


def _answer(connection: duckdb.DuckDBPyConnection, sql: str, bounds: Bounds | None) -> pa.Table:
    """Return the answer of a SELECT. Raises UsageError when it takes too long, and what duckdb raises.

    A bounded one is carried out by a thread of its own, so that this one can end it: when its time is up, and when a
    signal has come.
    """
    if bounds is None:
        table: pa.Table = connection.sql(sql).to_arrow_table()
        return table
    ends_s = time.monotonic() + bounds.timeout_s
    with interruption.held(), concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="bathy-sql") as worker:
        answer = worker.submit(_first_rows, connection, sql, bounds.rows + 1)
        try:
            while (left_s := ends_s - time.monotonic()) > 0:
                if concurrent.futures.wait([answer], min(interruption.SOON_S, left_s)).done:
                    return answer.result()
                interruption.check()
            raise UsageError(
                f"the query was ended: it took longer than {format_seconds(bounds.timeout_s)}",
                hint="ask for less, or give it more time with --timeout",
            )
        finally:
            # Between two steps of a query there is nothing to interrupt.
            while not answer.done():
                connection.interrupt()
                concurrent.futures.wait([answer], 0.05)


def _first_rows(connection: duckdb.DuckDBPyConnection, sql: str, count: int) -> pa.Table:
    reader = connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
    batches, rows = [], 0
    while rows < count:
        try:
            batches.append(reader.read_next_batch())
        except StopIteration:
            break
        except OSError as error:
            # What duckdb says on the way, as Arrow passes it on.
            raise duckdb.Error(str(error)) from error
        rows += batches[-1].num_rows
    return pa.Table.from_batches(batches, schema=reader.schema).slice(0, count)


def query_tables(tables: Mapping[str, pa.Table], queries: Mapping[str, str]) -> dict[str, pa.Table]:
    """Return the answer of each SELECT over tables in memory; a record that is not among them is empty.

    Raises UsageError for anything but a SELECT.
    """
    named = "\n".join(queries.values()).lower()
    with contextlib.closing(_in_memory(os.getpid()).cursor()) as connection:
        for name, record in RECORDS_BY_TABLE.items():
            if name in named:
                connection.register(name, tables[name] if name in tables else stored_schema(record).empty_table())
        answers = {}
        for name, sql in queries.items():
            _must_only_read(sql)
            try:
                answers[name] = connection.sql(sql).to_arrow_table()
            except duckdb.Error as error:
                raise UsageError(f"the query failed: {str(error).splitlines()[0]}", hint=_SCHEMA_HINT) from error
    return answers


@functools.cache
def _in_memory(_pid: int) -> duckdb.DuckDBPyConnection:
    """Return the database of this process for tables in memory: to make one takes longer than most queries.

    What a cursor registers is its own. A child that was forked has none of the threads of its parent's.
    """
    # DuckDB complains on stderr of one that is there at the end.
    atexit.register(_in_memory.cache_clear)
    return _connection(_QUERY_MEMORY, None)


def _must_only_read(sql: str) -> None:
    """Raise UsageError unless `sql` is one SELECT, or EXPLAIN of one: EXPLAIN ANALYZE carries out what it explains."""
    try:
        statements = duckdb.extract_statements(sql)
        if len(statements) == 1 and statements[0].type == duckdb.StatementType.EXPLAIN:
            statements = duckdb.extract_statements(_explained(sql))
    except duckdb.Error as error:
        raise UsageError(f"the query failed: {str(error).splitlines()[0]}", hint=_SCHEMA_HINT) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UsageError("only one SELECT statement is run", hint=_SCHEMA_HINT)


def _explained(sql: str) -> str:
    """Return what stands after EXPLAIN or EXPLAIN ANALYZE. Options in parentheses stay, and so are no SELECT."""
    # DuckDB counts bytes.
    text = sql.encode()
    words = [start for start, kind in duckdb.tokenize(sql) if kind != duckdb.token_type.comment]
    rest = text[words[1] :]
    return (text[words[2] :] if rest[:7].lower() == b"analyze" and len(words) > 2 else rest).decode()


def _sound(
    runs: Iterable[RunDirectory], sql: str, left_out: LeftOut | None, *, whole: bool = False
) -> list[RunDirectory]:
    """Return the runs whose tables that `sql` names can be read. Raises StoreError without `left_out`."""
    readable = []
    for run in runs:
        try:
            named = _named(run, sql)
            must_fit(path for paths in named.values() for path in paths)
            for name, paths in named.items():
                for path in paths:
                    tables.check(name, path, whole=whole)
        except StoreError as error:
            if left_out is None:
                raise
            left_out(run, error)
        else:
            readable.append(run)
    return readable


def _named(run: RunDirectory, sql: str) -> Mapping[str, list[Path]]:
    """Return the files of the tables whose names stand in `sql`: each costs a look, and a recording has thousands."""
    named = sql.lower()
    return {table: paths for table, paths in run.files().items() if table in named}


@contextlib.contextmanager
def _spilling(runs: Sequence[RunDirectory]) -> Iterator[Path | None]:
    """Give a directory for what does not fit in memory, inside a run that nobody writes; None where there is none.

    What a kill leaves there is swept with the run's other leftovers.
    """
    spill = None
    try:
        for run in runs:
            # A signal that comes while it is made comes when it is known.
            with contextlib.suppress(OSError), interruption.held():
                if run.status != "running":
                    spill = files.partial_directory(run.path / "sql")
                    break
        yield spill
    finally:
        if spill is not None:
            shutil.rmtree(spill, ignore_errors=True)


@contextlib.contextmanager
def _connected(runs: Sequence[RunDirectory], sql: str, spill: Path | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give an in-memory connection with a view over `runs` for each record (and other table found) that `sql` names.

    Files are read when a query asks for them, column by column. A view over runs without rows is empty and has its
    columns all the same. The connection reads the files of these runs and its own `spill` directory, nothing else.
    """
    listed: dict[str, list[str]] = {name: [] for name in RECORDS_BY_TABLE if name in sql.lower()}
    with contextlib.ExitStack() as stack:
        for run in runs:
            # What a run becomes is bounded run by run, as `_sound` does.
            named = _named(run, sql)
            names = iter(stack.enter_context(opened(path for paths in named.values() for path in paths)))
            for name, paths in named.items():
                listed.setdefault(name, []).extend(itertools.islice(names, len(paths)))
        connection = stack.enter_context(contextlib.closing(_connection(_QUERY_MEMORY, spill)))
        for name, names_of_all in listed.items():
            parts = []
            if name in RECORDS_BY_TABLE:
                # The empty table first: its column order and types hold, and columns an older run lacks are null.
                connection.register(f"empty_{name}", stored_schema(RECORDS_BY_TABLE[name]).empty_table())
                parts.append(f'FROM "empty_{name}"')
            if names_of_all:
                parts.append(f"FROM {_read_parquet(names_of_all)}")
            connection.execute(f'CREATE VIEW "{name}" AS {" UNION ALL BY NAME ".join(parts)}')
        allowed = ", ".join(_literal(name) for names_of_all in listed.values() for name in names_of_all)
        connection.execute(f"SET allowed_paths=[{allowed}]")
        connection.execute("SET enable_external_access=false")
        connection.execute("SET lock_configuration=true")
        yield connection


@contextlib.contextmanager
def rolled_up(
    record: type[Record], paths: Sequence[Path], resolution_s: int, spill: Path
) -> Iterator[Iterable[pa.RecordBatch]]:
    """Give the rows of `paths` joined to intervals of `resolution_s`: batches with the stored schema.

    Memory is bounded. The `roll_up` of each column says how it is joined. Rows belong to the interval in which they
    end; a joined row ends with the last row of its interval, whatever its key, so that rows of one interval share their
    time. Raises StoreError.
    """
    schema = stored_schema(record)
    interval_ns = resolution_s * 10**9
    with (
        opened(paths, columns=len(schema)) as names,
        contextlib.closing(_connection(_ROLL_UP_MEMORY, spill)) as connection,
    ):
        sql = joined(schema, _read_parquet(names), f"(at_ns + {interval_ns - 1}) // {interval_ns}")
        with store_errors("roll up", paths[0].parent):
            try:
                reader = connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
                yield (_conform(batch, schema) for batch in reader)
            except duckdb.Error as error:
                raise OSError(str(error).splitlines()[0]) from error


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(field.name).cast(field.type) for field in schema], schema=schema)


def _connection(memory: str, spill: Path | None) -> duckdb.DuckDBPyConnection:
    """Return a connection that fetches no extension, and takes no variable of this program for a table."""
    switches = ("python_enable_replacements", "autoinstall_known_extensions", "autoload_known_extensions")
    config: dict[str, str | bool | int | float | list[str]] = dict.fromkeys(switches, "false")
    config |= {"memory_limit": memory, "temp_directory": "" if spill is None else str(spill)}
    return duckdb.connect(":memory:", config=config)


def _read_parquet(names: Iterable[str]) -> str:
    return f"read_parquet([{', '.join(_literal(name) for name in names)}], union_by_name=true)"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_SCHEMA_HINT = "`bathy schema` shows the tables and columns"
