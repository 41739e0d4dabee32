from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bathyscope.errors import UntrustedError
from bathyscope.host import outliving
from bathyscope.host.fake import FakeHost
from bathyscope.host.local import LocalHost
from bathyscope.host.process import ProcessIdentity, identity_of, is_alive


@pytest.fixture
def bystander():
    child = subprocess.Popen(["sleep", "60"])
    yield child
    child.kill()
    child.wait()


@pytest.mark.parametrize(
    ("start_ticks", "boot_id"), [(999, "boot-a"), (777, "boot-b")], ids=["reused pid", "after a reboot"]
)
def test_a_process_with_a_reused_pid_is_never_signalled(
    bystander: subprocess.Popen[bytes], start_ticks: int, boot_id: str
) -> None:
    # The journal remembers (777, boot-a); the machine now has another process under the same number.
    fields = " ".join(["S", *["0"] * 18, str(start_ticks)])
    host = FakeHost(
        files={
            f"/proc/{bystander.pid}/stat": f"{bystander.pid} (sleep) {fields}\n".encode(),
            "/proc/sys/kernel/random/boot_id": f"{boot_id}\n".encode(),
        }
    )
    assert not outliving.kill(ProcessIdentity(bystander.pid, 777, "boot-a"), host=host)
    time.sleep(0.05)
    assert bystander.poll() is None


def test_the_very_process_is_signalled(bystander: subprocess.Popen[bytes]) -> None:
    identity = identity_of(LocalHost(), bystander.pid)
    assert identity is not None
    assert outliving.kill(identity)
    assert bystander.wait(5) == -9
    assert not is_alive(LocalHost(), identity)
    assert not outliving.kill(identity)


def test_program_runs_only_after_its_identity_is_written_down(tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    seen: list[tuple[ProcessIdentity, bool]] = []

    def announce(identity: ProcessIdentity) -> None:
        time.sleep(0.2)
        seen.append((identity, proof.exists()))

    started = outliving.start(["touch", str(proof)], log=tmp_path / "log", announce=announce)
    assert started.child.wait(10) == 0
    assert seen == [(started.identity, False)]
    assert proof.exists()


def test_exec_keeps_pid_and_start_time(tmp_path: Path) -> None:
    started = outliving.start(["sleep", "60"], log=tmp_path / "log", announce=lambda _: None)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{started.identity.pid}/comm").read_text(encoding="ascii") != "sleep\n":
        assert time.monotonic() < deadline
    assert is_alive(LocalHost(), started.identity)
    assert outliving.end_all([started.identity]) == []
    assert started.child.poll() == -9


def test_when_the_tool_dies_before_writing_it_down_nothing_runs(tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom bathyscope.host import outliving\n"
        "outliving.start(['touch', sys.argv[1]], log=Path(sys.argv[2]), announce=lambda _: os.kill(os.getpid(), 9))\n"
    )
    tool = subprocess.run([sys.executable, "-c", script, str(proof), str(tmp_path / "log")], check=False, timeout=30)
    assert tool.returncode == -9
    time.sleep(0.3)
    assert not proof.exists()


def test_with_a_wrapper_its_only_child_is_the_process(tmp_path: Path) -> None:
    announced: list[ProcessIdentity] = []
    started = outliving.start(
        ["sh", "-c", "echo $$; exit 7"],
        log=tmp_path / "log",
        announce=announced.append,
        wrapper=["sh", "-c", '"$@"; exit $?', "wrapper"],
        announce_wrapper=announced.append,
    )
    assert started.child.wait(10) == 7
    assert [identity.pid for identity in announced] == [started.child.pid, started.identity.pid]
    assert started.identity.pid != started.child.pid
    assert (tmp_path / "log").read_text(encoding="utf-8") == f"{started.identity.pid}\n"


def test_a_wrapper_that_fails_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(ProcessLookupError, match="ended before"):
        outliving.start(["true"], log=tmp_path / "log", announce=lambda _: None, wrapper=["sh", "-c", "exit 1"])


def test_variables_of_another_cluster_are_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPH_ARGS", "--cluster other")
    log = tmp_path / "log"
    started = outliving.start(["env"], log=log, announce=lambda _: None, without=("CEPH_ARGS",))
    assert started.child.wait(10) == 0
    assert "CEPH_ARGS" not in log.read_text(encoding="utf-8")
    assert "PATH=" in log.read_text(encoding="utf-8")


def test_processes_that_are_gone_already_do_not_delay() -> None:
    began = time.monotonic()
    gone = ProcessIdentity(os.getpid(), 1, "another boot")
    assert outliving.end_all([gone] * 10) == []
    assert time.monotonic() - began < 1


def test_a_number_that_now_belongs_to_a_thread_is_not_signalled() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        assert not outliving.kill(ProcessIdentity(thread.native_id, 1, "boot"))
    finally:
        ended.set()
        thread.join()


def test_its_log_is_for_its_owner_and_leads_nowhere_else(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        outliving.start(["echo", "said"], log=tmp_path / "log", announce=lambda _: None).child.wait(30)
    finally:
        os.umask(old)
    assert (tmp_path / "log").read_bytes() == b"said\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with pytest.raises(UntrustedError):
        outliving.start(["echo", "more"], log=tmp_path / "link", announce=lambda _: None)
    assert (tmp_path / "log").read_bytes() == b"said\n"
