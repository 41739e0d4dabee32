"""DuckDB over any number of runs: one view per record, with the record's name.

This is the only module that imports duckdb.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pyarrow as pa

from bathyscope.errors import UsageError
from bathyscope.records import ALL_RECORDS, schema_of
from bathyscope.store.run_directory import RunDirectory


def connect(runs: Iterable[RunDirectory]) -> duckdb.DuckDBPyConnection:
    """Return an in-memory connection with one view per record over `runs`.

    Files are read when a query asks for them, column by column. A view over runs without rows is empty and
    has its columns all the same. The connection can read the files of these runs and nothing else.
    """
    files: dict[str, list[str]] = {record.TABLE: [] for record in ALL_RECORDS}
    for run in runs:
        for table, paths in run.files().items():
            files[table].extend(str(path) for path in paths)
    connection = duckdb.connect(":memory:")
    for record in ALL_RECORDS:
        empty = f"empty_{record.TABLE}"
        connection.register(empty, schema_of(record).empty_table())
        view = f'CREATE VIEW "{record.TABLE}" AS FROM "{empty}"'
        if files[record.TABLE]:
            # The empty table first: its column order and types hold, and columns an older run lacks are null.
            listed = ", ".join(_literal(path) for path in files[record.TABLE])
            view += f" UNION ALL BY NAME FROM read_parquet([{listed}], union_by_name=true)"
        connection.execute(view)
    allowed = ", ".join(_literal(path) for table in files.values() for path in table)
    connection.execute(f"SET allowed_paths=[{allowed}]")
    connection.execute("SET enable_external_access=false")
    connection.execute("SET lock_configuration=true")
    return connection


def query(runs: Iterable[RunDirectory], sql: str) -> pa.Table:
    """Return the answer of one SELECT over the views of `runs`. Raises UsageError for anything else."""
    connection = connect(runs)
    try:
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in (
                duckdb.StatementType.SELECT,
                duckdb.StatementType.EXPLAIN,
            ):
                raise UsageError("only one SELECT statement is run", hint="`bathy schema` shows the tables and columns")
            table: pa.Table = connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise UsageError(
                f"the query failed: {str(error).splitlines()[0]}", hint="`bathy schema` shows the tables and columns"
            ) from error
        return table
    finally:
        connection.close()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
