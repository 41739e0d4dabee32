"""`bathy runs`: the runs of a workspace, and SQL over them."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Annotated

import typer

from bathyscope import views
from bathyscope.errors import UsageError
from bathyscope.store import RunDirectory, Workspace
from bathyscope.units import format_seconds

WorkspaceOption = Annotated[
    Path | None,
    typer.Option("--workspace", "-w", help="Directory of the runs. Default: $BATHY_WORKSPACE, else ./bathy-runs."),
]
OutputOption = Annotated[views.Output, typer.Option("--output", "-o", help="How to print.")]
RefArgument = Annotated[str, typer.Argument(metavar="RUN", help='Id, the beginning of one, a path, or "last".')]

# The id begins with the time of the start, so a table of 80 columns does without it.
_LIST_COLUMNS = ("id", "status", "plan", "target", "steps", "duration")


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    group = typer.Typer(no_args_is_help=True, help="List, look at, query and delete runs.")
    group.command("list", epilog="Example: bathy runs list --output json")(list_)
    group.command("show", epilog="Example: bathy runs show last")(show)
    group.command("path", epilog="Example: ls $(bathy runs path last)/tables")(path)
    group.command("rm", epilog="Example: bathy runs rm 20260823-141502")(rm)
    group.command("sql", epilog=_SQL_EXAMPLES)(sql)
    app.add_typer(group, name="runs")


def list_(workspace: WorkspaceOption = None, output: OutputOption = "table") -> None:
    """List the runs of the workspace, the newest last."""
    place = Workspace(workspace)
    rows = []
    for entry in place.runs():
        started = datetime.datetime.fromtimestamp(entry.started_ns / 1e9, tz=datetime.UTC) if entry.started_ns else None
        length = (entry.ended_ns - entry.started_ns) / 1e9 if entry.ended_ns and entry.started_ns else None
        rows.append(
            {
                "id": entry.id,
                "status": entry.status,
                "plan": entry.plan_name,
                "target": entry.target,
                "steps": f"{entry.steps_finished}/{entry.step_count or '?'}",
                "started": f"{started:%Y-%m-%d %H:%M:%SZ}" if started else None,
                "duration": format_seconds(length) if length is not None else None,
                "started_ns": entry.started_ns or None,
                "ended_ns": entry.ended_ns,
                "path": str(entry.path),
                "problem": entry.problem,
            }
        )
    # A table has room for what helps to choose; programs get everything.
    columns = (
        _LIST_COLUMNS if output == "table" else (*_LIST_COLUMNS, "started", "started_ns", "ended_ns", "path", "problem")
    )
    views.render(rows, output, columns=columns, empty=f"no runs in {place.path}")
    for row in rows:
        if row["problem"] and output == "table":
            sys.stderr.write(f"bathy: {row['id']} cannot be read: {row['problem']}\n")


def show(ref: RefArgument, workspace: WorkspaceOption = None, output: OutputOption = "table") -> None:
    """Show what a run is: status, plan, target, versions, and how many rows each table holds."""
    run = Workspace(workspace).open_run(ref)
    info = run.info
    facts: list[tuple[str, object]] = [
        ("id", run.id),
        ("status", run.status),
        ("plan", info.plan_name),
        ("target", info.target.get("name", "")),
        ("steps finished", len(run.finished_steps())),
        ("steps planned", info.step_count),
        ("path", str(run.path)),
    ]
    facts += [(f"version of {name}", value) for name, value in sorted(info.versions.items())]
    facts += [(name, value) for name, value in sorted(info.environment.items())]
    facts += [(f"rows in {name}", table.num_rows) for name, table in run.tables().items()]
    rows = [{"name": name, "value": value} for name, value in facts]
    views.render(rows, output, columns=("name", "value"))
    if output == "table" and info.plan_text:
        sys.stdout.write(f"\n{info.plan_text.rstrip()}\n")


def path(ref: RefArgument, workspace: WorkspaceOption = None) -> None:
    """Print the directory of a run."""
    sys.stdout.write(f"{Workspace(workspace).find(ref)}\n")


def rm(
    ref: RefArgument,
    workspace: WorkspaceOption = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a run with everything in it. Asks first, when a person is there to answer."""
    place = Workspace(workspace)
    found = place.find(ref)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{found} would be deleted and nobody is here to ask", hint="add --yes")
        if not typer.confirm(f"Delete {found}?", err=True):
            raise typer.Exit(1)
    place.remove_run(found)
    sys.stderr.write(f"deleted {found}\n")


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT statement.")],
    run: Annotated[list[str] | None, typer.Option("--run", "-r", help="Only these runs. Default: all.")] = None,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
) -> None:
    """Run one SELECT over the records of all runs (or of --run). `bathy schema` shows tables and columns."""
    from bathyscope.store import duck

    place = Workspace(workspace)
    if run:
        chosen = [place.open_run(ref) for ref in run]
    else:
        entries = place.runs()
        chosen = [RunDirectory(entry.path) for entry in entries if entry.problem is None]
        for entry in entries:
            if entry.problem is not None:
                sys.stderr.write(f"bathy: {entry.id} is left out: {entry.problem}\n")
    table = duck.query(chosen, query)
    names = [f"{name}_{i}" if name in table.column_names[:i] else name for i, name in enumerate(table.column_names)]
    rows = table.rename_columns(names).to_pylist()
    views.render(rows, output, columns=names, empty="no rows")


_SQL_EXAMPLES = """Examples:

\b
  bathy runs sql "SELECT status, count(*) FROM step GROUP BY status"
  bathy runs sql -r last -o csv "SELECT * FROM device_sample"
"""
