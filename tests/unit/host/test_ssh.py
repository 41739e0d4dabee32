"""Other machines over ssh: a program in ssh's place runs the command here, and misbehaves on demand."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bathyscope.commands.targets import ssh_access
from bathyscope.errors import UsageError
from bathyscope.host import Completed, NodeAnswer, NodeRequest, node_sampler
from bathyscope.host.local import LocalHost
from bathyscope.host.ssh import NO_CONNECTION, ssh_argv
from bathyscope.recording.collect import to_raw
from bathyscope.sources.node_clock import clock_of
from bathyscope.spec import SshAccess

# Its own process id, which becomes the sampler's by exec, is left under the name of the machine.
_SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
echo $$ > "{directory}/$2.pid"
case $2 in
  refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
  silent) exec sleep 600 ;;
  endless) exec cat /dev/zero ;;
  noisy) echo "Welcome to noisy"; echo ;;
  liar) echo "bathy node sampler 1"; read size; head -c "$size" > /dev/null; read asked; exec cat "{directory}/lie" ;;
  shifted) PATH="{directory}/shifted:$PATH" ;;
esac
exec sh -c "$3"
"""
# What is run there sees a clock that is 1.5 s ahead.
_SHIFTED = """#!/bin/sh
exec /usr/bin/python3 -I -c "import time; t = time.time; time.time = lambda: t() + 1.5; $3"
"""
ACCESS = SshAccess()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHost]:
    (tmp_path / "shifted").mkdir()
    for name, text in (("ssh", _SSH.replace("{directory}", str(tmp_path))), ("shifted/python3", _SHIFTED)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = LocalHost()
    yield found
    found.leave_nodes()


def question(node: str, *paths: str, timeout_s: float = 60.0) -> NodeRequest:
    return NodeRequest(f"proc-{node}", ssh_argv(ACCESS, node), {"paths": list(paths)}, timeout_s)


def said(answer: NodeAnswer) -> str:
    return answer.completed.stderr.decode()


def test_files_of_a_machine_are_read_over_one_connection(host: LocalHost, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\0line\n\xff")
    asked = [question("node1", "/proc/stat", str(tmp_path / "file"), "/does/not/exist") for _ in range(3)]
    answers = host.ask_nodes(asked)
    first = Path(tmp_path / "node1.pid").read_text()
    answers += host.ask_nodes(asked[:1])
    assert Path(tmp_path / "node1.pid").read_text() == first
    for answer in answers:
        assert answer.completed.exit_code == 0
        files = dict(answer.files)
        assert set(files) == {"/proc/stat", str(tmp_path / "file")}
        assert files[str(tmp_path / "file")] == b"\0line\n\xff"
        # All that is used of /proc/stat: what the machine did, and how many processors it has.
        assert re.fullmatch(rb"cpu  [\d ]+\n(cpu\d+ \n)+", files["/proc/stat"])
        assert json.loads(answer.completed.stdout)["page_bytes"] == os.sysconf("SC_PAGE_SIZE")


def test_processes_of_a_name_are_found_with_the_data_that_they_hold(host: LocalHost, tmp_path: Path) -> None:
    name = Path("/proc/self/comm").read_text().strip()
    for data in ("mine", "another"):
        (tmp_path / data).mkdir()
        (tmp_path / data / "ceph_fsid").write_text(data)
    beside = [str(tmp_path / data / "ceph_fsid") for data in ("mine", "another")]
    request = NodeRequest("x", ssh_argv(ACCESS, "node1"), {"daemons": name, "beside": beside}, 60.0)
    opened = os.open(tmp_path / "mine", os.O_RDONLY | os.O_DIRECTORY)
    try:
        (answer,) = host.ask_nodes([request])
    finally:
        os.close(opened)
    own = f"/proc/{os.getpid()}"
    paths = {path for path, _ in answer.files}
    assert {f"{own}/stat", f"{own}/cmdline", f"{own}/cgroup", "/proc/sys/kernel/hostname"} <= paths
    held = [content for path, content in answer.files if path.startswith(f"{own}/root")]
    assert held == [b"mine"]
    assert dict(answer.files)[f"{own}/cmdline"] == Path(f"{own}/cmdline").read_bytes()


def test_a_clock_that_is_shifted_is_found_within_its_error(host: LocalHost) -> None:
    # On a busy machine the fastest of many is still a good one.
    answers = host.ask_nodes([question("shifted") for _ in range(60)] + [question("node1") for _ in range(60)])
    for answers_of, shift_ns in ((answers[:60], 1_500_000_000), (answers[60:], 0)):
        clock = clock_of(to_raw(answer.completed) for answer in answers_of)
        assert clock is not None
        assert clock.error_ns <= 5_000_000
        assert abs(clock.offset_ns - shift_ns) <= clock.error_ns + 1000


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("refused", "Connection refused"),
        ("endless", "what answers there is not the sampler"),
    ],
)
def test_a_machine_that_cannot_be_reached_costs_only_its_own_answer(host: LocalHost, node: str, why: str) -> None:
    bad, good = host.ask_nodes([question(node, "/proc/stat"), question("noisy", "/proc/stat")])
    assert bad.completed.exit_code == NO_CONNECTION
    assert why in said(bad)
    assert good.completed.exit_code == 0
    # It is not connected to again at once, and says so again.
    (again,) = host.ask_nodes([question(node)])
    assert said(again) == said(bad)


