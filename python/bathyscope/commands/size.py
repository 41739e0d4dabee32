"""`bathy size`: how much flash would help, where, and at what price."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from bathyscope.commands import size_inputs as inputs
from bathyscope.errors import UsageError
from bathyscope.records import CurvePoint, to_table
from bathyscope.spec.prices import FlashPrice, Prices, load_prices

if TYPE_CHECKING:
    from bathyscope.analysis.sizing import SizeQuestion
    from bathyscope.analysis.sizing.latency import LatencyDistribution
    from bathyscope.records.size_finding import SizeFinding
    from bathyscope.sources.block_trace import By, TraceReport
    from bathyscope.sources.curve_request import CurveRequest

MOST_THREADS = 256

_HELP = """Tell how much flash would help, where, and at what price: from trace files, or from a run's operations.

The cache engine itself is simulated over the trace: a write-through cache of lines, with the policy and the \
admission that are asked for, at every size that matters. s3-fifo, the default, keeps its small queue (a tenth of the \
size) in memory, as the cache that ships does. Small traces are simulated in full, large ones on a sample of their \
regions, with a 95 % band for the reads that hit.

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
  bathy size disk.vscsi --min-life 3y --admission budget:50G
  bathy size --show-prices > prices.yaml    then: --prices prices.yaml
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("size", help=_HELP, epilog=_EXAMPLES, no_args_is_help=True)(size)


