"""`bathy report`: one run as a self-contained HTML page, or its charts as pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from bathyscope.commands.options import RunArgument, WorkspaceOption
from bathyscope.errors import AnalysisError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bathyscope.records.finding import LadderFinding
    from bathyscope.records.report_finding import ReportFinding
    from bathyscope.run_kinds import RunKind
    from bathyscope.store import RunDirectory

F = TypeVar("F")

_EXAMPLES = """Examples:

\b
  bathy report last --open                      write report.html into the run and show it
  bathy report 20260823 -o /tmp/ladder.html     one file that works offline
  bathy report 20260823 --recording last        a benchmark, and who did the I/O of a recording, on one page
  bathy report last --format png -o charts      every chart as a picture
  bathy report last --format svg --dark         the same as SVG on a dark background
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("report", epilog=_EXAMPLES)(report)


def report(
    run: RunArgument,
    file_format: Annotated[
        Literal["html", "png", "svg"], typer.Option("--format", "-f", help="A page, or each chart as a picture.")
    ] = "html",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File (html) or directory (png, svg). Default: inside the run."),
    ] = None,
    workspace: WorkspaceOption = None,
    recording: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Of a benchmark: also show who did the I/O of this recording."),
    ] = None,
    *,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    dark: Annotated[bool, typer.Option("--dark", help="Pictures on a dark background; the page has both.")] = False,
) -> None:
    """Write the report of a run. Prints the path of what was written."""
    from bathyscope.store import Workspace

    runs = Workspace(workspace)
    opened = runs.open_run(run)
    finding = finding_of(opened) if recording is None else _finding_of_both(opened, runs.open_run(recording))
    if file_format == "html":
        written = write_page(finding, output or opened.path / "report.html", private=output is None)
    else:
        written = output or opened.path / "charts"
        if written.exists() and not written.is_dir():
            raise UsageError(
                f"{written} is a file", hint=f"{file_format} writes one picture for each chart: name a directory"
            )
        count = _write_pictures(finding, written, file_format, dark=dark)
        sys.stderr.write(f"{count} charts\n")
    sys.stdout.write(f"{written}\n")
    if show and file_format == "html":
        import webbrowser

        if not webbrowser.open(written.resolve().as_uri()):
            sys.stderr.write("bathy: no browser could be started here; open the file by hand\n")


def finding_of(run: RunDirectory) -> Any:
    """Return what the run's kind shows of it. Raises AnalysisError, StoreError, ParseError, UsageError."""
    from bathyscope.run_kinds import kind_of

    kind = kind_of(run)
    return _of_kind(kind.finding, kind, run)


def loads_of(run: RunDirectory) -> LadderFinding:
    """Return the loads that a run made. Raises as `finding_of`, and UsageError when it made none."""
    from bathyscope.run_kinds import kind_of

    kind = kind_of(run)
    if kind.loads is None:
        raise UsageError(
            f"run {run.id} is of the kind {run.info.kind}: it has no loads to explain", hint=f"bathy runs show {run.id}"
        )
    return _of_kind(kind.loads, kind, run)


def _of_kind(finding: Callable[[RunDirectory], F], kind: RunKind, run: RunDirectory) -> F:
    try:
        return finding(run)
    except AnalysisError as error:
        if run.status == "interrupted":
            raise AnalysisError(error.message, hint=kind.continue_hint(run.id)) from error
        raise


def _finding_of_both(bench: RunDirectory, recording: RunDirectory) -> ReportFinding:
    """Return what a benchmark and a recording show together. Raises what `finding_of` raises."""
    from bathyscope.records.report_finding import ReportFinding

    for run, kind, verb in ((bench, "bench", "bathy bench"), (recording, "collect", "bathy collect")):
        if run.info.kind != kind:
            raise UsageError(
                f"run {run.id} is of the kind {run.info.kind}, and a run of `{verb}` is needed in its place",
                hint="bathy report BENCHMARK --recording RECORDING; `bathy runs` has the kinds of all runs",
            )
    return ReportFinding(finding_of(bench), finding_of(recording))


def write_page(finding: Any, target: Path, *, private: bool = False) -> Path:
    """Write the page of a finding to a file, or as report.html into a directory; return where. Raises StoreError.

    A page at a place that the user names has the mode that the umask gives; one in a run is private.
    """
    from bathyscope import files, views
    from bathyscope.store.errors import store_errors

    if target.is_dir():
        target /= "report.html"
    page = views.as_text(finding, "html")
    with store_errors("write", target):
        files.write_file(target, page.encode(), mode=files.PRIVATE_FILE if private else files.SHARED_FILE)
    return target


def _write_pictures(finding: Any, directory: Path, file_format: str, *, dark: bool) -> int:
    from bathyscope import files
    from bathyscope.store.errors import store_errors
    from bathyscope.views import pictures

    count = 0
    with store_errors("write charts to", directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in pictures.draw(finding, file_format, dark=dark):
            files.write_file(directory / name, content, mode=files.SHARED_FILE)
            count += 1
    return count
