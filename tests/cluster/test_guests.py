"""Guests of a lab: each a client of its own that does I/O on command, and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.traces import PREFIX, traces

from bathyscope import lab
from bathyscope.host.local import LocalHost
from bathyscope.lab import guest_agent
from bathyscope.lab.spec import LabSpec, parse_device

SHORT_WRITES = ("--rw", "write", "--bs", "4M", "--size", "12M")
RANDOM_WRITES = ("--rw", "randwrite", "--bs", "4k", "--rate_iops", "50")

pytestmark = [
    pytest.mark.cluster,
    # Once, the root file system of another release has to be built, and the image of the guests.
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]


@pytest.fixture(scope="module")
def two(own_lab: Any) -> Iterator[Any]:
    with own_lab(f"{PREFIX}-guests", ["ssd=3"], vms=2) as cluster:
        yield cluster


@pytest.fixture
def state(two: Any, monkeypatch: pytest.MonkeyPatch) -> lab.LabState:
    monkeypatch.setenv("XDG_STATE_HOME", str(two.home))
    return lab.load(two.name)


def ceph(cluster: Any, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a client program of Ceph on the lab."""
    argv = [words[0], "--conf", cluster.target.conf, *words[1:]]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)


def guests(cluster: Any) -> dict[str, dict[str, Any]]:
    listed = cluster.bathy("lab", "status", "--name", cluster.name, "--output", "json")
    status = json.loads(listed.stdout)
    assert not [row for row in status["daemons"] if row["daemon"].startswith("qemu.")]
    return {guest["guest"]: guest for guest in status["guests"]}


def seen_writing(cluster: Any) -> set[str]:
    """Return the images that the OSDs count requests for; the program waits until the manager has heard of one."""
    words = ("rbd", "perf", "image", "iostat", "rbd", "--format", "json", "--iterations", "1")
    answer = ceph(cluster, *words, timeout_s=120)
    rows = json.loads(answer.stdout) if answer.returncode == 0 else []
    return {row["image"] for row in rows if row["write_ops"] or row["read_ops"]}


def test_a_guest_is_a_client_of_its_own_and_may_only_use_its_pool(two: Any, state: lab.LabState, tools: Any) -> None:
    found = guests(two)
    assert [(g["guest"], g["image"], g["client"], g["state"]) for g in found.values()] == [
        ("vm1", "rbd/vm1", "client.vm1", "running"),
        ("vm2", "rbd/vm2", "client.vm2", "running"),
    ]
    watchers = set()
    for guest in found.values():
        words = Path(f"/proc/{guest['pid']}/cmdline").read_bytes().decode().split("\0")
        assert words[words.index("-accel") + 1] == guest["accelerator"]
        assert Path(guest["agent"]).is_socket()
        # QEMU itself has the image open, and nobody else.
        ((watcher),) = json.loads(ceph(two, "rbd", "status", guest["image"], "--format", "json").stdout)["watchers"]
        watchers.add(watcher["client"])
        info = json.loads(ceph(two, "rbd", "info", guest["image"], "--format", "json").stdout)
        assert info["size"] == 1 << 30
    assert len(watchers) == 2
    assert ceph(two, "rbd", "--name", "client.vm1", "ls", "rbd").stdout.split() == ["vm1", "vm2"]
    # The manager's own pool.
    (other,) = tools.wait_for(lambda: set(two.snapshot()["pools"]) - {"rbd"}, what="another pool")
    refused = ceph(two, "rados", "--name", "client.vm1", "--pool", other, "ls")
    assert refused.returncode != 0
    assert "Operation not permitted" in refused.stderr


