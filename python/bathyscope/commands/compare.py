"""`bathy compare`: two runs, step by step: faster, slower, or cannot tell."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from bathyscope import views
from bathyscope.analysis import compare as comparing
from bathyscope.errors import UsageError
from bathyscope.records.finding import CompareFinding
from bathyscope.store import RunDirectory, Workspace

EXIT_FINDINGS = 1

_EXAMPLES = """Examples:

\b
  bathy compare last~ last                    the last run with the one before
  bathy compare 20260823 20260824 --metric p99
  bathy compare base new --fail-on slower     exit 1: slower, or figure lost
  bathy compare base new -o json --threshold 2%

A step is called faster or slower when its 95 % interval excludes "no change", when that holds for the number of \
steps compared at once, and when the change is at least the threshold. Each side needs three repeats.
"""


class FailOn(enum.StrEnum):
    """What makes the exit code 1."""

    SLOWER = "slower"
    ANY = "any"


class Metric(enum.StrEnum):
    """What is compared."""

    IOPS = "iops"
    LATENCY = "latency"
    P99 = "p99"


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("compare", epilog=_EXAMPLES)(compare)


def compare(  # noqa: PLR0917 - one parameter for each option
    a: Annotated[str, typer.Argument(metavar="A", help='Run to compare with: id, prefix, path, "last", or "last~".')],
    b: Annotated[str, typer.Argument(metavar="B", help="Run to compare.")],
    fail_on: Annotated[
        FailOn | None, typer.Option(help="Exit with 1 if a step is slower (or changed at all), or has lost its figure.")
    ] = None,
    metric: Annotated[
        Metric, typer.Option(help="iops, mean latency, or p99 latency of merged histograms.")
    ] = Metric.IOPS,
    threshold: Annotated[str, typer.Option(help="Least change that counts: 5% or 0.05.")] = "5%",
    workspace: Annotated[Path | None, typer.Option("--workspace", "-w", help="Directory of the runs.")] = None,
    output: Annotated[views.Output, typer.Option("--output", "-o", help="How to print.")] = "table",
) -> None:
    """Compare run B with run A, step by step, with intervals. Missing or refused steps never count as equal."""
    least = parse_share(threshold)
    place = Workspace(workspace)
    run_a, run_b = (_open(place, ref) for ref in (a, b))
    finding = comparing.compare(run_a.tables(), run_b.tables(), metric=metric.value, threshold=least)
    views.render(finding, output)
    if fail_on is not None:
        reasons = findings(finding, fail_on)
        for reason in reasons:
            sys.stderr.write(f"bathy: {reason}\n")
        if reasons:
            raise typer.Exit(EXIT_FINDINGS)


def findings(finding: CompareFinding, fail_on: FailOn) -> list[str]:
    """Return a sentence for each reason why a gate must not pass."""
    calls = ("slower",) if fail_on is FailOn.SLOWER else ("slower", "faster")
    reasons = [f"{e.step_key} is {e.call}" for e in finding.effects if e.call in calls]
    return reasons + [f"{key} has a figure in A and none in B" for key in comparing.lost(finding)]


def parse_share(text: str) -> float:
    """Return 0.05 for "5%", "5 %" or "0.05". Raises UsageError."""
    stripped = text.strip()
    try:
        value = float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError as error:
        raise UsageError(f"'{text}' is not a share", hint="write 5% or 0.05") from error
    if not 0 <= value < 1:
        raise UsageError(f"a threshold of {text} makes no sense", hint="write a share below 100 %: 5% or 0.05")
    return value


def _open(place: Workspace, ref: str) -> RunDirectory:
    """Open a run; "last~" is the one before the last, "last~2" the one before that."""
    name, tilde, back = ref.partition("~")
    if name != "last" or not tilde or (back and not back.isdigit()):
        return place.open_run(ref)
    readable = [entry for entry in place.runs() if entry.problem is None]
    steps = int(back or 1)
    if steps >= len(readable):
        raise UsageError(f"there are only {len(readable)} runs in {place.path}", hint="`bathy runs list` shows them")
    return place.open_run(readable[-1 - steps].path)
