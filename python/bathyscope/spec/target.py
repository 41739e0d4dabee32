"""What is measured: a cluster (or only a disk), and what of it lies on this machine.

A target is plain data. `bathy lab` writes one for each lab; for a real cluster it comes from options or
from a YAML file.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """Base of every spec: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DeviceLimit(Model):
    """The throttle of an emulated device. None means unlimited."""

    read_iops: float | None = None
    write_iops: float | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None


class DiskTarget(Model):
    """A file or block device for the disk layer. `destructive` says that its content may be overwritten."""

    path: str
    device: str | None = Field(default=None, description="kernel name (loop3), for /proc/diskstats")
    size_bytes: int | None = None
    cgroup: str | None = Field(default=None, description="control group whose throttle applies to the device")
    limit: DeviceLimit | None = None
    destructive: bool = False


class DaemonTarget(Model):
    """A daemon on this machine: its process, and for an OSD its device."""

    name: str = Field(description="osd.3, mon.a, mgr.x, mds.a")
    pid: int
    start_ticks: int = Field(description="field 22 of /proc/PID/stat: tells the process from a later one")
    host: str = "localhost"
    device: str | None = None
    device_class: str | None = None
    limit: DeviceLimit | None = None


class FioClient(Model):
    """A machine that runs `fio --server`."""

    host: str
    port: int = 8765


class Target(Model):
    """A cluster to measure."""

    name: str
    kind: Literal["lab", "cluster", "disk"] = "cluster"
    conf: str | None = Field(default=None, description="ceph.conf, as the tools inside `root` see it")
    keyring: str | None = None
    client: str = Field(default="client.admin", description="cephx entity")
    root: str | None = Field(default=None, description="root file system whose Ceph tools are used")
    disks: dict[str, DiskTarget] = Field(default_factory=dict, description="device class → disk for the disk layer")
    daemons: tuple[DaemonTarget, ...] = ()
    clients: tuple[FioClient, ...] = Field(default=(), description="remote load generators; empty: this machine")
    caveats: tuple[tuple[str, str], ...] = Field(
        default=(), description="(code, sentence) that hold for every result on this target"
    )
