"""A lab's OSDs as those of another machine: over a real sshd on this one, beside what is read here directly."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.cluster.sampled_twice import must_agree, sample_twice

from bathyscope.analysis.step_figures import StepFigures, figures
from bathyscope.host.local import LocalHost
from bathyscope.lab import ports
from bathyscope.recording.look import look_at
from bathyscope.records import HERE, SAME_MACHINE, EnvironmentFact, Step, from_table
from bathyscope.spec import SshAccess, Target
from bathyscope.window.tables import of_steps

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="needs OpenSSH, client and server"),
]
PLAN = """\
name: over-ssh
description: one write step on objects
layers: [rados]
patterns: [randwrite-16K-qd8]
runtime: 8s
ramp: 2s
repeats: 1
"""


@dataclasses.dataclass
class Machine:
    """A machine that is this one, as ssh sees it."""

    config: Path
    daemon: subprocess.Popen[bytes]

    def sessions(self) -> list[int]:
        """Return the processes of the connections to it."""
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.daemon.pid)], capture_output=True, check=False)
        return [int(pid) for pid in listed.stdout.split()]


def _key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@pytest.fixture
def machine(tmp_path: Path, tools: Any) -> Iterator[Machine]:
    """An sshd with its own keys and configuration, at a port of 127.0.0.1."""
    (port,) = ports.choose(1, ())
    own, theirs = _key(tmp_path / "id"), _key(tmp_path / "host")
    shutil.copy(f"{own}.pub", tmp_path / "authorized")
    known = f"[127.0.0.1]:{port} {Path(f'{theirs}.pub').read_text()}"
    (tmp_path / "known").write_text(known)
    (tmp_path / "sshd.conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {theirs}\nAuthorizedKeysFile {tmp_path}/authorized\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    config = tmp_path / "ssh.conf"
    config.write_text(
        f"Host lab-node\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {own}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {tmp_path}/known\n  StrictHostKeyChecking yes\n"
    )
    assert SSHD is not None
    # Each has a directory for its separation of privileges, which no other test takes away when it ends.
    start = 'mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$0" -D -e -f "$1"'
    with (tmp_path / "sshd.log").open("wb") as log:
        daemon = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", start, SSHD, str(tmp_path / "sshd.conf")], stderr=log
        )
    try:
        tools.wait_for(lambda: b"listening on" in (tmp_path / "sshd.log").read_bytes(), what="sshd")
        yield Machine(config, daemon)
    finally:
        daemon.terminate()
        daemon.wait()


def plan_file(tmp_path: Path) -> str:
    (tmp_path / "plan.yaml").write_text(PLAN)
    return str(tmp_path / "plan.yaml")


def step_of(found: Any) -> tuple[Step, dict[str, pa.Table], StepFigures]:
    tables = found.tables()
    (step,) = from_table(Step, tables["step"])
    own = of_steps(tables)[step.step_index]
    return step, own, figures(step, own)


def blind(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a machine that has no ceph-osd process."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pgrep").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "pgrep").chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}


def arguments(cluster: Any, machine: Machine, tmp_path: Path) -> list[str]:
    target = cluster.target
    words = ["bench", "run", plan_file(tmp_path), "--conf", target.conf, "--client", target.client]
    words += ["--keyring", target.keyring] if target.keyring else []
    return [
        *words,
        *("--ssh", "@", "--ssh-config", str(machine.config), "--ssh-host", f"{socket.gethostname()}=lab-node"),
        *("-w", str(tmp_path / "ws"), "--output", "csv"),
    ]


def test_a_run_has_the_figures_of_osds_that_are_elsewhere(
    cluster: Any, machine: Machine, tmp_path: Path, tools: Any
) -> None:
    ended = cluster.bathy(*arguments(cluster, machine, tmp_path), **blind(tmp_path), timeout_s=240)
    assert ended.returncode == 0, ended.stderr
    found = tools.newest(tmp_path / "ws")
    step, tables, seen = step_of(found)
    assert seen.all_osds_sampled, tools.rows(found, "caveat")
    assert seen.osd_cpu_us_per_op is not None
    assert seen.osd_cpu_us_per_op > 0
    assert seen.device_utilization is not None
    assert {name for use in seen.devices for name in use.role.split()} == {f"osd.{n}" for n in str(step.osds).split()}
    # Three copies, and what BlueStore writes besides.
    assert seen.write_amplification is not None
    assert 3 < seen.write_amplification < 60
    # It runs under this machine's kernel, so its processors are this machine's, and are told once.
    assert seen.nodes == ()
    assert seen.osd_cores_here is not None
    assert seen.osd_cores_here > 0
    assert {row["host"] for row in tables["process_sample"].to_pylist() if row["process"].startswith("osd.")} == {
        socket.gethostname()
    }
    facts = from_table(EnvironmentFact, found.tables()["environment"])
    clock = {f.name: f.value for f in facts if f.subject == f"node {socket.gethostname()}" and f.moment == "before"}
    # It is the same clock.
    assert clock[SAME_MACHINE] == HERE
    assert abs(int(clock["clock_offset_ns"])) <= int(clock["clock_error_ns"]) + 1000
    assert not [row for row in tools.rows(found, "caveat") if row["code"] == "node_not_sampled"]
    tools.wait_for(lambda: not machine.sessions(), what="the connections to end")
    # The same from raw answers alone.
    before = sorted(map(str, found.tables()["process_sample"].to_pylist()))
    again = cluster.bathy("runs", "reparse", found.id, "-w", str(tmp_path / "ws"))
    assert again.returncode == 0, again.stderr
    assert sorted(map(str, tools.newest(tmp_path / "ws").tables()["process_sample"].to_pylist())) == before


def test_a_machine_that_dies_in_a_step_costs_only_its_own_figures(
    cluster: Any, machine: Machine, tmp_path: Path, tools: Any
) -> None:
    said = tmp_path / "said"
    process = cluster.start(*arguments(cluster, machine, tmp_path), stderr=said, **blind(tmp_path))
    try:
        tools.wait_for(lambda: tools.fio_of(process.pid) and "[1/1" in said.read_text(), what="the load", timeout_s=200)
        sessions = machine.sessions()
        assert sessions
        machine.daemon.terminate()
        machine.daemon.wait()
        for pid in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        assert process.wait(timeout=120) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()
    found = tools.newest(tmp_path / "ws")
    step, _, seen = step_of(found)
    assert step.status == "done"
    assert seen.iops > 0
    assert seen.host_cpu_ratio is not None
    assert (seen.osd_cpu_us_per_op, seen.device_utilization, seen.write_amplification) == (None, None, None)
    texts = [row["text"] for row in tools.rows(found, "caveat") if row["code"] == "node_not_sampled"]
    assert any(text.startswith(f"{socket.gethostname()} has no processor and device figures") for text in texts)


def test_figures_over_ssh_are_those_of_this_machine(cluster: Any, machine: Machine, tools: Any) -> None:
    """One load, sampled both ways at the same time."""
    here, host = cluster.target, LocalHost()
    access = SshAccess(config=str(machine.config), names={socket.gethostname(): "lab-node"})
    there = Target(name="there", conf=here.conf, keyring=here.keyring, client=here.client, root=here.root, ssh=access)
    with cluster.session() as session, contextlib.ExitStack() as stack:
        stack.callback(host.leave_nodes)
        local = look_at(host, session, here)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bathyscope.recording.look.local_daemons", lambda *_: ())
            remote = look_at(host, session, there)
        # Other labs on this machine may have OSDs of the same numbers.
        pids = sorted((d.name, d.pid) for node in remote.scope.nodes for d in node.daemons)
        assert pids == sorted((d.name, d.pid) for d in here.daemons if d.name.startswith("osd."))
        found, _ = sample_twice(host, session, here, local, remote)
    must_agree(found, ("osd.0", "osd.1", "osd.2"))
