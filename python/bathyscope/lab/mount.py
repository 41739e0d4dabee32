"""Bind mounts for a lab of another release, and the check that nothing is mounted below a directory."""

from __future__ import annotations

import re
import time
from pathlib import Path

from bathyscope.errors import LabError
from bathyscope.lab.run import last_line, system

MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")


def bind(source: Path, target: Path) -> None:
    """Bind `source` at `target`, privately: mounts below the one never show below the other. Raises LabError."""
    for arguments in (["--bind", str(source), str(target)], ["--make-private", str(target)]):
        result = system("mount", *arguments)
        if result.exit_code != 0:
            raise LabError(f"{source} cannot be mounted at {target}: {last_line(result.stderr)}")


def below(directory: Path, mountinfo: Path = MOUNTINFO) -> list[Path]:
    """Return the mount points at or below `directory`, the deepest and latest first."""
    found = []
    prefix = str(directory)
    for line in mountinfo.read_bytes().splitlines():
        path = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), line.split()[4]).decode(errors="surrogateescape")
        if path == prefix or path.startswith(prefix + "/"):
            found.append(Path(path))
    # Later lines are mounted later; a later mount may lie over or inside an earlier one.
    return found[::-1]


def unmount_below(directory: Path, timeout_s: float = 5.0) -> list[Path]:
    """Unmount everything at or below `directory`; return what is still mounted.

    What is busy after `timeout_s` (a shell that sits inside) is detached lazily.
    """
    deadline = time.monotonic() + timeout_s
    while mounts := below(directory):
        lazy = time.monotonic() > deadline
        for path in mounts:
            system("umount", *(["--lazy"] if lazy else []), str(path))
        if lazy:
            return below(directory)
        if below(directory):
            time.sleep(0.1)
    return []
