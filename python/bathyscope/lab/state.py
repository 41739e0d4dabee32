"""What a lab is: the record in its directory, and the target that the measuring parts take.

`lab.json` says what was asked for and what came of it; the journal says which resources exist. The record is
replaced by rename, so a reader finds the old or the new one. Nothing in this module changes a lab.
"""

from __future__ import annotations

import dataclasses
import os
from ipaddress import IPv4Network
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from bathyscope import files
from bathyscope.cache.config import Places
from bathyscope.errors import FormatVersionError, LabError, UsageError
from bathyscope.fields import load_json
from bathyscope.host.local import LocalHost
from bathyscope.host.process import ProcessIdentity, is_alive
from bathyscope.lab import guests, journal, network, nodes, simdisk, throttle
from bathyscope.lab.layout import Layout, labs_directory
from bathyscope.lab.spec import LabSpec, Use, check_name, is_name
from bathyscope.spec import BluefsDevice, DaemonTarget, DeviceLimit, DiskTarget, Model, Target

FORMAT_VERSION = 1
Status = Literal["starting", "running"]
CACHE = "bathyd"
"""What the journal calls the daemons of caches."""

_DAMAGED_HINT = "`bathy lab down` removes the lab by its journal"
_UNTHROTTLED = ("throttle_removed", "The devices are not slowed down: a process that fills images has made them quick.")


class LabDevice(Model):
    """One emulated device: one of an OSD's, or the spare of a class (osd_id None). `device` None: a plain file.

    Its data is in `backing`; `simulated` is the file of the simulated disk that serves them, if one does.
    """

    osd_id: int | None
    use: Use = "block"
    device_class: str
    node: str | None
    backing: str
    uuid: str
    simulated: str | None = None
    device: str | None = None
    limit: DeviceLimit | None = None

    @property
    def name(self) -> str:
        """What a user calls it: osd.2, osd.2.db, or for a spare its class."""
        if self.osd_id is None:
            return self.device_class
        return f"osd.{self.osd_id}" if self.use == "block" else f"osd.{self.osd_id}.{self.use}"

    @property
    def file(self) -> str:
        """The file that the device is made of."""
        return self.simulated or self.backing

    @property
    def disk_name(self) -> str | None:
        """Name of the simulated disk."""
        return Path(self.simulated).name if self.simulated else None

    @property
    def path(self) -> str:
        """Path to do I/O on."""
        return self.device or self.file


class LabRecord(Model):
    """The content of lab.json."""

    format_version: int = FORMAT_VERSION
    name: str
    directory: str
    created_ns: int
    status: Status
    spec: LabSpec
    fsid: str
    ports: tuple[int, ...]
    release: str
    root: str | None = None
    accelerator: guests.Accelerator | None = None
    devices: tuple[LabDevice, ...] = ()
    cgroup: str | None = None
    cgroup_version: throttle.Version | None = None
    network: IPv4Network | None = None
    caveats: tuple[tuple[str, str], ...] = ()

    @property
    def address(self) -> str:
        """Address of the monitor."""
        return network.machine_address(self.network) if self.network else "127.0.0.1"

    @property
    def s3_endpoint(self) -> str | None:
        """Where the object gateway answers; None without one."""
        return f"http://{self.address}:{self.ports[2]}" if self.spec.rgw else None

    @property
    def nodes(self) -> dict[str, str]:
        """Address of each node; none where nodes are names only."""
        if self.network is None:
            return {}
        return {node: network.node_address(self.network, node) for node in self.spec.node_names}


