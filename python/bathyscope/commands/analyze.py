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
    import dataclasses

    from bathyscope.analysis.see import VIEWS
    from bathyscope.units import parse_seconds
    from bathyscope.watch.asking import question_of, view_of

    if view not in VIEWS:
        raise UsageError(f"there is no view '{view}'", hint=f"--view is one of {', '.join(VIEWS)}")
    if run.info.kind != "collect":
        raise UsageError(
            f"run {run.id} is no recording but of the kind {run.info.kind}", hint="bathy collect makes a recording"
        )
    whole = question_of(run)
    begin_ns = whole.start_ns + round(parse_seconds(since or 0) * 1e9)
    end_ns = whole.end_ns if until is None else whole.start_ns + round(parse_seconds(until) * 1e9)
    if not begin_ns < end_ns:
        raise UsageError("--since must be before --until and before the end of the recording")
    return view_of(run, view, dataclasses.replace(whole, start_ns=begin_ns, end_ns=end_ns))
