"""What a lab can leave on this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bathyscope.lab import loop, mount

# Names of this run's labs, so that control groups of other labs on the machine are not taken for ours.
PREFIX = f"t{os.getpid()}"
# Of the choice of ports, and of the lab of a study's own: files without an end.
LOCKS = (".ports.lock", ".bathy-study.lock")


# A program that was being started when its parent was killed ends itself as soon as it gets to run.
_PATIENCE_S = 5.0


def traces(home: Path) -> list[str]:
    """Return what a lab below `home` left: the same as `found`, once what is ending has ended."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := found(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def found(home: Path) -> list[str]:
    """Return every process, loop device, mount, control group and file of labs below `home`, as of now."""
    left = [f"file {path}" for path in home.rglob("*") if path.is_file() and path.name not in LOCKS]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                root = str((entry / "root").readlink())
            except OSError:
                continue
            if str(home) in words or str(home) in root:
                left.append(f"process {entry.name}: {words}")
    for device in loop.SYS_BLOCK.glob("loop*"):
        backing = device / "loop/backing_file"
        if backing.exists() and str(home) in backing.read_text(encoding="utf-8"):
            left.append(f"loop device {device.name}")
    left += [f"mount {path}" for path in mount.below(home)]
    for parent in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/blkio")):
        left += [f"control group {path}" for path in parent.glob(f"bathyscope-{PREFIX}*")]
    return left
