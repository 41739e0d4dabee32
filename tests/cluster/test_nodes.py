"""Nodes of a lab: each a machine of its own as far as ssh, Ceph and faults can tell, and gone without a trace."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.sampled_twice import must_agree, sample_twice
from tests.cluster.traces import PREFIX, traces

from bathyscope import lab
from bathyscope.analysis.columns import sums_by
from bathyscope.host.local import LocalHost
from bathyscope.host.process import identity_of
from bathyscope.lab import journal, nodes, simdisk
from bathyscope.lab.layout import Layout
from bathyscope.lab.spec import LabSpec, parse_device
from bathyscope.lab.state import directory_of
from bathyscope.recording.collect import collect
from bathyscope.recording.look import look_at
from bathyscope.records import CgroupSample, DeviceSample, NetworkSample, from_table
from bathyscope.sources import cgroups
from bathyscope.spec import SshAccess

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(nodes.obstacle() is not None, reason=f"no nodes here: {nodes.obstacle()}"),
]

PLAN = """\
name: partition
layers: [rados]
patterns: [randwrite-16K-qd4]
axes: {image_size: 64M}
repeats: 1
ramp: 0s
runtime: 12s
limits: {prolong: 0, baseline: 1s}
"""


def links(name: str) -> list[str]:
    """Return the links that the journal of a lab names."""
    return sorted(set(journal.read(Layout(directory_of(name)).journal).links))


def existing(names: list[str]) -> list[str]:
    return [name for name in names if Path("/sys/class/net", name).exists()]


def namespaces(pid: int) -> set[str]:
    return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("net", "pid", "uts", "mnt")}


def alive(pid: int) -> bool:
    return identity_of(LocalHost(), pid) is not None


@pytest.fixture(scope="module")
def two(own_lab: Any) -> Iterator[Any]:
    with own_lab("nodes", ["ssd=2"], nodes=2) as cluster:
        yield cluster


@pytest.fixture
def state(two: Any, monkeypatch: pytest.MonkeyPatch) -> lab.LabState:
    monkeypatch.setenv("XDG_STATE_HOME", str(two.home))
    return lab.load(two.name)


def test_osds_are_in_their_nodes_and_say_so(two: Any, state: lab.LabState) -> None:
    with two.session() as session:
        tree = session.json("mon", "osd tree")["nodes"]
        metadata = session.json("mon", "osd metadata")
    hosts = {node["name"]: node["children"] for node in tree if node["type"] == "host"}
    assert hosts == {"node1": [0], "node2": [1]}
    assert [about["hostname"] for about in metadata] == ["node1", "node2"]
    for about, address in zip(metadata, state.record.nodes.values(), strict=True):
        assert address.startswith(("198.18.", "198.19."))
        for kind in ("front_addr", "back_addr", "hb_front_addr", "hb_back_addr"):
            assert f"v2:{address}:" in about[kind]

    daemons = {daemon.name: daemon for daemon in state.target().daemons}
    assert list(daemons) == ["mon.a", "mgr.x", "osd.0", "osd.1"]
    assert [daemons[name].host for name in ("osd.0", "osd.1")] == ["node1", "node2"]
    for daemon in daemons.values():
        # The process is the daemon itself, as this machine sees it.
        assert Path(f"/proc/{daemon.pid}/comm").read_text(encoding="ascii").strip() == f"ceph-{daemon.name[:3]}"
        identity = identity_of(LocalHost(), daemon.pid)
        assert identity is not None
        assert identity.start_ticks == daemon.start_ticks
    here, first, second = (namespaces(pid) for pid in (os.getpid(), daemons["osd.0"].pid, daemons["osd.1"].pid))
    assert here & first == here & second == first & second == set()
    assert namespaces(daemons["mon.a"].pid) == here
    # A throttle is for the OSDs' own processes.
    if state.record.cgroup is not None:
        members = Path(state.record.cgroup, "cgroup.procs").read_text(encoding="ascii").split()
        assert {int(pid) for pid in members} == {daemons["osd.0"].pid, daemons["osd.1"].pid}


def test_ssh_leads_into_a_node_and_passes_exit_codes_on(two: Any, state: lab.LabState) -> None:
    def ssh(*words: str) -> subprocess.CompletedProcess[str]:
        return two.bathy("lab", "ssh", "--name", two.name, *words)

    assert ssh("node1", "hostname").stdout == "node1\n"
    assert ssh("node2", "uname", "-n").stdout == "node2\n"
    assert ssh("node1", "exit 7").returncode == 7
    processes = ssh("node2", "ps", "-e", "-o", "args").stdout
    assert "ceph-osd -f -i 1 " in processes
    assert "ceph-osd -f -i 0 " not in processes
    assert "ceph-mon" not in processes
    unknown = ssh("node3", "true")
    assert unknown.returncode == 2
    assert "one of node1, node2" in unknown.stderr

    exports = two.bathy("lab", "env", "--name", two.name).stdout
    script = f'{exports}\nssh -F "$BATHY_SSH_CONFIG" node1 hostname'
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=True, timeout=30).stdout == b"node1\n"
    # One node reaches another; nothing else may come in than the lab's key.
    address = state.record.nodes["node2"]
    assert ssh("node1", f"exec 3<>/dev/tcp/{address}/22; head -c 4 <&3").stdout == "SSH-"
    known = f"UserKnownHostsFile={state.layout.ssh / 'known_hosts'}"
    options = [word for option in (known, "IdentityFile=none", "BatchMode=yes") for word in ("-o", option)]
    without_key = ["ssh", "-F", "none", *options, f"root@{address}", "true"]
    refused = subprocess.run(without_key, capture_output=True, check=False, timeout=30)
    assert refused.returncode == 255
    assert b"Permission denied (publickey)" in refused.stderr
    for path in state.layout.ssh.iterdir():
        assert path.suffix == ".pub" or path.stat().st_mode & 0o077 == 0


def test_figures_of_nodes_over_ssh_are_those_of_this_machine(two: Any, state: lab.LabState) -> None:
    host, here = LocalHost(), two.target
    there = here.model_copy(update={"ssh": SshAccess(config=str(state.ssh_config))})
    with two.session() as session, contextlib.ExitStack() as stack:
        stack.callback(host.leave_nodes)
        local, remote = look_at(host, session, here), look_at(host, session, there)
        assert local.scope.nodes == ()
        assert [(node.name, [d.name for d in node.daemons]) for node in remote.scope.nodes] == [
            ("node1", ["osd.0"]),
            ("node2", ["osd.1"]),
        ]
        found, written_bytes = sample_twice(host, session, here, local, remote)
    must_agree(found, ("osd.0", "osd.1"))
    # A throttled device is judged by its limit, whoever looks at it.
    for tables in found.values():
        rows = [row for row in tables[DeviceSample].to_pylist() if row["role"].startswith("osd.")]
        assert {row["write_limit_ratio"] is None for row in rows} == {state.record.cgroup is None}
    # There is a copy on each node: what the client wrote has come in by each of their cables once, and little besides.
    received = sums_by(found["node_proc"][NetworkSample], "host", "receive_bytes")
    assert received[0] == ["node1", "node2"]
    for received_bytes in received[1][0]:
        assert 0.8 * written_bytes < received_bytes < 1.5 * written_bytes


def test_limits_of_nodes_over_ssh_are_those_of_this_machine(two: Any, state: lab.LabState) -> None:
    """A node's processes have other numbers there; their control groups are the same."""
    host, here = LocalHost(), two.target
    there = here.model_copy(update={"ssh": SshAccess(config=str(state.ssh_config))})
    found = []
    with two.session() as session, contextlib.ExitStack() as stack:
        stack.callback(host.leave_nodes)
        for target in (here, there):
            scope = look_at(host, session, target).scope
            answers = [answer for _ in range(2) for answer in collect(host, None, cgroups.SOURCE.plan(scope))]
            rows = from_table(CgroupSample, cgroups.SOURCE.parse(answers, scope)[CgroupSample])
            found.append([dataclasses.replace(r, at_ns=0, duration_ns=0) for r in rows if r.process.startswith("osd.")])
    # Nothing loads the lab, so that what is counted in between may be a request more or less.
    local, remote = (
        [dataclasses.replace(r, read_request_count=0, write_request_count=0) for r in each] for each in found
    )
    assert local == remote
    assert [(row.host, row.process) for row in remote] == [("node1", "osd.0"), ("node2", "osd.1")]
    for row in remote:
        assert (row.write_iops_limit is None) == (state.record.cgroup is None)


