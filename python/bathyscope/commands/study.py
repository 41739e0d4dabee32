"""`bathy study`: experiments with phases and expectations, on a lab of their own or on a cluster that is named."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bathyscope.commands.options import (
    ClientOption,
    ConfOption,
    KeyringOption,
    LabOption,
    Output,
    OutputOption,
    ReportOption,
    TableOption,
    TargetOption,
    WorkspaceOption,
)
from bathyscope.commands.talk import say
from bathyscope.errors import UsageError
from bathyscope.units import format_seconds, format_size_short

if TYPE_CHECKING:
    from bathyscope.spec import Target
    from bathyscope.spec.plan import Plan
    from bathyscope.studies import Study

_LIST = "list"
_HELP = """Carry out an experiment, and judge its result; or list all with their parameters.

It is a benchmark in phases, on a lab of its own unless a lab or a cluster is named. Its own lab is brought up at the \
start and taken down at the end, also after an error or an interruption. A study that was killed goes on with \
`bathy bench resume`; else the next one takes its lab down. On a cluster of yours phases can set options that OSDs \
take while they run, which go back at the end, and read data in full; caches over OSDs and restarts are for labs, \
where bathy has started the OSDs itself and can start them again. The exit code is 1 when an expectation is not met on \
simulated disks, or cannot be judged because the processors waited for a hypervisor.
"""
_EXAMPLES = """Examples:

\b
  bathy study list                               the studies and their parameters
  bathy study vm-fleet                           a cache over hard disks under virtual machines; about five minutes
  bathy study vm-fleet --dry-run                 time, changes, commands
  bathy study vm-fleet --report study.html       and a page with a chart
  bathy study vm-fleet --set images=4 --set runtime=4s
  bathy study vm-fleet --set phases=no-cache,repeated
  bathy study vm-fleet --lab demo                on a lab of yours, which is left as it was
  bathy bench resume last                        continue one that was killed
  bathy explain last                             what limits each load of it
  bathy report last                              the page of the last run, later
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("study", help=_HELP, epilog=_EXAMPLES)(study)


def study(  # noqa: PLR0917 - one parameter for each option
    name: Annotated[str, typer.Argument(metavar="STUDY | list", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a parameter; repeatable.")
    ] = None,
    lab: LabOption = None,
    conf: ConfOption = None,
    client: ClientOption = None,
    keyring: KeyringOption = None,
    target: TargetOption = None,
    workspace: WorkspaceOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what it takes, changes and starts, and whether it would be refused."),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave pools and images on a lab or cluster of yours.")] = False,
    output: OutputOption = "table",
    table: TableOption = None,
    report: ReportOption = None,
) -> None:
    """See _HELP."""
    from bathyscope import views
    from bathyscope.commands.bench import check_dry_run_table
    from bathyscope.commands.targets import find_target
    from bathyscope.spec.values import checked, did_you_mean
    from bathyscope.studies import STUDIES

    if name == _LIST:
        views.render([row for study in STUDIES.values() for row in _rows(study)], output, table=table)
        return
    if name not in STUDIES:
        hint = did_you_mean(name, STUDIES, f"one of {', '.join(STUDIES)}")
        raise UsageError(f"there is no study '{name}'", hint=hint)
    check_dry_run_table(table, dry_run=dry_run)
    chosen = STUDIES[name]
    parameters = checked(chosen.parameters, **dict(_pair(text, chosen) for text in set_ or []))
    plan, named = chosen.plan(parameters), None
    if any(option is not None for option in (lab, conf, client, keyring, target)):
        named = find_target(lab=lab, conf=conf, client=client, keyring=keyring, file=target)
    if dry_run:
        _predict(chosen, parameters, plan, named, output, table)
    else:
        _carry_out(chosen, parameters, plan, named, workspace, output, report, keep=keep)


def _predict(  # noqa: PLR0917 - those of the verb
    study: Study, parameters: Any, plan: Plan, named: Target | None, output: Output, table: str | None
) -> None:
    """Print what a run would take and change. Exits with 1 when it would be refused."""
    from bathyscope import views
    from bathyscope.bench import session
    from bathyscope.host.local import LocalHost

    if named is None:
        predicted = session.predict_on(study.lab(parameters), plan)
    else:
        predicted = session.predict(LocalHost(), plan, named)
    views.render(predicted, output, table=table)
    if predicted.refusal:
        raise typer.Exit(1)


def _carry_out(  # noqa: PLR0917 - those of the verb
    study: Study,
    parameters: Any,
    plan: Plan,
    named: Target | None,
    workspace: Path | None,
    output: Output,
    report: Path | None,
    *,
    keep: bool,
) -> None:
    """Measure on the target that is named or on a lab of its own, and show what was found."""
    from bathyscope import lab as labs
    from bathyscope.bench import phases, session
    from bathyscope.commands.bench import show_result
    from bathyscope.commands.bench_progress import watching
    from bathyscope.commands.own_lab import own_lab
    from bathyscope.host.local import LocalHost
    from bathyscope.spec import Target
    from bathyscope.store import Workspace

    began = time.monotonic()
    spec = study.lab(parameters)
    # Before a lab is made for it.
    phases.check(plan, named or Target(name=spec.name, kind="lab"))
    if named is not None and named.kind == "lab":
        labs.restore_throttle(labs.load(named.name))
    with contextlib.ExitStack() as stack:
        target = named or stack.enter_context(own_lab(spec)).target()
        watcher = stack.enter_context(watching())
        run = session.begin(
            LocalHost(), Workspace(workspace), plan, target, watcher, keep=keep, kind="study", own_lab=named is None
        )
    say(f"done after {format_seconds(time.monotonic() - began)}")
    show_result(run, output, report)


def _rows(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the study itself and what of it is for labs, then its parameters."""
    from bathyscope.bench.phases import for_labs

    words = for_labs(study.plan(study.parameters()))
    what = f"{study.help} {words[0].upper()}{words[1:]}." if words else study.help
    yield {"study": study.name, "parameter": "", "default": "", "what": what}
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


def _pair(text: str, study: Study) -> tuple[str, str | list[str]]:
    name, separator, value = text.partition("=")
    if not separator or name not in study.parameters.model_fields:
        hint = f"one of {', '.join(study.parameters.model_fields)}"
        raise UsageError(f"--set must be NAME=VALUE with a parameter of the study (got '{text}')", hint=hint)
    takes_many = isinstance(study.parameters.model_fields[name].default, tuple)
    return name, [part.strip() for part in value.split(",")] if takes_many else value
