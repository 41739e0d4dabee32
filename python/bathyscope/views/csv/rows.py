"""Plain rows as CSV."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.errors import UsageError
from bathyscope.views import Options
from bathyscope.views.csv import write_rows
from bathyscope.views.rows import plain_rows


def write(rows: Any, stream: TextIO, options: Options) -> None:
    """Write the rows; see `views.render`. Raises UsageError where a table of several is asked for."""
    if options.table is not None:
        raise UsageError(f"this is one table (got --table {options.table})", hint="leave --table out")
    write_rows(plain_rows(rows, options.columns), stream, options.columns or ())
