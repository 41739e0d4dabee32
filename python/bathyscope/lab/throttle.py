"""Throttles by control group: version 1 (blkio) or 2 (io.max), one group for each lab.

A rule is for a device, so one group with a rule for each device serves all OSDs of the lab, and the load of the disk
layer that joins it. Rules are written after the cluster is up: making and starting an OSD is not what is measured.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Literal, get_args

from bathyscope.spec import DeviceLimit

Version = Literal["cgroup1", "cgroup2"]

CGROUP = Path("/sys/fs/cgroup")
_RULES_V1 = {
    "read_iops": "blkio.throttle.read_iops_device",
    "write_iops": "blkio.throttle.write_iops_device",
    "read_bytes_per_s": "blkio.throttle.read_bps_device",
    "write_bytes_per_s": "blkio.throttle.write_bps_device",
}
_KEYS_V2 = {"read_iops": "riops", "write_iops": "wiops", "read_bytes_per_s": "rbps", "write_bytes_per_s": "wbps"}


def available(root: Path = CGROUP) -> Version | None:
    """Return which kind of I/O throttle this process can use, or None."""
    blkio = root / "blkio"
    if (blkio / "blkio.throttle.read_iops_device").exists() and os.access(blkio, os.W_OK):
        return "cgroup1"
    with contextlib.suppress(OSError):
        if "io" in (root / "cgroup.controllers").read_text(encoding="ascii").split() and os.access(root, os.W_OK):
            return "cgroup2"
    return None


def group_name(lab: str, fsid: str) -> str:
    """Return the name of the group of a lab, whose cluster is `fsid`."""
    return f"bathyscope-{lab}-{fsid[:8]}"


def group_path(name: str, version: Version, root: Path = CGROUP) -> Path:
    """Return the path of the group `name`."""
    return (root / "blkio" if version == "cgroup1" else root) / name


def is_group_of(lab: str, path: Path) -> bool:
    """Return whether a lab of this name can have made the group."""
    fsid = path.name.rpartition("-")[2]
    group = group_name(lab, fsid)
    return len(fsid) == 8 and path in [group_path(group, version) for version in get_args(Version)]


def create(path: Path, version: Version) -> None:
    """Make the group. Raises OSError where this process may not (a container, a delegated tree)."""
    if version == "cgroup2":
        controllers = path.parent / "cgroup.subtree_control"
        if "io" not in controllers.read_text(encoding="ascii").split():
            controllers.write_text("+io", encoding="ascii")
    path.mkdir(exist_ok=True)


def join(path: Path, pid: int) -> None:
    """Put the process into the group. Raises OSError."""
    (path / "cgroup.procs").write_text(str(pid), encoding="ascii")


def limit(path: Path, version: Version, device_number: str, rule: DeviceLimit) -> None:
    """Limit the device ("7:3") for the members of the group; None in the rule means unlimited."""
    if version == "cgroup1":
        for field, file in _RULES_V1.items():
            value = getattr(rule, field)
            (path / file).write_text(f"{device_number} {0 if value is None else round(value)}\n", encoding="ascii")
        return
    parts = []
    for field, key in _KEYS_V2.items():
        value = getattr(rule, field)
        parts.append(f"{key}={'max' if value is None else round(value)}")
    (path / "io.max").write_text(f"{device_number} {' '.join(parts)}\n", encoding="ascii")


def clear(path: Path) -> None:
    """Remove every limit of the group, so that what its members have queued is done at once."""
    files = [path / file for file in _RULES_V1.values()] + [path / "io.max"]
    for file in files:
        with contextlib.suppress(OSError):
            for line in file.read_text(encoding="ascii").splitlines():
                number = line.split()[0]
                cleared = f"{number} rbps=max wbps=max riops=max wiops=max" if file.name == "io.max" else f"{number} 0"
                file.write_text(cleared + "\n", encoding="ascii")


def remove(path: Path, timeout_s: float = 5.0) -> bool:
    """Remove the group and return True; members that are not the lab's are moved to its parent, not signalled."""
    deadline = time.monotonic() + timeout_s
    while path.exists():
        with contextlib.suppress(OSError):
            for pid in (path / "cgroup.procs").read_text(encoding="ascii").split():
                with contextlib.suppress(OSError):
                    join(path.parent, int(pid))
        with contextlib.suppress(OSError):
            path.rmdir()
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
