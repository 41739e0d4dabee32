"""What is measured: a cluster (or only a disk), and what of it lies on this machine.

A target is plain data. `bathy lab` writes one for each lab; for a real cluster it comes from options or
from a YAML file.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

# What may stand in ssh's command line as a host or a login name. Neither begins with a dash.
HOST_PATTERN = r"^[A-Za-z0-9_:][A-Za-z0-9_.:-]{0,254}$"
URL_PATTERN = r"^https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~/-]*)?$"
LABEL_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
# Not a host that ssh would take for an option.
LIBVIRT_PATTERN = r"^[a-z][a-z0-9+]*://([A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_/\[]\S*$"
USER_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}$"


# This machine, where a host is named.
HERE = "localhost"


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
    simulated: str | None = Field(default=None, description="name of the simulated disk that the device is")
    cgroup: str | None = Field(default=None, description="control group whose throttle applies to the device")
    limit: DeviceLimit | None = None
    destructive: bool = False
    named: bool = Field(default=False, description="named with --disk, and so none of a lab's own")


class BluefsDevice(Model):
    """A device of an OSD beside that of its data: its block.db or its block.wal."""

    use: Literal["db", "wal"]
    device: str
    device_class: str | None = None
    simulated: str | None = Field(default=None, description="name of the simulated disk that the device is")
    limit: DeviceLimit | None = None


class DaemonTarget(Model):
    """A daemon on a machine that is sampled: its process, and for an OSD its devices."""

    name: str = Field(description="osd.3, mon.a, mgr.x, mds.a, rgw.a")
    pid: int
    start_ticks: int = Field(
        description="field 22 of /proc/PID/stat: differs between processes that have the same pid in turn"
    )
    host: str = HERE
    device: str | None = None
    device_class: str | None = None
    simulated: str | None = Field(default=None, description="name of the simulated disk that the device is")
    limit: DeviceLimit | None = None
    bluefs_devices: tuple[BluefsDevice, ...] = ()


class SshAccess(Model):
    """How the cluster's nodes are reached: the operator's own OpenSSH with the operator's own configuration.

    A node is known by the name that its OSDs report; `names` gives the name that ssh knows it by, where that differs.
    """

    user: str | None = Field(default=None, pattern=USER_PATTERN, description="login name; none: what ssh takes")
    config: str | None = Field(default=None, description="ssh configuration file; none: ssh's own")
    names: dict[str, Annotated[str, Field(pattern=HOST_PATTERN)]] = Field(
        default_factory=dict, description="node as its OSDs report it → name for ssh"
    )
    sudo: bool = Field(default=False, description="read as root there, by `sudo -n`")


class PrometheusAccess(Model):
    """A Prometheus server that scrapes the node_exporter of the cluster's nodes.

    The credential is in a file, or in the environment: never here.
    """

    url: Annotated[str, Field(pattern=URL_PATTERN)] = Field(description="base URL, without user and query")
    auth: str | None = Field(default=None, description="file with one line: USER:PASSWORD, or a bearer token")
    match: dict[Annotated[str, Field(pattern=LABEL_PATTERN)], str] = Field(
        default_factory=dict, description="labels that all series must have: of several clusters, the one that is meant"
    )


class ClientHost(Model):
    """A machine that runs fio for a run, started over the operator's own ssh."""

    name: str = Field(pattern=HOST_PATTERN)
    ssh: SshAccess = SshAccess()


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
    pool: str | None = Field(
        default=None, description="the operator's pool that all steps use; none: bathy makes pools of its own"
    )
    root: str | None = Field(default=None, description="root file system whose Ceph tools are used")
    ceph_prefix: tuple[str, ...] = Field(
        default=(),
        description="words that run a program where Ceph's own are: [cephadm, shell, --]; for commands, not for loads",
    )
    disks: dict[str, DiskTarget] = Field(default_factory=dict, description="device class → disk for the disk layer")
    daemons: tuple[DaemonTarget, ...] = ()
    disk_control: str | None = Field(default=None, description="socket that tells what a lab's simulated disks did")
    cache_sockets: tuple[str, ...] = Field(
        default=(), description="sockets on this machine that tell what the caches over OSDs did"
    )
    ssh: SshAccess | None = Field(default=None, description="sample the nodes of OSDs that are not on this machine")
    prometheus: PrometheusAccess | None = Field(
        default=None, description="the same from the cluster's own Prometheus, without a login; not together with ssh"
    )
    client_host: ClientHost | None = Field(default=None, description="makes the load; none: this machine")
    libvirt: tuple[Annotated[str, Field(pattern=LIBVIRT_PATTERN)], ...] = Field(
        default=(), description="hosts of virtual machines that use the cluster, as virsh -c has them: qemu:///system"
    )
    kubectl: tuple[str, ...] = Field(
        default=(), description="words that run kubectl, for the Kubernetes that uses the cluster: [kubectl]"
    )
    attachments: str | None = Field(
        default=None, description="CSV file of who uses which image, with a header: image,host,vm or address,host"
    )
    clients: tuple[FioClient, ...] = Field(default=(), description="remote load generators; empty: this machine")
    caveats: tuple[tuple[str, str], ...] = Field(
        default=(), description="(code, sentence) that hold for every result on this target"
    )

    @property
    def daemons_here(self) -> tuple[DaemonTarget, ...]:
        """Its daemons that are looked at as processes of this machine. With ssh, those of nodes are looked at there."""
        return tuple(daemon for daemon in self.daemons if self.ssh is None or daemon.host == HERE)

    def outside(self, path: str) -> str:
        """Return a path inside `root` as it is seen from outside of it."""
        return (self.root or "") + path
