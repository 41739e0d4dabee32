"""Known workloads on real devices and a real Ceph: what was asked for is what is reported."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cut import cut

from bathyscope.bench.preflight import ClusterLook
from bathyscope.bench.resources import Resources
from bathyscope.errors import EnvironmentError_
from bathyscope.host import CephSession, Completed, ProcessRequest
from bathyscope.host.local import LocalHost
from bathyscope.lab import loop, throttle
from bathyscope.layers import LAYERS, LayerContext, LoadTables
from bathyscope.layers.needs import DiskNeed
from bathyscope.load import output_paths
from bathyscope.recording.collect import collect, to_raw
from bathyscope.recording.journal import Journal
from bathyscope.recording.look import look_at
from bathyscope.recording.recorder import Job, Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.sinks import MemorySink
from bathyscope.records import (
    ClusterStatus,
    DeviceSample,
    Histogram,
    Interval,
    Op,
    PerfCounter,
    ProcessSample,
    RawAnswer,
    Record,
    Result,
    from_table,
)
from bathyscope.sources import SOURCES, op_history, perf_counters
from bathyscope.spec import DeviceLimit, DiskTarget, Pattern, StepSpec, Target

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]
MIB = 1 << 20
HOST = LocalHost()


def raw(completed: Completed) -> RawAnswer:
    """Return an answer with the files that the load wrote."""
    assert isinstance(completed.request, ProcessRequest)
    paths = [Path(path) for path in output_paths(completed.request)]
    return to_raw(completed, [(path.name, path.read_bytes()) for path in paths if path.exists()])


def load(step: StepSpec, target: Target, scratch: str, keeper: ScopeKeeper | None = None) -> LoadTables:
    """Run one step and return what it reported; `keeper` watches its processes."""
    layer = LAYERS[step.layer]
    context = LayerContext(target, "bathy-test", scratch)
    layer.check(step, context)
    running = [HOST.start(request) for request in layer.plan(step, context)]
    if keeper is not None:
        for process in running:
            keeper.watch("client", process.pid)
    answers = [raw(completed) for process in running if (completed := process.wait()) is not None]
    return layer.parse(0, step, answers)


def rows(found: LoadTables, record: type[Record]) -> list[Any]:
    return from_table(record, found.tables[record])


@pytest.fixture
def throttled() -> Iterator[DiskTarget]:
    """A loop device of 256 MiB that may do 232 reads and 232 writes a second."""
    version = throttle.available()
    if version is None:
        pytest.skip("no control group of this machine can throttle devices")
    with tempfile.TemporaryDirectory(prefix="bathy-", dir="/var/tmp") as directory:
        backing = Path(directory, "disk")
        loop.create_file(backing, 256 * MIB, preallocate=True)
        device = loop.attach(backing)
        group = throttle.group_path(f"bathy-test-{os.getpid()}", version)
        limit = DeviceLimit(read_iops=232, write_iops=232)
        try:
            throttle.create(group, version)
            throttle.limit(group, version, loop.device_number(device), limit)
            yield DiskTarget(
                path=device,
                device=Path(device).name,
                size_bytes=256 * MIB,
                cgroup=str(group),
                limit=limit,
                destructive=True,
            )
        finally:
            throttle.remove(group)
            loop.detach(str(backing))


@pytest.mark.quiet
@pytest.mark.parametrize("op", ["randread", "randwrite"])
def test_a_disk_of_232_iops_is_reported_as_232_within_2_percent(throttled: DiskTarget, op: str, tmp_path: Path) -> None:
    target = Target(name="disk", kind="disk", disks={"hdd": throttled})
    pattern = Pattern(op=op, block_size_bytes=4096, queue_depth=16)  # type: ignore[arg-type]
    step = StepSpec(layer="disk", device_class="hdd", pattern=pattern, ramp_s=1, runtime_s=6)
    keeper, sink = look_at(HOST, None, target), MemorySink()
    with Recorder(HOST, None, keeper, [Job(SOURCES["proc"], period_s=0.2)], sink) as recorder:
        found = load(step, target, str(tmp_path), keeper)
        recorder.collect_now("proc")
    (result,) = rows(found, Result)
    assert result.iops == pytest.approx(232, rel=0.02)
    assert result.latency_ns_mean == pytest.approx(16 / 232 * 1e9, rel=0.05)
    intervals = rows(found, Interval)
    assert sum(row.iops for row in intervals) / len(intervals) == pytest.approx(232, rel=0.02)
    assert found.measured_start_ns is not None
    assert found.measured_end_ns is not None
    window = found.measured_start_ns, found.measured_end_ns
    sampled = SOURCES["proc"].parse(sink.answers("proc"), keeper.scope)
    devices = cut(DeviceSample, sampled[DeviceSample], *window).to_pylist()
    mine = [row for row in devices if row["role"] == "disk"]
    assert sum(row["duration_ns"] for row in mine) == window[1] - window[0]
    assert sum(row["read_count"] + row["write_count"] for row in mine) == pytest.approx(result.io_count, rel=0.02)
    limit = f"{op.removeprefix('rand')}_limit_ratio"
    used = sum(row[limit] * row["duration_ns"] for row in mine) / (window[1] - window[0])
    assert used == pytest.approx(1, abs=0.03)
    processes = cut(ProcessSample, sampled[ProcessSample], *window)
    assert {"client", "bathy", "host"} <= set(processes["process"].to_pylist())


def test_a_mounted_device_is_not_written_to(throttled: DiskTarget, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    assert HOST.run(ProcessRequest("mkfs", ("mkfs.ext4", "-q", throttled.path), timeout_s=60)).exit_code == 0
    assert HOST.run(ProcessRequest("mount", ("mount", throttled.path, str(mounted)))).exit_code == 0
    try:
        target = Target(name="disk", kind="disk", disks={"hdd": throttled})
        pattern = Pattern(op="randwrite", block_size_bytes=4096, queue_depth=1)
        step = StepSpec(layer="disk", device_class="hdd", pattern=pattern, ramp_s=0, runtime_s=1)
        with pytest.raises(EnvironmentError_, match="in use: mounted"):
            load(step, target, str(tmp_path))
        context = LayerContext(target, "bathy-test", str(tmp_path))
        for request in DiskNeed(path=throttled.path, size_bytes=MIB).fill(context):
            with pytest.raises(EnvironmentError_, match="in use: mounted"):
                HOST.run(request)
        # Reading what is mounted does no harm.
        read = step.model_copy(update={"pattern": pattern.model_copy(update={"op": "randread"})})
        assert rows(load(read, target, str(tmp_path)), Result)[0].io_count > 0
    finally:
        assert HOST.run(ProcessRequest("umount", ("umount", str(mounted)))).exit_code == 0


@pytest.fixture(scope="module")
def lent(borrowed_lab: Any) -> Iterator[tuple[Target, CephSession]]:
    """A lab of three OSDs, unthrottled enough not to matter."""
    with borrowed_lab("ssd=3") as cluster, cluster.session() as session:
        yield cluster.target, session


def prepare(step: StepSpec, keeper: ScopeKeeper, session: CephSession, scratch: Path) -> None:
    """Make what the step needs, fully written."""
    target = keeper.scope.target
    layer, context = LAYERS[step.layer], LayerContext(target, "bathy-test", str(scratch))
    needs = layer.needs(step, context)
    journal = Journal.create(scratch / "journal", "20260101-000000-000000", str(scratch), target, HOST)

    def status() -> ClusterStatus:
        source = SOURCES["cluster_status"]
        answers = collect(HOST, session, source.plan(keeper.scope))
        return ClusterLook.of(source.parse(answers, keeper.scope)).status

    Resources(HOST, session, journal).make(needs, keeper.scope, status=status)
    for need in needs:
        for request in need.fill(context):
            need.check_fill(raw(HOST.run(request)))
    keeper.narrow(own_pools=tuple(pool for need in needs for pool in need.pools), op_history_ops=10_000)
    keeper.refresh()


@pytest.mark.parametrize("layer", ["rados", "rbd"])
def test_a_prime_number_of_ios_is_counted_by_everyone(
    lent: tuple[Target, CephSession], layer: str, tmp_path: Path
) -> None:
    target, session = lent
    pattern = Pattern(op="randread", block_size_bytes=4096, queue_depth=4)
    step = StepSpec(
        layer=layer,
        pattern=pattern,
        image_size_bytes=36 * MIB if layer == "rbd" else None,
        working_set_bytes=36 * MIB,
        io_count_limit=2003,
        ramp_s=0,
        runtime_s=60,
    )
    keeper = ScopeKeeper(HOST, session, target)
    keeper.refresh()
    prepare(step, keeper, session, tmp_path)
    scope = keeper.scope
    assert scope.asked_osds == (0, 1, 2)

    def collected(name: str) -> list[RawAnswer]:
        return collect(HOST, session, SOURCES[name].plan(scope))

    try:
        assert all(
            answer.exit_code == 0 for answer in collect(HOST, session, op_history.resize((0, 1, 2), 10_000, 600))
        )
        before = collected("perf_counters")
        since_ns = time.time_ns()
        found = load(step, target, str(tmp_path))
        until_ns = time.time_ns()
        # The OSD hands ended ops to the history up to 0.26 s late.
        time.sleep(0.3)
        after = collected("perf_counters")
        dumps = collected("op_history")
    finally:
        for osd in (0, 1, 2):
            for option in op_history.OPTIONS:
                session.json(f"osd.{osd}", "config unset", var=option)
    (result,) = rows(found, Result)
    assert (result.io_count, result.io_bytes, result.error_count) == (2003, 2003 * 4096, 0)
    assert sum(row.count for row in rows(found, Histogram) if row.kind == "lat") == 2003
    # Every one of them reached an OSD and moved its bytes: nothing was thin, nothing came from the client.
    ops = from_table(Op, SOURCES["op_history"].parse(dumps, scope)[Op])
    reads = [op for op in ops if op.op == "read" and op.length_bytes == 4096 and since_ns <= op.started_ns <= until_ns]
    assert len(reads) == 2003
    assert all(op.complete_sample for op in reads)
    counters = from_table(PerfCounter, SOURCES["perf_counters"].parse([*before, *after], scope)[PerfCounter])
    moved = sum(row.delta or 0 for row in counters if (row.section, row.name) == ("osd", "op_r_out_bytes"))
    assert 2003 * 4096 <= moved < 2003 * 4096 + 65536
    assert perf_counters.restarted([*before, *after]) == []
