"""How a record is declared: a frozen dataclass whose columns carry their unit and their meaning.

A record class is the only description of a table: its Arrow schema, the help that `bathy schema`
prints, and the check on writing all come from it. Annotations map to Arrow types: int → int64,
float → float64, str → string, bool → bool_, each with `| None` for nullable.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

_ARROW: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}

R = TypeVar("R", bound="Record")


def column(help_text: str, *, unit: str = "", optional: bool = False) -> Any:
    """Declare a column: what it means, and its unit ("ns", "bytes", "1/s", "" for none).

    An `optional` one comes after all others and is None unless given: how a table grows.
    """
    metadata = {"help": help_text, "unit": unit}
    return dataclasses.field(default=None, metadata=metadata) if optional else dataclasses.field(metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """Base of every record. Subclasses set TABLE (the table's name); their docstring is the table's help."""

    TABLE: ClassVar[str] = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnHelp:
    """One column as `bathy schema` prints it."""

    table: str
    column: str
    type: str
    unit: str
    nullable: bool
    help: str


def _arrow_type(annotation: Any) -> tuple[pa.DataType, bool]:
    """Return the Arrow type of an annotation and whether it is nullable."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        inner = [a for a in typing.get_args(annotation) if a is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"a column has one type, not {annotation}")
        return _ARROW[inner[0]], True
    return _ARROW[annotation], False


def _hints(record: type[Record]) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    return {f.name: hints[f.name] for f in dataclasses.fields(record)}


def schema_of(record: type[Record]) -> pa.Schema:
    """Return the Arrow schema of a record class, with unit and help as field metadata."""
    fields = []
    meta = {f.name: f.metadata for f in dataclasses.fields(record)}
    for name, annotation in _hints(record).items():
        arrow, nullable = _arrow_type(annotation)
        details = {"unit": meta[name]["unit"], "help": meta[name]["help"]}
        fields.append(pa.field(name, arrow, nullable=nullable, metadata=details))
    return pa.schema(fields, metadata={"record": record.TABLE})


def help_of(record: type[Record]) -> list[ColumnHelp]:
    """Return the help of every column of a record class, in order."""
    return [
        ColumnHelp(
            table=record.TABLE,
            column=field.name,
            type=str(field.type),
            unit=(field.metadata or {}).get(b"unit", b"").decode(),
            nullable=field.nullable,
            help=(field.metadata or {}).get(b"help", b"").decode(),
        )
        for field in schema_of(record)
    ]


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
