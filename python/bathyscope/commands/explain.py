"""`bathy explain`: what limits a load, a benchmark's or that of a cluster's own clients, and where its latency is."""

from __future__ import annotations

import difflib
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
from bathyscope.commands.report import loads_of
from bathyscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bathyscope.records.account import Prediction
    from bathyscope.records.finding import LadderFinding, PointFinding

# A hint is to be read at once; `bathy explain RUN` lists all.
_NAMES_SHOWN = 8
_NEAR_CUTOFF = 0.4

_EXAMPLES = """Examples:

\b
  bathy explain last                                     all loads: the nearest ceiling of each
  bathy explain last rbd/ssd/randwrite-4K-qd16           the whole account of one
  bathy explain last rbd/ssd/randwrite-4K-qd16 --what-if osd.cpu=2x
  bathy explain last rbd/ssd/randread-4K-qd16 --what-if even --what-if size=2
  bathy explain last -o csv                              all loads, for a spreadsheet
  bathy explain last --since 30s --until 60s             of a recording: what limited its clients in that time
  bathy explain last --image rbd/vm-101-disk-0           of a recording: what limited the clients of this image

A change is osd.cpu=2x, client.cpu=2x, network=2x, disk=2x, disk=nvme (as the run measured it), even (the load evenly \
spread over the OSDs), size=2 (replicas), qd=32 or osds=12. Several with commas are made together; each --what-if is \
judged alone.
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("explain", epilog=_EXAMPLES)(explain)


def explain(  # noqa: PLR0917 - one parameter for each option
    run: RunArgument,
    step: Annotated[
        str | None,
        typer.Argument(metavar="STEP", help="A load: its step key, or a part that no other has. Default: all."),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", metavar="CHANGE", help="Predict the rate after this change; repeatable."),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    image: Annotated[
        str | None, typer.Option(help="Of a recording: the clients of this image, POOL/[NAMESPACE/]IMAGE.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Of a recording: the clients of this pool.")] = None,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
    table: TableOption = None,
) -> None:
    """Explain what limits a load: ceilings of all resources, where its latency is, and what a change would bring.

    A benchmark has the loads that it made, a recording the one that the cluster's own clients made.
    """
    import dataclasses

    from bathyscope import views
    from bathyscope.records.explain_finding import AccountFinding, AccountsFinding
    from bathyscope.store import Workspace
    from bathyscope.views.findings import account, accounts, check_table
    from bathyscope.window.recording import account_of, part_of

    opened = Workspace(workspace).open_run(run)
    is_recording = opened.info.kind == "collect"
    check_table(table, (account if is_recording or step is not None else accounts).TABLES)
    if is_recording:
        if step is not None:
            raise UsageError(f"run {run} is a recording: it has no steps", hint="--since and --until choose a part")
        question = dataclasses.replace(part_of(opened, since, until), image=image, pool=pool)
        views.render(account_of(opened, question, what_if or ()), output, table=table)
        return
    if any(option is not None for option in (since, until, image, pool)):
        raise UsageError(
            f"run {run} is not a recording: --since, --until, --image and --pool choose a part of one",
            hint=f"bathy explain {run} lists its steps",
        )
    if what_if and step is None:
        raise UsageError("--what-if needs a STEP", hint=f"bathy explain {run} lists the steps")
    ladder = loads_of(opened)
    # A plain disk joins the groups of several variants.
    points = {point.step_key: point for point in ladder.points}
    if step is None:
        loads = AccountsFinding(ladder.run_id, ladder.target, tuple(points.values()), ladder.caveats)
        views.render(loads, output, table=table)
        return
    point = points[chosen(step, list(points), run)]
    of_run = (caveat for caveat in ladder.caveats if not caveat.step_keys)
    point = dataclasses.replace(point, caveats=(*point.caveats, *of_run))
    predictions = tuple(_predict(ladder, point, change) for change in what_if or ())
    views.render(AccountFinding(ladder.run_id, ladder.target, point, predictions), output, table=table)


def chosen(step: str, keys: Sequence[str], run: str) -> str:
    """Return the step key that `step` is, or is a part of. Raises UsageError, which names those that are near."""
    if step in keys:
        return step
    longer = [key for key in keys if step in key]
    if len(longer) == 1:
        return longer[0]
    if longer:
        raise UsageError(f"'{step}' is a part of {len(longer)} step keys", hint=f"one of {_listed(longer)}")
    near = difflib.get_close_matches(step, keys, _NAMES_SHOWN, _NEAR_CUTOFF)
    raise UsageError(
        f"run {run} has no step '{step}'",
        hint=f"near it are {_listed(near)}" if near else f"bathy explain {run} lists the steps",
    )


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _NAMES_SHOWN} more" if len(keys) > _NAMES_SHOWN else ""
    return ", ".join(keys[:_NAMES_SHOWN]) + more


def _predict(ladder: LadderFinding, point: PointFinding, change: str) -> Prediction:
    from bathyscope.analysis.what_if import predict_in_run

    if point.status != "done" or point.account is None:
        reason = point.reason or "it has no account of its resources"
        raise UsageError(f"nothing can be predicted for {point.step_key}: {reason}", hint="choose another step")
    return predict_in_run(ladder, point, change)
