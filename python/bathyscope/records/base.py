"""How a record is declared: a frozen dataclass whose columns carry their unit and their meaning.

A record class is the only description of a table: its Arrow schema, the help that `bathy schema`
prints, how it is rolled up, and the check on writing all come from it. Annotations map to Arrow types:
int → int64, float → float64, str → string, bool → bool_, each with `| None` for nullable.

Which run a row belongs to is known by where it lies: the store adds the column run_id to every table.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

import pyarrow as pa

_ARROW: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}

_SCHEMAS: dict[type[Record], pa.Schema] = {}

R = TypeVar("R", bound="Record")


RollUp = Literal["key", "sum", "sum by daemon", "mean", "max", "last"]


def column(help_text: str, *, unit: str = "", optional: bool = False, roll_up: RollUp = "key") -> Any:
    """Declare a column: what it means, and its unit ("ns", "bytes", "1/s", "" for none).

    An `optional` one comes after all others and is None unless given: how a table grows. `roll_up` says what becomes
    of the column when samples of one key are joined to a longer interval; "mean" is weighted by duration_ns. "sum by
    daemon" is the greatest of the sums of a daemon's keys: the time that was seen of it, where quiet keys have no rows.
    """
    metadata = {"help": help_text, "unit": unit, "roll_up": roll_up}
    return dataclasses.field(default=None, metadata=metadata) if optional else dataclasses.field(metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """Base of every record. Subclasses set TABLE (the table's name); their docstring is the table's help.

    A sample sets TIME, the column that places it in time: `at_ns`, the end of its interval of `duration_ns`, where it
    has one (such records can be rolled up), else the moment of an event.
    """

    TABLE: ClassVar[str] = ""
    TIME: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        """Make the record known by its table's name."""
        if cls.TABLE:
            RECORDS_BY_TABLE[cls.TABLE] = cls


RECORDS_BY_TABLE: dict[str, type[Record]] = {}
"""Every record class that has been defined, by the name of its table."""


Tables = Mapping[type[Record], pa.Table]
"""Rows of several records: what a parser returns."""


def _arrow_type(annotation: Any) -> tuple[pa.DataType, bool]:
    """Return the Arrow type of an annotation and whether it is nullable."""
    if isinstance(annotation, types.UnionType):
        (inner,) = (each for each in typing.get_args(annotation) if each is not types.NoneType)
        return _ARROW[inner], True
    return _ARROW[annotation], False


def schema_of(record: type[Record]) -> pa.Schema:
    """Return the Arrow schema of a record class, with unit, help and roll-up as field metadata."""
    if record not in _SCHEMAS:
        _SCHEMAS[record] = _made_schema(record)
    return _SCHEMAS[record]


def _made_schema(record: type[Record]) -> pa.Schema:
    hints = typing.get_type_hints(record)
    fields = []
    for each in dataclasses.fields(record):
        arrow, nullable = _arrow_type(hints[each.name])
        fields.append(pa.field(each.name, arrow, nullable=nullable, metadata=dict(each.metadata)))
    return pa.schema(fields, metadata={"record": record.TABLE})


def build_table(record: type[Record], columns: Mapping[str, Any]) -> pa.Table:
    """Return an Arrow table of `record` from its columns: arrays or lists of one length, or scalars for all rows.

    A nullable column that is not given is empty. Raises KeyError for a missing or an unknown column, pa.ArrowInvalid
    (a ValueError) for columns of several lengths, and pa.ArrowInvalid or TypeError for values of another type.
    """
    schema = schema_of(record)
    unknown = set(columns) - set(schema.names)
    if unknown:
        raise KeyError(f"{record.TABLE} has no column {', '.join(sorted(unknown))}")
    rows = next((len(value) for value in columns.values() if not _is_scalar(value)), 1)
    arrays = []
    for field in schema:
        if field.name not in columns and not field.nullable:
            raise KeyError(f"{record.TABLE} lacks the column {field.name}")
        value: Any = columns.get(field.name)
        if _is_scalar(value):
            arrays.append(pa.repeat(pa.scalar(value, type=field.type), rows))
        else:
            array = value if isinstance(value, pa.Array | pa.ChunkedArray) else pa.array(value, type=field.type)
            arrays.append(array.cast(field.type))
    # Columns of several lengths are refused here.
    return pa.table(arrays, schema=schema)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str) or not hasattr(value, "__len__")


def to_table(record: type[R], rows: Iterable[R]) -> pa.Table:
    """Return `rows` as an Arrow table with exactly the schema of `record`.

    Raises TypeError or pa.ArrowInvalid when a row has another class or a value of another type.
    """
    rows = list(rows)
    for row in rows:
        if type(row) is not record:
            raise TypeError(f"a {type(row).__name__} row in a table of {record.__name__}")
    schema = schema_of(record)
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    return pa.table(columns, schema=schema)


def from_table(record: type[R], table: pa.Table) -> list[R]:
    """Return the rows of an Arrow table as records; columns that the table lacks must be nullable."""
    known = set(schema_of(record).names)
    names = [name for name in table.column_names if name in known]
    missing = dict.fromkeys(known - set(names))
    return [record(**row, **missing) for row in table.select(names).to_pylist()]
