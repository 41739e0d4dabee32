"""A view of a recording as CSV: the rows of its first table, units in the names of the columns."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.views import Options
from bathyscope.views.activity_rows import program_name
from bathyscope.views.csv import write_rows
from bathyscope.views.figures import NOT_KNOWN


def write(finding: ActivityFinding, stream: TextIO, _options: Options) -> None:
    """Write one row for each row of the table."""
    for table in finding.tables[:1]:
        # Parts of a whole are figures of other columns.
        places = [place for place, column in enumerate(table.columns) if column.unit != "parts"]
        names = [program_name(table.columns[place]) for place in places]
        rows = [{name: _flat(row[place]) for name, place in zip(names, places, strict=True)} for row in table.rows]
        write_rows(rows, stream, names)


def _flat(value: Any) -> Any:
    """Return a trend as numbers with spaces between them, "n/a" for what is not known; any other value as it is."""
    if not isinstance(value, list):
        return value
    return " ".join(NOT_KNOWN if rate is None else f"{rate:.6g}" for rate in value)
