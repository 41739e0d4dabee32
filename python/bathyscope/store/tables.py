"""Tables on disk: a record's schema with the run's id, Parquet read with pushdown and written in bounded memory."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bathyscope import files
from bathyscope.errors import StoreError
from bathyscope.records import RECORDS_BY_TABLE, Record, schema_of, to_table
from bathyscope.store.errors import store_errors
from bathyscope.store.parquet_bounds import must_fit, opened, parquet_file

# A row of the widest record takes some 250 bytes, so a row group is held in about 32 MiB.
ROW_GROUP_ROWS = 1 << 17
_BATCH_ROWS = 1 << 15
_ROLL_UP = b"roll_up"

_RUN_ID = pa.field(
    "run_id",
    pa.string(),
    nullable=False,
    metadata={"unit": "", "help": "identifier of the run that the row belongs to", "roll_up": "key"},
)
_SCHEMAS: dict[type[Record], pa.Schema] = {}
_TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnHelp:
    """One column as `bathy schema` prints it."""

    table: str
    column: str
    type: str
    unit: str
    nullable: bool
    help: str


def stored_schema(record: type[Record]) -> pa.Schema:
    """Return the schema of a record as the store keeps it: run_id comes first."""
    if record not in _SCHEMAS:
        schema = schema_of(record)
        _SCHEMAS[record] = schema if _RUN_ID.name in schema.names else schema.insert(0, _RUN_ID)
    return _SCHEMAS[record]


def stored_columns(record: type[Record]) -> list[ColumnHelp]:
    """Return the help of every column of a record as the store keeps it, in order."""
    columns = []
    for field in stored_schema(record):
        about = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        columns.append(
            ColumnHelp(record.TABLE, field.name, str(field.type), about["unit"], field.nullable, about["help"])
        )
    return columns


def stored_table(record: type[Record], rows: pa.Table | Iterable[Record], run_id: str) -> pa.Table:
    """Return rows of a record, or an Arrow table of them, with the run's id first and exactly the stored schema.

    Raises StoreError when columns of a table are missing, unknown, or empty where a value is needed.
    """
    table = rows if isinstance(rows, pa.Table) else to_table(record, rows)
    if "run_id" in table.column_names:
        table = table.drop_columns(["run_id"])
    table = table.add_column(0, _RUN_ID, pa.repeat(pa.scalar(run_id, _RUN_ID.type), table.num_rows))
    try:
        return table.cast(stored_schema(record))
    except ValueError as error:
        raise StoreError(f"the rows do not have the columns of {record.TABLE}: {error}") from error


def parquet_files(directory: Path) -> dict[str, Path]:
    """Return table name → file of the Parquet files in a directory; names that no table can have are left out."""
    with store_errors("read", directory):
        paths = files.plain_files(directory, ".parquet")
    return {path.stem: path for path in paths if _TABLE_NAME.fullmatch(path.stem)}


def schema_on_disk(name: str, paths: Sequence[Path]) -> pa.Schema:
    """Return the schema of a table: that of its record, or of its files when no module has declared the record."""
    record = RECORDS_BY_TABLE.get(name)
    if record is not None:
        return stored_schema(record)
    must_fit(paths)
    schemas = []
    for path in paths:
        with store_errors("read", path), parquet_file(path) as file:
            schemas.append(file.schema_arrow)
    with store_errors("read", paths[0].parent):
        return pa.unify_schemas(schemas)


def check(name: str, path: Path, *, whole: bool = False) -> None:
    """Raise StoreError when a file of a table is damaged or has other columns; with `whole` all of it is read."""
    record = RECORDS_BY_TABLE.get(name)
    with store_errors("read", path), parquet_file(path) as file:
        if record is not None:
            _check(str(path), file.schema_arrow, stored_schema(record))
        for _ in file.iter_batches(_BATCH_ROWS) if whole else ():
            pass


def read(
    name: str,
    paths: Sequence[Path],
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the rows of a table with start_ns <= time < end_ns. Raises StoreError.

    Row groups outside of the window and columns that are not asked for are not read.
    """
    schema = schema_on_disk(name, paths)
    if columns is not None:
        schema = pa.schema([schema.field(column) for column in columns])
    batches = list(scan(name, paths, schema, start_ns=start_ns, end_ns=end_ns, parallel=True))
    return pa.Table.from_batches(batches, schema=schema)


