"""`bathy cache plan`: which OSDs get how much of an SSD, from a run's operations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bathyscope.commands.options import OutputOption, RunArgument, WorkspaceOption
from bathyscope.errors import UsageError

if TYPE_CHECKING:
    from bathyscope.records import Placement
    from bathyscope.records.cache_plan_finding import CacheMemory, CachePlan
    from bathyscope.spec.size import SizeSpec
    from bathyscope.store import RunDirectory

PLAN_HELP = """Say which OSDs of each node get how much of its SSD, and what to expect, from a run with operations.

The cache is simulated as it runs: S3-FIFO, lines of --line-size with units of 4K, adaptive fetch from hard disks,
write-through, past it what is written in runs of more than 256K. Sizes are flash; the small queue is in DRAM beside it.
A plan is refused when its cache would need more memory than it may take (--memory).
`bathy size RUN --by osd` shows the curves behind the plan, all line sizes and prices.
"""
PLAN_EXAMPLES = """Examples:

\b
  bathy cache plan last --flash 400G                   each node has 400 GiB
  bathy cache plan last --flash 400G --node node2
  bathy cache plan last --flash 400G --line-size 256K  for a cache that is made with --line-size 256K
  bathy cache plan last --flash 400G -o json > plan.json
  bathy cache source create --from-plan plan.json --cache fast
"""
FETCH_BYTES = 4 << 10


def plan(  # noqa: PLR0917 - one parameter for each option
    run: RunArgument,
    flash: Annotated[str, typer.Option(help="Flash of each node: 400G.")],
    line_size: Annotated[
        str, typer.Option(help="Size of a cache line, as `bathy cache create` takes it: 16K, 64K or 256K.")
    ] = "64K",
    node: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Plan for this node alone; repeatable.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory that the cache of each node may take, as `bathy cache create` has it; default: 4G."),
    ] = None,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
) -> None:
    """See PLAN_HELP."""
    from bathyscope.simulate.memory import cache_memory
    from bathyscope.spec.cache import DEFAULT_LINE_BYTES, CacheSettings
    from bathyscope.spec.size import ADMISSION_OF_BATHYD, MOST_THREADS, SizeSpec
    from bathyscope.spec.values import checked
    from bathyscope.store import Workspace
    from bathyscope.units import parse_some_bytes
    from bathyscope.views import render

    line_bytes = checked(CacheSettings, line_bytes=line_size).line_bytes or DEFAULT_LINE_BYTES
    hint = "leave it out for the default"
    memory_bytes = None if memory is None else parse_some_bytes("--memory", memory, hint=hint)
    flash_bytes = parse_some_bytes("--flash", flash, hint="--flash 400G")
    opened = Workspace(workspace).open_run(run)
    nodes = _nodes(opened, node or ())
    # One answer for all nodes: that of the one with the most OSDs.
    sources = max(map(len, nodes.values()), default=1)
    needed = cache_memory(flash_bytes, line_bytes, memory_bytes, sources)
    spec = checked(
        SizeSpec, traces=[str(opened.path)], by="osd", line_bytes=[line_bytes], fetch_bytes=FETCH_BYTES,
        admission=ADMISSION_OF_BATHYD, budget_bytes=flash_bytes, memory_bytes=memory_bytes,
        threads=min(os.cpu_count() or 1, MOST_THREADS),
    )  # fmt: skip
    backing = spec.backing_profile
    spec = spec.model_copy(update={"break_even_bytes": None if backing is None else backing.break_even_bytes})
    render(_planned(opened, spec, nodes, needed, workspace), output)


def _planned(
    run: RunDirectory,
    spec: SizeSpec,
    nodes: dict[str, list[Placement]],
    memory: CacheMemory,
    workspace: Path | None,
) -> CachePlan:
    from bathyscope import simulate
    from bathyscope.analysis.sizing import SizeQuestion
    from bathyscope.analysis.sizing.cache_plan import cache_plan
    from bathyscope.commands import size_inputs, size_outputs
    from bathyscope.spec.size import GRID

    trace = size_inputs.open_trace(spec, workspace)
    with size_outputs.progress(trace.extent) as bar_of:
        workload = simulate.profile(trace, spec, bar_of("profile"))
        rows = simulate.run(GRID, workload, bar_of(GRID.name))
    question = SizeQuestion(spec, workload.summary)
    return cache_plan(rows, question, nodes, memory, run_id=run.id)


def _nodes(run: RunDirectory, wanted: Sequence[str]) -> dict[str, list[Placement]]:
    """Return the OSDs of each node that is wanted, of all when none is named. Raises UsageError."""
    from bathyscope.records import Placement, from_table

    # A recording looks at the cluster's map again and again; the last look counts, of an OSD that moved, too.
    placed = {row.osd: row for row in from_table(Placement, run.table(Placement))}
    nodes: dict[str, list[Placement]] = {}
    for row in placed.values():
        nodes.setdefault(row.host, []).append(row)
    if not nodes:
        raise UsageError(
            f"run {run.id} does not say which OSDs stand on which node", hint="`bathy size --by osd` splits one SSD"
        )
    unknown = next((name for name in wanted if name not in nodes), None)
    if unknown is not None:
        raise UsageError(f"--node: run {run.id} has no node '{unknown}'", hint="it has: " + ", ".join(sorted(nodes)))
    return {name: osds for name, osds in nodes.items() if not wanted or name in wanted}
