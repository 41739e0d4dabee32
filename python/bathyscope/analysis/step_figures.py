"""One step in figures: what the load generator, the devices and the processes say of its measured window."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis import counters, latency, steady_state
from bathyscope.analysis.columns import Floats, Tables, floats, strings, sums_by, table_of, total, where
from bathyscope.analysis.network import NetworkUse, network_uses
from bathyscope.analysis.quotas import QuotaUse, quota_uses, with_limits
from bathyscope.analysis.simulated_disks import DiskTime, disk_times
from bathyscope.analysis.tenants import PoolUse, pool_uses, wait_of
from bathyscope.records import HERE, SAME_MACHINE, Step
from bathyscope.records.account import ForeignWork

_RATE = re.compile(r"-rate([0-9]+)(?=$|[-@])")


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceUse:
    """One device over the measured window. `utilization` (0 to 1) is of the limit where there is one, else busy.

    `disk` is what a simulated disk says of itself; its busy time is then the device's, without this machine's delays.
    """

    host: str
    device: str
    role: str
    utilization: float
    limited: bool
    read_bytes_per_s: float
    write_bytes_per_s: float
    read_iops: float = 0.0
    write_iops: float = 0.0
    disk: DiskTime | None = None
    device_class: str = ""

    @property
    def place(self) -> str:
        """What uses it, with the machine where that is another one or a node of a lab: "osd.1 (node2)"."""
        return self.role if self.host == HERE else f"{self.role} ({self.host})"

    @property
    def holds_data(self) -> bool:
        """Whether it holds an OSD's data, and not only its block.db or block.wal."""
        return any(word == _osd(word) for word in self.role.split())


@dataclasses.dataclass(frozen=True, slots=True)
class NodeUse:
    """The processors of a machine that runs OSDs and not the load; `cpu_ratio` 0 to 1, `osd_cores` under test.

    `osd_cores` is None where only the machine as a whole was seen. `steal_ratio` is the share of the processors' time
    in which they had work and waited for the hypervisor.
    """

    name: str
    cpu_ratio: float
    processors: int
    osd_cores: float | None
    steal_ratio: float | None = None

    @property
    def given_cores(self) -> float:
        """Processors that could be used: what a hypervisor does not give is no capacity."""
        return self.processors * _given_ratio(self.steal_ratio)


@dataclasses.dataclass(frozen=True, slots=True)
class DirectionFigures:
    """The reads or the writes of a step that does both, over all its clients."""

    direction: str
    iops: float
    bandwidth_bytes_per_s: float
    latency_ns_mean: float | None
    histogram: latency.LatencyHistogram