def scan(
    name: str,
    paths: Sequence[Path],
    schema: pa.Schema,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    parallel: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table batch by batch with the columns of `schema`, in the order of the files.

    A nullable column that a file lacks is empty; any other is a StoreError, as is a column of another type. Unless
    `parallel`, memory holds one row group.
    """
    import pyarrow.dataset as ds

    window = _window(name, start_ns, end_ns)
    if not paths:
        return
    full = schema_on_disk(name, paths)
    limits: dict[str, Any] = {} if parallel else {"batch_readahead": 1, "fragment_readahead": 1}
    with opened(paths, columns=len(full)) as names:
        with store_errors("read", paths[0].parent):
            dataset = ds.dataset(names, schema=full, format="parquet")
        path_by_name = dict(zip(names, paths, strict=True))
        for fragment in dataset.get_fragments():
            path = path_by_name[fragment.path]
            with store_errors("read", path):
                _check(str(path), fragment.physical_schema, full)
        with store_errors(f"read {name} in", paths[0].parent):
            scanner = dataset.scanner(
                columns=schema.names,
                filter=window,
                batch_size=_BATCH_ROWS,
                use_threads=parallel,
                **limits,
            )
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _check(path: str, schema: pa.Schema, wanted: pa.Schema) -> None:
    for field in wanted:
        if field.name not in schema.names:
            if not field.nullable:
                raise StoreError(f"{path} lacks the column {field.name}")
        elif schema.field(field.name).type != field.type:
            raise StoreError(f"{path} has {schema.field(field.name).type} in the column {field.name}, not {field.type}")


def _window(name: str, start_ns: int | None, end_ns: int | None) -> pc.Expression | None:
    if start_ns is None and end_ns is None:
        return None
    record = RECORDS_BY_TABLE.get(name)
    if record is None or record.TIME is None:
        raise ValueError(f"the rows of {name} have no time")
    time = pc.field(record.TIME)
    bounds = [time >= start_ns] if start_ns is not None else []
    bounds += [time < end_ns] if end_ns is not None else []
    return functools.reduce(operator.and_, bounds)


class TableWriter:
    """Writes one Parquet file row group by row group. It is part of a directory that is moved into place as a whole."""

    def __init__(
        self, path: Path, schema: pa.Schema, *, time_column: str | None = None, described: bool = False
    ) -> None:
        """`described`: the file says what its columns mean. That is half of a small table, so segments go without."""
        import pyarrow.parquet as pq

        if not described:
            # How a roll-up joins them stays: it must be known of a record that no module declares, too.
            schema = pa.schema(
                [field.with_metadata({_ROLL_UP: (field.metadata or {}).get(_ROLL_UP, b"key")}) for field in schema]
            )

        self.rows = 0
        self.start_ns: int | None = None
        self.end_ns: int | None = None
        self._schema = schema
        self._time_column = time_column
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        # Opened here: a writer that cannot write its footer would leave its file open.
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", compression_level=3)

    def append(self, batches: pa.Table | pa.RecordBatch) -> None:
        """Add rows that have the schema. Raises OSError or pa.ArrowException."""
        for batch in batches.to_batches() if isinstance(batches, pa.Table) else [batches]:
            self._waiting.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
            self._waiting_rows += batch.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self._write()

    def close(self) -> None:
        """Write what is left and the footer. Raises OSError or pa.ArrowException; the file is closed all the same."""
        try:
            if self._waiting:
                self._write()
            self._writer.close()
        finally:
            # What could not be written is not tried again when the writer is freed.
            self._writer.is_open = False
            self._file.close()

    def _write(self) -> None:
        table = pa.Table.from_batches(self._waiting, schema=self._schema)
        self._waiting, self._waiting_rows = [], 0
        if self._time_column is not None and table.num_rows:
            times = table.column(self._time_column)
            least, greatest = int(pc.min(times).as_py()), int(pc.max(times).as_py())
            self.start_ns = least if self.start_ns is None else min(self.start_ns, least)
            self.end_ns = greatest if self.end_ns is None else max(self.end_ns, greatest)
        self.rows += table.num_rows
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
