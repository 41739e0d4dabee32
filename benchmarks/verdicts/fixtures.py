"""Makes fixtures of kept runs: the tables that analysis reads, small enough for the repository.

    python benchmarks/verdicts/fixtures.py DIR [--case NAME…]

Of each case in the workspace DIR the newest run becomes tests/fixtures/verdicts/CASE/. Operations of the history are
thinned evenly; devices that no OSD has, the messenger's counters and the latency histograms are
left out, and the machine that recorded has no name; everything else is as it was recorded.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cases import CASES

from bathyscope import layers
from bathyscope.analysis import ladder
from bathyscope.analysis.columns import ints
from bathyscope.records import (
    SAME_MACHINE,
    Caveat,
    CgroupSample,
    ClusterStatus,
    DeviceSample,
    EnvironmentFact,
    HealthCheck,
    Interval,
    NetworkSample,
    Op,
    OsdLatency,
    PerfCounter,
    Placement,
    PoolIo,
    PoolWait,
    ProcessSample,
    Result,
    Run,
    SimulatedDiskSample,
    Step,
)
from bathyscope.store import RunDirectory, Workspace, tables
from bathyscope.window.tables import of_steps

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "verdicts"
READ = (
    Caveat, CgroupSample, ClusterStatus, DeviceSample, EnvironmentFact, HealthCheck, Interval, NetworkSample, Op,
    OsdLatency, PerfCounter, Placement, PoolIo, PoolWait, ProcessSample, Result, Run, SimulatedDiskSample, Step,
)  # fmt: skip
OPS_KEPT = 75
"""Operations kept of each load."""


def write(run: RunDirectory, directory: Path) -> int:
    """Write the fixture of a run, in place of the one that is there, and return its size in bytes."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    found = run.tables()
    for name in (record.TABLE for record in READ):
        rows = _CUT[name](found) if name in _CUT else found[name]
        if rows.num_rows:
            write_rows(rows, directory / f"{name}.parquet")
    return sum(file.stat().st_size for file in directory.iterdir())


def write_rows(rows: pa.Table, path: Path) -> None:
    """Write rows as small as they get, without the descriptions of their columns."""
    plain = rows.replace_schema_metadata(None).cast(pa.schema([f.remove_metadata() for f in rows.schema]))
    pq.write_table(
        plain, path, compression="zstd", compression_level=19, write_statistics=False, store_schema=False,
    )  # fmt: skip


def read(directory: Path) -> dict[str, pa.Table]:
    """Return the tables of a fixture, with the schemas that the store gives them now."""
    return {name: tables.read(name, [file]) for name, file in tables.parquet_files(directory).items()}


def _thinned(found: Mapping[str, pa.Table]) -> pa.Table:
    """Return some operations of the history."""
    ops, steps = found[Op.TABLE].sort_by("started_ns"), found[Step.TABLE]
    kept: list[np.ndarray] = []
    started = ints(ops, "started_ns")
    for begin, end in zip(ints(steps, "started_ns"), ints(steps, "ended_ns"), strict=True):
        # Over all OSDs together: how the load is spread must stay as it was.
        rows = np.flatnonzero((started >= begin) & (started <= end))
        picked = np.linspace(0, rows.size - 1, min(rows.size, OPS_KEPT)).round().astype(np.int64)
        kept.append(rows[picked] if rows.size else rows)
    return ops.take(pa.array(np.concatenate(kept)))


def _own_devices(found: Mapping[str, pa.Table]) -> pa.Table:
    """Return the samples of the OSDs' devices."""
    samples = found[DeviceSample.TABLE]
    return samples.filter(pc.invert(pc.is_in(samples.column("role"), pa.array(["disk", "other"]))))


def _counters(found: Mapping[str, pa.Table]) -> pa.Table:
    """Return the perf counters without those of the messenger, which no rule reads."""
    counters = found[PerfCounter.TABLE]
    section = counters.column("section")
    messenger = pc.or_(pc.starts_with(section, "AsyncMessenger"), pc.starts_with(section, "throttle-msgr"))
    return counters.filter(pc.invert(messenger))


def _neutral(found: Mapping[str, pa.Table]) -> pa.Table:
    """Return the run without the names of the machine that it was recorded on."""
    rows = found[Run.TABLE]
    for name in ("host_name", "kernel"):
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(["recorded"] * rows.num_rows))
    return rows


def _facts(found: Mapping[str, pa.Table]) -> pa.Table:
    """Return the facts that verdicts read: what clients are allowed, and which nodes are one machine."""
    facts = found[EnvironmentFact.TABLE]
    of_clients = pc.is_in(facts.column("subject"), pa.array(["config global", "config client"]))
    return facts.filter(pc.or_(of_clients, pc.equal(facts.column("name"), pa.scalar(SAME_MACHINE))))


_CUT = {
    EnvironmentFact.TABLE: _facts,
    Run.TABLE: _neutral,
    Op.TABLE: _thinned,
    DeviceSample.TABLE: _own_devices,
    PerfCounter.TABLE: _counters,
}


def newest(workspace: Workspace, names: list[str]) -> Iterator[tuple[str, RunDirectory]]:
    """Yield the newest run of each case."""
    runs = [workspace.open_run(entry.id) for entry in workspace.runs()]
    latest = {run.info.name: run for run in runs if run.status == "done"}
    for name in names or CASES:
        if name in latest:
            yield name, latest[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR", help="workspace with the runs")
    parser.add_argument("--case", nargs="+", default=[], choices=list(CASES), metavar="NAME", help="only these")
    options = parser.parse_args()
    for name, run in newest(Workspace(options.directory), options.case):
        size_bytes = write(run, FIXTURES / name)
        whole, small = _named(run.tables()), _named(read(FIXTURES / name))
        print(f"{name:<24}{size_bytes / 1000:>7.1f} kB{'' if whole == small else f'  differs: {small}, not {whole}'}")


def _named(found: Mapping[str, pa.Table]) -> list[tuple[str, str]]:
    """Return what the verdicts of a run name."""
    finding = ladder.build(found, of_steps(found), (), layers.views())
    verdicts = [point.verdict for group in finding.groups for point in group.points]
    return [(verdict.limit, verdict.subject) for verdict in verdicts]


if __name__ == "__main__":
    main()
