"""What findings say: a file for each, by the NAME of its class, whose `sections` makes blocks of it."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bathyscope.errors import UsageError
from bathyscope.records.blocks import CaveatView, Column, Section, Table, severity_order, units_of


def sections_of(finding: Any) -> tuple[Section, ...]:
    """Return a finding as sections of blocks. Raises ModuleNotFoundError where there is no file for its kind."""
    return tuple(importlib.import_module(f"{__name__}.{finding.NAME}").sections(finding))


def tables_of(sections: Iterable[Section]) -> list[Table]:
    """Return the tables that programs get, the first one first. Raises ValueError for two that only share a key."""
    blocks = (block for section in sections for block in section.blocks)
    tables = [block for block in blocks if isinstance(block, Table) and block.only in ("", "programs")]
    columns: dict[str, tuple[Column, ...]] = {}
    for table in tables:
        if columns.setdefault(table.key, table.columns) != table.columns:
            raise ValueError(f"two tables of a finding are called {table.key} and have other columns")
    return tables


def check_table(table: str | None, keys: Collection[str]) -> None:
    """Raise UsageError for the key of a table that is none of `keys`: a verb asks before its work, CSV once more.

    A file that makes tables of several keys names all that it may make, as TABLES.
    """
    if table is not None and table not in keys:
        wanted = f"--table must be one of {', '.join(keys)}" if keys else "this has no table"
        raise UsageError(f"{wanted} (got '{table}')", hint="without --table the first one is printed")


def rows_of(columns: Sequence[Column], records: Iterable[Any]) -> tuple[tuple[Any, ...], ...]:
    """Return a row for each of `records`, whose fields have the names of the columns."""
    return tuple(tuple(getattr(record, column.key) for column in columns) for record in records)


def caveats_section(caveats: Iterable[CaveatView]) -> Section:
    """Return the caveats of a finding, the most severe first."""
    return Section("caveats", "Caveats", tuple(sorted(caveats, key=severity_order)))


def for_programs(key: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of rows with the same keys, which people see in another form."""
    columns = tuple(Column(name, name, next(iter(units_of(name)), "")) for name in (rows[0] if rows else ()))
    return Table(key, key, columns, tuple(tuple(row.values()) for row in rows), only="programs")
