"""/proc of a machine: what its devices, processes and network did between one reading and the next.

Rows are exact: what the kernel counted between two readings, in its own units, so that intervals add up. A reading of
ten processes takes well under a millisecond.

`busy_ratio` of an emulated device says little: the kernel's throttle holds requests back before the device counts
them as in flight. For those, `read_limit_ratio` and `write_limit_ratio` say how near the device was to its limits.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope.fields import as_int, parsing
from bathyscope.host import ReadRequest, Request
from bathyscope.records import (
    HERE,
    DeviceSample,
    NetworkSample,
    ProcessSample,
    RawAnswer,
    Record,
    Tables,
    build_table,
    schema_of,
)
from bathyscope.sources import network
from bathyscope.sources.shape import Columns, Source
from bathyscope.spec import DaemonTarget, DeviceLimit, DiskTarget
from bathyscope.spec.scope import Scope, ScopeLink

_STAT, _DISKSTATS = "/proc/stat", "/proc/diskstats"
_SECTOR_BYTES = 512
_PARTITION = re.compile(r"(?:[shv]d[a-z]+\d+|(?:nvme\d+n\d+|mmcblk\d+)p\d+)$")
_IGNORED = re.compile(r"(?:loop|ram|zram|sr|fd)\d+$")


class Proc:
    """/proc/stat, diskstats, net/dev, and /proc/PID/stat of the target's daemons and the processes that are watched."""

    name = "proc"
    records: tuple[type[Record], ...] = (DeviceSample, ProcessSample, NetworkSample)
    period_s = 0.2
    timeout_s = 5.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the one request: all files are read at one moment."""
        pids = {daemon.pid for daemon in scope.target.daemons_here} | {pid for _, pid in scope.processes}
        return [ReadRequest(self.name, paths(pids))]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each device, process and interface, and pair of consecutive readings that have it."""
        with parsing("/proc"):
            readings = [Reading.of(a, a.ended_ns) for a in answers if a.exit_code == 0 and a.label == self.name]
            target = scope.target
            here = Sampled(
                HERE, target.daemons_here, scope.clock_ticks_per_s, scope.page_bytes, scope.links,
                target.disks, scope.processes,
            )  # fmt: skip
            return samples(readings, here)


SOURCE: Source = Proc()


@dataclasses.dataclass(frozen=True, slots=True)
class Sampled:
    """A machine and what of it is looked at: daemons, links, disks of a class, (role, pid) of others."""

    name: str
    daemons: Sequence[DaemonTarget]
    clock_ticks_per_s: int
    page_bytes: int
    links: Sequence[ScopeLink] = ()
    disks: Mapping[str, DiskTarget] = dataclasses.field(default_factory=dict)
    processes: Sequence[tuple[str, int]] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """One reading: its time, and per path the file's text."""

    at_ns: int
    files: Mapping[str, str]

    @classmethod
    def of(cls, answer: RawAnswer, at_ns: int) -> Self:
        """Return the reading that an answer holds."""
        return cls(at_ns, {path: content.decode("utf-8", "replace") for path, content in answer.files})


def paths(pids: Iterable[int]) -> tuple[str, ...]:
    """Return the files of one reading."""
    return (_STAT, _DISKSTATS, network.COUNTERS_PATH, *map(stat_path, sorted(set(pids))))


def samples(readings: Sequence[Reading], machine: Sampled) -> Tables:
    """Return a row for each device, process and interface of a machine, and pair of readings that have it."""
    counted = [(r.at_ns, r.files[network.COUNTERS_PATH]) for r in readings if network.COUNTERS_PATH in r.files]
    return {
        DeviceSample: _devices(readings, machine),
        ProcessSample: _processes(readings, machine),
        NetworkSample: network.samples(counted, machine.name, machine.links),
    }


def stat_path(pid: int) -> str:
    """Return the file that says since when a process runs, and what it has used."""
    return f"/proc/{pid}/stat"


# --- devices


@dataclasses.dataclass(frozen=True, slots=True)
class _Role:
    """What a device is to us."""

    name: str
    host: str
    device_class: str = ""
    limit: DeviceLimit | None = None


