"""Control groups: the limits that they put on daemons and on the load, here and on other machines over ssh.

What holds a process back is the tightest limit of its own group and of those above it. Only the I/O throttle of version
1 knows no groups above: there its own rule counts alone. A limit is one of all members of its group, so what is counted
against it is the group's.

A process may be moved to another group at any time, so its groups are read anew each time, together with their files.
Limits change rarely and counters go on, so a reading a second is enough: some ten small files for each group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from bathyscope.errors import ParseError
from bathyscope.fields import as_int, parsing
from bathyscope.host import NodeRequest, ReadRequest, Request
from bathyscope.host.node_sampler import OF_GROUPS, group_paths
from bathyscope.host.ssh import ssh_argv
from bathyscope.records import HERE, CgroupSample, RawAnswer, Record, Tables, schema_of
from bathyscope.sources import proc
from bathyscope.sources.node_clock import clock_of
from bathyscope.sources.nodes import access_to, load_on
from bathyscope.sources.proc import Reading, Sampled
from bathyscope.sources.shape import Columns, Source
from bathyscope.spec.scope import Scope

_NODE = "cgroups-"
_CPU_MAX, _CPU_QUOTA, _CPU_PERIOD, _CPU_STAT = "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat"
_IO_MAX, _IO_STAT, _SERVICED = "io.max", "io.stat", "blkio.throttle.io_serviced"
# Column → (key in version 2's io.max, file of version 1).
_IO_LIMITS = {
    "read_iops_limit": ("riops", "blkio.throttle.read_iops_device"),
    "write_iops_limit": ("wiops", "blkio.throttle.write_iops_device"),
    "read_bytes_per_s_limit": ("rbps", "blkio.throttle.read_bps_device"),
    "write_bytes_per_s_limit": ("wbps", "blkio.throttle.write_bps_device"),
}
# Column → (the limit that it is counted against, key in io.stat, word in version 1's file).
_IO_COUNTS = {
    "read_request_count": ("read_iops_limit", "rios", "Read"),
    "write_request_count": ("write_iops_limit", "wios", "Write"),
}
_CPU_FILES = (_CPU_MAX, _CPU_QUOTA, _CPU_PERIOD, _CPU_STAT)
_IO_FILES = (_IO_MAX, _IO_STAT, _SERVICED, *(file for _, file in _IO_LIMITS.values()))


class Cgroups:
    """Limits and counters of the control groups of the target's daemons and of the processes that are watched."""

    name = "cgroups"
    records: tuple[type[Record], ...] = (CgroupSample,)
    period_s = 1.0
    timeout_s = 2.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request for this machine and one for each other machine."""
        machines = dict(_machines(scope))
        requests: list[Request] = [ReadRequest(self.name, _paths(machines.pop(self.name)))]
        for label, machine in machines.items():
            argv = ssh_argv(access_to(scope.target, machine.name), machine.name)
            requests.append(NodeRequest(label, argv, {"paths": list(_paths(machine))}, self.timeout_s))
        return requests

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each process and pair of consecutive readings that have it in the same groups.

        A machine whose answers are not understood gives no rows.
        """
        tables = [schema_of(CgroupSample).empty_table()]
        for label, machine in _machines(scope):
            of_label = [answer for answer in answers if answer.label == label and answer.exit_code == 0]
            clock = None if label == self.name else clock_of(of_label)
            try:
                with parsing(f"control groups of {machine.name}"):
                    readings = [Reading.of(a, a.ended_ns if clock is None else clock.ours_ns(a)) for a in of_label]
                    tables.append(_samples(readings, machine))
            except ParseError:
                if label == self.name:
                    raise
        return {CgroupSample: pa.concat_tables(tables)}


SOURCE: Source = Cgroups()


def _machines(scope: Scope) -> Iterator[tuple[str, Sampled]]:
    """Yield (label of its answers, what is looked at there) of this machine and of each other one."""
    target = scope.target
    yield SOURCE.name, Sampled(HERE, target.daemons_here, 0, 0, processes=scope.processes)
    for node in scope.nodes:
        yield f"{_NODE}{node.name}", Sampled(node.name, node.daemons, 0, 0, processes=load_on(node, scope))


def _paths(machine: Sampled) -> tuple[str, ...]:
    """Return the files of one reading."""
    devices = {daemon.pid: daemon.device for daemon in machine.daemons}
    devices.update((pid, None) for _, pid in machine.processes)
    paths = []
    for pid, device in sorted(devices.items()):
        files = (*_CPU_FILES, *_IO_FILES) if device else _CPU_FILES
        paths += [proc.stat_path(pid), _group_path(pid), f"/proc/{pid}{OF_GROUPS}{'|'.join(files)}"]
        paths += [_number_path(device), f"{_holders(device)}*/dev"] if device else []
    return tuple(paths)