@dataclasses.dataclass(frozen=True, slots=True)
class StepFigures:
    """Figures of one step; None is unknown, never zero. CPU is in cores (processor seconds per second).

    `load_host` is the machine that made the load; the processors of the "host" are its. `devices` hold data,
    `bluefs_devices` only block.db and block.wal. `directions`: reads and writes apart, of a step that has both.
    `foreign`: what others did; `osd_cpu_shared`: they used so much of the OSDs' processors that our part is not known.
    """

    io_count: int
    read_bytes: int
    write_bytes: int
    error_count: int
    runtime_s: float
    iops: float
    bandwidth_bytes_per_s: float
    latency_ns_mean: float | None
    histogram: latency.LatencyHistogram
    series_iops: Floats
    steady: steady_state.SteadyState
    devices: tuple[DeviceUse, ...]
    bluefs_devices: tuple[DeviceUse, ...]
    osd_cores: tuple[tuple[str, float], ...]
    osd_cores_here: float | None
    nodes: tuple[NodeUse, ...]
    network: tuple[NetworkUse, ...]
    all_osds_sampled: bool
    load_host: str
    client_cores: float | None
    client_thread_busy: float | None
    host_cpu_ratio: float | None
    host_steal_ratio: float | None
    host_processors: int | None
    other_cores: float | None
    write_amplification: float | None
    read_from_cache_ratio: float | None
    tenants: tuple[PoolUse, ...] | None
    directions: tuple[DirectionFigures, ...] = ()
    quotas: tuple[QuotaUse, ...] = ()
    foreign: tuple[ForeignWork, ...] = ()
    osd_cpu_shared: bool = False

    @property
    def machines(self) -> tuple[NodeUse, ...]:
        """The machine of the load, if its processors are known, and those of OSDs under test."""
        if self.host_cpu_ratio is None or not self.host_processors:
            return self.nodes
        client = NodeUse(self.load_host, self.host_cpu_ratio, self.host_processors, None, self.host_steal_ratio)
        return (client, *self.nodes)

    @property
    def host_given_ratio(self) -> float:
        """The share of the time in which the load's machine could use its processors: the rest a hypervisor took."""
        return _given_ratio(self.host_steal_ratio)

    @property
    def tenant_iops(self) -> float | None:
        """I/Os a second of all pools that are not ours; None when it is not known."""
        return None if self.tenants is None else sum(use.iops for use in self.tenants)

    @property
    def tenant_wait_ns(self) -> float | None:
        """How long other pools' operations in flight had been in their OSD, on average; None when none was seen."""
        return wait_of(self.tenants or ())

    @property
    def osd_cpu_us_per_op(self) -> float | None:
        """OSD processor time per client I/O, in microseconds, all OSDs under test together."""
        if not self.osd_cores or not self.all_osds_sampled or self.osd_cpu_shared or self.iops <= 0:
            return None
        return sum(cores for _, cores in self.osd_cores) / self.iops * 1e6

    @property
    def client_cpu_us_per_op(self) -> float | None:
        """Processor time of the load generator per I/O, in microseconds."""
        return None if self.client_cores is None or self.iops <= 0 else self.client_cores / self.iops * 1e6

    @property
    def device_utilization(self) -> float | None:
        """Utilisation of the busiest device with data under test."""
        return max((d.utilization for d in self.devices), default=None)