def test_who_does_not_answer_is_waited_for_once(host: LocalHost) -> None:
    host.ask_nodes([question("node1")])
    first = host.ask_nodes([question("silent", timeout_s=0.5), question("node1", "/proc/stat")])
    assert said(first[0]) == "no answer within 0.5 s"
    for _ in range(3):
        silent, good = host.ask_nodes([question("silent"), question("node1", "/proc/stat")])
        assert said(silent) == "it does not answer"
        assert good.completed.exit_code == 0


def test_a_late_answer_is_dropped_and_the_machine_is_asked_again(host: LocalHost, tmp_path: Path) -> None:
    host.ask_nodes([question("node1")])
    sampler = int((tmp_path / "node1.pid").read_text())
    os.kill(sampler, signal.SIGSTOP)
    (late,) = host.ask_nodes([question("node1", "/proc/stat", timeout_s=0.2)])
    assert late.completed.exit_code == NO_CONNECTION
    os.kill(sampler, signal.SIGCONT)
    for _ in range(1000):
        (answer,) = host.ask_nodes([question("node1", "/proc/diskstats")])
        if answer.completed.exit_code == 0:
            break
        time.sleep(0.02)
    assert [path for path, _ in answer.files] == ["/proc/diskstats"]


def test_a_connection_that_dies_is_a_failed_answer(host: LocalHost, tmp_path: Path) -> None:
    asked = [question("node1", "/proc/stat"), question("node2", "/proc/stat")]
    assert [answer.completed.exit_code for answer in host.ask_nodes(asked)] == [0, 0]
    os.kill(int((tmp_path / "node1.pid").read_text()), signal.SIGKILL)
    for _ in range(3):
        bad, good = host.ask_nodes(asked)
        assert (bad.completed.exit_code, good.completed.exit_code) == (NO_CONNECTION, 0)
        assert said(bad) == "the connection was lost"


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (b"{}\n", "its answer is not understood"),
        (b"[1, 2]\n", "its answer is not understood"),
        (b'{"id": 1, "files": [["/x", -1]]}\n', "its answer is larger"),
        (b'{"id": 1, "files": [["/x", 99999999999999]]}\n', "its answer is larger"),
        (b'{"id": 7, "files": []}\n', "it answers what was not asked"),
        (b'{"id": 1, "files": []}\nmore', "it answers what was not asked"),
        (b'{"id": 1, "files": [["/x", 9]]}\nshort', "the connection was lost"),
        (b"x" * 3_000_000, "its answer has no end"),
        (b"[" * 100_000 + b"\n", "its answer is not understood"),
    ],
)
def test_what_is_no_answer_ends_the_connection(host: LocalHost, tmp_path: Path, lie: bytes, why: str) -> None:
    (tmp_path / "lie").write_bytes(lie)
    bad, good = host.ask_nodes([question("liar"), question("node1")])
    assert why in said(bad)
    assert (bad.completed.exit_code, good.completed.exit_code) == (NO_CONNECTION, 0)


def test_a_hundred_machines_are_asked_side_by_side(host: LocalHost) -> None:
    asked = [question(f"node{number}", "/proc/stat", "/proc/diskstats") for number in range(100)]
    rounds = [host.ask_nodes(asked) for _ in range(4)]
    for answers in rounds:
        assert [answer.completed.request for answer in answers] == asked
        assert all(answer.completed.exit_code == 0 and len(answer.files) == 2 for answer in answers)
    # All were under way at the same time: the last question went out before the first answer was taken.
    times: list[Completed] = [answer.completed for answer in rounds[-1]]
    assert max(c.started_ns for c in times) <= max(c.ended_ns for c in times)
    assert min(c.ended_ns for c in times) > max(c.started_ns for c in times)


def test_nothing_is_left_when_the_machines_are_left(host: LocalHost, tmp_path: Path) -> None:
    host.ask_nodes([question("node1"), question("silent", timeout_s=0.2)])
    pids = [int((tmp_path / f"{node}.pid").read_text()) for node in ("node1", "silent")]
    host.leave_nodes()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_the_command_is_the_operators_ssh_and_never_a_shell_string_of_names() -> None:
    access = SshAccess(user="root", config="/c", names={"a": "10.0.0.1"}, sudo=True)
    argv = ssh_argv(access, "a")
    assert argv[:3] == ("ssh", "-F", "/c")
    assert "BatchMode=yes" in argv
    assert argv[-3:-1] == ("--", "10.0.0.1")
    assert argv[-1].startswith("exec sudo -n python3 -I -c ")
    assert ssh_argv(ACCESS, "a")[-1] == ssh_argv(SshAccess(user="x", config="y"), "b")[-1]


def test_the_sampler_is_for_old_pythons_too() -> None:
    tree = ast.parse(inspect.getsource(node_sampler), feature_version=(3, 6))
    newer = ("list", "dict", "tuple", "set")
    assert not [
        node for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in newer
    ]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"user": "root", "config": None, "names": [], "sudo": False},
        {"user": "-oX@", "config": None, "names": [], "sudo": False},
        {"user": None, "config": None, "names": [], "sudo": True},
        {"user": "@", "config": None, "names": ["a=-oProxyCommand=x"], "sudo": False},
        {"user": "@", "config": None, "names": ["a"], "sudo": False},
        {"user": "@", "config": Path("/does/not/exist"), "names": [], "sudo": False},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ssh_access(**options)  # type: ignore[arg-type]
