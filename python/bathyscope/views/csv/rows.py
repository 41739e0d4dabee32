"""Plain rows as CSV."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.views import Options
from bathyscope.views.csv import write_rows
from bathyscope.views.rows import plain_rows


def write(rows: Any, stream: TextIO, options: Options) -> None:
    """Write the rows; see `views.render`."""
    write_rows(plain_rows(rows, options.columns), stream, options.columns or ())