def figures(step: Step, tables: Tables) -> StepFigures:
    """Return the figures of one step from its own tables, as `window.tables` gives them.

    Devices and daemons are those of the OSDs under test, or, for a step without any, the disk under test. Sums over all
    OSDs (write amplification, CPU per op, bytes read from devices) are None unless every one of them was sampled: a
    part of a cluster must not pass for the whole.
    """
    osds = osds_of(step)
    on_disk = osds is None
    result = table_of(tables, "result")
    reads, writes = where(result, direction="read"), where(result, direction="write")
    runtime_s = float(np.nanmax(floats(result, "runtime_ns"), initial=0.0)) / 1e9
    used = _devices(tables, step.device_class, osds)
    devices = tuple(device for device in used if on_disk or device.holds_data)
    _, rates = steady_state.rate_series(table_of(tables, "interval"))
    process = table_of(tables, "process_sample")
    machines = _machines(process)
    # The machine that makes the load; of one that only looks on, nothing is said.
    load_host = next(iter(strings(where(process, process="client"), "host")), HERE)
    here = machines.pop(load_host, process.slice(0, 0))
    machines.pop(HERE, None)
    if load_host == HERE:
        here = pa.concat_tables([here, *_of_this_machine(machines, table_of(tables, "environment"))])
    host_ratio, steal_ratio, processors, other_cores = _host(here)
    client_cores = _client_cores(process, result)
    write_rate, read_rate = total(writes, "bandwidth_bytes_per_s"), total(reads, "bandwidth_bytes_per_s")
    all_devices = on_disk or _all_devices(tables, used, osds)
    device_reads = sum(d.read_bytes_per_s for d in used) if all_devices else None
    device_writes = sum(d.write_bytes_per_s for d in used) if all_devices and used else None
    osd_cores = () if osds is None else _osd_cores(process, osds)
    cores_here = () if osds is None else _osd_cores(here, osds)
    cached = None
    if read_rate > 0 and not on_disk:
        perf, loaded_s = table_of(tables, "perf_counter"), step.ramp_s + runtime_s
        cached = counters.read_from_cache_ratio(perf, osds, device_reads, read_rate, loaded_s)
    histogram = table_of(tables, "histogram")
    apart = [(name, rows) for name, rows in (("read", reads), ("write", writes)) if total(rows, "io_count") > 0]
    return StepFigures(
        io_count=int(total(result, "io_count")),
        read_bytes=int(total(reads, "io_bytes")),
        write_bytes=int(total(writes, "io_bytes")),
        error_count=int(total(result, "error_count")),
        runtime_s=runtime_s,
        iops=iops_of(result),
        bandwidth_bytes_per_s=total(result, "bandwidth_bytes_per_s"),
        latency_ns_mean=_mean_latency(result),
        histogram=latency.from_rows(histogram),
        series_iops=rates,
        steady=steady_state.judge(rates),
        devices=devices,
        bluefs_devices=tuple(device for device in used if device not in devices),
        osd_cores=osd_cores,
        osd_cores_here=sum(cores for _, cores in cores_here) if cores_here else None,
        nodes=_nodes(machines, table_of(tables, "device_sample"), osds or frozenset()),
        network=() if on_disk else network_uses(table_of(tables, "network_sample")),
        all_osds_sampled=counters.covers({name for name, _ in osd_cores}, osds),
        load_host=load_host,
        client_cores=client_cores,
        client_thread_busy=_client_thread_busy(result),
        host_cpu_ratio=host_ratio,
        host_steal_ratio=steal_ratio,
        host_processors=processors,
        other_cores=other_cores,
        write_amplification=device_writes / write_rate if device_writes is not None and write_rate else None,
        read_from_cache_ratio=cached,
        tenants=None if on_disk else pool_uses(table_of(tables, "pool_io"), table_of(tables, "pool_wait")),
        quotas=quota_uses(table_of(tables, "cgroup_sample"), process),
        directions=tuple(_direction(*part, histogram) for part in apart) if len(apart) > 1 else (),
    )


def iops_of(result: pa.Table) -> float:
    """Return the IOPS of a load: the sum of the rates of its clients, each over the time that it ran itself."""
    return total(result, "iops")


def machine(host: str) -> str:
    """Return a machine's name in a sentence."""
    return "this machine" if host == HERE else host


def _given_ratio(steal_ratio: float | None) -> float:
    return 1.0 - (steal_ratio or 0.0)


def rate_iops_of(step: Step) -> int | None:
    """Return the rate that each load process of a step keeps to; None where it goes as fast as it can."""
    match = _RATE.search(step.step_key)
    return int(match[1]) if match else None


def osds_of(step: Step) -> frozenset[int] | None:
    """Return the OSDs under test; None for a step that loads no OSD (a disk)."""
    return None if step.osds is None else frozenset(int(word) for word in step.osds.split())


def _direction(name: str, rows: pa.Table, histogram: pa.Table) -> DirectionFigures:
    return DirectionFigures(
        direction=name,
        iops=iops_of(rows),
        bandwidth_bytes_per_s=total(rows, "bandwidth_bytes_per_s"),
        latency_ns_mean=_mean_latency(rows),
        histogram=latency.from_rows(where(histogram, direction=name)),
    )


def _mean_latency(result: pa.Table) -> float | None:
    """Return the mean latency over clients and directions, weighted by their I/Os."""
    mean, count = floats(result, "latency_ns_mean"), floats(result, "io_count")
    measured = np.isfinite(mean) & (count > 0)
    return float(np.average(mean[measured], weights=count[measured])) if measured.any() else None


