"""What a lab shall be: validated, frozen, independent of the machine it will run on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field

from bathyscope.errors import UsageError
from bathyscope.lab.profile import BUILT_IN, DeviceProfile
from bathyscope.spec import Model

Release = Literal["pacific", "reef", "tentacle"]
RELEASES: tuple[Release, ...] = ("pacific", "reef", "tentacle")

DEFAULT_NAME = "default"
DEFAULT_OSD_SIZE_BYTES = 8 << 30
SPARE_SIZE_BYTES = 2 << 30
MAX_OSDS = 64
# BlueStore needs room for its label, its RocksDB and the allocator's own units; mkfs fails well above zero.
MIN_OSD_SIZE_BYTES = 1 << 30

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_GROUP = re.compile(r"[a-z][a-z0-9_-]{0,15}(?:=[0-9]{1,4})?")


class DeviceGroup(Model):
    """So many OSDs on devices of one class."""

    device_class: str
    count: int = Field(gt=0, le=MAX_OSDS)


class LabSpec(Model):
    """A disposable cluster. `release` None means the Ceph that is installed on this machine."""

    name: str = DEFAULT_NAME
    devices: tuple[DeviceGroup, ...] = (DeviceGroup(device_class="hdd", count=3),)
    replicas: int | None = Field(default=None, ge=1, le=10, description="None: 3, or fewer when a class has fewer OSDs")
    nodes: int | None = Field(default=None, ge=1, le=MAX_OSDS, description="None: 3, or one for each OSD if fewer")
    fs: bool = False
    release: Release | None = None
    directory: Path | None = None
    osd_size_bytes: int = Field(default=DEFAULT_OSD_SIZE_BYTES, ge=MIN_OSD_SIZE_BYTES)
    preallocate: bool = False
    throttle: bool = True
    profiles: dict[str, DeviceProfile] = Field(default_factory=lambda: dict(BUILT_IN))

    @property
    def osd_count(self) -> int:
        """Number of OSDs over all classes."""
        return sum(group.count for group in self.devices)

    @property
    def replica_count(self) -> int:
        """Replicas of a pool: as asked, else 3 or as many as the smallest class can hold."""
        return self.replicas if self.replicas is not None else min(3, *(group.count for group in self.devices), 3)

    @property
    def node_count(self) -> int:
        """Number of CRUSH host buckets."""
        return self.nodes if self.nodes is not None else min(3, self.osd_count)

    def osds(self) -> list[tuple[int, str, str]]:
        """Return (OSD id, device class, node) of every OSD.

        Each class is dealt over the nodes on its own, so that every node has every class if there are enough OSDs.
        """
        result: list[tuple[int, str, str]] = []
        for group in self.devices:
            for index in range(group.count):
                result.append((len(result), group.device_class, f"node{index % self.node_count + 1}"))
        return result

    @property
    def failure_domain(self) -> Literal["host", "osd"]:
        """`host` when every class has OSDs on at least as many nodes as there are replicas, else `osd`."""
        nodes_by_class: dict[str, set[str]] = {}
        for _, device_class, node in self.osds():
            nodes_by_class.setdefault(device_class, set()).add(node)
        return "host" if all(len(nodes) >= self.replica_count for nodes in nodes_by_class.values()) else "osd"

    def check(self) -> None:
        """Raise UsageError when the parts do not fit together."""
        check_name(self.name)
        classes = [group.device_class for group in self.devices]
        if not classes:
            raise UsageError("a lab needs at least one device", hint="--device hdd=3")
        if len(set(classes)) != len(classes):
            raise UsageError("a device class is given twice", hint="write each class once: --device hdd=3")
        for device_class in classes:
            if device_class not in self.profiles:
                raise UsageError(
                    f"no profile for the device class '{device_class}'",
                    hint=f"use {', '.join(sorted(self.profiles))}, or describe it in a --profile file",
                )
        if self.osd_count > MAX_OSDS:
            raise UsageError(f"{self.osd_count} OSDs are more than a lab can hold ({MAX_OSDS})")
        if self.node_count > self.osd_count:
            raise UsageError(
                f"{self.node_count} nodes for {self.osd_count} OSDs: a node would be empty", hint="lower --nodes"
            )
        smallest = min(group.count for group in self.devices)
        if self.replica_count > smallest:
            raise UsageError(
                f"{self.replica_count} replicas do not fit on {smallest} OSDs of one class",
                hint=f"add devices, or use --replicas {smallest}",
            )


def check_name(name: str) -> None:
    """Raise UsageError unless `name` can name a lab: it becomes a directory and a control group."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name a lab", hint="lower-case letters, digits and '-', at most 31, not '-' first"
        )


def parse_device(text: str) -> DeviceGroup:
    """Return the group that `text` ("hdd=3") asks for. Raises UsageError."""
    device_class, separator, count = text.partition("=")
    if not _GROUP.fullmatch(text):
        raise UsageError(f"'{text}' is not a device group", hint="write CLASS=COUNT: --device hdd=3 --device ssd=3")
    number = int(count) if separator else 1
    if not 1 <= number <= MAX_OSDS:
        raise UsageError(f"'{text}': a lab holds 1 to {MAX_OSDS} OSDs")
    return DeviceGroup(device_class=device_class, count=number)
