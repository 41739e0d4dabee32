"""`bathy compare`: two runs, step by step: faster, slower or inconclusive."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bathyscope.commands.options import OutputOption, TableOption, WorkspaceOption
from bathyscope.commands.talk import say
from bathyscope.errors import BathyscopeError, UsageError

if TYPE_CHECKING:
    from bathyscope.analysis.differences import Facts
    from bathyscope.records.finding import CompareFinding
    from bathyscope.store import RunDirectory, Workspace

EXIT_FINDINGS = 1

_EXAMPLES = """Examples:

\b
  bathy compare last~ last                    the last run with the one before
  bathy compare 20260823 20260824 --metric p99
  bathy compare base new --fail-on slower     exit code 1 if a step is slower
  bathy compare base new -o json --threshold 2%

A step is called faster or slower when its 95 % interval excludes "no change", when that holds for the number of \
steps compared at once, and when the change is at least the threshold. Each side needs three repeats. Every difference \
of plan, pools, layout and environment is listed; where another thing was measured, no step is called.
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("compare", epilog=_EXAMPLES)(compare)


def compare(  # noqa: PLR0917 - one parameter for each option
    a: Annotated[str, typer.Argument(metavar="A", help='Run to compare with: id, prefix, path, "last", or "last~".')],
    b: Annotated[str, typer.Argument(metavar="B", help="Run to compare.")],
    fail_on: Annotated[
        Literal["slower", "any"] | None,
        typer.Option(
            help="Exit with 1 if a step is slower (any: or faster), has a figure in A only, "
            "or was measured in another configuration."
        ),
    ] = None,
    metric: Annotated[
        Literal["iops", "latency", "p99"], typer.Option(help="iops, mean latency, or p99 latency of merged histograms.")
    ] = "iops",
    threshold: Annotated[str, typer.Option(help="Smallest change that counts: 5% or 0.05.")] = "5%",
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
    table: TableOption = None,
) -> None:
    """Compare run B with run A, step by step, with intervals. Missing or refused steps never count as equal."""
    from bathyscope import views
    from bathyscope.analysis import compare as comparing
    from bathyscope.store import Workspace
    from bathyscope.views.findings import check_table
    from bathyscope.views.findings.compare import TABLES

    check_table(table, TABLES)
    least = parse_share(threshold)
    space = Workspace(workspace)
    run_a, run_b = (_open(space, ref) for ref in (a, b))
    recorded = (_recorded(run_a), _recorded(run_b))
    finding = comparing.compare(run_a.tables(), run_b.tables(), metric=metric, threshold=least, recorded=recorded)
    views.render(finding, output, table=table)
    if fail_on is not None:
        reasons = findings(finding, fail_on)
        for reason in reasons:
            say(f"bathy: {reason}")
        if reasons:
            raise typer.Exit(EXIT_FINDINGS)


def findings(finding: CompareFinding, fail_on: str) -> list[str]:
    """Return a sentence for each reason why a gate must not pass."""
    from bathyscope.analysis import compare as comparing

    verdicts = ("slower",) if fail_on == "slower" else ("slower", "faster")
    reasons = [f"{e.step_key} is {e.verdict}" for e in finding.effects if e.verdict in verdicts]
    reasons += [f"{key} has a figure in A and none in B" for key in comparing.lost(finding)]
    return reasons + [
        f"not the same configuration: {difference.text}" for difference in comparing.other_configuration(finding)
    ]


def _recorded(run: RunDirectory) -> Facts:
    """Return what a run holds of its plan and target; a plan that this version cannot read says nothing."""
    from bathyscope.analysis.differences import recorded_facts
    from bathyscope.bench.session import stored_plan

    plan: dict[str, object] = {}
    with contextlib.suppress(BathyscopeError):
        stored = stored_plan(run)
        plan = stored.model_dump(mode="json") | {"patterns": [pattern.name for pattern in stored.pattern_values()]}
    return recorded_facts(plan, run.info.target)


def parse_share(text: str) -> float:
    """Return 0.05 for "5%", "5 %" or "0.05". Raises UsageError."""
    stripped = text.strip()
    try:
        value = float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError as error:
        raise UsageError(
            f"--threshold must be a number or a percentage (got '{text}')", hint="--threshold 5%"
        ) from error
    if not 0 <= value < 1:
        raise UsageError(f"--threshold must be at least 0 and below 100 % (got {text})", hint="--threshold 5%")
    return value


def _open(space: Workspace, ref: str) -> RunDirectory:
    """Open a run; "last~" is the one before the last, "last~2" the one before that."""
    name, tilde, back = ref.partition("~")
    if name != "last" or not tilde or (back and not back.isdigit()):
        return space.open_run(ref)
    readable = [entry for entry in space.runs() if entry.problem is None]
    steps = int(back or 1)
    if steps >= len(readable):
        raise UsageError(f"there are only {len(readable)} runs in {space.path}", hint="bathy runs list")
    return space.open_run(readable[-1 - steps].path)
