"""Plain rows: lists of mappings, of records or of other dataclasses, as mappings with the same keys in one order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def plain_rows(rows: Any, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return rows with the same keys, None where a row lacks one.

    The keys are `columns`, else all keys of all rows in order of appearance. Raises TypeError for what is not
    a sequence of mappings or dataclasses.
    """
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise TypeError(f"no renderer for {type(rows).__name__}")
    mappings = [_mapping(row) for row in rows]
    names = list(columns) if columns is not None else list(dict.fromkeys(key for row in mappings for key in row))
    return [{name: row.get(name) for name in names} for row in mappings]


def _mapping(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
    raise TypeError(f"no renderer for a row of {type(row).__name__}")
