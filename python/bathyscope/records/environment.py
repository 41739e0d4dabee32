"""What the run stood on: facts about hosts, daemons, pools and settings, before and after."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.base import Record, column


@dataclasses.dataclass(frozen=True, slots=True)
class EnvironmentFact(Record):
    """One row per fact: a setting, a version, a property. `moment` tells before from after the run."""

    TABLE: ClassVar[str] = "environment"

    run_id: str = column("run that the row belongs to")
    moment: str = column("before or after the run")
    subject: str = column("what it is about: cluster, osd.3, pool rbd, host node1, bathy")
    name: str = column("name of the fact: ceph_version, governor, size, health, …")
    value: str = column("value as text")


@dataclasses.dataclass(frozen=True, slots=True)
class Placement(Record):
    """One row per OSD of the cluster: where it stands and on what it stores."""

    TABLE: ClassVar[str] = "placement"

    run_id: str = column("run that the row belongs to")
    osd: int = column("number of the OSD")
    host: str = column("CRUSH host bucket")
    device_class: str = column("CRUSH device class")
    device: str | None = column("kernel name of the data device as the OSD reports it")
    rotational: bool | None = column("whether the OSD believes its device to spin")
    size_bytes: int | None = column("capacity", unit="bytes")
    objectstore: str | None = column("bluestore or filestore")
    ceph_version: str | None = column("version that the OSD reports")
    osd_pid: int | None = column("process on this machine, if it is here")
