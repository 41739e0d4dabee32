"""CSV: flat rows, units in the column names, empty cells where nothing is known."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from bathyscope.records.figure import Figure
from bathyscope.views.labels import clean

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_rows(rows: Sequence[Mapping[str, Any]], stream: TextIO, columns: Sequence[str] = ()) -> None:
    """Write a header and rows of the same keys; `columns` is the header when there are no rows.

    Text that a spreadsheet would run as a formula gets a leading apostrophe; control characters are replaced.
    """
    names = list(rows[0]) if rows else list(columns)
    writer = csv.writer(stream, lineterminator="\n")
    if names:
        writer.writerow(map(_cell, names))
    writer.writerows([_cell(row[name]) for name in names] for row in rows)


def field_columns(value: Any, *names: str) -> dict[str, Any]:
    """Return the columns of fields that are shown as they are, under their own names."""
    return {name: getattr(value, name) for name in names}


def figure_columns(name: str, figure: Figure, *, error: bool = False) -> dict[str, Any]:
    """Return the columns of a figure: `name`, its 95 % interval, and with `error` the bound of the instrument."""
    row: dict[str, Any] = {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}
    if error:
        row[f"{name}_relative_error"] = figure.relative_error if figure.value is not None else None
    return row


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, int):
        return value
    text = "; ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    # CSV is read in terminals, too. A tab at the front would be a space then.
    formula = text.startswith(_FORMULA)
    return f"'{clean(text)}" if formula else clean(text)
