"""Files that exist whole or not at all, one lock for all, and where our own files lie."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bathyscope import files
from bathyscope.errors import BusyError, UntrustedError


def test_create_file_refuses_to_replace_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "marker"
    files.create_file(path, b"first")
    with pytest.raises(FileExistsError):
        files.create_file(path, b"second")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_of_many_that_create_the_same_file_one_succeeds_and_its_content_is_complete(tmp_path: Path) -> None:
    path, made = tmp_path / "marker", []

    def create(number: int) -> None:
        try:
            files.create_file(path, str(number).encode() * 1000)
        except FileExistsError:
            return
        made.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert path.read_bytes() == str(made[0]).encode() * 1000


_HOLDER = """
import sys
from pathlib import Path
from bathyscope.files import FileLock
with FileLock(Path(sys.argv[1]), "the thing"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_refused_or_waited_for_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert files.is_held(path)
    lock = files.FileLock(path, "the thing", hint="go away")
    with pytest.raises(BusyError, match=f"the thing is in use by process {holder.pid}") as caught, lock:
        pass
    assert caught.value.hint == "go away"
    taken: list[float] = []

    def wait() -> None:
        with files.FileLock(path, "the thing", wait=True):
            taken.append(time.monotonic())

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.2)
    assert taken == []
    holder.kill()
    holder.communicate()
    waiting.join(10)
    assert len(taken) == 1
    assert not files.is_held(path)


def test_directories_follow_the_xdg_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert files.state_directory() == Path("/s/bathyscope")
    assert files.cache_directory() == Path.home() / ".cache/bathyscope"


def test_a_directory_is_locked_for_all_others_and_nothing_is_left(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    files.own_directory(directory, make=True)
    with files.directory_lock(directory):
        descriptor = os.open(directory, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
    with files.directory_lock(directory):
        assert list(directory.iterdir()) == []


def test_what_a_user_names_is_read_through_links_and_pipes_and_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"a: 1")
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"a: 2",))
    writer.start()
    assert files.read_bounded(tmp_path / "link") == b"a: 1"
    assert files.read_bounded(tmp_path / "pipe") == b"a: 2"
    writer.join()
    with pytest.raises(OSError, match="it is larger than 64 MiB"):
        files.read_bounded(Path("/dev/zero"))


def test_of_a_log_its_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (1 << 20) + b"earlier\nlast\n")
    assert len(files.read_end(log)) == 64 << 10
    assert files.read_end(log, (1 << 20) + 8) == b"last\n"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UntrustedError):
        files.read_end(tmp_path / "pipe")
