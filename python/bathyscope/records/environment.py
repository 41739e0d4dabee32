"""The environment of a run: facts about hosts, daemons, pools and settings, before and after."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.base import Record, column

# Name of the fact that a node runs under the kernel of the machine that it names: a node of a lab does.
SAME_MACHINE = "machine"


@dataclasses.dataclass(frozen=True, slots=True)
class EnvironmentFact(Record):
    """One row per fact: a setting, a version, a property. `moment`: before or after the run."""

    TABLE: ClassVar[str] = "environment"

    moment: str = column("before or after the run")
    subject: str = column("what it is about: cluster, osd.3, pool rbd, host node1, bathy")
    name: str = column("name of the fact: ceph_version, governor, size, health, …")
    value: str = column("value as text")


@dataclasses.dataclass(frozen=True, slots=True)
class Placement(Record):
    """One row per OSD of the cluster: where it stands and on what it stores."""

    TABLE: ClassVar[str] = "placement"

    osd: int = column("number of the OSD")
    host: str = column("CRUSH host bucket")
    device_class: str = column("CRUSH device class")
    device: str | None = column("kernel name of the data device as the OSD reports it")
    rotational: bool | None = column("whether the OSD reports its device as rotational")
    size_bytes: int | None = column("capacity", unit="bytes")
    objectstore: str | None = column("bluestore or filestore")
    ceph_version: str | None = column("version that the OSD reports")
    osd_pid: int | None = column("process on this machine, if it is here")
    primary_affinity: float | None = column(
        "how willingly CRUSH's choice of it becomes a primary: 1 as usual, 0 only when no other can", optional=True
    )
    reweight: float | None = column(
        "share of its CRUSH weight that counts: 1 as usual, 0 when it is out", optional=True
    )
    crush_weight: float | None = column("CRUSH weight, usually the capacity in TiB", optional=True)
    pg_count: int | None = column("placement groups of all pools that it holds, replicas included", optional=True)
    machine: str | None = column("name of its machine, as the OSD reports it", optional=True)
    data_path: str | None = column("its data directory, as the OSD reports it", optional=True)
    addresses: str | None = column(
        "addresses that are this machine's alone, by which a client on it is known: 10.0.0.1 fd00::1", optional=True
    )
