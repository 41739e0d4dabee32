"""What a lab is: the record in its directory, and the target that the measuring parts take.

`lab.json` says what was asked for and what came of it; the journal says which resources exist. The record is
replaced by rename, so it is read whole or not at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from bathyscope.errors import FormatVersionError, LabError
from bathyscope.lab import journal, lifting, process, throttle
from bathyscope.lab.layout import Layout, labs_directory
from bathyscope.lab.spec import LabSpec, check_name
from bathyscope.spec import DaemonTarget, DeviceLimit, DiskTarget, Model, Target

FORMAT_VERSION = 1
Status = Literal["starting", "running"]

_LIFTED = (("throttle_lifted", "Another process has lifted the device limits for a while, to fill images."),)


class LabDevice(Model):
    """One emulated device: an OSD's, or the spare of a class (osd_id None). `device` None: a plain file."""

    osd_id: int | None
    device_class: str
    node: str | None
    backing: str
    uuid: str
    device: str | None = None
    limit: DeviceLimit | None = None

    @property
    def path(self) -> str:
        """Path to do I/O on."""
        return self.device or self.backing


class LabRecord(Model):
    """The content of lab.json."""

    format_version: int = FORMAT_VERSION
    name: str
    directory: str
    created_ns: int
    status: Status
    spec: LabSpec
    fsid: str
    ports: tuple[int, int]
    release: str
    root: str | None = None
    devices: tuple[LabDevice, ...] = ()
    cgroup: str | None = None
    cgroup_version: throttle.Version | None = None
    caveats: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DaemonState:
    """A daemon of the lab and whether its process still runs."""

    name: str
    identity: process.Identity
    alive: bool


@dataclasses.dataclass(frozen=True, slots=True)
class LabState:
    """A lab as it is on this machine now."""

    record: LabRecord
    layout: Layout
    resources: journal.Resources

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.record.name

    def daemons(self) -> list[DaemonState]:
        """Return every daemon with its latest process, mon first, OSDs by number."""
        latest = {p.name: p.identity for p in self.resources.processes}
        return [DaemonState(name, latest[name], process.alive(latest[name])) for name in sorted(latest, key=_order)]

    def target(self) -> Target:
        """Return what `bathy bench` measures. Raises LabError when the lab is not up.

        Limits that a killed process had lifted are put back.
        """
        record = self.record
        if record.status != "running":
            raise LabError(
                f"the lab '{self.name}' is not up ({record.status})", hint=f"bathy lab down --name {self.name}"
            )
        by_osd = {f"osd.{device.osd_id}": device for device in record.devices if device.osd_id is not None}
        daemons = []
        for daemon in self.daemons():
            device = by_osd.get(daemon.name)
            daemons.append(
                DaemonTarget(
                    name=daemon.name,
                    pid=daemon.identity.pid,
                    start_ticks=daemon.identity.start_ticks,
                    host=(device.node if device else None) or "localhost",
                    device=Path(device.device).name if device and device.device else None,
                    device_class=device.device_class if device else None,
                    limit=device.limit if device else None,
                )
            )
        return Target(
            name=self.name,
            kind="lab",
            conf=str(self.layout.conf),
            keyring=str(self.layout.admin_keyring),
            root=record.root,
            disks={device.device_class: self._disk(device) for device in record.devices if device.osd_id is None},
            daemons=tuple(daemons),
            caveats=record.caveats + (_LIFTED if lifting.lifted(self) else ()),
        )

    def _disk(self, device: LabDevice) -> DiskTarget:
        return DiskTarget(
            path=device.path,
            device=Path(device.device).name if device.device else None,
            size_bytes=Path(device.backing).stat().st_size,
            cgroup=self.record.cgroup if device.limit else None,
            limit=device.limit,
            destructive=True,
        )


def _order(name: str) -> tuple[int, int, str]:
    kind, _, rest = name.partition(".")
    return (("mon", "mgr", "osd", "mds").index(kind), int(rest) if rest.isdecimal() else 0, rest)


def write_record(layout: Layout, record: LabRecord) -> None:
    """Replace lab.json."""
    temporary = layout.record.with_suffix(".json.new")
    temporary.write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
    temporary.replace(layout.record)


def read_record(layout: Layout) -> LabRecord | None:
    """Return the content of lab.json, None when there is none. Raises FormatVersionError, LabError."""
    try:
        text = layout.record.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LabError(f"{layout.record} cannot be read: {error.strerror}") from error
    try:
        version = json.loads(text)["format_version"]
        if version > FORMAT_VERSION:
            raise FormatVersionError(f"the lab in {layout.directory} was made by a newer version of bathyscope")
        return LabRecord.model_validate_json(text)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise LabError(f"{layout.record} is damaged", hint="`bathy lab down` removes the lab by its journal") from error


def directory_of(name: str) -> Path:
    """Return the directory of the lab `name`, whether or not it exists. Raises UsageError for a bad name."""
    check_name(name)
    # The kernel knows mounts and backing files by their resolved paths.
    return Path(os.path.realpath(labs_directory() / name))


def load(name: str) -> LabState:
    """Return the lab `name`. Raises LabError when there is none."""
    layout = Layout(directory_of(name))
    record = read_record(layout)
    if record is None:
        known = ", ".join(list_labs()) or "none"
        raise LabError(
            f"there is no lab '{name}'",
            hint=f"labs on this machine: {known}; start one with: bathy lab up --name {name}",
        )
    return LabState(record, layout, journal.read(layout.journal))


def list_labs() -> list[str]:
    """Return the names of all labs of this user, finished or not."""
    try:
        return sorted(entry.name for entry in labs_directory().iterdir() if not entry.name.startswith("."))
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Hold the lab for a change. Raises LabError when another process holds it."""
    descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"another process is starting or stopping the lab in {layout.directory}",
                hint="wait for it, or interrupt it (Ctrl-C): it then takes the lab down",
            ) from None
        yield
    finally:
        os.close(descriptor)