def size(  # noqa: PLR0917 - one parameter for each option
    traces: Annotated[list[str] | None, typer.Argument(metavar="TRACE…|RUN", show_default=False)] = None,
    trace_format: Annotated[str | None, typer.Option("--format", help="Trace format; default: by content.")] = None,
    by: Annotated[str, typer.Option(help="Also curves by image, osd, pool or node.")] = "all",
    nodes: Annotated[Path | None, typer.Option(help="YAML: the OSDs of each node, for --by node.")] = None,
    line: Annotated[str, typer.Option(help="Line sizes: units of caching.")] = "4K,16K,64K,256K",
    fetch: Annotated[str | None, typer.Option(help="Bytes fetched together on a miss; default: the line.")] = None,
    policy: Annotated[str, typer.Option(help="Eviction policies.")] = "s3-fifo",
    admission: Annotated[str, typer.Option(help="all, 2-hit, 3-hit, budget:50G (a day), bypass; joined by +.")] = "all",
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
    dwpd: Annotated[float | None, typer.Option(help="Drive writes per day, over the warranty.")] = None,
    tbw: Annotated[
        str | None, typer.Option(help="Total bytes that may be written, decimal as on data sheets: 600T.")
    ] = None,
    min_life: Annotated[
        str | None,
        typer.Option(help="Life of the flash that an advised size must reach: 3y, 200d, 0; default: warranty."),
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="YAML price file.")] = None,
    flash: Annotated[str | None, typer.Option(help="Kind of flash in the price file; default: the first.")] = None,
    show_prices: Annotated[bool, typer.Option("--show-prices", help="Print the packaged price file.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="No sampling, whatever it takes.")] = False,
    samples: Annotated[int | None, typer.Option(min=1024, max=1 << 48, help="Sample at least this many lines.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=MOST_THREADS, help="Default: all processors.")] = None,
    skip_bad_records: Annotated[bool, typer.Option("--skip-bad-records", help="Go on after bad records.")] = False,
    windows: Annotated[str | None, typer.Option(help="Length of the windows for stability: 1h.")] = None,
    workspace: Annotated[Path | None, typer.Option(help="Where runs are; default: $BATHY_WORKSPACE.")] = None,
    output: Annotated[Literal["table", "json", "csv"], typer.Option("--output", "-o", help="How to print.")] = "table",
    report: Annotated[Path | None, typer.Option(help="Also write an HTML page.")] = None,
    save: Annotated[bool, typer.Option("--save", help="Keep the curves as a run of the workspace.")] = False,
) -> None:
    """See _HELP."""
    if show_prices:
        _print_prices()
        return
    if not traces:
        raise UsageError("no trace was given", hint="bathy size TRACE… or bathy size RUN; --help has examples")
    if sum(option is not None for option in (target_hit, target_latency, budget)) > 1:
        raise UsageError("--target-hit, --target-latency and --budget exclude each other", hint="give one of them")
    if dwpd is not None and tbw is not None:
        raise UsageError("--dwpd and --tbw exclude each other", hint="give what the data sheet promises")
    if exact and samples is not None:
        raise UsageError("--exact and --samples exclude each other")
    if by not in inputs.BY:
        raise UsageError(f"--by {by} cannot be", hint="one of: " + ", ".join(inputs.BY))
    if report is not None and not report.expanduser().parent.is_dir():
        # Found out now and not after a pass of hours.
        raise UsageError(f"--report {report} cannot be written: {report.parent} is no directory")
    price_file = load_prices(None if prices is None else str(prices))
    flash_name, flash_price = _flash(price_file, flash)
    budget_bytes = None if budget is None else inputs.parse_size(budget, "--budget")
    inputs.check_dwpd(dwpd)
    from bathyscope.sources.curve_request import CurveRequest

    request = CurveRequest(
        line_bytes=tuple(sorted({inputs.parse_size(part, "--line") for part in inputs.parse_list(line, "--line")})),
        policies=tuple(inputs.parse_list(policy, "--policy")),
        admission=inputs.parse_admission(admission),
        on_write=on_write,
        fetch_bytes=None if fetch is None else inputs.parse_size(fetch, "--fetch"),
        exact=exact,
        samples=samples,
        extra_flash_bytes=() if budget_bytes is None else (budget_bytes,),
        window_s=None if windows is None else inputs.parse_windows(windows),
        threads=threads or min(os.cpu_count() or 1, MOST_THREADS),
    )
    ask = _Ask(
        traces=traces,
        by=cast("By", by),
        trace_format=trace_format,
        skip_bad_records=skip_bad_records,
        nodes=nodes,
        workspace=workspace,
        target_hit=None if target_hit is None else inputs.parse_ratio(target_hit),
        target_latency_ns=None
        if target_latency is None
        else inputs.parse_latency_ns(target_latency, "--target-latency"),
        budget_bytes=budget_bytes,
        hit_latency=hit_latency,
        miss_latency=miss_latency,
        dwpd=dwpd,
        tbw_bytes=None if tbw is None else inputs.parse_promise(tbw),
        min_life_years=flash_price.warranty_years if min_life is None else inputs.parse_years(min_life),
        prices=price_file,
        flash_name=flash_name,
        flash=flash_price,
        packaged_prices=prices is None,
    )
    _run(ask, request, output, report, save=save)


@dataclasses.dataclass(frozen=True, slots=True)
class _Ask:
    """The options, parsed, that are not about the simulation itself."""

    traces: list[str]
    by: By
    trace_format: str | None
    skip_bad_records: bool
    nodes: Path | None
    workspace: Path | None
    target_hit: float | None
    target_latency_ns: float | None
    budget_bytes: int | None
    hit_latency: str | None
    miss_latency: str | None
    dwpd: float | None
    tbw_bytes: int | None
    min_life_years: float
    prices: Prices
    flash_name: str
    flash: FlashPrice
    packaged_prices: bool


def _run(ask: _Ask, request: CurveRequest, output: str, report: Path | None, *, save: bool) -> None:
    from bathyscope.analysis.sizing import admissions_to_try, build
    from bathyscope.analysis.sizing.refine import needed_hit_ratio, sizes_between
    from bathyscope.commands.size_caveats import caveats_of_pass
    from bathyscope.sources.curve_points import Trial, curve_points
    from bathyscope.views import render

    trace, caveats = inputs.open_trace(
        ask.traces,
        by=ask.by,
        trace_format=ask.trace_format,
        skip_bad_records=ask.skip_bad_records,
        nodes_file=ask.nodes,
        workspace=ask.workspace,
    )
    latencies: list[LatencyDistribution | None] = []
    trace_report: list[TraceReport] = []

    def refine(rows: Sequence[CurvePoint], found: TraceReport) -> dict[tuple[str, str, int, str], list[int]]:
        trace_report.append(found)
        latencies.extend(_latencies(ask, found))
        needed = needed_hit_ratio(ask.target_hit, ask.target_latency_ns, *latencies)
        return {} if needed is None else sizes_between(rows, needed)

    def trials(rows: Sequence[CurvePoint]) -> list[Trial]:
        question = _question(ask, trace.sources, trace_report[0], *latencies)
        wanted = admissions_to_try(to_table(CurvePoint, rows), question)
        if wanted is None:
            return []
        curve, size_bytes, names = wanted
        key = (curve.group_kind, curve.group_name, curve.line_bytes, curve.policy)
        return [Trial(key, size_bytes, inputs.parse_admission(name)) for name in names]

    with _progress() as tell:
        rows, found = curve_points(trace, request, tell, refine, trials)
    points = to_table(CurvePoint, rows)
    finding = build(points, _question(ask, trace.sources, found, *latencies))
    caveats += caveats_of_pass(request, rows, found, packaged_prices=ask.packaged_prices)
    finding = dataclasses.replace(finding, caveats=(*finding.caveats, *caveats))
    try:
        render(finding, output)
        sys.stdout.flush()
    finally:
        # Whatever happens to one of them, the others hold what a long pass has found.
        _keep(ask, rows, finding, report, save=save)


def _keep(ask: _Ask, rows: list[CurvePoint], finding: SizeFinding, report: Path | None, *, save: bool) -> None:
    try:
        if save:
            _save(ask, rows)
    finally:
        if report is not None:
            from bathyscope.views.size_report import write as write_report

            write_report(finding, report)
            sys.stderr.write(f"report: {report}\n")


def _latencies(ask: _Ask, found: TraceReport) -> tuple[LatencyDistribution | None, LatencyDistribution | None]:
    """Return the latency of hits and of misses."""
    from bathyscope.analysis.sizing.latency import LatencyDistribution

    if ask.hit_latency is not None:
        hit = inputs.latency_of(ask.hit_latency, "--hit-latency", found, ask.workspace)
    else:
        hit = LatencyDistribution.constant(ask.flash.read_latency_us * 1e3, f"assumed for {ask.flash_name}")
    if ask.miss_latency is not None:
        return hit, inputs.latency_of(ask.miss_latency, "--miss-latency", found, ask.workspace)
    miss = inputs.latency_of_trace(found)
    if miss is None and ask.target_latency_ns is not None:
        raise UsageError(
            "--target-latency needs the latency of a miss, and the trace has none",
            hint="--miss-latency 8ms, or RUN:STEPKEY of a measured run",
        )
    return hit, miss


def _question(
    ask: _Ask,
    sources: tuple[str, ...],
    found: TraceReport,
    hit: LatencyDistribution | None,
    miss: LatencyDistribution | None,
) -> SizeQuestion:
    from bathyscope.analysis.sizing import SizeQuestion
    from bathyscope.analysis.sizing.endurance import Endurance

    if ask.dwpd is not None or ask.tbw_bytes is not None:
        total = None if ask.tbw_bytes is None else float(ask.tbw_bytes)
        endurance = Endurance(ask.dwpd, ask.flash.warranty_years, total)
    else:
        endurance = Endurance(ask.flash.drive_writes_per_day, ask.flash.warranty_years, ask.flash.total_bytes_written)
    source = f"{ask.flash_name}, {'packaged ' if ask.packaged_prices else ''}prices as of {ask.prices.as_of}"
    return SizeQuestion(
        sources=sources,
        events=found.events,
        skipped=found.skipped,
        duration_s=found.duration_s,
        by=ask.by,
        target_hit=ask.target_hit,
        target_latency_ns=ask.target_latency_ns,
        budget_bytes=ask.budget_bytes,
        hit=hit,
        miss=miss,
        endurance=endurance,
        min_life_years=ask.min_life_years,
        price_per_gib=ask.flash.price_per_gib,
        currency=ask.prices.currency,
        price_source=source,
    )


def _save(ask: _Ask, rows: list[CurvePoint]) -> None:
    from bathyscope.store import Workspace

    now = time.time_ns()
    workspace = Workspace(ask.workspace)
    text = "bathy size " + " ".join(ask.traces)
    with workspace.create_run(plan_name="size", plan_text=text, started_ns=now, step_count=0) as run:
        run.write_run_tables({CurvePoint: rows}, part="size")
        run.finalize()
        run.update(status="done", ended_ns=time.time_ns())
        sys.stderr.write(f"saved: run {run.id}\n")


def _print_prices() -> None:
    from importlib import resources

    sys.stdout.write(resources.files("bathyscope.spec").joinpath("prices.yaml").read_text())


def _flash(prices: Prices, name: str | None) -> tuple[str, FlashPrice]:
    if name is None:
        return next(iter(prices.flash.items()))
    if name not in prices.flash:
        raise UsageError(f"the price file has no flash '{name}'", hint="it has: " + ", ".join(prices.flash))
    return name, prices.flash[name]


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int, int], None] | None]:
    """Yield the progress function of `curve_points`: a bar for each pass on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    words = {"profile": "working sets", "simulate": "cache sizes", "refine": "target", "trials": "admissions"}
    columns = (
        TextColumn("{task.description:12}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(compact=True),
    )  # fmt: skip
    tasks: dict[str, TaskID] = {}
    started: dict[str, float] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def tell(name: str, events: int, done: int, extent: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(words.get(name, name), total=extent, rate="")
                started[name] = time.monotonic()
            seconds = time.monotonic() - started[name]
            # The first call comes after the first batch; a rate from it would be an invention.
            rate = f"{events / seconds / 1e6:.2f}M I/Os/s" if seconds > 0.5 else ""
            bar.update(tasks[name], completed=done, rate=rate)

        yield tell
