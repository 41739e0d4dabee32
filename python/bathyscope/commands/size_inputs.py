"""What `bathy size` is given, turned into traces, admissions, nodes and latencies; every mistake has its hint."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bathyscope.errors import UsageError
from bathyscope.records import Histogram, Placement, Step, from_table
from bathyscope.records.finding import CaveatView
from bathyscope.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    import pyarrow as pa

    from bathyscope.analysis.sizing.latency import LatencyDistribution
    from bathyscope.sources.block_trace import BlockTrace, By, TraceReport
    from bathyscope.sources.curve_request import Admission
    from bathyscope.store import RunDirectory

BY = ("all", "image", "osd", "pool", "node")
_LIFE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(y|mo|d)?\s*$", re.IGNORECASE)
_DURATION = re.compile(r"^\s*[0-9.]+\s*(ns|us|µs|ms|s)\s*$", re.IGNORECASE)


@contextmanager
def named(option: str) -> Iterator[None]:
    """Put the name of the option before what is wrong with its value."""
    try:
        yield
    except UsageError as error:
        if option in error.message:
            raise
        raise UsageError(f"{option}: {error.message}", hint=error.hint) from error


def parse_size(text: str, option: str) -> int:
    """Return a size in bytes, above 0 and at most an EiB. Raises UsageError with the name of the option."""
    from bathyscope.sources.curve_request import LARGEST_SIZE_BYTES

    with named(option):
        value = parse_bytes(text)
    if value <= 0:
        raise UsageError(f"{option} {text} is nothing")
    if value > LARGEST_SIZE_BYTES:
        raise UsageError(f"{option} {text} is more than an EiB")
    return value


def parse_promise(text: str) -> int:
    """Return what a data sheet means by "600T": its units are decimal, unless the i is written."""
    value = parse_size(text, "--tbw")
    letter = text.strip().rstrip("bB")[-1:].upper()
    power = "KMGTPE".find(letter) + 1
    return round(value / 1024**power * 1000**power) if power else value


def parse_windows(text: str) -> float:
    """Return the length of windows in seconds, above 0 and at most a hundred years."""
    from bathyscope.sources.curve_request import LONGEST_WINDOW_S

    with named("--windows"):
        value = parse_seconds(text)
    if not 0 < value <= LONGEST_WINDOW_S:
        raise UsageError(f"--windows {text} cannot be", hint="a duration: 10m, 1h, 1d")
    return value


def parse_latency_ns(text: str, option: str) -> float:
    """Return a latency in nanoseconds, above 0."""
    with named(option):
        value = parse_seconds(text) * 1e9
    if value <= 0:
        raise UsageError(f"{option} {text} is no latency", hint="2ms, 500us")
    return value


def check_dwpd(value: float | None) -> None:
    """Raise UsageError for drive writes per day that no drive has."""
    if value is not None and not 0 < value < math.inf:
        raise UsageError(f"--dwpd {value:g} cannot be", hint="what the data sheet promises: 0.3, 1, 3")


def parse_list(text: str, what: str) -> list[str]:
    """Return the parts of a list with commas, each once, in order. Raises UsageError when there are none."""
    parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise UsageError(f"{what} is empty")
    return parts


def parse_ratio(text: str) -> float:
    """Return the ratio that "0.9" or "90%" stands for, above 0 and at most 1. Raises UsageError."""
    body = text.strip()
    try:
        value = float(body.removesuffix("%")) / (100.0 if body.endswith("%") else 1.0)
    except ValueError:
        value = float("nan")
    if not 0.0 < value <= 1.0:
        raise UsageError(f"--target-hit '{text}' is not a hit ratio", hint="0.9 or 90%")
    return value


def parse_years(text: str) -> float:
    """Return the years that "3y", "18mo", "200d" or "3" stand for, 0 or more. Raises UsageError."""
    match = _LIFE.match(text)
    if match is None:
        raise UsageError(f"--min-life '{text}' is no life of flash", hint="3y, 18mo, 200d, or 0 for any")
    return float(match[1]) / {"d": 365.0, "mo": 12.0}.get((match[2] or "y").lower(), 1.0)


def parse_admission(text: str) -> Admission:
    """Return the admission that "all", "2-hit", "budget:50G" (a day), "bypass[:1M]" or several with + stand for."""
    from bathyscope.sources.curve_request import Admission

    n_hit = cutoff = budget = None
    for part in text.split("+"):
        name, _, value = part.strip().partition(":")
        if name == "all" and not value:
            continue
        if (match := re.fullmatch(r"([0-9]{1,3})-hit", name)) and not value and 2 <= int(match[1]) <= 255:
            n_hit = int(match[1])
        elif name == "budget" and value:
            budget = parse_size(value, "--admission budget")
        elif name == "bypass":
            cutoff = parse_size(value, "--admission bypass") if value else 1 << 20
        else:
            raise UsageError(
                f"--admission: there is no '{part}'", hint="all, 2-hit, 3-hit, budget:50G, bypass, bypass:4M"
            )
    return Admission(text.strip(), n_hit, cutoff, budget)


def load_nodes(path: Path) -> dict[str, list[int]]:
    """Return the OSD numbers of each node from a YAML file like `node-a: [0, osd.1]`. Raises UsageError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    hint = "YAML, a line for each node: 'node-a: [0, 1, 2]'"
    try:
        content: Any = YAML(typ="safe", pure=True).load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"nodes file {path} cannot be read: {error}") from error
    except YAMLError as error:
        raise UsageError(f"{path} is not YAML", hint=hint) from error
    if not isinstance(content, dict) or not content:
        raise UsageError(f"{path} does not map nodes to OSDs", hint=hint)
    nodes: dict[str, list[int]] = {}
    for name, osds in content.items():
        if not isinstance(osds, list):
            raise UsageError(f"{path}: node '{name}' has no list of OSDs", hint=hint)
        nodes[str(name)] = [_osd_number(osd, path) for osd in osds]
    return nodes


