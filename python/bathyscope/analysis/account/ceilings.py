"""How fast each resource would let the load be, by the utilization law: ceiling = rate / utilisation.

A resource counts where its utilisation says how much of it is left: a throttle, a hard disk's arm, processors, a quota,
a link, a thread. Flash serves many I/Os at once and is "busy" with the first, so its busy time is no utilisation; what
it can do is known where the run measured the disk itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from bathyscope.analysis.account.disk_layer import DiskRate
from bathyscope.analysis.account.sums import NO_SUM, averages
from bathyscope.analysis.counters import all_answered
from bathyscope.analysis.step_figures import DeviceUse, StepFigures, machine
from bathyscope.records import CLIENTS, HERE, Step
from bathyscope.records.account import Ceiling
from bathyscope.records.figure import Figure

# From here on a ceiling counts as reached.
AT_CEILING = 0.85
_MORE_THAN_DISK = 1.05
# Resources of which every OSD has its own and none is a limit.
THREADS = ("kv_sync", "op_workers")
# osd_op_num_shards × osd_op_num_threads_per_shard, as Ceph sets them since Luminous.
_WORKERS_HDD, _WORKERS_SSD = 5, 16
WORKERS = "Ceph's default number of threads"
THROTTLE, BUSY_TIME, QUOTA, PROCESSORS, LINK, THREAD, DISK_LAYER = (
    *("its throttle", "its busy time", "its quota", "its processors", "the link's speed", "one thread"),
    "the disk layer of this run",
)


@dataclasses.dataclass(frozen=True, slots=True)
class KnownOsd:
    """What is known of an OSD under test: its machine, and whether Ceph takes its device for a rotating one.

    `weight` is the CRUSH weight that counts (crush_weight × reweight), None where it is not known.
    """

    host: str = ""
    rotational: bool | None = None
    weight: float | None = None


def step_ceilings(
    step: Step,
    figures: StepFigures,
    perf: pa.Table,
    osds: Mapping[int, KnownOsd] | None,
    disk: DiskRate | None,
    *,
    more: Iterable[Ceiling] = (),
) -> tuple[Ceiling, ...]:
    """Return the ceilings of one step, `more` among them, the nearest first; single figures without intervals.

    `disk` is what the disk layer reached on one device of the class with the same pattern.
    """
    if figures.iops <= 0:
        return ()
    ceilings = [
        *_devices(step, figures, disk),
        *_quotas(figures, osds or {}),
        *_processors(figures),
        *_client_thread(figures),
        *_network(figures),
        *_threads(step, figures, perf, osds or {}),
        *more,
    ]
    return tuple(sorted(ceilings, key=lambda ceiling: -(ceiling.reached.value or 0.0)))


def ceiling(
    resource: str,
    subject: str,
    words: str,
    host: str,
    *,
    used: float,
    capacity: float,
    unit: str,
    source: str,
    iops: float,
    binding: bool = True,
) -> Ceiling:
    """Return a ceiling of which `used` a second is used: units of the resource a second, as `capacity`."""
    return Ceiling(
        resource,
        subject,
        words,
        host,
        Figure(used / iops, unit),
        Figure(capacity, unit),
        source,
        Figure(iops * capacity / used if used > 0 else None, "1/s"),
        Figure(used / capacity, "ratio"),
        binding,
    )


def device_words(role: str, host: str, device_class: str) -> str:
    """Return a device's name in a sentence: "osd.1's HDD (node2)"."""
    name = device_class.upper() if device_class in ("hdd", "ssd", "nvme") else "device"
    owner = f"osd's {name}" if not role else f"{role}'s {name}"
    owner = f"the {name} under test" if role == "disk" else owner
    owner = f"the {name} of {role.replace(' ', ', ')}" if " " in role else owner
    return owner if host == HERE else f"{owner} ({host})"


def _devices(step: Step, figures: StepFigures, disk: DiskRate | None) -> Iterator[Ceiling]:
    for resource, devices in (("device", figures.devices), ("bluefs_device", figures.bluefs_devices)):
        for device in devices:
            device_class = step.device_class or device.device_class
            done, use, source = device.read_iops + device.write_iops, device.utilization, THROTTLE
            has_arm = device.disk is not None and device.disk.seek + device.disk.rotation > 0
            if not device.limited:
                source = BUSY_TIME if has_arm or (device_class == "hdd" and resource == "device") else DISK_LAYER
            if source == DISK_LAYER:
                use = _use_of(device, disk) if disk and resource == "device" else 0.0
            if done <= 0 or use <= 0:
                continue
            # The ratio to a throttle is of I/Os or of bytes, whichever is nearer; in I/Os of this load it is the same.
            yield ceiling(
                resource,
                device.role,
                device_words(device.role, device.host, device_class if resource == "device" else ""),
                device.host,
                used=done,
                capacity=done / use,
                unit="I/Os",
                source=source,
                iops=figures.iops,
                binding=source != BUSY_TIME or step.queue_depth * step.jobs > 1 or step.layer == CLIENTS,
            )


