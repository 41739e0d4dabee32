"""A view of a recording as CSV: the rows of one of its tables, under the keys of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from bathyscope.errors import UsageError
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Table
from bathyscope.views import Options
from bathyscope.views.csv import write_rows
from bathyscope.views.figures import NOT_KNOWN


def write(finding: ActivityFinding, stream: TextIO, options: Options) -> None:
    """Write one row for each row of the table that was asked for. Raises UsageError when there is none."""
    if not finding.tables and options.table is None:
        return
    table = chosen(finding.tables, options.table)
    # Parts of a whole are figures of other columns.
    places = [place for place, column in enumerate(table.columns) if column.unit != "parts"]
    names = [table.columns[place].key for place in places]
    rows = [{name: _flat(row[place]) for name, place in zip(names, places, strict=True)} for row in table.rows]
    write_rows(rows, stream, names)


def chosen(tables: Sequence[Table], key: str | None) -> Table:
    """Return the table of a key, the first for None. Raises UsageError."""
    found = next((table for table in tables if key in (None, table.key)), None)
    if found is None:
        known = ", ".join(dict.fromkeys(table.key for table in tables))
        raise UsageError(
            f"--table must be one of {known or 'none'} (got '{key}')", hint="without --table the first one is printed"
        )
    return found


def _flat(value: Any) -> Any:
    """Return a trend as numbers with spaces between them, "n/a" for what is not known; any other value as it is."""
    if not isinstance(value, list):
        return value
    return " ".join(NOT_KNOWN if rate is None else f"{rate:.6g}" for rate in value)