def test_a_partition_during_a_step_costs_the_figures_of_that_node_alone(
    two: Any, state: lab.LabState, tmp_path: Path, tools: Any
) -> None:
    said, plan = tmp_path / "said", tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    named = ("--lab", two.name, "--ssh", "@", "-w", str(tmp_path / "ws"))
    process = two.start("bench", "run", str(plan), *named, stderr=said)
    try:
        tools.wait_for(lambda: tools.fio_of(process.pid) and "[1/1" in said.read_text(), what="the load", timeout_s=200)
        lab.add_fault(state, "node2", "partition")
        # A reading is given up after 2 s; the cluster's own patience is longer.
        time.sleep(4)
        lab.add_fault(state, "node2", "heal")
        assert process.wait(timeout=150) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()
    run = tools.newest(tmp_path / "ws")
    ((step, own),) = tools.steps(run)
    assert step.status == "done"
    assert sum(row["io_count"] for row in own["result"]) > 0
    (text,) = [row["text"] for row in tools.rows(run, "caveat") if row["code"] == "node_not_sampled"]
    assert text.startswith("node2 ")
    for table in ("process_sample", "network_sample"):
        assert {"localhost", "node1"} <= {row["host"] for row in own[table]}
    assert ("osd.0", "node1") in {(row["process"], row["host"]) for row in own["process_sample"]}


