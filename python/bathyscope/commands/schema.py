"""`bathy schema`: the tables that a run holds, and what each column means."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Annotated

import typer

from bathyscope import views
from bathyscope.errors import UsageError
from bathyscope.records import ALL_RECORDS, RECORDS_BY_TABLE, help_of

_EXAMPLES = """Examples:

\b
  bathy schema                    all tables
  bathy schema step               the columns of one
  bathy schema -o json            everything, for programs
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("schema", epilog=_EXAMPLES)(schema)


def schema(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Name of a table.")] = None,
    output: Annotated[views.Output, typer.Option("--output", "-o", help="How to print.")] = "table",
) -> None:
    """Print the tables of a run, or the columns of one: type, unit, whether a value can be empty, meaning."""
    if table is not None and table not in RECORDS_BY_TABLE:
        near = difflib.get_close_matches(table, RECORDS_BY_TABLE, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"the tables are {', '.join(RECORDS_BY_TABLE)}"
        raise UsageError(f"there is no table '{table}'", hint=hint)
    if table is None and output == "table":
        rows = [
            {"table": r.TABLE, "columns": len(help_of(r)), "a row is": (r.__doc__ or "").splitlines()[0]}
            for r in ALL_RECORDS
        ]
        views.render(rows, output, columns=("table", "columns", "a row is"))
        return
    chosen = ALL_RECORDS if table is None else (RECORDS_BY_TABLE[table],)
    columns = ("table", "column", "type", "unit", "nullable", "help")
    rows = [dataclasses.asdict(column) for record in chosen for column in help_of(record)]
    shown = columns[1:] if table is not None and output == "table" else columns
    views.render(rows, output, columns=shown)
