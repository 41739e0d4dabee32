"""Prints rows of plain values: a table for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import json
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

Output = Literal["table", "json", "csv"]

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def print_rows(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, output: Output, stream: TextIO, empty: str = ""
) -> None:
    """Print `rows`, each with the keys `columns`. `empty` is what a table without rows says."""
    listed = [{name: row.get(name) for name in columns} for row in rows]
    if output == "json":
        json.dump(listed, stream, indent=1, default=str, ensure_ascii=False)
        stream.write("\n")
    elif output == "csv":
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row[name]) for name in columns] for row in listed)
    elif not listed:
        stream.write(f"{empty}\n" if empty else "")
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in columns:
            numeric = all(isinstance(row[name], int | float) or row[name] is None for row in listed)
            table.add_column(name.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
        for row in listed:
            table.add_row(*(Text(printable(_text(row[name]))) for name in columns))
        terminal = stream.isatty()
        width = None if terminal else 200
        Console(file=stream, width=width, no_color=bool(os.environ.get("NO_COLOR")), highlight=False).print(table)


def printable(text: str) -> str:
    """Return `text` without control and direction characters: names on a cluster are not ours to trust."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _UNSEEN else c for c in text)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _cell(value: Any) -> Any:
    # A spreadsheet runs a text that begins like a formula; a leading quote makes it text again.
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return "" if value is None else value
