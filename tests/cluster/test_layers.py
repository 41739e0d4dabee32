"""Known workloads on real devices and a real Ceph: what was asked for is what is reported."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bathyscope import lab
from bathyscope.errors import EnvironmentError_
from bathyscope.host import CephRequest, CephSession, ProcessRequest
from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost
from bathyscope.lab import loop, state, throttle
from bathyscope.lab.spec import LabSpec, parse_device
from bathyscope.layers import (
    REGISTRY,
    DiskNeed,
    ImageNeed,
    LayerContext,
    LayerRows,
    PoolNeed,
    answer_of,
    check_prefill,
)
from bathyscope.sources import op_history, perf_dump, proc, rbd_usage
from bathyscope.sources.base import collect
from bathyscope.spec import DeviceLimit, DiskTarget, Pattern, StepSpec, Target

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]
MIB = 1 << 20
HOST = LocalHost()


def load(step: StepSpec, target: Target, scratch: str, sampler: proc.Sampler | None = None) -> LayerRows:
    """Run one step and return its rows."""
    layer = REGISTRY[step.layer]
    context = LayerContext(target, "bathy-test", scratch)
    assert layer.check(step, context) is None
    running = [HOST.start(request) for request in layer.plan(step, context)]
    if sampler is not None:
        for process in running:
            sampler.watch(process.pid)
    answers = [answer_of(HOST, completed) for process in running if (completed := process.wait()) is not None]
    return layer.parse("r", 0, step, answers)


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


@pytest.mark.parametrize("op", ["randread", "randwrite"])
def test_a_disk_of_232_iops_is_reported_as_232_within_2_percent(throttled: DiskTarget, op: str, tmp_path: Path) -> None:
    target = Target(name="disk", kind="disk", disks={"hdd": throttled})
    pattern = Pattern(op=op, block_size_bytes=4096, queue_depth=16)  # type: ignore[arg-type]
    step = StepSpec(layer="disk", device_class="hdd", pattern=pattern, ramp_s=1, runtime_s=6)
    with proc.Sampler(HOST, target) as sampler:
        rows = load(step, target, str(tmp_path), sampler)
    (result,) = rows.results
    assert result.iops == pytest.approx(232, rel=0.02)
    assert result.latency_ns_mean == pytest.approx(16 / 232 * 1e9, rel=0.05)
    assert sum(row.iops for row in rows.intervals) / len(rows.intervals) == pytest.approx(232, rel=0.02)
    assert rows.measured_start_ns is not None
    assert rows.measured_end_ns is not None
    window = proc.Window(rows.measured_start_ns, rows.measured_end_ns)
    devices, processes = proc.parse("r", 0, sampler.stop(), target, window)
    mine = [row for row in devices if row.role == "disk"]
    assert sum(row.read_count + row.write_count for row in mine) == pytest.approx(result.io_count, rel=0.02)
    assert sum(row.limit_ratio or 0 for row in mine) / len(mine) == pytest.approx(1, abs=0.03)
    assert {"client", "bathy", "host"} <= {row.process for row in processes}


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
        for request in REGISTRY["disk"].prefill(
            DiskNeed(path=throttled.path, size_bytes=MIB), step, LayerContext(target, "bathy-test", str(tmp_path))
        ):
            with pytest.raises(EnvironmentError_, match="in use: mounted"):
                HOST.run(request)
        # Reading what is mounted does no harm.
        read = step.model_copy(update={"pattern": pattern.model_copy(update={"op": "randread"})})
        assert load(read, target, str(tmp_path)).results[0].io_count > 0
    finally:
        assert HOST.run(ProcessRequest("umount", ("umount", str(mounted)))).exit_code == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Target, CephSession]]:
    """A lab of three OSDs, unthrottled enough not to matter."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="bathy-", dir="/var/tmp") as home:
        patch.setenv("XDG_STATE_HOME", home)
        lab.up(LabSpec(name="layers", devices=(parse_device("ssd=3"),)))
        try:
            target = state.load("layers").target()
            session = connect(HOST, target)
            yield target, session
            session.close()
        finally:
            lab.down("layers")


def prepare(step: StepSpec, target: Target, session: CephSession, scratch: str) -> None:
    """Make what the step needs, fully written."""
    layer, context = REGISTRY[step.layer], LayerContext(target, "bathy-test", scratch)
    for need in layer.needs(step, context):
        if isinstance(need, PoolNeed):
            words = (("prefix", "osd pool create"), ("pool", need.name), ("pg_num", 8))
            assert session.command(CephRequest("pool", "mon", words, timeout_s=60)).exit_code == 0
            words = (("prefix", "osd pool application enable"), ("pool", need.name), ("app", "bathyscope"))
            assert session.command(CephRequest("pool", "mon", words)).exit_code == 0
        if isinstance(need, ImageNeed):
            argv = ("rbd", *rbd_usage.access(target), "create", "--size", f"{need.size_bytes}B", "--object-size",
                    str(need.object_size_bytes), "--pool", need.pool, "--image", need.name)  # fmt: skip
            assert HOST.run(ProcessRequest("create", argv, root=target.root, timeout_s=60)).exit_code == 0
        for request in layer.prefill(need, step, context):
            check_prefill(need, answer_of(HOST, HOST.run(request)))


@pytest.mark.parametrize("layer", ["rados", "rbd"])
def test_a_prime_number_of_ios_is_counted_by_everyone(
    cluster: tuple[Target, CephSession], layer: str, tmp_path: Path
) -> None:
    target, session = cluster
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
    prepare(step, target, session, str(tmp_path))
    osds = [int(daemon.name[4:]) for daemon in target.daemons if daemon.name.startswith("osd.")]
    old = op_history.parse_get(collect(HOST, session, op_history.plan_get(osds)))
    assert sorted(old) == osds
    try:
        collect(HOST, session, op_history.plan_set(osds, 10_000, 600))
        before = collect(HOST, session, perf_dump.plan(osds))
        since_ns = time.time_ns()
        rows = load(step, target, str(tmp_path))
        until_ns = time.time_ns()
        # The OSD hands ended ops to the history up to 0.13 s late.
        time.sleep(0.3)
        began = time.monotonic()
        after = collect(HOST, session, perf_dump.plan(osds))
        dumps = collect(HOST, session, op_history.plan_dump(osds))
        assert time.monotonic() - began < 2
    finally:
        collect(HOST, session, op_history.plan_restore(old))
    assert op_history.parse_get(collect(HOST, session, op_history.plan_get(osds))) == old
    (result,) = rows.results
    assert (result.io_count, result.io_bytes, result.error_count) == (2003, 2003 * 4096, 0)
    assert sum(row.count for row in rows.histograms if row.kind == "lat") == 2003
    # Every one of them reached an OSD and moved its bytes: nothing was thin, nothing came from the client.
    ops = op_history.parse("r", 0, dumps, since_ns, until_ns, size_limit=10_000)
    reads = [op for op in ops if op.op == "read" and op.length_bytes == 4096]
    assert len(reads) == 2003
    assert all(op.complete_sample for op in reads)
    counters = perf_dump.parse("r", 0, before, after)
    moved = sum(row.delta for row in counters if (row.section, row.name) == ("osd", "op_r_out_bytes"))
    assert 2003 * 4096 <= moved < 2003 * 4096 + 65536
    assert perf_dump.restarted(before, after) == []
