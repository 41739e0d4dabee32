"""Making a lab's devices quick for a while, so that images are filled at the machine's speed.

Filling is not what is measured, and a disk of 232 requests a second needs a minute for each GiB. Before limits and
simulated times are switched off, a marker with the identity of this process is written. If the process is killed, the
marker stays, and every target of the lab carries a caveat, until `restore_throttle` slows the devices down again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bathyscope import files
from bathyscope.errors import BusyError
from bathyscope.fields import load_json
from bathyscope.host.local import LocalHost
from bathyscope.host.process import NOBODY, ProcessIdentity, identity_of, is_alive
from bathyscope.lab import loop, simdisk, throttle

if TYPE_CHECKING:
    from bathyscope.lab.state import LabState


@contextlib.contextmanager
def unthrottled(state: LabState) -> Iterator[None]:
    """Make every device of the lab quick, and slow it down at the end. Does nothing where none is slowed down.

    Raises BusyError when another process that runs has made them quick.
    """
    if state.record.cgroup is None and state.disk_control is None:
        yield
        return
    restore_throttle(state)
    identity = identity_of(LocalHost(), os.getpid()) or NOBODY
    try:
        files.create_file(state.layout.unthrottled, json.dumps(dataclasses.asdict(identity)).encode())
    except FileExistsError:
        raise _busy(state) from None
    try:
        if state.record.cgroup is not None:
            throttle.clear(Path(state.record.cgroup))
        _set_timing(state, on=False)
        yield
    finally:
        _put_back(state)


def restore_throttle(state: LabState) -> None:
    """Put back the limits that a process which was killed has removed.

    Raises BusyError while the process that removed them runs: what is measured now is not what the lab says.
    """
    owner = _owner(state.layout.unthrottled)
    if owner is None:
        return
    if is_alive(LocalHost(), owner):
        raise _busy(state)
    _put_back(state)


def _busy(state: LabState) -> BusyError:
    return BusyError(
        f"another process fills images in the lab '{state.name}', without its device limits",
        hint="wait until that process has ended",
    )


def _owner(marker: Path) -> ProcessIdentity | None:
    """Return who wrote the marker; NOBODY when it is damaged; None without a marker."""
    try:
        return ProcessIdentity.of(load_json(files.read_own(marker)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return NOBODY


def _set_timing(state: LabState, *, on: bool) -> None:
    if state.disk_control is not None:
        simdisk.ask(state.disk_control, op="timing", on=on)


def _put_back(state: LabState) -> None:
    record = state.record
    if record.cgroup is not None and record.cgroup_version is not None:
        for device in record.devices:
            if device.device is not None and device.limit is not None:
                number = loop.device_number(device.device)
                throttle.limit(Path(record.cgroup), record.cgroup_version, number, device.limit)
    _set_timing(state, on=True)
    state.layout.unthrottled.unlink(missing_ok=True)