def _roles(machine: Sampled) -> dict[str, _Role]:
    """Return kernel name → role for the devices of a machine's daemons and disks."""
    roles: dict[str, _Role] = {}
    for disk_class, disk in machine.disks.items():
        if disk.device:
            roles[kernel_name(disk.device)] = _Role("disk", machine.name, disk_class, disk.limit)
    for daemon in machine.daemons:
        uses = [(daemon.device, daemon.name, daemon.device_class, daemon.limit)]
        uses += [
            (bluefs.device, f"{daemon.name}.{bluefs.use}", bluefs.device_class, bluefs.limit)
            for bluefs in daemon.bluefs_devices
        ]
        for device, name, device_class, limit in uses:
            if device:
                role = _Role(name, daemon.host, device_class or "", limit)
                # Several OSDs may share a device: files on one disk, partitions, block.db of all on one SSD.
                shared = roles.get(kernel_name(device))
                if shared is not None:
                    role = dataclasses.replace(shared, name=f"{shared.name} {name}")
                roles[kernel_name(device)] = role
    return roles


def kernel_name(device: str) -> str:
    """Return the name of a device as the kernel lists it."""
    return device.removeprefix("/dev/").replace("/", "!")


def _devices(readings: Sequence[Reading], machine: Sampled) -> pa.Table:
    """Return the rows of every device that has a role, and of other whole disks that were used."""
    roles = _roles(machine)
    counted: dict[str, list[tuple[int, ...]]] = {}
    for reading in readings:
        for line in reading.files.get(_DISKSTATS, "").splitlines():
            words = line.split()
            device = words[2]
            if device in roles or not (_PARTITION.match(device) or _IGNORED.match(device)):
                # Reads, writes, sectors read, sectors written, ms with I/O in flight, merged reads, merged writes.
                values = (as_int(words[index]) for index in (3, 7, 5, 9, 12, 4, 8))
                counted.setdefault(device, []).append((reading.at_ns, *values))
    tables = [
        _device(device, roles.get(device, _Role("other", machine.name)), np.array(course, dtype=np.int64))
        for device, course in counted.items()
        if device in roles or course[-1][1:] != course[0][1:]
    ]
    return pa.concat_tables([schema_of(DeviceSample).empty_table(), *tables])