def _group_path(pid: int) -> str:
    return f"/proc/{pid}/cgroup"


def _number_path(device: str) -> str:
    return f"/sys/class/block/{proc.kernel_name(device)}/dev"


def _holders(device: str) -> str:
    """Return the directory of what is upon a device."""
    return f"/sys/class/block/{proc.kernel_name(device)}/holders/"


def _numbers(reading: Reading, device: str) -> list[str]:
    """Return the numbers ("8:0") by which limits name a device: its own, and that of the one volume (LVM) upon it.

    Of several volumes it is not known which is the OSD's.
    """
    upon = _holders(device)
    above = [text for path, text in reading.files.items() if path.startswith(upon) and path.endswith("/dev")]
    number = reading.files.get(_number_path(device))
    return [text.strip() for text in (number, *(above if len(above) == 1 else ())) if text is not None]


@dataclasses.dataclass(frozen=True, slots=True)
class _CpuCounters:
    """What a group's quota did since the group was made. A processor that waits beside another adds its own time."""

    periods: int
    throttled_periods: int
    throttled_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Seen:
    """One process in one reading: its groups, their quotas and counters, the limits of its device and the requests.

    `quotas` are in cores, by group; `requests` are (group, counter), by column.
    """

    groups: str
    quotas: Mapping[str, float]
    counters: Mapping[str, _CpuCounters]
    limits: Mapping[str, float]
    requests: Mapping[str, tuple[str, int]]

    @property
    def tightest(self) -> str | None:
        """The group whose quota is the smallest; None without a quota."""
        return min(self.quotas, key=lambda group: self.quotas[group], default=None)


def _samples(readings: Sequence[Reading], machine: Sampled) -> pa.Table:
    """Return the rows of one machine; of all processes of one role together."""
    columns = Columns(CgroupSample)
    about = {daemon.name: daemon for daemon in machine.daemons}
    before: dict[proc.Identity, _Seen] = {}
    last_ns: int | None = None
    for reading in readings:
        now: dict[proc.Identity, _Seen] = {}
        for identity, _ in proc.running(reading, machine):
            daemon = about.get(identity[0])
            seen = _seen(reading, identity[1], (daemon and daemon.device) or "")
            if seen is not None:
                now[identity] = seen
        stayed: dict[str, list[tuple[_Seen, _Seen]]] = {}
        for identity, seen in now.items():
            # One that was moved meanwhile has an interval of two limits.
            if identity in before and before[identity].groups == seen.groups:
                stayed.setdefault(identity[0], []).append((before[identity], seen))
        for name, pairs in stayed.items() if last_ns is not None and reading.at_ns > last_ns else ():
            daemon = about.get(name)
            columns.add(
                at_ns=reading.at_ns,
                duration_ns=reading.at_ns - (last_ns or 0),
                host=machine.name if daemon is None else daemon.host,
                process=name,
                device=proc.kernel_name((daemon and daemon.device) or ""),
                **_cpu_columns(pairs),
                **_io_columns(*pairs[-1]),
            )
        before, last_ns = now, reading.at_ns
    return columns.table()


def _cpu_columns(pairs: Sequence[tuple[_Seen, _Seen]]) -> dict[str, float | None]:
    """Return the quota of processes together and how it held them back; nothing when one of them has none.

    Processes in one group share its quota. Of several groups with a quota, one above the other, that counts which held
    threads back for longest: their times overlap.
    """
    cores: dict[str, float] = {}
    grown: dict[str, _CpuCounters] = {}
    for before, now in pairs:
        if now.tightest is None:
            cores, grown = {}, {}
            break
        cores[now.tightest] = now.quotas[now.tightest]
        growths = [_growth(before.counters.get(group), now.counters.get(group)) for group in now.quotas]
        known = [growth for growth in growths if growth is not None]
        if known:
            grown[now.tightest] = max(known, key=lambda growth: (growth.throttled_ns, growth.throttled_periods))
    known_all = bool(cores) and len(grown) == len(cores)
    return {
        "cpu_quota_cores": sum(cores.values()) if cores else None,
        "cpu_throttled_s": sum(g.throttled_ns for g in grown.values()) / 1e9 if known_all else None,
        "cpu_period_count": sum(g.periods for g in grown.values()) if known_all else None,
        "cpu_throttled_period_count": sum(g.throttled_periods for g in grown.values()) if known_all else None,
    }


