"""`bathy study`: experiments that make what they need, measure it in phases and judge the result."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bathyscope.commands.options import OutputOption, ReportOption, WorkspaceOption
from bathyscope.commands.talk import say
from bathyscope.errors import UsageError
from bathyscope.units import format_seconds, format_size_short

if TYPE_CHECKING:
    from bathyscope.lab import LabState
    from bathyscope.spec import Model
    from bathyscope.store import RunDirectory
    from bathyscope.studies import Study

_NOT_AS_EXPECTED = 1
_LIST = "list"
_HELP = """Carry out an experiment on a lab of its own, and judge its result; or list all with their parameters.

The lab is brought up at the start and taken down at the end, also after an error or an interruption; that of a study \
that was killed is taken down by the next one. The exit code is 1 when an expectation is not met on simulated disks, \
or cannot be judged because the processors waited for a hypervisor.
"""
_EXAMPLES = """Examples:

\b
  bathy study list                               the studies and their parameters
  bathy study vm-fleet                           a cache over hard disks under virtual machines; about four minutes
  bathy study vm-fleet --report study.html       and a page with a chart
  bathy study vm-fleet --set images=4 --set runtime=4s
  bathy study vm-fleet --set phases=no-cache,repeated
  bathy report last                              the page of the last run, later
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("study", help=_HELP, epilog=_EXAMPLES)(study)


def study(
    name: Annotated[str, typer.Argument(metavar="STUDY | list", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a parameter; repeatable.")
    ] = None,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
    report: ReportOption = None,
) -> None:
    """See _HELP."""
    from bathyscope import views
    from bathyscope.spec.values import did_you_mean
    from bathyscope.studies import STUDIES

    if name == _LIST:
        views.render([row for known in STUDIES.values() for row in _rows(known)], output)
        return
    if name not in STUDIES:
        hint = did_you_mean(name, STUDIES, f"one of {', '.join(STUDIES)}")
        raise UsageError(f"there is no study '{name}'", hint=hint)
    _carry_out(STUDIES[name], set_ or [], workspace, output, report)


def _rows(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the study itself, then its parameters."""
    yield {"study": study.name, "parameter": "", "default": "", "what": study.help}
    for name, field in study.parameters.model_fields.items():
        yield {
            "study": study.name,
            "parameter": name,
            "default": _shown(name, field.default),
            "what": field.description,
        }


def _shown(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return "all"
    return format_size_short(value) if name.endswith("_size") else f"{value:g}"


def _carry_out(study: Study, changes: list[str], workspace: Path | None, output: str, report: Path | None) -> None:
    """Bring the lab up, measure, take it down, and show what was found. Exits with 1 when it is not as expected."""
    from bathyscope import views
    from bathyscope.commands.own_lab import own_lab
    from bathyscope.commands.report import finding_of, write_page
    from bathyscope.spec.values import checked

    began = time.monotonic()
    given = checked(study.parameters, **dict(_pair(text, study) for text in changes))
    study.check()
    with own_lab(study.lab(given)) as state:
        run = measured(study, given, state, workspace)
    finding = finding_of(run)
    views.render(finding, output)
    sys.stdout.flush()
    say(f"run {run.id}, done after {format_seconds(time.monotonic() - began)}")
    if report is not None:
        say(f"report: {write_page(finding, report)}")
    if not finding.passed:
        raise typer.Exit(_NOT_AS_EXPECTED)


def measured(study: Study, given: Model, state: LabState, workspace: Path | None) -> RunDirectory:
    """Carry a study out on a lab and return its run, closed. What it makes and changes there is not undone."""
    from bathyscope import __version__
    from bathyscope.host.local import LocalHost
    from bathyscope.store import Workspace
    from bathyscope.studies.base import Measurement

    run = Workspace(workspace).create_run(
        kind="study", name=study.name, spec_text=given.model_dump_json(), started_ns=time.time_ns(),
        target=state.target().model_dump(mode="json"), versions={"bathy": __version__},
    )  # fmt: skip
    with run:
        study.measure(Measurement(LocalHost(), state, run, say), given)
        run.compact()
        run.update(status="done", ended_ns=time.time_ns())
    return run


def _pair(text: str, study: Study) -> tuple[str, str | list[str]]:
    name, separator, value = text.partition("=")
    if not separator or name not in study.parameters.model_fields:
        hint = f"one of {', '.join(study.parameters.model_fields)}"
        raise UsageError(f"--set must be NAME=VALUE with a parameter of the study (got '{text}')", hint=hint)
    takes_many = isinstance(study.parameters.model_fields[name].default, tuple)
    return name, [part.strip() for part in value.split(",")] if takes_many else value
