"""Lifting a lab's throttle for a while, so that images are filled at the machine's speed before they are measured.

Filling is not what is measured, and a disk of 232 requests a second needs a minute for each GiB. A marker with the
identity of the process that lifts is written first: if that process is killed, the next `LabState.target` finds the
marker without its owner and puts the limits back, so that no result is taken on a device that is not what it says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bathyscope.errors import LabError
from bathyscope.lab import loop, process, throttle

if TYPE_CHECKING:
    from bathyscope.lab.state import LabState


@contextlib.contextmanager
def unthrottled(state: LabState) -> Iterator[None]:
    """Lift the limits of every device of the lab, and put them back at the end. Without limits it does nothing.

    Raises LabError when another living process has lifted them.
    """
    if state.record.cgroup is None:
        yield
        return
    _claim(state)
    try:
        throttle.lift(Path(state.record.cgroup))
        yield
    finally:
        _put_back(state)


def lifted(state: LabState) -> bool:
    """Whether a living process has lifted the limits now. Limits that a dead one lifted are put back first."""
    owner = _owner(state.layout.lifted)
    if owner is None:
        return False
    if process.alive(owner):
        return True
    _put_back(state)
    return False


def _claim(state: LabState) -> None:
    own = process.read_identity(os.getpid())
    text = json.dumps(dataclasses.asdict(own) if own else {})
    for _ in range(2):
        try:
            with state.layout.lifted.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            if lifted(state):
                raise LabError(
                    f"another process fills the lab '{state.name}' at full speed", hint="wait until it is done"
                ) from None
        else:
            return
    raise LabError(f"the throttle of the lab '{state.name}' cannot be claimed")


def _owner(marker: Path) -> process.Identity | None:
    """Return who wrote the marker; an identity that is never alive when it is damaged; None without a marker."""
    try:
        fields = json.loads(marker.read_text(encoding="utf-8"))
        return process.Identity(int(fields["pid"]), int(fields["start_ticks"]), str(fields["boot_id"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return process.Identity(0, 0, "")


def _put_back(state: LabState) -> None:
    record = state.record
    if record.cgroup is not None and record.cgroup_version is not None:
        for device in record.devices:
            if device.device is not None and device.limit is not None:
                number = loop.device_number(device.device)
                throttle.limit(Path(record.cgroup), record.cgroup_version, number, device.limit)
    state.layout.lifted.unlink(missing_ok=True)
