"""An OSD that somebody else's control groups hold back: what a run on a real cluster sees of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.traces import PREFIX

from bathyscope.analysis.quotas import quota_uses
from bathyscope.analysis.step_figures import StepFigures
from bathyscope.bench import session as bench
from bathyscope.bench.conductor import Watcher
from bathyscope.host.local import LocalHost
from bathyscope.host.node_sampler import group_paths
from bathyscope.lab import loop, throttle
from bathyscope.layers import traits
from bathyscope.records import Step
from bathyscope.spec import DaemonTarget, DeviceLimit, StepSpec
from bathyscope.spec.plan_file import parse_plan
from bathyscope.store import Workspace
from bathyscope.window.tables import of_steps

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
PLAN = """\
name: held-back
layers: [rbd]
patterns: [randwrite-4K-qd8]
axes: {image_size: 32M}
repeats: 1
ramp: 1s
runtime: 6s
limits: {prolong: 0, baseline: 1s}
"""
CORES, WRITES_PER_S = 0.02, 50


@contextlib.contextmanager
def held_back(daemon: DaemonTarget) -> Iterator[None]:
    """Keep an OSD in groups of its own, with a quota and a limit for its device."""
    version = throttle.available()
    name = f"{PREFIX}-cgroup-{os.getpid()}"
    text = Path(f"/proc/{daemon.pid}/cgroup").read_text()
    controllers = ("cpu", "blkio") if version == "cgroup1" else ("io",)
    homes = [Path(group_paths(text, controller)[0]) for controller in controllers]
    groups = [throttle.CGROUP / controller / name for controller in controllers]
    if version == "cgroup2":
        groups = [throttle.CGROUP / name]
        (throttle.CGROUP / "cgroup.subtree_control").write_text("+cpu +io")
    try:
        for group in groups:
            group.mkdir()
        if version == "cgroup1":
            (groups[0] / "cpu.cfs_quota_us").write_text(str(round(CORES * 100_000)))
        else:
            (groups[0] / "cpu.max").write_text(f"{round(CORES * 100_000)} 100000")
        number = loop.device_number(f"/dev/{daemon.device}")
        assert version is not None
        throttle.limit(groups[-1], version, number, DeviceLimit(write_iops=WRITES_PER_S))
        for group in groups:
            throttle.join(group, daemon.pid)
        yield
    finally:
        for home, group in zip(homes, groups, strict=True):
            throttle.join(home, daemon.pid)
            assert throttle.remove(group)


class _HoldsBack(Watcher):
    """Holds an OSD back while the load runs, and not while the image is made."""

    def __init__(self, daemon: DaemonTarget) -> None:
        self._daemon = daemon
        self._groups = contextlib.ExitStack()
        self.figures: StepFigures | None = None

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        self._groups.enter_context(held_back(self._daemon))

    def step_ended(self, step: Step, figures: StepFigures) -> None:
        self.figures = figures
        self.undo()

    def undo(self) -> None:
        self._groups.close()


def test_an_osd_with_a_quota_and_a_limit_of_its_own(cluster: Any, tmp_path: Path, tools: Any) -> None:
    """Its device is at the limit of that group, not at the lab's, which is higher by far; its quota is used up."""
    version = throttle.available()
    cpu = throttle.CGROUP / "cpu" if version == "cgroup1" else throttle.CGROUP
    if version is None or not os.access(cpu / "cgroup.procs", os.W_OK):
        pytest.skip("control groups of the processor and of I/O cannot be written here")
    daemon = next(daemon for daemon in cluster.target.daemons if daemon.name == "osd.0")
    watcher = _HoldsBack(daemon)
    plan = parse_plan(PLAN, name="test", layers=traits())
    try:
        found = bench.begin(LocalHost(), Workspace(tmp_path / "ws"), plan, cluster.target, watcher)
    finally:
        watcher.undo()
    ((step, rows),) = tools.steps(found)
    own, others = (
        [r for r in rows["cgroup_sample"] if (r["process"] == "osd.0") is wanted] for wanted in (True, False)
    )
    assert {row["cpu_quota_cores"] for row in own} == {CORES}
    assert {(row["device"], row["write_iops_limit"]) for row in own} == {(daemon.device, WRITES_PER_S)}
    assert {"osd.1", "osd.2", "client"} <= {row["process"] for row in others}
    assert {row["cpu_quota_cores"] for row in others} == {None}
    assert WRITES_PER_S not in {row["write_iops_limit"] for row in others}
    # A throttle deals out its requests in slices, and no more than its rate over all of them.
    seconds = sum(row["duration_ns"] for row in own) / 1e9
    assert 0 < sum(row["write_request_count"] for row in own) < 1.2 * WRITES_PER_S * seconds
    # An OSD at work takes a multiple of this quota.
    tables = of_steps(found.tables())[step.step_index]
    (use,) = quota_uses(tables["cgroup_sample"], tables["process_sample"])
    assert (use.process, use.quota_cores) == ("osd.0", pytest.approx(CORES))
    assert use.throttled_ratio is not None
    assert use.throttled_cores is not None
    assert 0 < use.throttled_ratio <= 1
    assert use.throttled_cores > 0
    assert watcher.figures is not None
    devices = {device.role: device for device in watcher.figures.devices}
    assert devices["osd.0"].limited
    assert devices["osd.0"].utilization > 5 * devices["osd.1"].utilization
