"""What waits for a FUSE file system that does not answer is ended without it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.waiting import until

from bathyscope.lab import mount, simdisk

pytestmark = pytest.mark.skipif(not simdisk.possible(), reason="FUSE needs root and /dev/fuse")


@pytest.fixture
def hanging_disk(tmp_path: Path) -> Iterator[Path]:
    """Serve a disk that takes requests and never answers."""
    (tmp_path / "disks").mkdir()
    backing = tmp_path / "disk"
    with backing.open("wb") as file:
        file.truncate(64 << 20)
    control = tmp_path / "control.sock"
    disk = simdisk.Disk("hdd-7200-4t", 64 << 20, backing)
    with subprocess.Popen(simdisk.command(tmp_path / "disks", control, [disk])) as server:
        try:
            until(lambda: server.poll() is None and simdisk.answers(control))
            simdisk.ask(control, op="fault", disk="disk", add="hang")
            yield tmp_path / "disks"
        finally:
            mount.abort(tmp_path / "disks")
            server.kill()
    assert mount.unmount_below(tmp_path / "disks") == []


def test_a_killed_process_that_waits_for_a_disk_ends_when_the_file_system_is_aborted(hanging_disk: Path) -> None:
    path = str(hanging_disk / "disk")
    read = f"import os; file = os.open({path!r}, os.O_RDONLY); print(flush=True); os.read(file, 4096)"
    with subprocess.Popen(["python3", "-c", read], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        time.sleep(0.5)
        os.kill(reader.pid, signal.SIGKILL)
        time.sleep(0.3)
        assert reader.poll() is None
        mount.abort(hanging_disk)
        assert reader.wait(timeout=20) == -signal.SIGKILL
