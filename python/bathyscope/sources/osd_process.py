"""Which OSD a process is, and whether it is one of the cluster that is looked at: on this machine and on others."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from bathyscope.spec import DaemonTarget


def osd_of(argv: Sequence[str]) -> int | None:
    """Return the number of the OSD that a command line starts: `-i 3`, `--id=3`, `-n osd.3`; None when it is none."""
    for index, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if not equals:
            value = argv[index + 1] if index + 1 < len(argv) else ""
        if option in ("-i", "--id") and value.isdigit():
            return int(value)
        if option in ("-n", "--name") and value.startswith("osd.") and value[4:].isdigit():
            return int(value[4:])
    return None


def is_of_cluster(fsid: str, about: Sequence[str], written: str, *, machine: str, reported: str, alone: bool) -> bool:
    """Return whether an OSD's process is one of the cluster `fsid`.

    Its control group or command line (`about`) has the cluster's fsid in containers, its data directory has it
    `written` (for root). Where neither says so, the OSD must report the name of its `machine`, and no other process
    there may have its number (`alone`).
    """
    if any(fsid in text for text in about):
        return True
    return written == fsid if written else alone and bool(machine) and reported == machine


def only_ones(daemons: Iterable[DaemonTarget]) -> tuple[DaemonTarget, ...]:
    """Return the daemons that were found once. Another cluster's process in the same file system sees the same data."""
    every = list(daemons)
    counts = collections.Counter(daemon.name for daemon in every)
    return tuple(daemon for daemon in every if counts[daemon.name] == 1)
