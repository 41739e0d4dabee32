"""A table of a finding as CSV: a row for each of its rows, under the keys of its columns.

A column of figures is three: its value, and _low and _high of its 95 % interval; percentiles also have _relative_error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TextIO

from bathyscope.records.blocks import Column
from bathyscope.records.figure import Figure
from bathyscope.views import Options
from bathyscope.views.csv import figure_columns, write_rows
from bathyscope.views.figures import NOT_KNOWN
from bathyscope.views.findings import check_table, sections_of, tables_of

_PERCENTILE = re.compile("_p[0-9]+$")


def write(finding: Any, stream: TextIO, options: Options) -> None:
    """Write the table that is asked for, the first by default. Raises UsageError where there is none."""
    tables = tables_of(sections_of(finding))
    keys = list(dict.fromkeys(table.key for table in tables))
    check_table(options.table, keys)
    key = options.table or next(iter(keys), None)
    if key is None:
        return
    parts = [table for table in tables if table.key == key]
    names = flat(parts[0].columns, [None] * len(parts[0].columns))
    write_rows([flat(table.columns, row) for table in parts for row in table.rows], stream, list(names))


def flat(columns: Sequence[Column], row: Sequence[Any]) -> dict[str, Any]:
    """Return a row by keys, without what people alone see. Parts of a whole are figures of other columns."""
    cells: dict[str, Any] = {}
    for column, value in zip(columns, row, strict=True):
        if column.only == "people" or column.unit == "parts":
            continue
        if column.figure:
            cells |= figure_columns(column.key, value or Figure(None, ""), error=bool(_PERCENTILE.search(column.key)))
        elif column.unit == "trend" and value is not None:
            cells[column.key] = " ".join(NOT_KNOWN if rate is None else f"{rate:.6g}" for rate in value)
        else:
            cells[column.key] = value
    return cells
