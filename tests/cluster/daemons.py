"""Daemons of a lab that a test kills and starts again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from bathyscope.host import outliving
from bathyscope.host.process import ProcessIdentity
from bathyscope.lab import daemons, journal, state, throttle


def kill(cluster: Any, daemon: str, signal_number: int = signal.SIGKILL) -> None:
    """Signal a daemon and wait until it has gone."""
    (identity,) = [found.identity for found in state.load(cluster.name).daemons() if found.name == daemon]
    # What ends in good order writes out what it has, and the disk may be busy.
    assert outliving.end_all([identity], timeout_s=60, signal_number=signal_number) == []


def start(cluster: Any, daemon: str) -> None:
    """Start a daemon of a lab again, as the lab did."""
    lab = state.load(cluster.name)

    def throttled(identity: ProcessIdentity) -> None:
        if lab.record.cgroup is not None and daemon.startswith("osd."):
            throttle.join(Path(lab.record.cgroup), identity.pid)

    daemons.start(daemon, lab.layout, journal.Journal(lab.layout.journal), root=lab.record.root, before=throttled)
