"""What `bathy size` is given, opened: trace files, Parquet tables or a run, and the latencies of hits and misses."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bathyscope.analysis.sizing.latency import LatencyDistribution
from bathyscope.errors import UsageError
from bathyscope.records import Histogram, Op, Placement, Result, Step, from_table
from bathyscope.spec.step import DEFAULT_OBJECT_BYTES
from bathyscope.units import parse_seconds

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

    from bathyscope.records.size import TraceSummary
    from bathyscope.simulate.op_trace import KnownImages
    from bathyscope.simulate.trace import BlockTrace
    from bathyscope.spec.prices import Backing
    from bathyscope.spec.size import SizeSpec
    from bathyscope.store import RunDirectory

ROWS_AT_ONCE = 1 << 14
"""Operations that are held at a time."""

_NO_OPERATIONS = (
    "its steps recorded no op history of the OSDs",
    "operations are in imported OSD logs (`bathy import osd-log`) and in bursts of op histories",
)

_DURATION = re.compile(r"^\s*[0-9.]+\s*(ns|us|µs|ms|s)\s*$", re.IGNORECASE)


def open_trace(spec: SizeSpec, workspace: Path | None) -> BlockTrace:
    """Return the trace that was named: files, Parquet tables of operations, or a run. Raises UsageError, StoreError."""
    from bathyscope.simulate.trace import TraceFiles

    paths = [Path(name).expanduser() for name in spec.traces]
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is None and any(path.suffix == ".parquet" for path in paths):
        return _open_tables(paths, " ".join(map(str, paths)), spec, spec.nodes)
    if missing is None:
        return TraceFiles(
            paths,
            by=spec.by,
            trace_format=spec.trace_format,
            skip_bad_records=spec.skip_bad_records,
            nodes=spec.nodes,
            object_bytes=spec.object_bytes,
        )
    if missing.exists() and not missing.is_dir():
        raise UsageError(f"{missing} is not a plain file", hint="the trace is read twice: save it to a file first")
    if len(paths) > 1:
        words = f"{missing} is a directory" if missing.is_dir() else f"there is no trace {missing}"
        raise UsageError(words, hint="several traces are several files; a run comes alone")
    return _open_run(spec, workspace)


def _open_tables(
    paths: Sequence[Path],
    source: str,
    spec: SizeSpec,
    nodes: Mapping[str, Sequence[int]] | None,
    *,
    least_object_bytes: int = DEFAULT_OBJECT_BYTES,
    images: KnownImages | None = None,
) -> BlockTrace:
    """Open Parquet tables with the columns of the record `op`. They are read in parts and put in order on disk."""
    import pyarrow as pa

    from bathyscope.simulate.op_trace import OP_COLUMNS, OPTIONAL_COLUMNS, OpTrace
    from bathyscope.store.ordered_rows import OrderedRows
    from bathyscope.store.parquet_bounds import must_fit

    # A link of the user's is followed here, and none from here on.
    paths = [path.resolve() for path in paths]
    must_fit(paths)
    rows = 0
    for path in paths:
        with _parquet_errors(path), _parquet(path) as file:
            column_names = file.schema_arrow.names
            missing = [name for name in OP_COLUMNS if name not in column_names]
            if missing:
                raise UsageError(
                    f"{path} is not a table of operations: it has no column {missing[0]}",
                    hint="the columns of `bathy schema op`; other traces are CSV or one of the formats of --format",
                )
            rows += file.metadata.num_rows

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with _parquet_errors(path), _parquet(path) as file:
                columns = [*OP_COLUMNS, *(name for name in OPTIONAL_COLUMNS if name in file.schema_arrow.names)]
                yield from file.iter_batches(ROWS_AT_ONCE, columns=columns, use_threads=False)

    return OpTrace(
        batches,
        OrderedRows,
        source=source,
        rows=rows,
        object_bytes=spec.object_bytes,
        least_object_bytes=least_object_bytes,
        by=spec.by,
        nodes=nodes,
        known=images,
    )


def _parquet(path: Path) -> contextlib.AbstractContextManager[ParquetFile]:
    from bathyscope.store.parquet_bounds import parquet_file

    # Pages are read as they are needed, so that a row group of any size is streamed; threads would read ahead.
    return parquet_file(path, pre_buffer=False, buffer_size=1 << 16)


@contextlib.contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error


def _open_run(spec: SizeSpec, workspace: Path | None) -> BlockTrace:
    from bathyscope.store import Workspace

    (name,) = spec.traces
    try:
        run = Workspace(workspace).open_run(name)
    except UsageError as error:
        if Path(name).expanduser().is_dir():
            raise UsageError(
                f"{name} is a directory, not a run", hint="give the trace files in it, or the directory of a run"
            ) from error
        raise UsageError(
            f"there is no trace file and no run '{name}'", hint="give the path of a trace, or see `bathy runs list`"
        ) from error
    nodes: Mapping[str, Sequence[int]] | None = spec.nodes
    if spec.by == "node" and nodes is None:
        nodes = _nodes_of_run(run)
    paths = run.files().get(Op.TABLE)
    if not paths:
        raise UsageError(f"run {run.id} holds no operations", hint=_NO_OPERATIONS[run.info.kind == "collect"])
    return _open_tables(
        paths, run.id, spec, nodes, least_object_bytes=_object_bytes_of_run(run), images=_images_of_run(run)
    )


def _object_bytes_of_run(run: RunDirectory) -> int:
    """Return the size of the largest objects behind the images that the run made."""
    sizes = [step.object_size_bytes or DEFAULT_OBJECT_BYTES for step in from_table(Step, run.table(Step))]
    return max(sizes, default=DEFAULT_OBJECT_BYTES)


def _images_of_run(run: RunDirectory) -> KnownImages:
    """Return the sizes of objects and the names that a recording has of its images and pools."""
    from bathyscope.simulate.op_trace import KnownImages
    from bathyscope.store import duck

    # Ids are those of a pool; of two images with one id neither is named.
    sure = duck.query(
        [run],
        "SELECT image_id, arg_max(object_size_bytes, at_ns) AS object_bytes, "
        "arg_max(concat_ws('/', pool, nullif(namespace, ''), image), at_ns) AS name FROM image "
        "GROUP BY image_id HAVING count(DISTINCT (pool, namespace)) = 1",
    ).to_pylist()
    pools = duck.query([run], "SELECT DISTINCT CAST(split_part(pg, '.', 1) AS BIGINT) AS number, pool FROM pg_io")
    return KnownImages(
        object_bytes={row["image_id"]: row["object_bytes"] for row in sure},
        names={row["image_id"]: row["name"] for row in sure},
        pools={row["number"]: row["pool"] for row in pools.to_pylist()},
    )


def _nodes_of_run(run: RunDirectory) -> dict[str, list[int]]:
    nodes: dict[str, list[int]] = {}
    for row in from_table(Placement, run.table(Placement)):
        osds = nodes.setdefault(row.host, [])
        if row.osd not in osds:
            osds.append(row.osd)
    return nodes


def latencies(
    spec: SizeSpec, trace: TraceSummary, workspace: Path | None
) -> tuple[LatencyDistribution, LatencyDistribution | None]:
    """Return the latency of hits, and that of misses where it is known. Raises UsageError."""
    if spec.hit_latency is not None:
        hit = latency_of(spec.hit_latency, "--hit-latency", trace, workspace)
    else:
        # Which drive it will be is not known yet; the slowest does not promise too much.
        name, drive = max(spec.drives.items(), key=lambda item: item[1].read_latency_us)
        hit = LatencyDistribution.constant(drive.read_latency_us * 1e3, f"assumed for {name}")
    if spec.miss_latency is not None:
        return hit, latency_of(spec.miss_latency, "--miss-latency", trace, workspace)
    miss = latency_of_trace(trace)
    if miss is None and spec.target_latency_ns is not None:
        raise UsageError(
            "--target-latency needs the latency of a miss, and the trace has none",
            hint="--miss-latency 8ms, or RUN:STEPKEY of a measured run",
        )
    return hit, miss


def latency_of(text: str, option: str, trace: TraceSummary, workspace: Path | None) -> LatencyDistribution:
    """Return the distribution that a duration, "trace" or RUN:STEPKEY stands for. Raises UsageError."""
    if text == "trace":
        distribution = latency_of_trace(trace)
        if distribution is None:
            raise UsageError(f"{option} trace: the trace has no latencies", hint=f"give a duration: {option} 8ms")
        return distribution
    if _DURATION.match(text):
        value_ns = parse_seconds(text) * 1e9
        if value_ns <= 0:
            raise UsageError(f"{option} must be greater than 0 (got {text})")
        return LatencyDistribution.constant(value_ns, "given, constant")
    run_name, colon, step_key = text.partition(":")
    if not colon:
        hint = "120us, 8ms, trace, or RUN:STEPKEY of a measured run"
        raise UsageError(f"{option} must be a latency (got {text or repr(text)})", hint=hint)
    return _latency_of_step(run_name, step_key, option, workspace)


def latency_of_trace(trace: TraceSummary) -> LatencyDistribution | None:
    """Return the read latencies in the trace itself; None when it has none."""
    if not trace.latency_ns:
        return None
    reads = int(sum(trace.latency_counts))
    values, counts = np.asarray(trace.latency_ns), np.asarray(trace.latency_counts)
    return LatencyDistribution(values, counts, f"measured, {reads:,} reads of the trace")


def _latency_of_step(run_name: str, step_key: str, option: str, workspace: Path | None) -> LatencyDistribution:
    import pyarrow.compute as pc

    from bathyscope.analysis.latency import from_rows as histogram_of
    from bathyscope.store import Workspace

    run = Workspace(workspace).open_run(run_name)
    steps = from_table(Step, run.table(Step))
    indices = {step.step_index for step in steps if step.step_key == step_key}
    if not indices:
        keys = sorted({step.step_key for step in steps})
        hint = "it has: " + ", ".join(keys[:6]) + (", …" if len(keys) > 6 else "") if keys else "it has no steps"
        raise UsageError(f"{option}: run {run.id} has no step '{step_key}'", hint=hint)
    reads = (pc.field("direction") == "read") & pc.field("step_index").isin(sorted(indices))
    histogram = histogram_of(run.table(Histogram).filter(reads))
    if not histogram.io_count:
        raise UsageError(f"{option}: step '{step_key}' of run {run.id} measured no reads")
    values, counts = histogram.bucket_ns.astype(np.float64), histogram.count.astype(np.float64)
    return LatencyDistribution(values, counts, f"measured, {step_key} of run {run.id}")


def measured_disk(spec: SizeSpec, workspace: Path | None) -> Backing | None:
    """Return the disk that a run's disk layer measured; None when the backing is a profile. Raises UsageError.

    The positioning is what a random read takes beside its transfer, at the least queue depth; the transfer rate is
    that of sequential reads.
    """
    if spec.backing_profile is not None:
        return None
    from bathyscope.spec.prices import Backing
    from bathyscope.store import Workspace

    profiles = ", ".join(spec.prices.backing)
    try:
        run = Workspace(workspace).open_run(spec.backing)
    except UsageError as error:
        hint = f"one of: {profiles}; or a run that measured the disk layer"
        raise UsageError(f"--backing is not known (got {spec.backing})", hint=hint) from error
    steps = [step for step in from_table(Step, run.table(Step)) if step.layer == "disk" and step.status == "done"]
    results = {r.step_index: r for r in from_table(Result, run.table(Result)) if r.direction == "read" and r.io_count}
    random, sequential = (
        [(step, results[step.step_index]) for step in steps if step.op == op and step.step_index in results]
        for op in ("randread", "read")
    )
    if not random or not sequential:
        raise UsageError(
            f"--backing: run {run.id} measured no {'random' if not random else 'sequential'} reads of a disk",
            hint=f"its plan needs randread and read of the layer disk; or take a profile: {profiles}",
        )
    _, fastest = max(sequential, key=lambda pair: pair[1].bandwidth_bytes_per_s)
    step, least = min(random, key=lambda pair: (pair[0].queue_depth * pair[0].jobs, pair[0].block_size_bytes))
    each_s = least.latency_ns_mean / 1e9 if least.latency_ns_mean else least.runtime_ns / 1e9 / least.io_count
    transfer_s = step.block_size_bytes / fastest.bandwidth_bytes_per_s
    return Backing(
        positioning_ms=max(0.0, each_s - transfer_s) * 1e3,
        transfer_mb_per_s=fastest.bandwidth_bytes_per_s / 1e6,
        source=f"measured, {step.step_key} of run {run.id}",
    )