def _devices(tables: Tables, under_test: str, osds: frozenset[int] | None) -> tuple[DeviceUse, ...]:
    samples = table_of(tables, "device_sample")
    if samples.num_rows == 0:
        return ()
    if osds is None:
        samples = where(samples, role="disk")
        # A lab has one spare disk for each class; only that of the class under test was loaded.
        of_class = where(samples, device_class=under_test)
        samples = of_class if under_test and of_class.num_rows else samples
    else:
        samples = samples.filter(pa.array([_serves(role, osds) for role in strings(samples, "role")], type=pa.bool_()))
    if samples.num_rows == 0:
        return ()
    samples = with_limits(samples, table_of(tables, "cgroup_sample"))
    length = samples.column("duration_ns").cast(pa.float64())
    shares = ("busy_ratio", "read_limit_ratio", "write_limit_ratio")
    for share in shares:
        samples = samples.append_column(f"{share}_ns", pc.multiply(samples.column(share), length))
    names = ["duration_ns", "read_count", "write_count", "read_bytes", "write_bytes", *(f"{s}_ns" for s in shares)]
    keys = ["host", "device", "role", "device_class"]
    grouped = samples.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in names]).sort_by("device")
    sums = {name: floats(grouped, f"{name}_sum") for name in names}
    seconds = sums["duration_ns"] / 1e9
    busy, *limits = (sums[f"{share}_ns"] / sums["duration_ns"] for share in shares)
    # Reads and writes have limits of their own; the nearer one counts, over the whole window.
    limit = np.fmax(*limits)
    limited = np.isfinite(limit)
    disks = disk_times(table_of(tables, "simulated_disk_sample"), strings(grouped, "device"))
    themselves = np.array([disks[name].busy if name in disks else np.nan for name in strings(grouped, "device")])
    use = np.minimum(np.where(limited, limit, np.where(np.isfinite(themselves), themselves, busy)), 1.0)
    return tuple(
        DeviceUse(
            host=host,
            device=device,
            role=role,
            disk=disks.get(device),
            device_class=device_class,
            utilization=float(use[i]),
            limited=bool(limited[i]),
            read_bytes_per_s=float(sums["read_bytes"][i] / seconds[i]),
            write_bytes_per_s=float(sums["write_bytes"][i] / seconds[i]),
            read_iops=float(sums["read_count"][i] / seconds[i]),
            write_iops=float(sums["write_count"][i] / seconds[i]),
        )
        for i, (host, device, role, device_class) in enumerate(
            zip(*(strings(grouped, key) for key in keys), strict=True)
        )
    )


def _serves(role: str, osds: frozenset[int]) -> bool:
    """Return whether a device serves OSDs under test and no others."""
    return {_osd(word) for word in role.split()} <= {f"osd.{number}" for number in osds}


def _osd(word: str) -> str:
    """Return the OSD of a word of a role: osd.3 of osd.3.db."""
    return ".".join(word.split(".")[:2])


def _all_devices(tables: Tables, used: tuple[DeviceUse, ...], osds: frozenset[int] | None) -> bool:
    """Return whether `used` are all devices of all OSDs under test, and none that they share with others is missing."""
    roles = set(strings(table_of(tables, "device_sample"), "role"))
    sampled = {word for role in roles for word in role.split()}
    words = {word for device in used for word in device.role.split()}
    tested = {f"osd.{number}" for number in osds or ()}
    return counters.covers(words, osds) and all(word in words for word in sampled if _osd(word) in tested)


def _cores_by_process(process: pa.Table) -> dict[str, float]:
    names, (length, user, system) = sums_by(process, "process", "duration_ns", "cpu_user_s", "cpu_system_s")
    return {name: float((user[i] + system[i]) / (length[i] / 1e9)) for i, name in enumerate(names)}


def _osd_cores(process: pa.Table, osds: frozenset[int]) -> tuple[tuple[str, float], ...]:
    """Return (name, cores) of the OSDs under test that were sampled."""
    names = {f"osd.{number}" for number in osds}
    return tuple((name, cores) for name, cores in _cores_by_process(process).items() if name in names)


