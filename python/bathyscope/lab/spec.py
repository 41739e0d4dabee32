"""What a lab is to be: frozen values, independent of the machine it will run on; `LabSpec.check` validates them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from bathyscope.errors import UsageError
from bathyscope.lab.profile import BUILT_IN, DeviceProfile
from bathyscope.spec import Model
from bathyscope.units import format_bytes

Release = Literal["pacific", "reef", "tentacle"]
# What a device is to its OSD: its data, or what BlueFS keeps elsewhere (RocksDB, its write-ahead log).
Use = Literal["block", "db", "wal"]
RELEASES: tuple[Release, ...] = get_args(Release)

DEFAULT_NAME = "default"
# The pool for images.
RBD_POOL = "rbd"
DEFAULT_OSD_SIZE_BYTES = 8 << 30
DEFAULT_VM_SIZE_BYTES = 1 << 30
MAX_OSDS = 64
MAX_VMS = 16
MAX_REPLICAS = 10
# BlueStore needs room for its label, its RocksDB and the allocator's own units; mkfs fails well above zero.
MIN_OSD_SIZE_BYTES = 1 << 30
DEFAULT_DB_SIZE_BYTES = 1 << 30
DEFAULT_WAL_SIZE_BYTES = 512 << 20
# Four memtables of RocksDB as Ceph sets it are 256 MiB of write-ahead log.
MIN_BLUEFS_SIZE_BYTES = 256 << 20
# An object of an image; QEMU refuses an empty disk.
MIN_VM_SIZE_BYTES = 4 << 20

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_EC = re.compile(r"([0-9]{1,2})\+([0-9]{1,2})")
_GROUP = re.compile(r"[a-z][a-z0-9_-]{0,15}(?:=[0-9]{1,4})?")


class DeviceGroup(Model):
    """So many OSDs on devices of one class."""

    device_class: str
    count: int = Field(gt=0, le=MAX_OSDS)


class ErasureCode(Model):
    """Objects are cut into `k` chunks, to which `m` of code are added."""

    k: int = Field(ge=2, le=MAX_OSDS)
    m: int = Field(ge=1, le=MAX_OSDS)

    @property
    def chunks(self) -> int:
        """How many OSDs an object lies on."""
        return self.k + self.m

    @property
    def name(self) -> str:
        """Name of the profile and of the pool."""
        return f"ec-{self.k}-{self.m}"


class LabSpec(Model):
    """A disposable cluster. `release` None means the Ceph that is installed on this machine."""

    name: str = DEFAULT_NAME
    devices: tuple[DeviceGroup, ...] = (DeviceGroup(device_class="hdd", count=3),)
    db: str | None = Field(default=None, description="device class of block.db of the OSDs of other classes")
    db_size_bytes: int = DEFAULT_DB_SIZE_BYTES
    wal: str | None = Field(default=None, description="device class of block.wal of the OSDs of other classes")
    wal_size_bytes: int = DEFAULT_WAL_SIZE_BYTES
    replicas: int | None = Field(default=None, description="None: 3, or fewer when a class has fewer OSDs")
    ec: ErasureCode | None = Field(default=None, description="of a pool beside the replicated ones")
    nodes: int | None = Field(
        default=None,
        description="nodes with namespaces of their own; None and 0: names only, 3 or one for each OSD if fewer",
    )
    fs: bool = False
    rgw: bool = False
    vms: int = Field(default=0, description="guests: small virtual machines with an RBD image each")
    vm_size_bytes: int = DEFAULT_VM_SIZE_BYTES
    release: Release | None = None
    directory: Path | None = None
    osd_size_bytes: int = DEFAULT_OSD_SIZE_BYTES
    preallocate: bool = False
    emulate: bool = Field(default=True, description="False: devices are plain files, as quick as this machine")
    profiles: dict[str, DeviceProfile] = Field(default_factory=lambda: dict(BUILT_IN))

    @property
    def osd_count(self) -> int:
        """Number of OSDs over all classes."""
        return sum(group.count for group in self.devices)

    @property
    def replica_count(self) -> int:
        """Replicas of a pool: as asked, else 3 or as many as the smallest class can hold."""
        return self.replicas if self.replicas is not None else min([3, *(group.count for group in self.devices)])

    @property
    def node_count(self) -> int:
        """Number of nodes, which are CRUSH host buckets."""
        return self.nodes or min(3, self.osd_count)

    @property
    def node_names(self) -> list[str]:
        """Names of the nodes."""
        return [f"node{number}" for number in range(1, self.node_count + 1)]

    @property
    def ec_failure_domain(self) -> Literal["host", "osd"]:
        """`host` when there is a node for each chunk of an erasure-coded object, else `osd`."""
        return "host" if self.ec is not None and self.ec.chunks <= self.node_count else "osd"

    @property
    def guests(self) -> list[str]:
        """Names of the guests, which are those of their images and of their cephx clients."""
        return [f"vm{number}" for number in range(1, self.vms + 1)]

    def osds(self) -> list[tuple[int, str, str]]:
        """Return (OSD id, device class, node) of every OSD.

        Each class is dealt over the nodes on its own, so that every node has every class if there are enough OSDs.
        """
        result: list[tuple[int, str, str]] = []
        for group in self.devices:
            for index in range(group.count):
                result.append((len(result), group.device_class, self.node_names[index % self.node_count]))
        return result

    def device_classes(self, osd_class: str) -> dict[Use, str]:
        """Return the class of each device of an OSD whose data is on `osd_class`."""
        classes: dict[Use, str | None] = {"block": osd_class, "db": self.db, "wal": self.wal}
        return {
            use: name for use, name in classes.items() if name is not None and (use == "block" or name != osd_class)
        }

    def size_bytes(self, use: Use) -> int:
        """Return the size of a device."""
        return {"block": self.osd_size_bytes, "db": self.db_size_bytes, "wal": self.wal_size_bytes}[use]

    @property
    def failure_domain(self) -> Literal["host", "osd"]:
        """`host` when every class has OSDs on at least as many nodes as there are replicas, else `osd`."""
        nodes_by_class: dict[str, set[str]] = {}
        for _, device_class, node in self.osds():
            nodes_by_class.setdefault(device_class, set()).add(node)
        return "host" if all(len(nodes) >= self.replica_count for nodes in nodes_by_class.values()) else "osd"

    def check(self) -> None:
        """Raise UsageError when a value is out of range or the parts do not fit together."""
        check_name(self.name)
        self._check_classes()
        self._check_counts()
        self._check_bluefs()

    def _check_classes(self) -> None:
        classes = [group.device_class for group in self.devices]
        if not classes:
            raise UsageError("no device was given, and a lab needs one", hint="--device hdd=3")
        if len(set(classes)) != len(classes):
            twice = next(name for name in classes if classes.count(name) > 1)
            raise UsageError(
                f"the device class '{twice}' was given twice",
                hint="give each class once: --device hdd=3 --device ssd=3",
            )
        for device_class in (*classes, self.db, self.wal):
            if device_class is not None and device_class not in self.profiles:
                raise UsageError(
                    f"no profile for the device class '{device_class}'",
                    hint=f"use {', '.join(sorted(self.profiles))}, or describe it in a --profile file",
                )

    def _check_counts(self) -> None:
        bounds = (
            ("--replicas", self.replicas, 1, MAX_REPLICAS),
            ("--nodes", self.nodes, 0, MAX_OSDS),
            ("--vms", self.vms, 0, MAX_VMS),
        )
        for option, value, least, most in bounds:
            if value is not None and not least <= value <= most:
                raise UsageError(f"{option} must be between {least} and {most} (got {value})")
        if self.vm_size_bytes < MIN_VM_SIZE_BYTES:
            raise UsageError(
                f"--vm-size must be at least {format_bytes(MIN_VM_SIZE_BYTES)} "
                f"(got {format_bytes(self.vm_size_bytes)})",
                hint="--vm-size 1G",
            )
        if self.osd_count > MAX_OSDS:
            raise UsageError(f"a lab holds at most {MAX_OSDS} OSDs (got {self.osd_count})")
        if self.node_count > self.osd_count:
            raise UsageError(
                f"--nodes must be at most the number of OSDs, {self.osd_count} (got {self.node_count})",
                hint=f"--nodes {self.osd_count}",
            )
        smallest = min(group.count for group in self.devices)
        if self.replica_count > smallest:
            raise UsageError(
                f"--replicas must be at most the OSDs of each class, {smallest} (got {self.replica_count})",
                hint=f"add devices, or use --replicas {smallest}",
            )
        if self.ec is not None and self.ec.chunks > self.osd_count:
            raise UsageError(
                f"--ec {self.ec.k}+{self.ec.m} needs {self.ec.chunks} OSDs, one for each chunk (got {self.osd_count})",
                hint=f"--device hdd={self.ec.chunks}, or fewer chunks: --ec 2+1",
            )

    def _check_bluefs(self) -> None:
        if self.osd_size_bytes < MIN_OSD_SIZE_BYTES:
            raise UsageError(
                f"--osd-size must be at least {format_bytes(MIN_OSD_SIZE_BYTES)} "
                f"(got {format_bytes(self.osd_size_bytes)}): BlueStore does not fit",
                hint="--osd-size 8G",
            )
        for use, device_class, size_bytes in (
            ("db", self.db, self.db_size_bytes),
            ("wal", self.wal, self.wal_size_bytes),
        ):
            if {group.device_class for group in self.devices} == {device_class}:
                raise UsageError(
                    f"--{use} must be another class than that of all OSDs, {device_class}",
                    hint=f"--device hdd=3 --{use} ssd",
                )
            if size_bytes < MIN_BLUEFS_SIZE_BYTES:
                raise UsageError(
                    f"--{use}-size must be at least {format_bytes(MIN_BLUEFS_SIZE_BYTES)} "
                    f"(got {format_bytes(size_bytes)})",
                    hint=f"--{use}-size 1G",
                )


def is_name(name: str) -> bool:
    """Return whether `name` can name a lab: it becomes a directory and a control group."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Raise UsageError unless `name` can name a lab."""
    if not is_name(name):
        raise UsageError(
            f"'{name}' is not a name for a lab",
            hint="use at most 31 lower-case letters, digits and '-'; the first is not '-'",
        )


