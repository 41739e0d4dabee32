"""What this machine must have for a lab of its own release, and what it may use."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bathyscope.errors import EnvironmentError_
from bathyscope.host.local import find_program
from bathyscope.lab.run import system

# Debian's and Ubuntu's package for each program.
_PACKAGES = {
    "ceph-mon": "ceph-mon",
    "ceph-mgr": "ceph-mgr",
    "ceph-osd": "ceph-osd",
    "ceph-mds": "ceph-mds",
    "ceph": "ceph-common",
    "ceph-authtool": "ceph-common",
    "monmaptool": "ceph-common",
    "losetup": "mount",
    "mount": "mount",
    "mmdebstrap": "mmdebstrap",
}
_MAJOR_TO_RELEASE = {16: "pacific", 17: "quincy", 18: "reef", 19: "squid", 20: "tentacle"}


def require(programs: list[str]) -> None:
    """Raise EnvironmentError_ with the apt command when one of `programs` is not installed."""
    missing = [program for program in programs if find_program(program) is None]
    if missing:
        packages = sorted({_PACKAGES.get(program, program) for program in missing})
        sudo = "" if os.geteuid() == 0 else "sudo "
        raise EnvironmentError_(
            f"not installed: {', '.join(missing)}",
            hint=f"{sudo}apt-get install --no-install-recommends {' '.join(packages)}",
        )


def installed_major() -> int | None:
    """Return the major version of the installed Ceph (16), None when there is none. Raises EnvironmentError_."""
    if find_program("ceph-osd") is None:
        return None
    result = system("ceph-osd", "--version")
    match = re.search(rb"ceph version (\d+)\.", result.stdout)
    if match is None:
        raise EnvironmentError_("ceph-osd does not tell its version", hint="reinstall the package ceph-osd")
    return int(match[1])


def release_name(major: int) -> str:
    """Return the release's name of a major version ("pacific"), or the number itself when it is unknown."""
    return _MAJOR_TO_RELEASE.get(major, str(major))


def loop_devices_usable() -> bool:
    """Whether this process can make loop devices."""
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and find_program("losetup") is not None