def _device(device: str, role: _Role, course: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows of one device. Counters that went back are another device of the same name: no row."""
    grown = np.diff(course, axis=0)
    is_whole = (grown[:, 0] > 0) & (grown[:, 1:] >= 0).all(axis=1)
    at_ns, grown = course[1:, 0][is_whole], grown[is_whole]
    duration_ns, reads, writes, read_sectors, write_sectors, busy_ms, merged_reads, merged_writes = grown.T
    read_bytes, write_bytes = read_sectors * _SECTOR_BYTES, write_sectors * _SECTOR_BYTES
    seconds = duration_ns / 1e9
    columns = {
        "at_ns": at_ns,
        "duration_ns": duration_ns,
        "host": role.host,
        "device": device,
        "role": role.name,
        "device_class": role.device_class,
        "read_count": reads,
        "write_count": writes,
        "read_bytes": read_bytes,
        "write_bytes": write_bytes,
        # Not cut off at 1: a throttle lets bursts through, and means over many intervals must stay true.
        "busy_ratio": busy_ms / 1000 / seconds,
    }
    if role.limit is not None:
        limit = role.limit
        # The throttle counts requests as they are made; sequential ones are merged into fewer after that.
        asked = reads + merged_reads, writes + merged_writes
        columns["read_limit_ratio"] = _use((asked[0], limit.read_iops), (read_bytes, limit.read_bytes_per_s), seconds)
        columns["write_limit_ratio"] = _use(
            (asked[1], limit.write_iops), (write_bytes, limit.write_bytes_per_s), seconds
        )
    return build_table(DeviceSample, columns)


def _use(
    operations: tuple[npt.NDArray[np.int64], float | None],
    size: tuple[npt.NDArray[np.int64], float | None],
    seconds: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64] | None:
    """Return the greater of what was done over what is allowed a second; None without a limit."""
    ratios = [done / seconds / most for done, most in (operations, size) if most]
    return np.max(ratios, axis=0) if ratios else None


# --- processes


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """What one process, or the machine, has used since its start; `pages` are resident.

    `steal_ticks`: what the machine did not get; None of a process.
    """

    user_ticks: int
    system_ticks: int
    pages: int = 0
    steal_ticks: int | None = None


# What identifies a process, also after its pid was given to another: (name of its row, pid, start time in ticks)
Identity = tuple[str, int, int]


def _processes(readings: Sequence[Reading], machine: Sampled) -> pa.Table:
    """Return the rows of the daemons, all processes of one role together, and the whole machine, as far as seen.

    A process counts from its first reading on, whenever that is.
    """
    columns = Columns(ProcessSample)
    hosts = {daemon.name: daemon.host for daemon in machine.daemons}
    last: dict[Identity, Counted] = {}
    processors, last_ns = 0, None
    for reading in readings:
        processors = len(re.findall(r"^cpu\d+ ", reading.files.get(_STAT, ""), flags=re.MULTILINE)) or processors
        seen = dict(_seen(reading, machine))
        duration_ns = 0 if last_ns is None else reading.at_ns - last_ns
        for name in dict.fromkeys(identity[0] for identity in seen) if duration_ns > 0 else ():
            now = {identity: counted for identity, counted in seen.items() if identity[0] == name}
            before = [last.get(identity, counted) for identity, counted in now.items()]
            user = sum(c.user_ticks for c in now.values()) - sum(c.user_ticks for c in before)
            system = sum(c.system_ticks for c in now.values()) - sum(c.system_ticks for c in before)
            pages = sum(c.pages for c in now.values())
            pairs = [(c.steal_ticks, b.steal_ticks) for c, b in zip(now.values(), before, strict=True)]
            stolen = [new - old for new, old in pairs if new is not None and old is not None]
            columns.add(
                at_ns=reading.at_ns,
                duration_ns=duration_ns,
                host=hosts.get(name, machine.name),
                process=name,
                cpu_user_s=max(0, user) / machine.clock_ticks_per_s,
                cpu_system_s=max(0, system) / machine.clock_ticks_per_s,
                memory_bytes=None if name == "host" else pages * machine.page_bytes,
                processors=processors,
                cpu_steal_s=max(0, sum(stolen)) / machine.clock_ticks_per_s if stolen else None,
            )
        last.update(seen)
        last_ns = reading.at_ns
    return columns.table()


def running(reading: Reading, machine: Sampled) -> Iterator[tuple[Identity, Counted]]:
    """Yield every process of a machine that a reading has."""
    for daemon in machine.daemons:
        process = _process(reading, daemon.name, daemon.pid)
        # Another process may have got the daemon's pid.
        if process is not None and process[0][2] == daemon.start_ticks:
            yield process
    for role, pid in machine.processes:
        process = _process(reading, role, pid)
        if process is not None:
            yield process


def _seen(reading: Reading, machine: Sampled) -> Iterator[tuple[Identity, Counted]]:
    """Yield every process that a reading has, the machine among them."""
    yield from running(reading, machine)
    words = reading.files.get(_STAT, "").split("\n", 1)[0].split()
    if words[:1] == ["cpu"]:
        user, nice, system, _idle, _iowait, irq, softirq, *others = (as_int(word) for word in words[1:])
        steal = others[0] if others else None
        yield ("host", 0, 0), Counted(user + nice, system + irq + softirq, steal_ticks=steal)


def _process(reading: Reading, name: str, pid: int) -> tuple[Identity, Counted] | None:
    text = reading.files.get(stat_path(pid))
    if text is None:
        return None
    # The name of the program stands in parentheses and may hold anything, also parentheses.
    words = text.rpartition(")")[2].split()
    user_ticks, system_ticks, start_ticks, pages = (as_int(words[index]) for index in (11, 12, 19, 21))
    return (name, pid, start_ticks), Counted(user_ticks, system_ticks, pages)
