"""`bathy size`: how much flash would help, where, and at what price."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bathyscope.commands.options import OutputOption, ReportOption, TableOption, WorkspaceOption
from bathyscope.errors import UsageError

_HELP = """Report how much flash would help, where, and at what price: from trace files, or from a run's operations.

The trace is replayed through a simulated write-through cache of lines, at every size that matters. Advised is the \
configuration that leaves the disks the least time, on the drives of the price file that cost least. s3-fifo and \
clock2q+ keep their small queue (1.6 % of the size, at most 1 GiB) in DRAM. Small \
traces are simulated in full, large ones on a sample of their regions, with a 95 % band for the reads that hit.

TRACE: a file of any format that is known by its content (VSCSI, blktrace, blkparse, fio iolog, MSR, SPC, Alibaba, \
Tencent, Ceph op histories and OSD logs, oracleGeneral, LIRS, ARC, CSV; .gz .xz .zst), or \
Parquet with the columns of `bathy schema op`. RUN: a run's id, path, or last.
"""

_EXAMPLES = """Examples:

\b
  bathy size disk.vscsi                     the knee, and what it brings
  bathy size disk.vscsi --target-hit 0.9    the smallest size for 90 % of reads
  bathy size osd.*.log --by osd --budget 400G          how to split one SSD
  bathy size trace.csv --miss-latency 8ms --target-latency 2ms
  bathy size last --by image --report size.html        a run, as a page
  bathy size disk.vscsi --line 64K --policy s3-fifo,lru --admission 2-hit
  bathy size disk.vscsi --line 64K --fetch adaptive    as bathyd fetches by default
  bathy size disk.vscsi --min-life 3y --admission budget:50G
  bathy size --show-prices > prices.yaml    then: --prices prices.yaml