def test_load_from_a_client_host(two: Any, state: lab.LabState, tmp_path: Path, tools: Any) -> None:
    """What is measured is made there, its answers lie here, and it ends with us however we end."""
    workspace = ("--lab", two.name, "-w", str(tmp_path / "ws"))
    smoke = ("--preset", "smoke", "--layer", "rados,rbd", "--set", "limits.baseline=1s")
    ended = two.bathy("bench", "run", *smoke, *workspace, "--client-host", "node1", timeout_s=200)
    assert ended.returncode == 0, ended.stderr
    assert "load from node1: fio-3" in ended.stderr
    run = tools.newest(tmp_path / "ws")
    steps = tools.steps(run)
    assert {step.layer for step, _ in steps} == {"rados", "rbd"}
    for step, own in steps:
        assert step.status == "done", step.reason
        # Its logs came back: a rate over time, and a window that samples of all machines can be laid over.
        assert own["interval"]
        assert {row["host"] for row in own["process_sample"] if row["process"] == "client"} == {"node1"}
        assert "osd.1" in {row["process"] for row in own["process_sample"]}
    commands = [answer.argv for segment in run.step_segments().values() for answer in segment.raw("load")]
    assert {argv[0] for argv in commands} == {"ssh"}
    assert all("fio" in argv for argv in commands)

    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    (holder,) = (daemon.identity.pid for daemon in state.daemons() if daemon.name == "sshd.node1")
    process = two.start("bench", "run", str(plan), *workspace, "--client-host", "node1", stderr=tmp_path / "said")
    try:
        (fio,) = tools.wait_for(lambda: loads_of(holder, tools), what="fio on node1", timeout_s=200)
        directory = Path(f"/proc/{fio}/cwd").readlink()
        assert directory.name.startswith("bathy-load-")
    finally:
        process.kill()
        process.wait()
    tools.wait_for(lambda: not alive(fio) and not directory.exists(), what="the end of fio on node1")
    cleaned = two.bathy("bench", "cleanup")
    assert cleaned.returncode == 0, cleaned.stderr


