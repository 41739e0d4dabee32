"""What this machine must have for a lab of its own release, and what it may use."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bathyscope.errors import EnvironmentError_, LabError
from bathyscope.host.local import find_program
from bathyscope.lab import journal, loop
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


def loop_devices_usable(probe: Path, book: journal.Journal) -> bool:
    """Whether this process can make loop devices: tried with a small file at `probe`.

    A container's root often cannot, and no file mode or capability tells it beforehand.
    """
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists() or find_program("losetup") is None:
        return False
    loop.create_file(probe, 1 << 20, preallocate=False)
    book.loop(probe)
    try:
        loop.attach(probe)
    except LabError:
        return False
    finally:
        loop.detach(str(probe))
        probe.unlink()
    return True
