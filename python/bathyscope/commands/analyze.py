"""`bathy analyze`: who did the I/O of a recording, and where it landed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bathyscope.commands.options import (
    OutputOption,
    RunArgument,
    SinceOption,
    TableOption,
    UntilOption,
    WorkspaceOption,
)
from bathyscope.errors import UsageError

if TYPE_CHECKING:
    from bathyscope.records.activity_finding import ActivityFinding
    from bathyscope.store import RunDirectory

_EXAMPLES = """Examples:

\b
  bathy analyze last                           every image: reads, writes, bytes, latency
  bathy analyze last --view osds               every OSD
  bathy analyze last --view nodes --output json
  bathy analyze last rbd/vm-101-disk-0 --view zones --zones 20
  bathy analyze last rbd/vm-101-disk-0 --view objects --all   which OSDs hold each object
  bathy analyze last rbd/vm-101-disk-0 --view image --report disk.png       where and when, as a picture
  bathy analyze last --view slow               the slowest operations and whom they waited for
  bathy analyze last rbd/vm-101-disk-0 --view ops        its last operations, one by one
  bathy analyze last --since 30s --until 60s   a part of the recording, from its start
  bathy analyze last --view osds --step rbd/ssd/randwrite-4K-qd16           of a benchmark: during one step
  bathy analyze --list                         every view
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("analyze", epilog=_EXAMPLES)(analyze)


def analyze(  # noqa: PLR0917 - one parameter for each option
    run: RunArgument = "last",
    image: Annotated[
        str | None, typer.Argument(metavar="IMAGE", help="For image, zones, objects and ops: POOL/[NAMESPACE/]IMAGE.")
    ] = None,
    view: Annotated[str, typer.Option("--view", "-v", help="What to show; --list has all views.")] = "devices",
    zones: Annotated[int, typer.Option(min=1, max=10_000, help="Zones that an image is cut into.")] = 10,
    every_object: Annotated[
        bool, typer.Option("--all", help="For objects: also those that nothing was done to.")
    ] = False,
    step: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Of a benchmark: the last repeat of this step."),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    list_views: Annotated[bool, typer.Option("--list", help="List the views.")] = False,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
    table: TableOption = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Also write the view to this file: a page (.html) or its picture (.png, .svg)."),
    ] = None,
) -> None:
    """Show who did the I/O of a recording: images, clients, OSDs, nodes, pools."""
    from bathyscope import views
    from bathyscope.analysis.activity import VIEWS
    from bathyscope.store import Workspace
    from bathyscope.views.findings import check_table

    if report is not None and report.suffix not in (".html", ".png", ".svg"):
        raise UsageError(f"--report must end in .html, .png or .svg (got {report})")
    if list_views:
        views.render([{"view": each.name, "shows": each.help} for each in VIEWS.values()], output, table=table)
        return
    if view in VIEWS:
        check_table(table, VIEWS[view].tables)
    opened = Workspace(workspace).open_run(run)
    finding = finding_of_view(
        opened, view, image=image, zones=zones, every_object=every_object, step=step, since=since, until=until
    )
    # What cannot be printed is refused before a file is written.
    views.render(finding, output, table=table)
    if report is not None:
        _write_report(finding, report)


def _write_report(finding: ActivityFinding, target: Path) -> None:
    """Write a view as a page or a picture, as the name of the file says. Raises UsageError without one, StoreError."""
    from bathyscope import files
    from bathyscope.commands.report import write_page
    from bathyscope.commands.talk import say
    from bathyscope.store.errors import store_errors
    from bathyscope.views import pictures

    file_format = target.suffix.removeprefix(".")
    if file_format == "html":
        say(f"report: {write_page(finding, target)}")
        return
    drawn = next(pictures.draw(finding, file_format), None)
    if drawn is None:
        raise UsageError(
            f"the view {finding.view} of this recording has no picture",
            hint="--report FILE.html has its table; image has a picture where objects were recorded one by one",
        )
    with store_errors("write", target):
        files.write_file(target, drawn[1], mode=files.SHARED_FILE)
    say(f"picture: {target}")


def finding_of_view(
    run: RunDirectory,
    view: str,
    *,
    image: str | None = None,
    zones: int = 10,
    every_object: bool = False,
    step: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> ActivityFinding:
    """Return a view of a recording or a benchmark, or of a part of it. Raises UsageError, StoreError, AnalysisError."""
    import dataclasses

    from bathyscope.analysis.activity import VIEWS
    from bathyscope.commands.explain import chosen
    from bathyscope.run_kinds import kind_of
    from bathyscope.spec.values import did_you_mean
    from bathyscope.window.recording import images_of, part_of, step_keys, step_of, view_of

    if view not in VIEWS:
        raise UsageError(f"there is no view '{view}'", hint=f"--view is one of {', '.join(VIEWS)}")
    has_steps = kind_of(run).loads is not None
    if run.info.kind != "collect" and not has_steps:
        raise UsageError(
            f"run {run.id} is of the kind {run.info.kind}: it has no samples", hint=f"bathy runs show {run.id}"
        )
    if step is not None and not has_steps:
        raise UsageError(f"run {run.id} is a recording: it has no steps", hint="--since and --until choose a part")
    if VIEWS[view].of_image and image is None:
        raise UsageError(f"the view {view} is of one image", hint=f"bathy analyze {run.id} POOL/IMAGE --view {view}")
    if image is not None and not VIEWS[view].of_image:
        raise UsageError(f"the view {view} is not of one image", hint=f"bathy analyze {run.id} {image} --view image")
    part = part_of(run, since, until) if step is None else step_of(run, chosen(step, step_keys(run), run.id))
    question = dataclasses.replace(part, image=image, zones=zones, every_object=every_object)
    finding = view_of(run, view, question)
    if image is not None and not finding.facts and not any(table.rows for table in finding.tables):
        names = images_of(run)
        if image not in names:
            otherwise = f"name it as POOL/[NAMESPACE/]IMAGE; bathy analyze {run.id} lists the images"
            raise UsageError(
                f"run {run.id} knows nothing of an image '{image}'", hint=did_you_mean(image, names, otherwise)
            )
    return finding