@pytest.mark.skipif(not simdisk.possible(), reason="disks cannot be simulated here")
@pytest.mark.timeout(900)  # Once, the root file system has to be built.
def test_nodes_and_simulated_disks_of_another_release(own_lab: Any, tmp_path: Path, tools: Any) -> None:
    """The newest release: a disk that dies slowly is seen, and named with its node, over ssh."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.replace("12s", "4s"))
    with own_lab("nodes-newest", ["hdd=3"], nodes=3, replicas=3, release="tentacle") as cluster:
        lab.add_fault(lab.load(cluster.name), "osd.1", "slow=10x")
        named = ("--lab", cluster.name, "--ssh", "@", "-w", str(tmp_path / "ws"), "--output", "json")
        ended = cluster.bathy("bench", "run", str(plan), *named, timeout_s=400)
    assert ended.returncode == 0, ended.stderr
    ((point,),) = (group["points"] for group in json.loads(ended.stdout)["groups"])
    assert {caveat["text"] for caveat in point["caveats"] if caveat["code"] == "disk_faults"} == {
        "simulated disks had faults: osd.1 (node2): slow=10x"
    }
    assert point["osd_cpu_us_per_op"]["value"] > 0
    assert {node["name"] for node in point["nodes"]} == {"localhost", "node1", "node2", "node3"}
    run = tools.newest(tmp_path / "ws")
    (row,) = tools.rows(run, "run")
    assert row["ceph_version"].startswith("20.")
    ((step, own),) = tools.steps(run)
    assert step.status == "done"
    assert {(row["role"], row["host"]) for row in own["device_sample"]} >= {
        ("osd.0", "node1"),
        ("osd.1", "node2"),
        ("osd.2", "node3"),
    }
    # All three write the same; the one that needs ten times as long for it is busiest.
    busy: dict[bool, list[float]] = {True: [], False: []}
    for disk in {row["disk"] for row in own["simulated_disk_sample"]} - {""}:
        rows = [row for row in own["simulated_disk_sample"] if row["disk"] == disk]
        busy[rows[-1]["faults"] != ""].append(sum(row["busy_ns"] for row in rows))
    (slow,) = busy[True]
    assert slow > max(busy[False])


def loads_of(holder: int, tools: Any) -> list[int]:
    """Return the load processes of a node, as this machine sees them."""
    return [pid for pid, words in tools.children(holder).items() if words.startswith("fio ") and "--runtime" in words]


def test_faults_of_nodes_are_seen_and_undone(two: Any, state: lab.LabState, tools: Any) -> None:
    def fault(*words: str) -> subprocess.CompletedProcess[str]:
        return two.bathy("lab", "fault", "--name", two.name, *words)

    def listed() -> list[tuple[str, str]]:
        return [(f["target"], f["fault"]) for f in json.loads(fault("list", "--output", "json").stdout)]

    def up_since() -> int | None:
        """Return the epoch since which osd.1 is up, None while it is down."""
        with two.session() as session:
            osd = session.json("mon", "osd dump")["osds"][1]
            return int(osd["up_from"]) if osd["up"] else None

    ssh = ["ssh", "-F", str(state.layout.ssh_config), "-o", "ConnectTimeout=2"]
    before = {daemon.name: daemon for daemon in state.target().daemons}
    assert fault("node2", "partition").returncode == 0
    assert listed() == [("node2", "partition")]
    assert "node2: partition" in dict(two.target.caveats)["node_faults"]
    assert subprocess.run([*ssh, "node2", "true"], capture_output=True, check=False, timeout=30).returncode == 255
    assert alive(before["osd.1"].pid)
    assert fault("node2", "heal").returncode == 0
    assert listed() == []
    assert subprocess.run([*ssh, "node2", "true"], check=False, timeout=30).returncode == 0

    epoch = tools.wait_for(up_since)
    assert fault("node2", "down").returncode == 0
    assert not alive(before["osd.1"].pid)
    assert alive(before["osd.0"].pid)
    assert listed() == [("node2", "down")]
    wrong = fault("node2", "partition")
    assert wrong.returncode == 2
    assert "node2 is down" in wrong.stderr
    assert "1 cleared" in fault("clear", "node2").stderr
    assert listed() == []
    tools.wait_for(lambda: (up_since() or 0) > epoch, what="the OSD that was started again")
    assert "node_faults" not in dict(two.target.caveats)
    after = {daemon.name: daemon for daemon in two.target.daemons}
    assert after["osd.1"].pid != before["osd.1"].pid
    assert namespaces(after["osd.1"].pid) & namespaces(after["osd.0"].pid) == set()
    assert len(existing(links(two.name))) == 3
    assert subprocess.run([*ssh, "node2", "true"], check=False, timeout=30).returncode == 0


def test_without_privileges_nodes_are_names_only_and_said_to_be(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "obstacle", lambda: "not installed: sshd")
    name = f"{PREFIX}-names"
    state = lab.up(LabSpec(name=name, devices=(parse_device("ssd=1"),), nodes=1))
    assert state.record.nodes == {}
    assert "not installed: sshd" in dict(state.target().caveats)["nodes_in_name_only"]
    assert links(name) == []
    lab.down(name)


def test_down_after_kill_of_a_nodes_first_process_its_wrapper_and_of_down(home: Path) -> None:
    name = f"{PREFIX}-holder"
    state = lab.up(LabSpec(name=name, devices=(parse_device("ssd=2"),), nodes=2))
    made = links(name)
    assert len(existing(made)) == 3
    daemons = {daemon.name: daemon.identity.pid for daemon in state.daemons()}
    os.kill(daemons["sshd.node1"], signal.SIGKILL)
    wrapper = int(Path(f"/proc/{daemons['sshd.node2']}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    os.kill(wrapper, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(alive(pid) for daemon, pid in daemons.items() if daemon.startswith(("sshd", "osd"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    generator = random.Random(20_261)
    for _ in range(2):
        down = _tool("down", "--name", name)
        time.sleep(generator.uniform(0.5, 0.9))
        down.kill()
        down.wait()
    if lab.list_labs():
        lab.down(name)
    assert existing(made) == []
    assert traces(home) == []


# Moments in the life of `up`: when nodes are about to be made, while they are, when OSDs start in them.
@pytest.mark.parametrize(
    ("line", "later_s"), [(b"making 2 nodes", 0.0), (b"making 2 nodes", 0.3), (b"waiting for the OSDs", 0.0)]
)
def test_down_after_kill_of_up(home: Path, line: bytes, later_s: float) -> None:
    name = f"{PREFIX}-half"
    up = _tool("up", "--name", name, "--device", "ssd=2", "--nodes", "2")
    assert up.stderr is not None
    assert any(line in text for text in up.stderr)
    time.sleep(later_s)
    up.kill()
    up.wait()
    made = links(name)
    lab.down(name)
    assert existing(made) == []
    assert traces(home) == []


def _tool(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "bathyscope.cli", "lab", *words], stderr=subprocess.PIPE)
