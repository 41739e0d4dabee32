"""Loop devices with direct I/O over files: block devices that a control group can throttle.

A device is known by its backing file, which is unique to the lab; the kernel's table (/sys/block/loop*) is the truth.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from bathyscope.errors import LabError
from bathyscope.fields import last_line
from bathyscope.lab.run import system

SYS_BLOCK = Path("/sys/block")
# The request that detaches a loop device: linux/loop.h.
_LOOP_CLR_FD = 0x4C01


def create_file(path: Path, size_bytes: int, *, preallocate: bool) -> None:
    """Make a file of `size_bytes`: sparse, or with its space reserved. Raises OSError."""
    with path.open("xb") as file:
        file.truncate(size_bytes)
        if preallocate:
            os.posix_fallocate(file.fileno(), 0, size_bytes)


def attach(backing: Path) -> str:
    """Attach a loop device to `backing` and return its path ("/dev/loop3"). Raises LabError.

    With direct I/O, or buffered where the file system beneath has no direct I/O; `direct` tells which it is.
    """
    for direct_io in ("on", "off"):
        for attempt in range(3):
            result = system("losetup", "--find", "--show", f"--direct-io={direct_io}", str(backing))
            if result.exit_code == 0:
                return result.stdout.decode().strip()
            # Two programs that look for a free device at the same time can choose the same one.
            time.sleep(0.05 * (attempt + 1))
            # A refusal of direct I/O can leave the device attached.
            detach(str(backing))
    raise LabError(
        f"no loop device for {backing}: {last_line(result.stderr)}", hint="try --no-emulation: it uses plain files"
    )


def find(backing: str, sys_block: Path = SYS_BLOCK) -> list[str]:
    """Return the loop devices whose backing file is `backing` (also if it was deleted meanwhile)."""
    names = [entry.name for entry in sys_block.glob("loop[0-9]*")]
    return [f"/dev/{name}" for name in names if _is_of(name, backing, sys_block)]


def _is_of(name: str, backing: str, sys_block: Path = SYS_BLOCK) -> bool:
    try:
        file = (sys_block / name / "loop" / "backing_file").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    return file.rstrip("\n").removesuffix(" (deleted)") == backing


def detach(backing: str, timeout_s: float = 10.0) -> list[str]:
    """Detach every loop device of `backing`; return those that are still attached after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        devices = find(backing)
        if not devices or time.monotonic() > deadline:
            return devices
        for device in devices:
            _detach_if_of(device, backing)
        # While someone has the device open, the kernel detaches it at the last close.
        if find(backing):
            time.sleep(0.1)


def _detach_if_of(device: str, backing: str) -> None:
    """Detach the device if it is that of `backing` still.

    Numbers of devices are given anew: between a look at the kernel's table and `losetup --detach`, the last user can
    give a device back, and another lab can get it, which would lose its disk. While we have the device open, its file
    does not change: it is detached if it was the one that we found.
    """
    try:
        opened = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if _is_of(Path(device).name, backing):
            with contextlib.suppress(OSError):
                fcntl.ioctl(opened, _LOOP_CLR_FD)
    finally:
        os.close(opened)


def direct(device: str) -> bool:
    """Whether the device does direct I/O on its backing file, that is, bypasses this machine's page cache."""
    path = SYS_BLOCK / Path(device).name / "loop" / "dio"
    return path.read_text(encoding="ascii").strip() == "1"


def set_rotational(device: str, *, rotational: bool) -> None:
    """Tell the kernel, and so Ceph, whether the device rotates: BlueStore and the OSD choose defaults by it."""
    path = SYS_BLOCK / Path(device).name / "queue" / "rotational"
    path.write_text("1" if rotational else "0", encoding="ascii")


def device_number(device: str) -> str:
    """Return "major:minor" of a block device."""
    number = os.stat(device).st_rdev  # noqa: PTH116 - one call, no Path needed
    return f"{os.major(number)}:{os.minor(number)}"
