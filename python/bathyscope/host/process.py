"""Which process is meant: a pid alone names nothing, because it is reused, and after a reboot all of them are."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from bathyscope.fields import as_int
from bathyscope.host.base import Host

BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"

_STATUS = re.compile(r"/proc/[0-9]+/status")
# proc(5): resident set size, and its peak since the process began. "kB" is KiB there.
_SIZES = {
    "resident_bytes": re.compile(rb"^VmRSS:\s+([0-9]+) kB$", re.MULTILINE),
    "resident_bytes_max": re.compile(rb"^VmHWM:\s+([0-9]+) kB$", re.MULTILINE),
}

# PID_MAX_LIMIT of the Linux kernel.
_PID_MAX = 1 << 22


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process among all that ever ran on this machine.

    `start_ticks` is field 22 of /proc/PID/stat: clock ticks since the boot that `boot_id` names.
    """

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> ProcessIdentity:
        """Return what a journal holds of it; NOBODY for a pid that no process has.

        Raises KeyError, TypeError, ValueError.
        Numbers that are no pid have meanings of their own (-1: all processes), or none.
        """
        identity = cls(as_int(entry["pid"]), as_int(entry["start_ticks"]), str(entry["boot_id"]))
        return identity if 0 < identity.pid <= _PID_MAX else NOBODY


# Identifies no process: the owner of what nobody owns.
NOBODY = ProcessIdentity(0, 0, "")


def own_program(module: str, *words: str) -> tuple[str, ...]:
    """Return the command of a program of ours. It may be root's: nothing is imported from the working directory."""
    return (sys.executable, "-P", "-m", module, *words)


def identity_of(host: Host, pid: int) -> ProcessIdentity | None:
    """Return the identity of the process that has `pid` now; None when there is none, or only a zombie.

    When its first thread has ended a process looks like a zombie, but it keeps its files and locks until the last one
    has ended, too.
    """
    try:
        stat = host.read(f"/proc/{pid}/stat")
        boot_id = host.read(BOOT_ID_PATH).decode("ascii").strip()
        # The name in parentheses may hold spaces and parentheses; the fields are counted from the last one.
        fields = stat[stat.rindex(b")") + 2 :].split()
        threads, start_ticks = int(fields[17]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
    has_ended = fields[0] in (b"Z", b"X") and threads <= 1
    return None if has_ended else ProcessIdentity(pid, start_ticks, boot_id)


def resident_memory(files: Iterable[tuple[str, bytes]]) -> dict[str, int] | None:
    """Return resident memory and its peak by the /proc/PID/status among `files`; None where it does not say."""
    for path, content in files:
        matches = {key: name.search(content) for key, name in _SIZES.items()} if _STATUS.fullmatch(path) else {}
        sizes = {key: int(match[1]) << 10 for key, match in matches.items() if match is not None}
        if len(sizes) == len(_SIZES):
            return sizes
    return None


def is_alive(host: Host, identity: ProcessIdentity) -> bool:
    """Return whether exactly this process still runs."""
    return identity_of(host, identity.pid) == identity