def parse_device(text: str) -> DeviceGroup:
    """Return the devices that `text` ("hdd=3") names. Raises UsageError."""
    device_class, separator, count = text.partition("=")
    if not _GROUP.fullmatch(text):
        raise UsageError(f"--device must be CLASS=COUNT (got '{text}')", hint="--device hdd=3 --device ssd=3")
    number = int(count) if separator else 1
    if not 1 <= number <= MAX_OSDS:
        raise UsageError(f"--device {text}: the count must be between 1 and {MAX_OSDS} (got {number})")
    return DeviceGroup(device_class=device_class, count=number)


def parse_ec(text: str | None) -> ErasureCode | None:
    """Return the erasure code that `text` ("4+2") names, None for none. Raises UsageError."""
    if text is None:
        return None
    match = _EC.fullmatch(text)
    if match is None or not 2 <= int(match[1]) <= MAX_OSDS or not 1 <= int(match[2]) <= MAX_OSDS:
        raise UsageError(
            f"--ec must be K+M, 2 to {MAX_OSDS} data chunks and 1 to {MAX_OSDS} coding chunks (got '{text}')",
            hint="--ec 2+1",
        )
    return ErasureCode(k=int(match[1]), m=int(match[2]))


def parse_release(text: str | None) -> Release | None:
    """Return the release that `text` names, None for the installed one. Raises UsageError."""
    if text is None:
        return None
    for release in RELEASES:
        if release == text:
            return release
    raise UsageError(f"--release must be one of {', '.join(RELEASES)} (got '{text}')")
