"""What this machine must have for a lab of its own release, and what it may use."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from bathyscope.errors import EnvironmentError_, LabError
from bathyscope.host import Completed
from bathyscope.host.local import find_program
from bathyscope.lab import journal, loop
from bathyscope.lab.run import system

# Debian's and Ubuntu's package for each program that is not in one of its own name.
_PACKAGES = {
    **dict.fromkeys(("ceph", "rbd", "ceph-authtool", "monmaptool", "radosgw-admin"), "ceph-common"),
    **dict.fromkeys(("ssh", "ssh-keygen"), "openssh-client"),
    **dict.fromkeys(("unshare", "nsenter"), "util-linux"),
    "sshd": "openssh-server",
    "qemu-system-x86_64": "qemu-system-x86",
    "block-rbd.so": "qemu-block-extra",
    "mke2fs": "e2fsprogs",
    **dict.fromkeys(("apt-get", "apt-cache"), "apt"),
    "dpkg-deb": "dpkg",
    "ldd": "libc-bin",
    "ip": "iproute2",
}
_MAJOR_TO_RELEASE = {16: "pacific", 17: "quincy", 18: "reef", 19: "squid", 20: "tentacle"}


def require(programs: Sequence[str]) -> None:
    """Raise EnvironmentError_ with the apt command when one of `programs` is not installed."""
    if absent := missing(programs):
        raise EnvironmentError_(f"not installed: {', '.join(absent)}", hint=install_command(absent))


def missing(programs: Sequence[str]) -> list[str]:
    """Return those of `programs` that are not installed."""
    return [program for program in programs if find_program(program) is None]


def install_command(programs: Sequence[str]) -> str:
    """Return the command that installs `programs`."""
    packages = sorted({_PACKAGES.get(program, program) for program in programs})
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install --no-install-recommends {' '.join(packages)}"


def require_aio(needed: int, limits: Path = Path("/proc/sys/fs")) -> None:
    """Raise EnvironmentError_ when the kernel has no room for so many asynchronous I/Os more; of no limit, return."""
    try:
        most, taken = (int((limits / name).read_text()) for name in ("aio-max-nr", "aio-nr"))
    except (OSError, ValueError):
        return
    if taken + needed > most:
        raise EnvironmentError_(
            f"the OSDs need {needed} asynchronous I/Os of the kernel, and of its {most} are {taken} taken",
            hint="sysctl -w fs.aio-max-nr=1048576, which is what Ceph's packages set, or fewer devices",
        )


def installed_major() -> int | None:
    """Return the major version of the installed Ceph (16), None when there is none. Raises EnvironmentError_."""
    if find_program("ceph-osd") is None:
        return None
    major = major_of(system("ceph-osd", "--version"))
    if major is None:
        raise EnvironmentError_("ceph-osd does not report its version", hint="reinstall the package ceph-osd")
    return major


def major_of(answer: Completed) -> int | None:
    """Return the major version that `ceph-osd --version` reported."""
    match = re.search(rb"ceph version (\d+)\.", answer.stdout)
    return int(match[1]) if match else None


def release_name(major: int) -> str:
    """Return the release's name of a major version ("pacific"), or the number itself when it is unknown."""
    return _MAJOR_TO_RELEASE.get(major, str(major))


def try_loop_device(probe: Path, book: journal.Journal) -> bool:
    """Make a loop device over a small file at `probe`, remove both, and return whether it could be made.

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