def _osd_number(value: object, path: Path) -> int:
    text = str(value).removeprefix("osd.")
    if not text.isdecimal() or int(text) > 1_000_000:
        raise UsageError(f"{path}: '{value}' is not an OSD", hint="0 or osd.0")
    return int(text)


def open_trace(
    names: Sequence[str],
    *,
    by: By,
    trace_format: str | None,
    skip_bad_records: bool,
    nodes_file: Path | None,
    workspace: Path | None,
) -> tuple[BlockTrace, list[CaveatView]]:
    """Return the trace that was named, files or a run, and what is to know of it. Raises UsageError, StoreError."""
    from bathyscope.sources.block_trace import TraceFiles

    nodes = None if nodes_file is None else load_nodes(nodes_file)
    paths = [Path(name).expanduser() for name in names]
    are_runs = [not path.is_file() for path in paths]
    if not any(are_runs) and any(path.suffix == ".parquet" for path in paths):
        return _open_tables(paths, by, nodes)
    if not any(are_runs):
        files = TraceFiles(paths, by=by, trace_format=trace_format, skip_bad_records=skip_bad_records, nodes=nodes)
        return files, []
    missing = names[are_runs.index(True)]
    special = Path(missing).expanduser()
    if special.exists() and not special.is_dir():
        raise UsageError(f"{missing} is no plain file", hint="the trace is read twice: save it to a file first")
    if len(names) > 1:
        raise UsageError(f"there is no trace {missing}", hint="several traces are several files; a run comes alone")
    return _open_run(missing, by, nodes, workspace)


