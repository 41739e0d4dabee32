"""A view of a recording as CSV: the rows of its first table, units in the names of the columns."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.views import Options
from bathyscope.views.activity_rows import program_name
from bathyscope.views.csv import write_rows


def write(finding: ActivityFinding, stream: TextIO, _options: Options) -> None:
    """Write one row for each row of the table."""
    for table in finding.tables[:1]:
        names = [program_name(column) for column in table.columns]
        write_rows([dict(zip(names, map(_flat, row), strict=True)) for row in table.rows], stream, names)


def _flat(value: Any) -> Any:
    """Return a trend as numbers with spaces between them, "-" for what is not known; any other value as it is."""
    if not isinstance(value, list):
        return value
    return " ".join("-" if rate is None else f"{rate:.6g}" for rate in value)
