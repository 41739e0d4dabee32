"""A process is known by its pid, its start time and the boot: a reused pid or a reboot is another process."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bathyscope.host.fake import FakeHost
from bathyscope.host.local import LocalHost
from bathyscope.host.process import NOBODY, ProcessIdentity, identity_of, is_alive


def host_with(pid: int, *, start_ticks: int = 777, state: str = "S", boot_id: str = "boot-a") -> FakeHost:
    fields = " ".join([state, *["0"] * 18, str(start_ticks), *["0"] * 20])
    return FakeHost(
        files={
            f"/proc/{pid}/stat": f"{pid} (a) b (c) {fields}\n".encode(),
            "/proc/sys/kernel/random/boot_id": f"{boot_id}\n".encode(),
        }
    )


def test_start_time_is_read_behind_a_hostile_command_name() -> None:
    assert identity_of(host_with(42), 42) == ProcessIdentity(42, 777, "boot-a")


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_zombie_is_not_alive(state: str) -> None:
    assert identity_of(host_with(42, state=state), 42) is None


def test_no_process_is_no_identity() -> None:
    assert identity_of(host_with(42), 1) is None
    assert not is_alive(LocalHost(), NOBODY)


@pytest.mark.parametrize("stat", [b"", b"42 (x) S 1 2\n", b"42 x S\n", b"42 (x) " + b"S " * 30])
def test_a_stat_file_that_is_no_stat_file_is_no_identity(stat: bytes) -> None:
    host = host_with(42)
    host.files["/proc/42/stat"] = stat
    assert identity_of(host, 42) is None


def test_a_reused_pid_and_another_boot_are_another_process() -> None:
    remembered = identity_of(host_with(42), 42)
    assert remembered is not None
    assert is_alive(host_with(42), remembered)
    assert not is_alive(host_with(42, start_ticks=778), remembered)
    assert not is_alive(host_with(42, boot_id="boot-b"), remembered)
    assert not is_alive(host_with(43), remembered)


def test_this_process_lives_and_a_child_that_ended_does_not() -> None:
    own = identity_of(LocalHost(), os.getpid())
    assert own is not None
    assert is_alive(LocalHost(), own)
    child = subprocess.Popen(["sleep", "60"])
    identity = identity_of(LocalHost(), child.pid)
    assert identity is not None
    child.kill()
    child.wait()
    assert not is_alive(LocalHost(), identity)


_FIRST_THREAD_ENDS = """
import ctypes, fcntl, sys, threading
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
threading.Thread(target=sys.stdin.read).start()
print("locked", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", _FIRST_THREAD_ENDS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        stat = Path(f"/proc/{child.pid}/stat")
        deadline = time.monotonic() + 30
        while b") Z " not in stat.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert b") Z " in stat.read_bytes()
        with path.open("w") as other, pytest.raises(BlockingIOError):
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        identity = identity_of(LocalHost(), child.pid)
        assert identity is not None
        assert is_alive(LocalHost(), identity)
        child.kill()
        child.wait()
        assert not is_alive(LocalHost(), identity)
