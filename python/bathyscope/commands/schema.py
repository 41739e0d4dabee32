"""`bathy schema`: the tables that a run holds, and what each column means."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from bathyscope.commands.options import OutputOption
from bathyscope.errors import UsageError

_EXAMPLES = """Examples:

\b
  bathy schema                    all tables
  bathy schema step               the columns of one table
  bathy schema -o json            everything, for programs
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("schema", epilog=_EXAMPLES)(schema)


def schema(
    table: Annotated[str | None, typer.Argument(metavar="TABLE", help="Name of a table.")] = None,
    output: OutputOption = "table",
) -> None:
    """Print the tables of a run, or the columns of one table: type, unit, whether a value can be empty, meaning."""
    import bathyscope.sources  # noqa: F401 - a source may declare a record of its own
    from bathyscope import views
    from bathyscope.records import RECORDS_BY_TABLE
    from bathyscope.spec.values import did_you_mean
    from bathyscope.store.tables import stored_columns

    if table is not None and table not in RECORDS_BY_TABLE:
        hint = did_you_mean(table, RECORDS_BY_TABLE, f"the tables are {', '.join(RECORDS_BY_TABLE)}")
        raise UsageError(f"there is no table '{table}'", hint=hint)
    if table is None and output == "table":
        rows = [
            {"table": r.TABLE, "columns": len(stored_columns(r)), "a row is": (r.__doc__ or "").splitlines()[0]}
            for r in RECORDS_BY_TABLE.values()
        ]
        views.render(rows, output, columns=("table", "columns", "a row is"))
        return
    chosen = RECORDS_BY_TABLE.values() if table is None else (RECORDS_BY_TABLE[table],)
    columns = ("table", "column", "type", "unit", "nullable", "help")
    rows = [dataclasses.asdict(column) for record in chosen for column in stored_columns(record)]
    shown = columns[1:] if table is not None and output == "table" else columns
    views.render(rows, output, columns=shown)