def _growth(before: _CpuCounters | None, now: _CpuCounters | None) -> _CpuCounters | None:
    """Return what was counted in between; None when it is not known: counters that went back are another group's."""
    if before is None or now is None:
        return None
    grown = [new - old for old, new in zip(dataclasses.astuple(before), dataclasses.astuple(now), strict=True)]
    return _CpuCounters(*grown) if min(grown) >= 0 else None


def _io_columns(before: _Seen, now: _Seen) -> dict[str, float | None]:
    columns: dict[str, float | None] = {column: now.limits.get(column) for column in _IO_LIMITS}
    for column in _IO_COUNTS:
        (old_group, old), (group, new) = (seen.requests.get(column, ("", -1)) for seen in (before, now))
        columns[column] = new - old if group and group == old_group and new >= old else None
    return columns


def _seen(reading: Reading, pid: int, device: str) -> _Seen | None:
    """Return what a reading has of a process's groups; None when it could not be seen, or has ended meanwhile."""
    text = reading.files.get(_group_path(pid))
    if text is None:
        return None
    quotas: dict[str, float] = {}
    counters: dict[str, _CpuCounters] = {}
    for group in group_paths(text, "cpu"):
        files = _Files(reading.files, group)
        if (cores := files.quota_cores()) is not None:
            quotas[group] = cores
        if (counted := files.cpu_counters()) is not None:
            counters[group] = counted
    groups = group_paths(text, "blkio") or group_paths(text, "io")
    numbers = _numbers(reading, device) if device else []
    rules = [_Files(reading.files, group, number) for number in numbers for group in groups]
    limits: dict[str, tuple[float, _Files]] = {}
    for column in _IO_LIMITS:
        known = [(limit, files) for files in rules if (limit := files.io_limit(column)) is not None]
        if known:
            limits[column] = min(known, key=lambda rule: rule[0])
    requests: dict[str, tuple[str, int]] = {}
    for column, (limit_column, _, _) in _IO_COUNTS.items() if rules else ():
        _, files = limits.get(limit_column, (0.0, rules[0]))
        if (count := files.request_count(column)) is not None:
            requests[column] = f"{files.group} {files.number}", count
    return _Seen(text, quotas, counters, {column: limit for column, (limit, _) in limits.items()}, requests)


@dataclasses.dataclass(frozen=True, slots=True)
class _Files:
    """The files of one control group in a reading, of either version; their lines about the device `number` ("8:0")."""

    files: Mapping[str, str]
    group: str
    number: str = ""

    def _lines(self, name: str) -> Iterable[list[str]]:
        return filter(None, map(str.split, self.files.get(f"{self.group}/{name}", "").splitlines()))

    def quota_cores(self) -> float | None:
        """Return how many processors its members may use together; None without a quota."""
        words = next(iter(self._lines(_CPU_MAX)), None)
        if words is None:
            words = [word for name in (_CPU_QUOTA, _CPU_PERIOD) for line in self._lines(name) for word in line]
        if len(words) < 2 or words[0] == "max" or as_int(words[0]) <= 0:
            return None
        return as_int(words[0]) / as_int(words[1])

    def cpu_counters(self) -> _CpuCounters | None:
        """Return its counters; None where there are none, as in the uppermost group of version 2."""
        said = dict(line[:2] for line in self._lines(_CPU_STAT))
        if "nr_periods" not in said:
            return None
        # Nanoseconds in version 1, microseconds in version 2.
        throttled_ns = as_int(said.get("throttled_time", 0)) + 1000 * as_int(said.get("throttled_usec", 0))
        return _CpuCounters(as_int(said["nr_periods"]), as_int(said["nr_throttled"]), throttled_ns)

    def io_limit(self, column: str) -> float | None:
        """Return a limit of the device; None without one."""
        key, file = _IO_LIMITS[column]
        value = self._keyed(_IO_MAX).get(key, "max")
        if value == "max":
            value = next((words[1] for words in self._lines(file) if words[0] == self.number), "0")
        return float(as_int(value)) or None

    def request_count(self, column: str) -> int | None:
        """Return the requests to the device that the group has counted since it was made; None when it has not."""
        _, key, word = _IO_COUNTS[column]
        value = self._keyed(_IO_STAT).get(key)
        if value is None:
            value = next((words[2] for words in self._lines(_SERVICED) if words[:2] == [self.number, word]), None)
        return None if value is None else as_int(value)

    def _keyed(self, name: str) -> dict[str, str]:
        """Return key → value of the device's line: 8:16 riops=120 wiops=max."""
        line = next((words[1:] for words in self._lines(name) if words[0] == self.number), [])
        return dict(word.partition("=")[::2] for word in line)