def test_the_guest_that_writes_is_the_one_that_ceph_sees(
    two: Any, state: lab.LabState, tools: Any, tmp_path: Path
) -> None:
    command = ("lab", "vm", "run", "--name", two.name, "vm1", *RANDOM_WRITES, "--runtime", "600")
    load = two.start(*command, stderr=tmp_path / "said")
    try:
        assert tools.wait_for(lambda: seen_writing(two), 120, "statistics of images") == {"vm1"}
        assert load.poll() is None, (tmp_path / "said").read_text()
        load.send_signal(signal.SIGINT)
        assert load.wait(60) == 130
    finally:
        load.kill()
        load.wait()
    agent = state.layout.guest_agent("vm1")
    tools.wait_for(lambda: guest_agent.run(agent, "/bin/busybox", ["pidof", "fio"]).exit_code == 1, what="fio's end")

    # As many requests as were asked for, as many objects as they touch, and none of another guest.
    ended = two.bathy("lab", "vm", "run", "--name", two.name, "vm2", *SHORT_WRITES)
    assert ended.returncode == 0, ended.stderr
    (job,) = json.loads(ended.stdout)["jobs"]
    assert (job["jobname"], job["error"], job["write"]["total_ios"]) == ("vm2", 0, 3)
    info = json.loads(ceph(two, "rbd", "info", "rbd/vm2", "--format", "json").stdout)
    objects = ceph(two, "rados", "--pool", "rbd", "ls").stdout.split()
    assert sorted(name for name in objects if name.startswith(info["block_name_prefix"])) == [
        f"{info['block_name_prefix']}.{number:016x}" for number in range(3)
    ]
    wrong = two.bathy("lab", "vm", "run", "--name", two.name, "vm2", "--rw", "sideways")
    assert wrong.returncode == 1
    assert "failed parsing rw=sideways" in wrong.stderr


def test_a_killed_guest_is_seen_to_be_gone(two: Any, state: lab.LabState, tools: Any) -> None:
    os.kill(guests(two)["vm2"]["pid"], signal.SIGKILL)
    tools.wait_for(lambda: guests(two)["vm2"]["state"] == "gone", what="the guest's end")
    assert guests(two)["vm1"]["state"] == "running"
    refused = two.bathy("lab", "vm", "run", "--name", two.name, "vm2", *RANDOM_WRITES)
    assert refused.returncode == 2
    assert refused.stderr.startswith("bathy: the guest vm2 does not answer")
    unknown = two.bathy("lab", "vm", "run", "--name", two.name, "vm3", *RANDOM_WRITES)
    assert unknown.returncode == 2
    assert "one of vm1, vm2" in unknown.stderr


# Before those with labs of their own: control groups of this lab would be taken for theirs.
def test_down_leaves_nothing(two: Any, state: lab.LabState) -> None:
    lab.down(two.name)
    assert traces(two.home) == []


def test_guests_of_a_release_whose_keys_older_clients_cannot_use(home: Path) -> None:
    spec = LabSpec(name=f"{PREFIX}-new", devices=(parse_device("ssd=1"),), vms=1, release="tentacle")
    state = lab.up(spec)
    assert lab.health(state, LocalHost()).startswith("HEALTH_OK")
    answer = lab.run_fio(state, "vm1", SHORT_WRITES)
    assert answer.exit_code == 0, answer.stderr
    assert json.loads(answer.stdout)["jobs"][0]["write"]["total_ios"] == 3
    lab.down(spec.name)


# When the first guest is about to be made, and while guests boot.
@pytest.mark.parametrize(
    ("line", "release"), [(b"starting 2 guests", ()), (b"waiting for the guests", ("--release", "tentacle"))]
)
def test_down_after_kill_of_up(home: Path, line: bytes, release: tuple[str, ...]) -> None:
    name = f"{PREFIX}-boot"
    words = ("lab", "up", "--name", name, "--device", "ssd=1", "--vms", "2", *release)
    up = subprocess.Popen([sys.executable, "-m", "bathyscope.cli", *words], stderr=subprocess.PIPE)
    assert up.stderr is not None
    assert any(line in text for text in up.stderr)
    up.kill()
    up.wait()
    lab.down(name)
    assert traces(home) == []
