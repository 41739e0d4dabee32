"""`bathy report`: one run as a self-contained HTML page, or its charts as pictures."""

from __future__ import annotations

import enum
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from bathyscope.analysis import ladder
from bathyscope.bench.commands_run import commands_of
from bathyscope.errors import UsageError
from bathyscope.records.finding import LadderFinding
from bathyscope.store import RunDirectory, Workspace
from bathyscope.views import report as page
from bathyscope.views.charts import DARK, LIGHT, pictures

_EXAMPLES = """Examples:

\b
  bathy report last --open                      write report.html into the run and show it
  bathy report 20260823 -o /tmp/ladder.html     one file that works anywhere, without a network
  bathy report last --format png -o charts      every chart as a picture
  bathy report last --format svg --dark         the same as SVG on a dark ground
"""


class Format(enum.StrEnum):
    """What is written."""

    HTML = "html"
    PNG = "png"
    SVG = "svg"


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("report", epilog=_EXAMPLES)(report)


def report(
    ref: Annotated[str, typer.Argument(metavar="RUN", help='Run: id, the beginning of one, a path, or "last".')],
    file_format: Annotated[
        Format, typer.Option("--format", "-f", help="A page, or each chart as a picture.")
    ] = Format.HTML,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File (html) or directory (png, svg). Default: inside the run."),
    ] = None,
    workspace: Annotated[Path | None, typer.Option("--workspace", "-w", help="Directory of the runs.")] = None,
    *,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    dark: Annotated[bool, typer.Option("--dark", help="Pictures on a dark ground; the page has both.")] = False,
) -> None:
    """Write the report of a run. Prints the path of what was written."""
    run = Workspace(workspace).open_run(ref)
    finding = finding_of(run)
    if file_format is Format.HTML:
        target = output or run.path / "report.html"
        if target.is_dir():
            target /= "report.html"
        written = page.write(finding, target)
    else:
        written = output or run.path / "charts"
        if written.exists() and not written.is_dir():
            raise UsageError(
                f"{written} is a file", hint=f"{file_format} writes one picture for each chart: name a directory"
            )
        files = pictures.write(finding, written, file_format.value, DARK if dark else LIGHT)
        sys.stderr.write(f"{len(files)} charts\n")
    sys.stdout.write(f"{written}\n")
    if show and file_format is Format.HTML and not webbrowser.open(written.resolve().as_uri()):
        sys.stderr.write("bathy: no browser could be started here; open the file by hand\n")


def finding_of(run: RunDirectory) -> LadderFinding:
    """Return the ladder of a run with the commands that made it. Raises AnalysisError, StoreError, ParseError."""
    return ladder.build(run.tables(), commands_of(run))
