"""`bathy analyze`: who did the I/O of a recording, and where it landed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bathyscope.commands.options import OutputOption, RunArgument, WorkspaceOption
from bathyscope.errors import UsageError

if TYPE_CHECKING:
    from bathyscope.records.activity_finding import ActivityFinding
    from bathyscope.store import RunDirectory

_EXAMPLES = """Examples:

\b
  bathy analyze last                           every image: reads, writes, bytes, latency
  bathy analyze last --view osds               every OSD
  bathy analyze last --view nodes --output json
  bathy analyze last --since 30s --until 60s   a part of the recording, from its start
  bathy analyze --list                         every view
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("analyze", epilog=_EXAMPLES)(analyze)


def analyze(  # noqa: PLR0917 - one parameter for each option
    run: RunArgument = "last",
    view: Annotated[str, typer.Option("--view", "-v", help="What to show; --list has all views.")] = "devices",
    since: Annotated[str | None, typer.Option(help="Begin this long after the start of the recording: 30s.")] = None,
    until: Annotated[str | None, typer.Option(help="End this long after the start of the recording: 60s.")] = None,
    list_views: Annotated[bool, typer.Option("--list", help="List the views.")] = False,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
) -> None:
    """Show who did the I/O of a recording: images, clients, OSDs, nodes, pools."""
    from bathyscope import views
    from bathyscope.analysis.see import VIEWS
    from bathyscope.store import Workspace

    if list_views:
        views.render([{"view": each.name, "shows": each.help} for each in VIEWS.values()], output)
        return
    views.render(finding_of_view(Workspace(workspace).open_run(run), view, since=since, until=until), output)


def finding_of_view(
    run: RunDirectory, view: str, *, since: str | None = None, until: str | None = None
) -> ActivityFinding:
    """Return a view of a recording, or of a part of it. Raises UsageError, StoreError, AnalysisError."""
    from bathyscope.analysis.see import VIEWS
    from bathyscope.analysis.see.shape import Question
    from bathyscope.store import duck
    from bathyscope.units import parse_seconds

    if view not in VIEWS:
        raise UsageError(f"there is no view '{view}'", hint=f"--view is one of {', '.join(VIEWS)}")
    if run.info.kind != "collect":
        raise UsageError(
            f"run {run.id} is no recording but of the kind {run.info.kind}", hint="bathy collect makes a recording"
        )
    start_ns = run.info.started_ns
    end_ns = run.info.ended_ns or _last_ns(run)
    begin_ns = start_ns + round(parse_seconds(since or 0) * 1e9)
    stop_ns = end_ns if until is None else start_ns + round(parse_seconds(until) * 1e9)
    if not begin_ns < stop_ns:
        raise UsageError("--since must be before --until and before the end of the recording")
    question = Question(run.id, str(run.info.target.get("name", "")), begin_ns, stop_ns)
    chosen = VIEWS[view]
    return chosen.build({name: duck.query([run], sql) for name, sql in chosen.queries(question).items()}, question)


def _last_ns(run: RunDirectory) -> int:
    """Return when the last collection of a recording ended that goes on, or was killed."""
    from bathyscope.store import duck

    (row,) = duck.query([run], "SELECT max(at_ns + duration_ns) AS last_ns FROM collection").to_pylist()
    return int(row["last_ns"] or run.info.started_ns)