@dataclasses.dataclass(frozen=True, slots=True)
class DaemonState:
    """A daemon of the lab, whether its process still runs, and an OSD's devices: of its data, block.db, block.wal."""

    name: str
    identity: ProcessIdentity
    alive: bool
    device: LabDevice | None
    bluefs_devices: tuple[LabDevice, ...] = ()

    @property
    def kind(self) -> str:
        """What it is: mon, osd, …"""
        return self.name.partition(".")[0]

    @property
    def node(self) -> str | None:
        """The node that it belongs to."""
        if self.kind == nodes.PROCESS:
            return self.name.partition(".")[2]
        return self.device.node if self.device else None


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

    @property
    def disk_control(self) -> Path | None:
        """Control socket of the lab's simulated disks, None when it has none."""
        return self.layout.disk_control if any(device.simulated for device in self.record.devices) else None

    def daemons(self) -> list[DaemonState]:
        """Return every daemon with its latest process, mon first, OSDs by number."""
        latest, states = dict(self.resources.processes), []
        for name in sorted(latest, key=_order):
            devices = [device for device in self.record.devices if name == f"osd.{device.osd_id}"]
            data = next((device for device in devices if device.use == "block"), None)
            bluefs = tuple(device for device in devices if device.use != "block")
            states.append(DaemonState(name, latest[name], is_alive(LocalHost(), latest[name]), data, bluefs))
        return states

    def target(self) -> Target:
        """Return what `bathy bench` measures. Raises LabError when the lab is not up."""
        record = self.record
        if record.status != "running":
            raise LabError(
                f"the lab '{self.name}' is not up ({record.status})", hint=f"bathy lab down --name {self.name}"
            )
        daemons = []
        for daemon in self.daemons():
            if daemon.kind in (nodes.PROCESS, guests.PROCESS):
                continue
            device = daemon.device
            daemons.append(
                DaemonTarget(
                    name=daemon.name,
                    pid=daemon.identity.pid,
                    start_ticks=daemon.identity.start_ticks,
                    host=(device.node if device else None) or "localhost",
                    device=Path(device.device).name if device and device.device else None,
                    device_class=device.device_class if device else None,
                    simulated=device.disk_name if device else None,
                    limit=device.limit if device else None,
                    bluefs_devices=tuple(
                        BluefsDevice(
                            use=bluefs_device.use,
                            device=Path(bluefs_device.device).name,
                            device_class=bluefs_device.device_class,
                            simulated=bluefs_device.disk_name,
                            limit=bluefs_device.limit,
                        )
                        for bluefs_device in daemon.bluefs_devices
                        if bluefs_device.device is not None and bluefs_device.use != "block"
                    ),
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
            disk_control=str(self.disk_control) if self.disk_control else None,
            cache_sockets=tuple(str(Places(self.layout.caches).socket(osd)) for osd in self.cached()),
            caveats=self.caveats(),
        )

    def cached(self) -> dict[str, ProcessIdentity]:
        """Return the process of the cache of each OSD ("osd.3") that has one now."""
        return {
            f"osd.{daemon.name.partition('.')[2]}": daemon.identity
            for daemon in self.daemons()
            if daemon.kind == CACHE and daemon.alive
        }

    def caveats(self) -> tuple[tuple[str, str], ...]:
        """Return (code, sentence) of what a reader of the lab's results must know."""
        caveats = list(self.record.caveats)
        if self.layout.unthrottled.exists():
            caveats.append(_UNTHROTTLED)
        if faults := self.node_faults():
            named = ", ".join(f"{node}: {fault}" for node, fault in faults.items())
            caveats.append(("node_faults", f"Nodes had faults that were asked for, or have died: {named}."))
        return tuple(caveats)

    def node_faults(self) -> dict[str, Literal["down", "partition"]]:
        """Return which nodes are down or cut off, as the kernel has it."""
        faults: dict[str, Literal["down", "partition"]] = {}
        for daemon in self.daemons():
            if daemon.kind == nodes.PROCESS and daemon.node is not None:
                if not daemon.alive:
                    faults[daemon.node] = "down"
                elif not network.is_up(network.cable_name(self.record.fsid, daemon.node)):
                    faults[daemon.node] = "partition"
        return faults

    @property
    def ssh_config(self) -> Path:
        """The configuration of ssh with which the nodes' names lead to them. Raises UsageError when there are none."""
        if not self.record.nodes:
            raise UsageError(
                f"the lab '{self.name}' has no nodes to reach over ssh",
                hint="without --ssh all of it is sampled on this machine; `bathy lab up --nodes 3` makes nodes",
            )
        return self.layout.ssh_config

    def _disk(self, device: LabDevice) -> DiskTarget:
        return DiskTarget(
            path=device.path,
            device=Path(device.device).name if device.device else None,
            size_bytes=Path(device.backing).stat().st_size,
            simulated=device.disk_name,
            cgroup=self.record.cgroup if device.limit else None,
            limit=device.limit,
            destructive=True,
        )


def _order(name: str) -> tuple[int, int, str]:
    kind, _, rest = name.partition(".")
    return (
        (simdisk.PROCESS, nodes.PROCESS, "mon", "mgr", "bathyd", "osd", "mds", "rgw", guests.PROCESS).index(kind),
        int(rest) if rest.isdecimal() else 0,
        rest,
    )


def write_record(layout: Layout, record: LabRecord) -> None:
    """Replace lab.json. Raises OSError."""
    files.write_file(layout.record, (record.model_dump_json(indent=2) + "\n").encode())


def read_record(layout: Layout) -> LabRecord | None:
    """Return the content of lab.json, None when there is none.

    Raises FormatVersionError, LabError, and UntrustedError when another user owns it or can write it.
    """
    try:
        text = files.read_own(layout.record)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LabError(f"{layout.record} cannot be read: {error.strerror}") from error
    try:
        version = load_json(text)["format_version"]
        if version > FORMAT_VERSION:
            raise FormatVersionError(f"the lab in {layout.directory} was made by a newer version of bathyscope")
        record = LabRecord.model_validate_json(text)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise LabError(f"{layout.record} is damaged", hint=_DAMAGED_HINT) from error
    if record.directory != str(layout.directory) or record.root not in (None, str(layout.root)):
        raise LabError(f"{layout.record} is about another directory, {record.directory}", hint=_DAMAGED_HINT)
    return record


def must_be_lab(layout: Layout, name: str) -> None:
    """Raise LabError unless the directory has the mark of the lab `name`: only then is anything in it ended or deleted.

    Raises UntrustedError when another user owns the directory or the mark, or can write it.
    """
    files.own_directory(layout.directory)
    try:
        os.close(files.open_own(layout.mark(name)))
    except OSError as error:
        raise LabError(
            f"{layout.directory} has no mark of the lab '{name}'; nothing in it is touched",
            hint=f"look at it; then remove what you do not need, and the entry {labs_directory() / name}",
        ) from error


def directory_of(name: str) -> Path:
    """Return the directory of the lab `name`, whether or not it exists. Raises UsageError for a bad name."""
    check_name(name)
    # The kernel knows mounts and backing files by their resolved paths.
    return Path(os.path.realpath(labs_directory() / name))


def load(name: str) -> LabState:
    """Return the lab `name`. Raises LabError when there is none, UntrustedError when it is not ours alone."""
    layout = Layout(directory_of(name))
    if layout.directory.exists():
        files.own_directory(layout.directory)
    record = read_record(layout)
    if record is None and layout.directory.exists():
        raise LabError(
            f"the lab '{name}' has no {layout.record.name}: it was not finished, or it is damaged",
            hint=f"bathy lab down --name {name}",
        )
    if record is None:
        names = ", ".join(list_labs()) or "none"
        raise LabError(
            f"there is no lab '{name}'",
            hint=f"labs on this machine: {names}; start one with: bathy lab up --name {name}",
        )
    if record.name != name:
        raise LabError(f"the lab in {layout.directory} is '{record.name}', not '{name}'", hint=_DAMAGED_HINT)
    return LabState(record, layout, journal.read(layout.journal))


def fresh_target(target: Target) -> Target:
    """Return a lab's target as the lab is now: its daemons may have been restarted. What the user named stays.

    Targets that are no lab stay as they are.
    """
    if target.kind != "lab":
        return target
    fresh = load(target.name).target()
    named = {device_class: disk for device_class, disk in target.disks.items() if disk.named}
    options = (
        *("client", "keyring", "pool", "clients", "ceph_prefix", "client_host", "ssh", "prometheus"),
        *("libvirt", "kubectl", "attachments"),
    )
    kept = {name: getattr(target, name) for name in options}
    return fresh.model_copy(update={**kept, "disks": {**fresh.disks, **named}})


def list_labs() -> list[str]:
    """Return the names of all labs of this user, finished or not. Raises UntrustedError."""
    try:
        return sorted(entry.name for entry in files.own_directory(labs_directory()).iterdir() if is_name(entry.name))
    except FileNotFoundError:
        return []


def locked(layout: Layout) -> files.FileLock:
    """Return the lock to hold while the lab is changed; taking it raises BusyError when another process holds it."""
    hint = "wait for that process, or interrupt it: it then takes the lab down"
    return files.FileLock(layout.lock, f"the lab in {layout.directory}", hint=hint)