def _open_tables(
    paths: Sequence[Path], by: By, nodes: Mapping[str, Sequence[int]] | None
) -> tuple[BlockTrace, list[CaveatView]]:
    """Open Parquet tables with the columns of the record `op`; they are held in memory to be sorted by time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from bathyscope.sources.block_trace import OP_COLUMNS, OpTrace, batches_of

    tables = []
    for path in paths:
        try:
            known = pq.read_schema(path).names
            missing = [name for name in OP_COLUMNS if name not in known]
            if missing:
                raise UsageError(
                    f"{path} is no table of operations: it has no column {missing[0]}",
                    hint="the columns of `bathy schema op`; other traces are CSV or one of the formats of --format",
                )
            tables.append(pq.read_table(path, columns=[*OP_COLUMNS, *{"complete_sample"}.intersection(known)]))
        except (pa.ArrowInvalid, OSError) as error:
            raise UsageError(f"{path} cannot be read as Parquet: {error}") from error
    if by == "node" and nodes is None:
        raise UsageError("--by node needs to know where OSDs are", hint="--nodes names a file")
    table = pa.concat_tables(tables, promote_options="permissive")
    if table.num_rows == 0:
        raise UsageError(f"{paths[0]} holds no operations")
    trace = OpTrace(batches_of(table), source=" ".join(map(str, paths)), rows=table.num_rows, by=by, nodes=nodes)
    complete = table.column("complete_sample") if "complete_sample" in table.column_names else None
    partial = 0 if complete is None else complete.to_pylist().count(False)
    return trace, _incomplete(partial, table.num_rows)


def _incomplete(partial: int, count: int) -> list[CaveatView]:
    if not partial:
        return []
    text = f"{partial} of {count} operations are from histories that were full: only the slowest were kept"
    return [CaveatView("incomplete_history", "doubt", text)]


def _open_run(
    name: str, by: By, nodes: Mapping[str, Sequence[int]] | None, workspace: Path | None
) -> tuple[BlockTrace, list[CaveatView]]:
    from bathyscope.sources.block_trace import OP_COLUMNS, OpTrace
    from bathyscope.store import Workspace, duck

    try:
        run = Workspace(workspace).open_run(name)
    except UsageError as error:
        raise UsageError(
            f"there is no trace file and no run '{name}'", hint="give the path of a trace, or see `bathy runs list`"
        ) from error
    if by == "node" and nodes is None:
        nodes = _nodes_of_run(run)
    connection = duck.connect([run])
    count, partial = connection.sql("SELECT count(*), count(*) FILTER (NOT complete_sample) FROM op").fetchall()[0]
    if count == 0:
        raise UsageError(f"run {run.id} holds no operations", hint="its steps recorded no op history of the OSDs")
    columns = ", ".join(OP_COLUMNS)

    def batches() -> Iterable[pa.RecordBatch]:
        ordered = connection.sql(f"SELECT {columns} FROM op ORDER BY started_ns")  # noqa: S608 - constants
        reader: Iterable[pa.RecordBatch] = ordered.to_arrow_reader(65_536)
        return reader

    return OpTrace(batches, source=run.id, rows=count, by=by, nodes=nodes), _incomplete(partial, count)


def _nodes_of_run(run: RunDirectory) -> dict[str, list[int]]:
    nodes: dict[str, list[int]] = {}
    for row in from_table(Placement, run.tables()[Placement.TABLE]):
        osds = nodes.setdefault(row.host, [])
        if row.osd not in osds:
            osds.append(row.osd)
    return nodes


def latency_of(text: str, option: str, trace: TraceReport, workspace: Path | None) -> LatencyDistribution:
    """Return the distribution that a duration, "trace" or RUN:STEPKEY stands for. Raises UsageError."""
    from bathyscope.analysis.sizing.latency import LatencyDistribution

    if text == "trace":
        found = latency_of_trace(trace)
        if found is None:
            raise UsageError(f"{option} trace: the trace has no latencies", hint=f"give a duration: {option} 8ms")
        return found
    if _DURATION.match(text):
        value_ns = parse_seconds(text) * 1e9
        if value_ns <= 0:
            raise UsageError(f"{option} {text}: a latency is above zero")
        return LatencyDistribution.constant(value_ns, "given, constant")
    run_name, colon, step_key = text.partition(":")
    if not colon:
        raise UsageError(f"{option} '{text}' is no latency", hint="120us, 8ms, trace, or RUN:STEPKEY of a measured run")
    return _latency_of_step(run_name, step_key, option, workspace)


def latency_of_trace(trace: TraceReport) -> LatencyDistribution | None:
    """Return the read latencies in the trace itself; None when it has none."""
    from bathyscope.analysis.sizing.latency import LatencyDistribution

    if len(trace.latency_ns) == 0:
        return None
    reads = int(trace.latency_counts.sum())
    return LatencyDistribution(trace.latency_ns, trace.latency_counts, f"measured, {reads:,} reads of the trace")


def _latency_of_step(run_name: str, step_key: str, option: str, workspace: Path | None) -> LatencyDistribution:
    from bathyscope.analysis.sizing.latency import LatencyDistribution
    from bathyscope.store import Workspace

    run = Workspace(workspace).open_run(run_name)
    tables = run.tables()
    steps = from_table(Step, tables[Step.TABLE])
    indices = {step.step_index for step in steps if step.step_key == step_key}
    if not indices:
        keys = sorted({step.step_key for step in steps})
        hint = "it has: " + ", ".join(keys[:6]) + (", …" if len(keys) > 6 else "") if keys else "it has no steps"
        raise UsageError(f"{option}: run {run.id} has no step '{step_key}'", hint=hint)
    counts: dict[int, int] = {}
    rows = [r for r in from_table(Histogram, tables[Histogram.TABLE]) if r.step_index in indices]
    kinds = {row.kind for row in rows if row.direction == "read"}
    kind = "lat" if "lat" in kinds else "clat"
    for row in rows:
        if row.direction == "read" and row.kind == kind:
            counts[row.bucket_ns] = counts.get(row.bucket_ns, 0) + row.count
    if not counts:
        raise UsageError(f"{option}: step '{step_key}' of run {run.id} measured no reads")
    values = np.asarray(sorted(counts), np.float64)
    weights = np.asarray([counts[int(value)] for value in values], np.float64)
    return LatencyDistribution(values, weights, f"measured, {step_key} of run {run.id}")
