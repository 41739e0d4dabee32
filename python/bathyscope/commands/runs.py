"""`bathy runs`: the runs of a workspace, their raw answers, and SQL over them."""

from __future__ import annotations

import datetime
import sys
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from bathyscope.commands.options import OutputOption, RunArgument, WorkspaceOption
from bathyscope.commands.talk import say
from bathyscope.errors import StoreError, UsageError

if TYPE_CHECKING:
    from bathyscope.records import RawAnswer
    from bathyscope.store import RunDirectory, Segment

# The id begins with the time of the start, so a table of 80 columns does without it.
_LIST_COLUMNS = ("id", "kind", "status", "name", "target", "steps")


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    group = typer.Typer(no_args_is_help=True, help="List, look at, query, parse again and delete runs.")
    group.command("list", epilog="Example: bathy runs list --output json")(list_)
    group.command("show", epilog="Example: bathy runs show last")(show)
    group.command("path", epilog="Example: ls $(bathy runs path last)/tables")(path)
    group.command("rm", epilog="Example: bathy runs rm 20260823-141502")(rm)
    group.command("sql", epilog=_SQL_EXAMPLES)(sql)
    group.command("raw", epilog=_RAW_EXAMPLES)(raw)
    group.command("reparse", epilog="Example: bathy runs reparse last")(reparse)
    app.add_typer(group, name="runs")


