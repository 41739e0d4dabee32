"""The scope of a recording: the cluster's map, as far as sources must know it to ask and to read the answers.

A scope is plain data that is made from raw answers alone (`sources.cluster_map`, `sources.machine`), so a run can be
parsed again from its content.
"""

from __future__ import annotations

from pydantic import Field

from bathyscope.spec.target import BluefsDevice, DaemonTarget, Model, Target


class ScopeOsd(Model):
    """One OSD of the CRUSH tree. `fullness` is 0 to 1; `cache_bytes` is what its BlueStore cache may hold."""

    osd: int
    host: str = ""
    host_name: str = Field(default="", description="name of its machine, as the OSD reports it")
    data_path: str = Field(default="", description="its data directory, as it sees it")
    device: str | None = Field(default=None, description="kernel name of the one disk under its data")
    bluefs_devices: tuple[BluefsDevice, ...] = ()
    device_class: str = ""
    up: bool = True
    fullness: float = 0.0
    size_bytes: int = 0
    cache_bytes: int | None = None


class ScopeLink(Model):
    """A network interface: whether hardware is below it, and whether it is one that others are below (a bridge)."""

    name: str
    hardware: bool = False
    stacked: bool = False
    speed_bits_per_s: int | None = None


class ScopeNode(Model):
    """Another machine that is sampled over ssh, and the cluster's OSDs that were found there."""

    name: str
    daemons: tuple[DaemonTarget, ...] = ()
    links: tuple[ScopeLink, ...] = ()
    boot_id: str = ""
    clock_ticks_per_s: int = 100
    page_bytes: int = 4096


class ScopeExporter(Model):
    """Another machine whose figures a Prometheus has: the labels of its node_exporter's series."""

    name: str
    instance: str
    job: str


class Scope(Model):
    """What is recorded, at one moment. `asked_osds` are those that daemon commands go to (empty: none)."""

    target: Target
    fsid: str | None = None
    osds: tuple[ScopeOsd, ...] = ()
    asked_osds: tuple[int, ...] = ()
    pools: dict[str, int] = Field(default_factory=dict, description="pool name → pool id")
    own_pools: tuple[str, ...] | None = Field(default=None, description="only their ops make rows; none: all pools")
    images: tuple[tuple[str, str], ...] = Field(default=(), description="(pool, image) of our own")
    zoomed_images: tuple[str, ...] = Field(default=(), description="ids of images whose single objects are counted")
    zoom_digits: int = Field(default=16, description="hexadecimal digits of an object's number that tell objects apart")
    mgr_modules: tuple[str, ...] = Field(default=(), description="modules of the manager that are enabled")
    mgr_module_version: int | None = Field(
        default=None, description="version of the manager's module bathyscope, as far as it has answered"
    )
    rbd_pools: tuple[str, ...] = Field(default=(), description="pools that may hold headers of images")
    watched_images: tuple[tuple[str, str, str], ...] = Field(
        default=(), description="(pool, namespace, image) whose clients are asked for, which costs opening each"
    )
    machine_names: dict[str, str] = Field(
        default_factory=dict, description="address → name of the machines with OSDs; not those that several have"
    )
    counter_kinds: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="perf schema: section → counter → counter, gauge, average or histogram"
    )
    counter_sections: tuple[str, ...] | None = Field(
        default=None, description="only perf counters of these sections make rows; none: all sections"
    )
    op_history_ops: int | None = Field(default=None, description="size of the op histories that was set")
    processes: tuple[tuple[str, int], ...] = Field(
        default=(), description="(role, pid) on this machine beside the target's daemons: client, bathy"
    )
    processes_there: tuple[tuple[str, int], ...] = Field(default=(), description="(role, pid) on the client host")
    nodes: tuple[ScopeNode, ...] = ()
    links: tuple[ScopeLink, ...] = Field(default=(), description="network interfaces of this machine")
    boot_id: str = Field(default="", description="tells the running kernel of this machine from every other one")
    exporters: tuple[ScopeExporter, ...] = ()
    clock_ticks_per_s: int = 100
    page_bytes: int = 4096