def _client_cores(process: pa.Table, result: pa.Table) -> float | None:
    """Return the cores that the load takes: from the processes if sampled, else as the generator reports it."""
    if process.num_rows and (rows := where(process, process="client")).num_rows:
        # Load machines add up, seconds of one machine do not.
        return sum(_cores_by_process(where(rows, host=host))["client"] for host in sorted(set(strings(rows, "host"))))
    shares = _shares(result, floats(result, "cpu_user_s") + np.nan_to_num(floats(result, "cpu_system_s")))
    return float(sum(shares)) if shares else None


def _client_thread_busy(result: pa.Table) -> float | None:
    """Return the busiest load generator thread's share of one processor, as the generator reports it.

    One thread submits all I/Os of a load process; when it is at its limit, so is the load, however many threads a
    library has beside it. Known for remote load generators too.
    """
    return max(_shares(result, floats(result, "cpu_thread_s")), default=None)


def _shares(result: pa.Table, spent_s: Floats) -> list[float]:
    """Return `spent_s` over the run time for each load process that reports it.

    A process that reads and writes reports its one processor time beside both directions: the greater counts.
    """
    known = np.isfinite(spent_s)
    if not known.any():
        return []
    rows = result.append_column("cpu_s", pa.array(spent_s)).filter(pa.array(known))
    grouped = rows.group_by("client", use_threads=False).aggregate([("cpu_s", "max"), ("runtime_ns", "max")])
    cpu, runtime = floats(grouped, "cpu_s_max"), floats(grouped, "runtime_ns_max") / 1e9
    return [float(c / r) for c, r in zip(cpu, runtime, strict=True) if r > 0]


def _machines(process: pa.Table) -> dict[str, pa.Table]:
    """Return machine → the rows of its processes. Daemons of a lab, named after the node that they play, are here."""
    others = sorted(set(strings(where(process, process="host"), "host")) - {HERE})
    of_others = process.filter(pa.array([host not in others for host in strings(process, "host")], type=pa.bool_()))
    return {HERE: of_others, **{name: where(process, host=name) for name in others}}


def _of_this_machine(machines: dict[str, pa.Table], facts: pa.Table) -> list[pa.Table]:
    """Take the nodes that are this machine under another name out of the machines; return their processes.

    The processors of a lab's nodes are those of this machine, and its other processes are none of theirs.
    """
    names = set(strings(where(facts, name=SAME_MACHINE, value=HERE), "subject"))
    nodes = [name for name in machines if f"node {name}" in names]
    rows = [machines.pop(name) for name in nodes]
    return [
        table.filter(pa.array([process != "host" for process in strings(table, "process")], pa.bool_()))
        for table in rows
    ]


def _host(process: pa.Table) -> tuple[float | None, float | None, int | None, float | None]:
    """Return of one machine (share of its processors in use, share of steal, their number, cores used by others).

    Other processes are those that are not sampled on their own: neither load nor daemon nor ourselves.
    """
    cores = _cores_by_process(process)
    if "host" not in cores:
        return None, None, None, None
    whole, rows = cores.pop("host"), where(process, process="host")
    processors = int(np.nanmax(floats(rows, "processors"), initial=1.0))
    stolen_s = floats(rows, "cpu_steal_s")
    known = np.isfinite(stolen_s)
    length_s = floats(rows, "duration_ns")[known].sum() / 1e9
    steal = float(stolen_s[known].sum() / length_s / processors) if length_s else None
    return whole / processors, steal, processors, max(0.0, whole - sum(cores.values()))


def _nodes(machines: Mapping[str, pa.Table], devices: pa.Table, osds: frozenset[int]) -> tuple[NodeUse, ...]:
    """Return those of the machines that run OSDs under test, by their processes or their devices."""
    roles = zip(strings(devices, "host"), strings(devices, "role"), strict=True)
    with_devices = {host for host, role in roles if _serves(role, osds)}
    uses = []
    for name, process in machines.items():
        (ratio, steal, processors, _), cores = _host(process), _osd_cores(process, osds)
        if ratio is not None and processors and (cores or name in with_devices):
            uses.append(NodeUse(name, ratio, processors, sum(used for _, used in cores) if cores else None, steal))
    return tuple(uses)
