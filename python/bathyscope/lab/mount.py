"""Bind mounts for a lab of another release, and the check that nothing is mounted below a directory."""

from __future__ import annotations

import re
import time
from pathlib import Path

from bathyscope.errors import LabError
from bathyscope.fields import last_line
from bathyscope.lab.run import system

MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")


def bind(source: Path, target: Path) -> None:
    """Bind `source` at `target`, privately: mounts below the one never show below the other. Raises LabError."""
    for arguments in (["--bind", str(source), str(target)], ["--make-private", str(target)]):
        result = system("mount", *arguments)
        if result.exit_code != 0:
            raise LabError(f"{source} cannot be mounted at {target}: {last_line(result.stderr)}")


def abort(path: Path) -> None:
    """End all that waits for the FUSE file system at `path`, whose server is gone or does not answer.

    A request that the server has taken is waited for whatever signal comes, also by a killed process, and also by the
    server itself: it asks its own disks at its start. The file system stays mounted, and answers with errors.
    """
    system("umount", "--force", "--no-canonicalize", str(path))


def below(directory: Path, mountinfo: Path = MOUNTINFO) -> list[Path]:
    """Return the mount points at or below `directory`, the deepest and latest first."""
    points = []
    prefix = str(directory)
    for line in mountinfo.read_bytes().splitlines():
        path = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), line.split()[4]).decode(errors="surrogateescape")
        if path == prefix or path.startswith(prefix + "/"):
            points.append(Path(path))
    # Later lines are mounted later; a later mount may lie over or inside an earlier one.
    return points[::-1]


def unmount_below(directory: Path, but: Path | None = None, timeout_s: float = 5.0) -> list[Path]:
    """Unmount everything at or below `directory` except `but`; return what is still mounted.

    What is busy after `timeout_s` (a shell that sits inside) is detached lazily.
    """
    deadline = time.monotonic() + timeout_s

    def found() -> list[Path]:
        return [path for path in below(directory) if path != but]

    while mounts := found():
        lazy = time.monotonic() > deadline
        for path in mounts:
            system("umount", *(["--lazy"] if lazy else []), str(path))
        if lazy:
            return found()
        if found():
            time.sleep(0.1)
    return []
