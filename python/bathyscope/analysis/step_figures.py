"""One step in figures: what the load generator, the devices and the processes say of its measured window."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis import counters, latency, steady_state
from bathyscope.analysis.columns import Floats, Tables, floats, strings, sums_by, table_of, total, where


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceUse:
    """One device over the measured window. `utilization` is limit_ratio where there is a limit, else busy_ratio."""

    device: str
    role: str
    device_class: str
    utilization: float
    limited: bool
    read_bytes_per_s: float
    write_bytes_per_s: float
    ios_per_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class StepFigures:
    """Figures of one step; None is unknown, never zero. CPU is in cores (processor seconds per second)."""

    step_index: int
    io_count: int
    read_count: int
    read_bytes: int
    write_bytes: int
    error_count: int
    runtime_s: float
    iops: float
    bandwidth_bytes_per_s: float
    latency_ns_mean: float | None
    histogram: latency.LatencyHistogram
    series_s: Floats
    series_iops: Floats
    steady: steady_state.SteadyState
    devices: tuple[DeviceUse, ...]
    osd_cores: tuple[tuple[str, float], ...]
    all_osds_sampled: bool
    client_cores: float | None
    client_thread_busy: float | None
    host_cpu_ratio: float | None
    host_processors: int | None
    other_cores: float | None
    write_amplification: float | None
    read_from_cache_ratio: float | None

    @property
    def osd_cpu_us_per_op(self) -> float | None:
        """OSD processor time per client I/O, in microseconds, all OSDs under test together."""
        if not self.osd_cores or not self.all_osds_sampled or self.iops <= 0:
            return None
        return sum(cores for _, cores in self.osd_cores) / self.iops * 1e6

    @property
    def client_cpu_us_per_op(self) -> float | None:
        """Processor time of the load generator per I/O, in microseconds."""
        return None if self.client_cores is None or self.iops <= 0 else self.client_cores / self.iops * 1e6

    @property
    def device_utilization(self) -> float | None:
        """Utilisation of the busiest device under test."""
        return max((d.utilization for d in self.devices), default=None)


def figures(
    step_index: int,
    tables: Tables,
    *,
    on_disk: bool = False,
    device_class: str = "",
    osds: frozenset[int] | None = None,
) -> StepFigures:
    """Return the figures of one step from its own tables (rows of other steps must not be in them).

    `on_disk` marks the disk layer: its device has the role "disk". `osds` limits devices and daemons to the
    OSDs under test; None takes those whose samples name `device_class`, or all when it is empty. Sums over all OSDs
    (write amplification, CPU per op, bytes read from devices) are None unless every one of `osds` was sampled: a
    part of a cluster must not pass for the whole.
    """
    result = table_of(tables, "result")
    reads, writes = where(result, direction="read"), where(result, direction="write")
    runtime_s = float(np.nanmax(floats(result, "runtime_ns"), initial=0.0)) / 1e9
    bandwidth = total(result, "bandwidth_bytes_per_s")
    devices = _devices(table_of(tables, "device_sample"), runtime_s, device_class, osds, on_disk=on_disk)
    seconds, rates = steady_state.rate_series(table_of(tables, "interval"))
    process = _in_window(table_of(tables, "process_sample"), runtime_s)
    host_ratio, processors, other_cores = _host(process)
    client_cores = _client_cores(process, result)
    write_rate, read_rate = total(writes, "bandwidth_bytes_per_s"), total(reads, "bandwidth_bytes_per_s")
    all_devices = on_disk or _covers({d.role for d in devices}, osds)
    device_reads = sum(d.read_bytes_per_s for d in devices) if all_devices else None
    device_writes = sum(d.write_bytes_per_s for d in devices) if all_devices and devices else None
    osd_cores = () if on_disk else _osd_cores(process, devices, osds)
    cached = None
    if read_rate > 0 and not on_disk:
        cached = counters.read_from_cache_ratio(table_of(tables, "perf_counter"), device_reads, read_rate)
    return StepFigures(
        step_index=step_index,
        io_count=int(total(result, "io_count")),
        read_count=int(total(reads, "io_count")),
        read_bytes=int(total(reads, "io_bytes")),
        write_bytes=int(total(writes, "io_bytes")),
        error_count=int(total(result, "error_count")),
        runtime_s=runtime_s,
        iops=total(result, "iops"),
        bandwidth_bytes_per_s=bandwidth,
        latency_ns_mean=_mean_latency(result),
        histogram=latency.from_rows(table_of(tables, "histogram")),
        series_s=seconds,
        series_iops=rates,
        steady=steady_state.judge(rates),
        devices=devices,
        osd_cores=osd_cores,
        all_osds_sampled=_covers({name for name, _ in osd_cores}, osds),
        client_cores=client_cores,
        client_thread_busy=_client_thread_busy(result),
        host_cpu_ratio=host_ratio,
        host_processors=processors,
        other_cores=other_cores,
        write_amplification=device_writes / write_rate if device_writes is not None and write_rate else None,
        read_from_cache_ratio=cached,
    )


def osd_number(name: str) -> int | None:
    """Return 3 for "osd.3", None for anything else."""
    head, _, tail = name.partition(".")
    return int(tail) if head == "osd" and tail.isascii() and tail.isdigit() else None


def _covers(sampled: set[str], osds: frozenset[int] | None) -> bool:
    return bool(osds) and {f"osd.{n}" for n in osds or ()} <= sampled


def _mean_latency(result: pa.Table) -> float | None:
    """Return the mean latency over clients and directions, weighted by their I/Os."""
    mean, count = floats(result, "latency_ns_mean"), floats(result, "io_count")
    known = np.isfinite(mean) & (count > 0)
    return float(np.average(mean[known], weights=count[known])) if known.any() else None


def _in_window(samples: pa.Table, runtime_s: float) -> pa.Table:
    """Return the samples whose middle lies in the measured window: ramp and aftermath do not count."""
    if samples.num_rows == 0:
        return samples
    end, length = floats(samples, "offset_ns"), floats(samples, "duration_ns")
    middle = end - length / 2
    return samples.filter(pa.array((middle > 0) & (middle <= runtime_s * 1e9) & (length > 0)))


def _devices(
    samples: pa.Table, runtime_s: float, device_class: str, osds: frozenset[int] | None, *, on_disk: bool
) -> tuple[DeviceUse, ...]:
    samples = _in_window(samples, runtime_s)
    if samples.num_rows == 0:
        return ()
    if on_disk:
        samples = where(samples, role="disk")
        # A lab has one spare disk for each class; only that of the class under test was loaded.
        own = where(samples, device_class=device_class)
        samples = own if device_class and own.num_rows else samples
    else:
        samples = samples.filter(pc.starts_with(samples.column("role"), pattern="osd."))
        if osds is not None:
            samples = where(samples, role=[f"osd.{n}" for n in sorted(osds)])
        elif device_class:
            samples = where(samples, device_class=device_class)
    if samples.num_rows == 0:
        return ()
    length = samples.column("duration_ns").cast(pa.float64())
    samples = samples.append_column("busy_ns", pc.multiply(samples.column("busy_ratio"), length))
    samples = samples.append_column("limit_ns", pc.multiply(samples.column("limit_ratio"), length))
    names = ["duration_ns", "busy_ns", "limit_ns", "read_bytes", "write_bytes", "read_count", "write_count"]
    keys = ["host", "device", "role", "device_class"]
    grouped = samples.group_by(keys).aggregate([(name, "sum") for name in names]).sort_by("device")
    sums = {name: floats(grouped, f"{name}_sum") for name in names}
    seconds = sums["duration_ns"] / 1e9
    limited = np.isfinite(sums["limit_ns"])
    use = np.where(limited, sums["limit_ns"], sums["busy_ns"]) / sums["duration_ns"]
    labels = zip(strings(grouped, "device"), strings(grouped, "role"), strings(grouped, "device_class"), strict=True)
    return tuple(
        DeviceUse(
            device=device,
            role=role,
            device_class=kind,
            utilization=float(use[i]),
            limited=bool(limited[i]),
            read_bytes_per_s=float(sums["read_bytes"][i] / seconds[i]),
            write_bytes_per_s=float(sums["write_bytes"][i] / seconds[i]),
            ios_per_s=float((sums["read_count"][i] + sums["write_count"][i]) / seconds[i]),
        )
        for i, (device, role, kind) in enumerate(labels)
    )


def _cores_by_process(process: pa.Table) -> dict[str, float]:
    names, (length, user, system) = sums_by(process, "process", "duration_ns", "cpu_user_s", "cpu_system_s")
    return {name: float((user[i] + system[i]) / (length[i] / 1e9)) for i, name in enumerate(names)}


def _osd_cores(
    process: pa.Table, devices: tuple[DeviceUse, ...], osds: frozenset[int] | None
) -> tuple[tuple[str, float], ...]:
    """Return (name, cores) of the OSDs under test: `osds`, else those whose devices are, else all."""
    chosen = {f"osd.{n}" for n in osds} if osds is not None else {d.role for d in devices}
    cores = _cores_by_process(process)
    return tuple(
        (name, c) for name, c in cores.items() if osd_number(name) is not None and (not chosen or name in chosen)
    )


def _client_cores(process: pa.Table, result: pa.Table) -> float | None:
    """Return the cores that the load takes: from the processes if sampled, else as the generator reports it."""
    if process.num_rows and (rows := where(process, process="client")).num_rows:
        # Load machines add up, seconds of one machine do not.
        return sum(_cores_by_process(where(rows, host=host))["client"] for host in sorted(set(strings(rows, "host"))))
    shares = _client_shares(result)
    return float(sum(shares)) if shares else None


def _client_thread_busy(result: pa.Table) -> float | None:
    """Return the busiest load generator thread's share of one processor, as the generator reports it.

    One thread submits all I/Os of a load process; when it is at its limit, so is the load, however many threads a
    library has beside it. Known for remote load generators too.
    """
    return max(_shares(result, floats(result, "cpu_thread_s")), default=None)


def _client_shares(result: pa.Table) -> list[float]:
    """Return, for each load process that reports its processor time, cores used."""
    return _shares(result, floats(result, "cpu_user_s") + np.nan_to_num(floats(result, "cpu_system_s")))


def _shares(result: pa.Table, spent_s: Floats) -> list[float]:
    """Return `spent_s` over the run time for each load process that reports it.

    A process that reads and writes reports its one processor time beside both directions: the greater counts.
    """
    known = np.isfinite(spent_s)
    if not known.any():
        return []
    rows = result.append_column("cpu_s", pa.array(spent_s)).filter(pa.array(known))
    grouped = rows.group_by("client").aggregate([("cpu_s", "max"), ("runtime_ns", "max")])
    cpu, runtime = floats(grouped, "cpu_s_max"), floats(grouped, "runtime_ns_max") / 1e9
    return [float(c / r) for c, r in zip(cpu, runtime, strict=True) if r > 0]


def _host(process: pa.Table) -> tuple[float | None, int | None, float | None]:
    """Return of the busiest machine (share of its processors in use, their number, cores used by strangers).

    Strangers are all processes that are not sampled on their own: neither load nor daemon nor ourselves.
    """
    best: tuple[float | None, int | None, float | None] = (None, None, None)
    if process.num_rows == 0:
        return best
    machines = sorted(set(strings(where(process, process="host"), "host")))
    for host in machines:
        # Daemons of a lab carry the name of the node that they play; with one machine sampled, all are on it.
        own = process if len(machines) == 1 else where(process, host=host)
        cores = _cores_by_process(own)
        whole = cores.pop("host")
        processors = int(np.nanmax(floats(where(own, process="host"), "processors"), initial=1.0))
        if best[0] is None or whole / processors > best[0]:
            best = (whole / processors, processors, max(0.0, whole - sum(cores.values())))
    return best