"""

# Of an adaptive fetch size, as in bathyd.
ADAPTIVE_UNIT = "4K"


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("size", help=_HELP, epilog=_EXAMPLES, no_args_is_help=True)(size)


def size(  # noqa: PLR0917 - one parameter for each option
    traces: Annotated[list[str] | None, typer.Argument(metavar="TRACE…|RUN", show_default=False)] = None,
    trace_format: Annotated[str | None, typer.Option("--format", help="Trace format; default: by content.")] = None,
    by: Annotated[str, typer.Option(help="Also curves by image, osd, pool or node.")] = "all",
    nodes: Annotated[Path | None, typer.Option(help="YAML: the OSDs of each node, for --by node.")] = None,
    line: Annotated[str, typer.Option(help="Line sizes: units of caching.")] = "4K,16K,64K,256K",
    fetch: Annotated[
        str | None,
        typer.Option(
            help="What a miss fetches, as bathyd's cache.fetch: so many bytes, in units of 4K (16K of 1M lines), "
            "or adaptive; default: the line as one unit, others are tried."
        ),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Eviction policies; default: s3-fifo, others are tried.")] = None,
    admission: Annotated[
        str | None,
        typer.Option(
            help="all, 2-hit, 3-hit, budget:50G (a day), bypass, write-bypass; joined by +; default: all, "
            "others are tried."
        ),
    ] = None,
    on_write: Annotated[
        Literal["allocate", "update", "invalidate"], typer.Option(help="What a write does to lines not cached.")
    ] = "allocate",
    target_hit: Annotated[str | None, typer.Option(help="Share of reads that shall hit: 0.9.")] = None,
    target_latency: Annotated[str | None, typer.Option(help="Mean read latency to reach: 2ms.")] = None,
    budget: Annotated[str | None, typer.Option(help="Flash at hand: 400G.")] = None,
    hit_latency: Annotated[str | None, typer.Option(help="120us or RUN:STEPKEY; default: the price file's.")] = None,
    miss_latency: Annotated[
        str | None, typer.Option(help="8ms, trace or RUN:STEPKEY; default: the trace's, if it has any.")
    ] = None,
    backing: Annotated[
        str, typer.Option(help="Disks behind the cache: hdd, ssd, nvme, or a RUN that measured them.")
    ] = "hdd",
    dwpd: Annotated[float | None, typer.Option(help="Drive writes per day, over the warranty.")] = None,
    tbw: Annotated[
        str | None, typer.Option(help="Total bytes that may be written, decimal as on data sheets: 600T.")
    ] = None,
    min_life: Annotated[
        str | None,
        typer.Option(help="Life of the flash that an advised size must reach: 3y, 200d, 0; default: warranty."),
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="YAML price file.")] = None,
    flash: Annotated[
        str | None, typer.Option(help="Drive in the price file; default: the cheapest that will do.")
    ] = None,
    show_prices: Annotated[bool, typer.Option("--show-prices", help="Print the packaged price file.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="No sampling, whatever it takes.")] = False,
    samples: Annotated[int | None, typer.Option(help="Sample at least this many lines.")] = None,
    salt: Annotated[int, typer.Option(help="Which sample is taken: another number, another sample.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Default: all processors.")] = None,
    skip_bad_records: Annotated[bool, typer.Option("--skip-bad-records", help="Go on after bad records.")] = False,
    object_size: Annotated[
        str | None,
        typer.Option(help="Size of images' objects, for op histories and logs; default: 4M, or as they show."),
    ] = None,
    windows: Annotated[str | None, typer.Option(help="Length of the windows for stability: 1h.")] = None,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
    table: TableOption = None,
    report: ReportOption = None,
    save: Annotated[bool, typer.Option("--save", help="Keep the curves as a run of the workspace.")] = False,
) -> None:
    """See _HELP."""
    from bathyscope.spec.prices import load_prices, packaged_prices
    from bathyscope.spec.size import MOST_THREADS, SizeSpec, load_nodes
    from bathyscope.spec.values import checked
    from bathyscope.views.findings import check_table
    from bathyscope.views.findings.size import tables_by

    if show_prices:
        sys.stdout.write(packaged_prices())
        return
    if not traces:
        raise UsageError("no trace was given", hint="bathy size TRACE… or bathy size RUN; --help has examples")
    if report is not None and not report.expanduser().parent.is_dir():
        # Found out now and not after a pass of hours.
        raise UsageError(f"--report {report} cannot be written: {report.parent} is not a directory")
    check_table(table, tables_by(by, has_budget=budget is not None))
    is_adaptive = fetch == "adaptive"
    given = {
        "fetch_bytes": ADAPTIVE_UNIT if is_adaptive else fetch,
        "policies": None if policy is None else _listed(policy),
        "admission": admission,
    }
    names = {"fetch_bytes": "fetch", "policies": "policy", "admission": "admission"}
    spec = checked(
        SizeSpec,
        **{name: value for name, value in given.items() if value is not None},
        vary=tuple(names[name] for name, value in given.items() if value is None),
        traces=traces, trace_format=trace_format, by=by, nodes=None if nodes is None else load_nodes(nodes),
        line_bytes=_listed(line), on_write=on_write, backing=backing,
        target_hit=target_hit, target_latency_ns=target_latency, budget_bytes=budget, hit_latency=hit_latency,
        miss_latency=miss_latency, drive_writes_per_day=dwpd, total_bytes_written=tbw, min_life_years=min_life,
        prices=load_prices(None if prices is None else str(prices)), flash=flash, exact=exact, samples=samples,
        threads=min(os.cpu_count() or 1, MOST_THREADS) if threads is None else threads,
        skip_bad_records=skip_bad_records, window_s=windows, salt=salt, object_bytes=object_size,
    )  # fmt: skip
    _run(spec, workspace, output, table, report, save=save, is_adaptive=is_adaptive)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _run(
    spec: Any,
    workspace: Path | None,
    output: str,
    table: str | None,
    report: Path | None,
    *,
    save: bool,
    is_adaptive: bool,
) -> None:
    """Simulate until the answer is known, and show it."""
    # Arrow's own allocator keeps what it once had: for a table that is read in parts, a third more memory.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import pyarrow as pa

    from bathyscope import simulate
    from bathyscope.analysis.sizing import SizeQuestion, build, next_pass
    from bathyscope.commands import size_inputs, size_outputs
    from bathyscope.records import CurvePoint, schema_of
    from bathyscope.spec.size import Pass
    from bathyscope.views import render

    trace, disk = size_inputs.open_trace(spec, workspace), size_inputs.measured_disk(spec, workspace)
    backing = disk or spec.backing_profile
    if is_adaptive and backing is not None:
        spec = spec.model_copy(update={"break_even_bytes": backing.break_even_bytes})
    rows, done = schema_of(CurvePoint).empty_table(), None
    with size_outputs.progress(trace.extent) as bar_of:
        workload = simulate.profile(trace, spec, bar_of("profile"))
        hit, miss = size_inputs.latencies(spec, workload.summary, workspace)
        question = SizeQuestion(spec, workload.summary, hit, miss, disk)
        wanted: Pass | None
        while (wanted := next_pass(rows, question, done)) is not None:
            rows = pa.concat_tables([rows, simulate.run(wanted, workload, bar_of(wanted.name))])
            done = wanted
    finding = build(rows, question)
    try:
        render(finding, output, table=table)
        sys.stdout.flush()
    finally:
        # Whatever happens to one of them, the others hold what a long pass has found.
        size_outputs.keep(finding, question, rows, workspace, report, save=save)