def _use_of(device: DeviceUse, disk: DiskRate) -> float:
    """Return how much is used of what a disk alone gave, by requests or by bytes; 0 where nothing follows.

    An OSD's requests are not quite those of the disk layer. A device that does more than the disk did has a capacity
    that was not measured.
    """
    requests = (device.read_iops + device.write_iops) / disk.requests_per_s
    moved = (device.read_bytes_per_s + device.write_bytes_per_s) / disk.bytes_per_s if disk.bytes_per_s else 0.0
    use = max(requests, moved)
    return min(use, 1.0) if use <= _MORE_THAN_DISK else 0.0


def _processors(figures: StepFigures) -> Iterator[Ceiling]:
    for use in figures.machines:
        if use.cpu_ratio and use.processors:
            yield ceiling(
                "host_cpu",
                use.name,
                f"the CPU of {machine(use.name)}",
                use.name,
                used=min(use.cpu_ratio * use.processors, use.given_cores),
                capacity=use.given_cores,
                unit="s",
                source=PROCESSORS,
                iops=figures.iops,
            )


def _quotas(figures: StepFigures, osds: Iterable[int]) -> Iterator[Ceiling]:
    """Yield the processes of the load and of OSDs under test that a control group allows so many processors."""
    names = {f"osd.{osd}" for osd in osds}
    for use in figures.quotas:
        if not use.used_ratio or (use.process != "client" and use.process not in names):
            continue
        # A quota is dealt out in slices, of which some run out unused: a process that is held back in nearly all of its
        # periods has used less than it was given.
        reached = min(max(use.used_ratio, use.throttled_ratio or 0.0), 1.0)
        is_client = use.process == "client"
        where = "" if use.host == HERE else f" ({use.host})"
        yield ceiling(
            "client_cpu" if is_client else "osd_cpu",
            use.host if is_client else use.process,
            f"the CPU of the load generator{where}" if is_client else f"the CPU of {use.process}{where}",
            use.host,
            used=reached * use.quota_cores,
            capacity=use.quota_cores,
            unit="s",
            source=QUOTA,
            iops=figures.iops,
        )


def _client_thread(figures: StepFigures) -> Iterator[Ceiling]:
    busy = figures.client_thread_busy
    if busy:
        words = "the load generator's thread"
        host = figures.load_host
        yield ceiling(
            "client_thread", host, words, host, used=busy, capacity=1.0, unit="s", source=THREAD, iops=figures.iops
        )


def _network(figures: StepFigures) -> Iterator[Ceiling]:
    with_load = {figures.load_host, *(node.name for node in figures.nodes)}
    with_load |= {HERE} if figures.osd_cores_here else set()
    for use in figures.network:
        moved = max(use.receive_bytes_per_s, use.transmit_bytes_per_s)
        if use.host in with_load and use.link_ratio and moved > 0:
            words = f"the network of {machine(use.host)}"
            yield ceiling(
                "network",
                use.host,
                words,
                use.host,
                used=moved,
                capacity=moved / use.link_ratio,
                unit="bytes",
                source=LINK,
                iops=figures.iops,
            )


def _threads(step: Step, figures: StepFigures, perf: pa.Table, osds: Mapping[int, KnownOsd]) -> Iterator[Ceiling]:
    """Yield the kv-sync threads and the op workers. Neither holds a load back by itself.

    The kv-sync thread commits all transactions of its OSD, as many at a time as wait. A worker is busy with a read
    until it is done, and with a write until it is handed to the store.
    """
    if not osds or not all_answered(perf, frozenset(osds), "osd"):
        return
    sums = averages(perf, "osd", osds) | averages(perf, "bluestore", osds)
    load_ns = max(1, step.ended_ns - step.started_ns)

    def spent(osd: int, *names: str) -> float:
        return sum(sums.get((osd, name), NO_SUM)[1] for name in names) / load_ns

    workers = {osd: _WORKERS_HDD if placed.rotational else _WORKERS_SSD for osd, placed in osds.items()}
    kinds = (
        ("kv_sync", "the kv-sync thread of osd.{}", THREAD, dict.fromkeys(osds, 1), ("kv_sync_lat",)),
        ("op_workers", "the op workers of osd.{}", WORKERS, workers, ("op_r_process_latency", "op_w_prepare_latency")),
    )
    for resource, words, source, capacity, names in kinds:
        for osd in sorted(osds):
            busy = min(spent(osd, *names) / capacity[osd], 1.0)
            if busy > 0:
                yield ceiling(
                    *(resource, f"osd.{osd}", words.format(osd), osds[osd].host),
                    used=busy * capacity[osd],
                    capacity=capacity[osd],
                    unit="s",
                    source=source,
                    iops=figures.iops,
                    binding=False,
                )
