"""Real Ceph on this machine: up, side by side, killed in every way, and gone without a trace."""

from __future__ import annotations

import concurrent.futures
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.traces import PREFIX, traces

from bathyscope import lab
from bathyscope.errors import BusyError, LabError
from bathyscope.host.local import LocalHost
from bathyscope.host.process import identity_of
from bathyscope.lab import loop, requirements, simdisk
from bathyscope.lab.layout import labs_directory, roots_directory
from bathyscope.lab.releases import SUITES
from bathyscope.lab.spec import LabSpec, parse_device

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]


def spec(name: str, *groups: str, **fields: Any) -> LabSpec:
    return LabSpec(name=name, devices=tuple(parse_device(group) for group in groups), **fields)


def ceph(state: lab.LabState, *words: str, stdin: bytes | None = None) -> bytes:
    """Run a client program as a user would after `eval "$(bathy lab env)"`."""
    argv = [words[0], "--conf", str(state.layout.conf), *words[1:]]
    if state.record.root:
        argv = ["chroot", state.record.root, *argv]
    return subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=True).stdout


def tool(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    # A signal that these tests ignore themselves (run in the background) would be ignored by it too.
    argv = ["env", "--default-signal=INT,HUP,TERM", sys.executable, "-m", "bathyscope.cli", "lab", *words]
    return subprocess.Popen(argv, **options)


def test_three_osds_up_writable_measured_and_gone(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = f"{PREFIX}-three"
    began = time.monotonic()
    state = lab.up(spec(name, "hdd=2", "ssd=1", replicas=1))
    with capfd.disabled():
        sys.stdout.write(f"\nthree OSDs up, clean and written to after {time.monotonic() - began:.1f} s\n")

    nodes = json.loads(ceph(state, "ceph", "osd", "tree", "--format", "json"))["nodes"]
    hosts = {n["name"]: sorted(n["children"]) for n in nodes if n["type"] == "host"}
    assert hosts == {"node1": [0, 2], "node2": [1]}
    assert {n["id"]: n["device_class"] for n in nodes if n["type"] == "osd"} == {0: "hdd", 1: "hdd", 2: "ssd"}
    status = json.loads(ceph(state, "ceph", "status", "--format", "json"))
    assert status["health"]["status"] == "HEALTH_OK"
    assert [s["state_name"] for s in status["pgmap"]["pgs_by_state"]] == ["active+clean"]
    metadata = json.loads(ceph(state, "ceph", "osd", "metadata", "--format", "json"))
    assert [m["rotational"] for m in metadata] == ["1", "1", "0"]

    ceph(state, "rados", "--pool", "rbd", "put", "greeting", "-", stdin=b"hello\n")
    assert ceph(state, "rados", "--pool", "rbd", "get", "greeting", "-") == b"hello\n"

    target = lab.load(name).target()
    assert {code for code, _ in target.caveats} >= {"lab_shared_cpu"}
    assert sorted(target.disks) == ["hdd", "ssd"]
    served = ["simdisk"] if simdisk.possible() else []
    assert [d.name for d in target.daemons] == [*served, "mon.a", "mgr.x", "osd.0", "osd.1", "osd.2"]
    for daemon in target.daemons:
        identity = identity_of(LocalHost(), daemon.pid)
        assert identity is not None
        assert identity.start_ticks == daemon.start_ticks
    check_throttle(target)
    lab.down(name)


def check_throttle(target: Any) -> None:
    """The group's rules are those of the profile for every throttled device, and every OSD is in the group."""
    if "throttle_profile" not in dict(target.caveats):
        pytest.skip("this machine has no I/O control group")
    group = Path(target.disks["ssd"].cgroup)
    members = {int(pid) for pid in (group / "cgroup.procs").read_text(encoding="ascii").split()}
    osds = [d for d in target.daemons if d.name.startswith("osd.")]
    assert members == {d.pid for d in osds}
    limits = {d.device: d.limit.read_iops for d in (*osds, *target.disks.values()) if d.limit is not None}
    # The SSD of an OSD and the spare one; hard disks are simulated, where that is possible.
    assert len(limits) == (2 if simdisk.possible() else 5)
    file = group / "blkio.throttle.read_iops_device"
    if file.exists():
        rules = dict(line.split() for line in file.read_text(encoding="ascii").splitlines())
        assert rules == {loop.device_number(f"/dev/{device}"): str(int(limit)) for device, limit in limits.items()}


def slowness_of(state: lab.LabState) -> list[str]:
    """Return what makes devices of the lab slow: limits that the kernel holds, and simulated disks that take time."""
    timed = []
    if state.target().disk_control is not None:
        stats = simdisk.ask(state.layout.disk_control, op="stats")
        timed = [disk["name"] for disk in stats["disks"] if disk["timed"]]
    group = Path(state.record.cgroup or "")
    files = [*group.glob("blkio.throttle.*_device"), *group.glob("io.max")]
    rules = [f"{file.name} {line}" for file in files for line in file.read_text(encoding="ascii").splitlines()]
    return sorted(rules + timed)


@pytest.mark.parametrize("device", ["hdd=1", "ssd=1"])
def test_devices_are_quick_for_a_while_and_slow_again_after_a_kill(home: Path, device: str) -> None:
    state = lab.up(spec(f"{PREFIX}-lift", device))
    if state.record.cgroup is None and state.target().disk_control is None:
        pytest.skip("this machine has no I/O control group, and disks cannot be simulated")
    before = slowness_of(state)
    assert before
    with lab.unthrottled(state):
        assert slowness_of(state) == []
        assert "throttle_removed" in dict(state.target().caveats)
        with pytest.raises(BusyError, match="another process"), lab.unthrottled(state):
            pass
        with pytest.raises(BusyError, match="another process"):
            lab.restore_throttle(state)
    assert slowness_of(state) == before

    script = (
        "import os, sys\nfrom bathyscope import lab\n"
        "with lab.unthrottled(lab.load(sys.argv[1])):\n    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, state.name], check=False, timeout=60).returncode == -9
    assert slowness_of(state) == []
    # Reading changes nothing: the target says what is, until the limits are put back.
    assert "throttle_removed" in dict(state.target().caveats)
    assert slowness_of(state) == []
    lab.restore_throttle(state)
    assert "throttle_removed" not in dict(state.target().caveats)
    assert slowness_of(state) == before
    lab.down(state.name)


def test_two_labs_side_by_side(home: Path) -> None:
    specs = [spec(f"{PREFIX}-a", "hdd=1"), spec(f"{PREFIX}-b", "ssd=1", fs=True, directory=home / "elsewhere")]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first, second = pool.map(lab.up, specs)
    assert set(first.record.ports).isdisjoint(second.record.ports)
    assert second.layout.directory == home / "elsewhere"
    ceph(first, "rados", "--pool", "rbd", "create", "only-in-a")
    assert b"only-in-a" not in ceph(second, "rados", "--pool", "rbd", "ls")
    assert json.loads(ceph(second, "ceph", "fs", "ls", "--format", "json"))[0]["name"] == "cephfs"
    with pytest.raises(LabError, match="already"):
        lab.up(specs[0])

    lab.down(first.name)
    assert lab.list_labs() == [second.name]
    assert all(daemon.alive for daemon in second.daemons())
    assert b"HEALTH_OK" in ceph(second, "ceph", "health")
    assert lab.down_all() == [second.name]
    assert not (home / "elsewhere").exists()


def test_down_after_kill_of_the_daemons_and_of_down_itself(home: Path) -> None:
    name = f"{PREFIX}-killed"
    state = lab.up(spec(name, "hdd=1"))
    for daemon in state.daemons():
        if daemon.name in ("mon.a", "osd.0"):
            os.kill(daemon.identity.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(d.alive for d in state.daemons() if d.name in ("mon.a", "osd.0")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    generator = random.Random(20_260)
    for _ in range(2):
        down = tool("down", "--name", name, stderr=subprocess.DEVNULL)
        time.sleep(generator.uniform(0.6, 1.0))
        down.kill()
        down.wait()
    if lab.list_labs():
        lab.down(name)
    assert traces(home) == []


def test_a_disk_that_fails_ends_its_osd_and_killed_disks_leave_nothing(home: Path) -> None:
    state = lab.up(spec(f"{PREFIX}-dying", "hdd=1"))
    if state.target().disk_control is None:
        pytest.skip("disks cannot be simulated here")
    daemons = {daemon.name: daemon for daemon in state.daemons()}
    lab.add_fault(state, "osd.0", "eio=write")
    argv = ["rados", "--conf", str(state.layout.conf), "--pool", "rbd", "put", "o", "/etc/hostname"]
    writer = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while next(d for d in state.daemons() if d.name == "osd.0").alive:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        writer.kill()
        writer.wait()
    # Requests hang and their server is killed: nothing that waits for it may keep the lab up.
    lab.add_fault(state, "hdd", "hang")
    disk = state.target().disks["hdd"].path
    reader = subprocess.Popen(["dd", f"if={disk}", "of=/dev/null", "iflag=direct", "count=1"], stderr=subprocess.PIPE)
    time.sleep(0.5)
    assert reader.poll() is None
    os.kill(daemons["simdisk"].identity.pid, signal.SIGKILL)
    lab.down(state.name)
    assert reader.wait(30) != 0
    assert traces(home) == []


# Moments in the life of `up`: before the first resource, in the mkfs, while daemons start, near its end.
@pytest.mark.parametrize("moment_s", [0.9, 1.6, 2.6, 4.0])
def test_down_after_kill_of_the_tool_in_the_middle_of_up(home: Path, moment_s: float) -> None:
    name = f"{PREFIX}-half"
    up = tool("up", "--name", name, "--device", "hdd=2", stderr=subprocess.DEVNULL)
    time.sleep(moment_s)
    up.kill()
    up.wait()
    if name in lab.list_labs():
        lab.down(name)
    assert traces(home) == []


def test_interrupted_up_cleans_up(home: Path) -> None:
    name = f"{PREFIX}-interrupted"
    up = tool("up", "--name", name, "--device", "hdd=2", stderr=subprocess.PIPE)
    assert up.stderr is not None
    for line in up.stderr:
        if b"making the monitor" in line:
            time.sleep(1.0)
            up.send_signal(signal.SIGINT)
            break
    rest = up.stderr.read()
    assert up.wait(60) == 130, rest
    assert b"Traceback" not in rest
    assert lab.list_labs() == []
    assert traces(home) == []


def test_without_loop_devices_it_works_on_plain_files_and_says_so(home: Path) -> None:
    state = lab.up(spec(f"{PREFIX}-plain", "hdd=1", emulate=False))
    target = state.target()
    assert "unthrottled" in dict(target.caveats)
    assert "throttle_profile" not in dict(target.caveats)
    disk = target.disks["hdd"]
    assert (disk.device, disk.limit, disk.cgroup) == (None, None, None)
    assert Path(disk.path).stat().st_size == state.record.spec.osd_size_bytes
    assert target.daemons[-1].limit is None
    lab.down(state.name)


# Tentacle's lab is tried by every run of the tests, in test_releases.py; with CephFS, and every release, here.
@pytest.mark.releases
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("release", list(SUITES))
def test_every_release(home: Path, release: str) -> None:
    state = lab.up(spec(f"{PREFIX}-{release}", "hdd=1", "ssd=1", replicas=1, fs=True, release=release))
    versions = json.loads(ceph(state, "ceph", "versions"))["overall"]
    assert [release in version for version in versions] == [True]
    assert b"HEALTH_OK" in ceph(state, "ceph", "health")
    ceph(state, "rados", "--pool", "rbd", "put", "greeting", "-", stdin=b"hello\n")
    assert ceph(state, "rados", "--pool", "rbd", "get", "greeting", "-") == b"hello\n"
    if state.record.root is not None:
        assert requirements.release_name(requirements.installed_major() or 0) != release
        wrapper = state.layout.bin / "rbd"
        subprocess.run([wrapper, "-c", state.layout.conf, "create", "--size", "1M", "i"], check=True, timeout=60)
        assert ceph(state, "rbd", "ls") == b"i\n"
    lab.down(state.name)
    assert list(roots_directory().glob(f"*/{str(labs_directory()).lstrip('/')}")) == []