def list_(workspace: WorkspaceOption = None, output: OutputOption = "table") -> None:
    """List the runs of the workspace, the newest last."""
    from bathyscope import views
    from bathyscope.store import Workspace
    from bathyscope.units import format_seconds

    space = Workspace(workspace)
    rows = []
    for entry in space.runs():
        started = datetime.datetime.fromtimestamp(entry.started_ns / 1e9, tz=datetime.UTC) if entry.started_ns else None
        length = (entry.ended_ns - entry.started_ns) / 1e9 if entry.ended_ns and entry.started_ns else None
        rows.append(
            {
                "id": entry.id,
                "kind": entry.kind,
                "status": entry.status,
                "name": entry.name,
                "target": entry.target,
                "steps": f"{entry.steps_finished}/{entry.step_count}" if entry.step_count else None,
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
        _LIST_COLUMNS
        if output == "table"
        else (*_LIST_COLUMNS, "started", "duration", "started_ns", "ended_ns", "path", "problem")
    )
    views.render(rows, output, columns=columns, empty=f"no runs in {space.path}")
    for row in rows:
        if row["problem"] and output == "table":
            say(f"bathy: {row['id']} cannot be read: {row['problem']}")


def show(run: RunArgument, workspace: WorkspaceOption = None, output: OutputOption = "table") -> None:
    """Show a run: kind, status, target, versions, and the number of rows of each table."""
    from bathyscope import views
    from bathyscope.run_kinds import KINDS
    from bathyscope.store import Workspace
    from bathyscope.views.labels import clean_lines

    opened = Workspace(workspace).open_run(run)
    info = opened.info
    kind = KINDS.get(info.kind)
    facts: list[tuple[str, object]] = [
        ("id", opened.id),
        ("kind", info.kind),
        ("status", opened.status),
        ("name", info.name),
        ("target", info.target.get("name", "")),
        ("path", str(opened.path)),
    ]
    if kind is not None:
        facts += kind.describe(opened)
        if opened.status == "interrupted":
            facts.append(("to go on", kind.continue_hint(opened.id)))
    facts += [(f"version of {name}", value) for name, value in sorted(info.versions.items())]
    facts += [(name, value) for name, value in sorted(info.environment.items())]
    facts += [(f"rows in {name}", rows) for name, rows in opened.row_counts().items()]
    rows = [{"name": name, "value": value} for name, value in facts]
    views.render(rows, output, columns=("name", "value"))
    if output == "table" and info.spec_text:
        sys.stdout.write(f"\n{clean_lines(info.spec_text.rstrip())}\n")


def path(run: RunArgument, workspace: WorkspaceOption = None) -> None:
    """Print the directory of a run."""
    from bathyscope.store import Workspace

    sys.stdout.write(f"{Workspace(workspace).find(run)}\n")


def rm(
    run: RunArgument,
    workspace: WorkspaceOption = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a run with all its data. Asks first when stdin is a terminal."""
    from bathyscope.store import Workspace

    space = Workspace(workspace)
    path = space.find(run)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                f"deleting {path} must be confirmed, and stdin is not a terminal", hint=f"bathy runs rm --yes {run}"
            )
        if not typer.confirm(f"Delete {path}?", err=True):
            raise typer.Exit(1)
    space.remove_run(path)
    say(f"deleted {path}")


def sql(  # noqa: PLR0917 - one parameter for each option
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT statement.")],
    run: Annotated[list[str] | None, typer.Option("--run", "-r", help="Only these runs. Default: all.")] = None,
    timeout: Annotated[str, typer.Option(help="How long the query may take: 30s, 10m.")] = "60s",
    limit: Annotated[int, typer.Option(min=1, help="Print so many rows at most.")] = 100_000,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
) -> None:
    """Run one SELECT over the records of all runs (or of --run). `bathy schema` shows tables and columns."""
    import bathyscope.sources  # noqa: F401 - a source may declare a record of its own
    from bathyscope import views
    from bathyscope.store import RunDirectory, Workspace, duck
    from bathyscope.units import parse_seconds

    bounds = duck.Bounds(parse_seconds(timeout), limit)
    if bounds.timeout_s <= 0:
        raise UsageError(f"--timeout must be greater than 0 (got {timeout})", hint="--timeout 10m")
    space = Workspace(workspace)
    if run:
        chosen = [space.open_run(ref) for ref in run]
    else:
        entries = space.runs()
        chosen = [RunDirectory(entry.path) for entry in entries if entry.problem is None]
        for entry in entries:
            if entry.problem is not None:
                say(f"bathy: {entry.id} is left out: {entry.problem}")

    def leave_out(damaged: RunDirectory, error: StoreError) -> None:
        say(f"bathy: {damaged.id} is left out: {error.message}")

    table = duck.query(chosen, query, left_out=None if run else leave_out, bounds=bounds)
    if table.num_rows > limit:
        say(f"only the first {limit:,} rows are printed: --limit")
        table = table.slice(0, limit)
    names = [f"{name}_{i}" if name in table.column_names[:i] else name for i, name in enumerate(table.column_names)]
    rows = table.rename_columns(names).to_pylist()
    views.render(rows, output, columns=names, empty="no rows")


def raw(  # noqa: PLR0917 - one parameter for each option
    run: RunArgument,
    segment: Annotated[str | None, typer.Argument(metavar="SEGMENT", help="A segment of the run.")] = None,
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help='A source, or "load" for the load generator.')
    ] = None,
    answer: Annotated[int | None, typer.Option("--answer", "-a", min=1, help="Print this answer verbatim.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="Print this file of the answer.")] = None,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
) -> None:
    """List the raw answers of a run, or print one verbatim: its stdout, its stderr, or one of its files."""
    from bathyscope import views
    from bathyscope.store import Workspace

    opened = Workspace(workspace).open_run(run)
    if segment is None or source is None:
        if answer is not None or file is not None:
            raise UsageError(
                "--answer and --file need SEGMENT and SOURCE", hint=f"bathy runs raw {opened.id} lists them"
            )
        segments = opened.segments().values() if segment is None else [_segment(opened, segment)]
        rows = [
            {
                "segment": stored.name,
                "source": name,
                "size_bytes": (stored.path / "raw" / f"{name}.zst").stat().st_size,
            }
            for stored in segments
            for name in stored.raw_sources()
        ]
        views.render(rows, output, columns=("segment", "source", "size_bytes"), empty="no raw answers")
        return
    is_list = answer is None and file is None
    rows, chosen = [], None
    # One is held at a time, and whether the file is whole is known at its end.
    for number, found_answer in enumerate(_segment(opened, segment).scan_raw(source), start=1):
        rows.append(_answer_row(number, found_answer))
        if not is_list and number == (answer or 1):
            chosen = found_answer
    if not rows:
        raise UsageError(
            f"segment {segment} has no raw answers of '{source}'",
            hint=f"bathy runs raw {opened.id} {segment} lists them",
        )
    if is_list:
        views.render(rows, output)
    elif chosen is None:
        raise UsageError(f"--answer must be 1 to {len(rows)} (got {answer})")
    else:
        _print_answer(chosen, file)


def reparse(run: RunArgument, workspace: WorkspaceOption = None) -> None:
    """Make the tables and verdicts of a run again from its raw answers, for example after a parser was corrected."""
    from bathyscope.run_kinds import kind_of
    from bathyscope.store import Workspace

    with Workspace(workspace).open_run(run, exclusive=True) as found:
        kind = kind_of(found)
        if kind.reparse is None:
            raise UsageError(
                f"run {found.id} cannot be parsed again: a run of the kind {kind.name} keeps no raw answers",
                hint=kind.continue_hint(found.id),
            )
        say(kind.reparse(found))
        found.sweep()


def _segment(run: RunDirectory, name: str) -> Segment:
    segments = run.segments()
    if name not in segments:
        raise UsageError(f"run {run.id} has no segment '{name}'", hint=f"bathy runs raw {run.id} lists them")
    return segments[name]


def _answer_row(number: int, answer: RawAnswer) -> dict[str, object]:
    return {
        "answer": number,
        "label": answer.label,
        "exit": answer.exit_code,
        "ms": round((answer.ended_ns - answer.started_ns) / 1e6, 1),
        "bytes": answer.size_bytes,
        "files": len(answer.files),
        "command": " ".join(answer.argv),
    }


def _print_answer(answer: RawAnswer, file: str | None) -> None:
    contents = dict(answer.files)
    if file is not None and file not in contents:
        raise UsageError(f"the answer has no file '{file}'", hint=f"it has: {', '.join(contents) or 'none'}")
    sys.stdout.flush()
    if file is not None:
        _verbatim(sys.stdout, contents[file])
        return
    _verbatim(sys.stdout, answer.stdout)
    for name, content in contents.items():
        _verbatim(sys.stdout, f"==> {name} <==\n".encode() + content)
    _verbatim(sys.stderr, answer.stderr)


def _verbatim(stream: TextIO, content: bytes) -> None:
    """Write bytes as they are, but not to a terminal, which would obey the escape sequences among them."""
    if stream.isatty():
        from bathyscope.views.labels import clean_lines

        stream.write(clean_lines(content.decode(errors="replace")))
    else:
        stream.buffer.write(content)


_SQL_EXAMPLES = """Examples:

\b
  bathy runs sql "SELECT status, count(*) FROM step GROUP BY status"
  bathy runs sql -r last -o csv "SELECT * FROM device_sample"
"""

_RAW_EXAMPLES = """Examples:

\b
  bathy runs raw last                                   every source of every segment
  bathy runs raw last step-00003 perf_counters          the answers of one source
  bathy runs raw last step-00003 perf_counters -a 2     the second of them, byte for byte
  bathy runs raw last step-00003 proc -a 1 -f /proc/diskstats
"""
