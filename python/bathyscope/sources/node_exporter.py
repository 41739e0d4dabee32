"""Processors, devices and network of the machines of a cluster's other OSDs, by the series that a Prometheus has.

Asked for are the samples as they were scraped (a range selector in an instant query), not a `query_range`: that would
repeat the last sample at each of its steps, for up to five minutes. So rows are what was counted between one scrape and
the next, exactly, at the scrape's own time. One question reaches further back than the one before it, so a question
that fails loses nothing.

What node_exporter does not know are processes: the machine's processor time has a row, that of each OSD has not.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.errors import ParseError
from bathyscope.fields import as_dict, as_float, as_list, last_line, parsing
from bathyscope.host import Request
from bathyscope.records import (
    DeviceSample,
    NetworkSample,
    ProcessSample,
    RawAnswer,
    Record,
    Tables,
    build_table,
    schema_of,
)
from bathyscope.sources.exporters import CLOCK, query, result_of, selector, times
from bathyscope.sources.node_clock import clock_of
from bathyscope.sources.nodes import elsewhere
from bathyscope.sources.shape import Source
from bathyscope.spec.scope import Scope, ScopeExporter
from bathyscope.units import format_seconds

# A step with fewer whole intervals between scrapes has no figures.
INTERVALS_MIN = 3
# Nor has one of which they cover less than this.
_COVERED_MIN = 0.5
_BACK_S = 150
_DISK = (
    "reads_completed_total", "writes_completed_total", "read_bytes_total", "written_bytes_total",
    "io_time_seconds_total",
)  # fmt: skip
_USER, _SYSTEM, _STEAL = ("user", "nice"), ("system", "irq", "softirq"), "steal"
_NETWORK = ("receive_bytes_total", "transmit_bytes_total")
# Interfaces without a cable: what passes them passes another one, or never leaves the machine. Bonds, bridges and VLANs
# are known by the usual names only; one with another name counts what its cards count, again.
_NO_CABLE = (
    "(?:lo|veth|cali|lxc|lxd|tap|tun|vnet|docker|podman|cni|flannel|cilium|virbr|br-|ovs-|vxlan|kube|dummy|ifb"
    "|bond|team|vlan|br[0-9]|vmbr).*|.+[.][0-9]+"
)
_KINDS = ("cpu", "disk", "network")

_Labels = tuple[tuple[str, str], ...]
_Course = dict[float, float]
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


class NodeExporter:
    """Counters of processors, of the OSDs' devices and of the network, since two and a half minutes."""

    name = "node_exporter"
    records: tuple[type[Record], ...] = (DeviceSample, NetworkSample, ProcessSample)
    period_s = 50.0
    timeout_s = 10.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return three questions for each machine, and one for the time; none without a Prometheus."""
        access = scope.target.prometheus
        if access is None or not scope.exporters:
            return []
        requests: list[Request] = [query(access, CLOCK, "time()", self.timeout_s)]
        for exporter in scope.exporters:
            labels = {**access.match, "instance": exporter.instance, "job": exporter.job}
            devices = "|".join(map(re.escape, _roles(scope, exporter.name)))
            cpu = selector("node_cpu_seconds_total", labels, ("mode", "=~", "|".join((*_USER, *_SYSTEM, _STEAL))))
            disk = selector(f"node_disk_({'|'.join(_DISK)})", labels, ("device", "=~", devices))
            network = selector(f"node_network_({'|'.join(_NETWORK)})", labels, ("device", "!~", _NO_CABLE))
            for kind, expression in zip(_KINDS, (cpu, disk, network), strict=True):
                label = f"{kind}-{exporter.name}"
                requests.append(query(access, label, f"{expression}[{_BACK_S}s]", self.timeout_s))
        return requests

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each device, interface and machine, and pair of consecutive scrapes.

        Only those that end after the first answer: what was before belongs to a window before.
        """
        parts: dict[type[Record], list[pa.Table]] = {r: [schema_of(r).empty_table()] for r in self.records}
        given = _by_label(answers)
        for exporter in scope.exporters:
            # What is wrong with a machine's series `in_window` says.
            with contextlib.suppress(ParseError):
                for record, table in _node(given, exporter, scope).tables.items():
                    parts[record].append(table)
        return {record: pa.concat_tables(tables) for record, tables in parts.items()}


SOURCE: Source = NodeExporter()


@dataclasses.dataclass(frozen=True, slots=True)
class Resolution:
    """How finely a window is seen: rows that can be used, whose figures are missing, and how coarse the others are.

    `missing` and `coarse` are sentences.
    """

    tables: Tables
    missing: tuple[str, ...] = ()
    coarse: tuple[str, ...] = ()


def in_window(answers: Sequence[RawAnswer], scope: Scope, start_ns: int, end_ns: int) -> Resolution:
    """Return the rows that lie in a window as a whole, for the machines that have enough of them.

    An interval of many seconds over an edge of the window has counted what is not of the window, and nobody knows how
    much. Counters of a machine that are missing altogether cost its own figures; those of a device
    or an interface cost those of that one.
    """
    if not answers:
        return Resolution({})
    given, missing, coarse = _by_label(answers), [], collections.defaultdict(list)
    parts: dict[type[Record], list[pa.Table]] = {r: [schema_of(r).empty_table()] for r in SOURCE.records}
    for exporter in scope.exporters:
        name = exporter.name
        try:
            node = _node(given, exporter, scope)
        except ParseError as error:
            missing.append(f"{name} has no processor and device figures: {error.message}")
            continue
        tables: dict[type[Record], pa.Table] = {
            record: _whole(table, start_ns, end_ns) for record, table in node.tables.items()
        }
        words, is_enough = _held(node.period_s, tables[ProcessSample], (end_ns - start_ns) / 1e9)
        if not is_enough:
            missing.append(f"{name} has no processor and device figures: {words}")
            continue
        coarse[words].append(name)
        missing += _drop_parts(name, node, tables, _roles(scope, name), (end_ns - start_ns) / 1e9)
        for record, table in tables.items():
            parts[record].append(table)
    said = tuple(f"figures of {_names(names)} come from Prometheus: {words}" for words, names in sorted(coarse.items()))
    return Resolution({r: pa.concat_tables(tables) for r, tables in parts.items()}, tuple(missing), said)


def _drop_parts(
    machine: str,
    node: _Node,
    tables: dict[type[Record], pa.Table],
    roles: Mapping[str, tuple[str, str]],
    seconds: float,
) -> Iterator[str]:
    """Take out of `tables` what was counted for a part of the window only, and yield a sentence for each such reason.

    Scrapes have all counters of a machine, so what has less than its processors, by more than the scrapes at the ends,
    lacks answers or was not always there. An OSD whose block.db or block.wal is not known loses its data device too:
    sums over its devices would pass for whole.
    """
    least_s = _seconds(tables[ProcessSample]) - 2 * node.period_s
    expected = {DeviceSample: ("device", set(roles)), NetworkSample: ("interface", set[str]())}
    for record, (column, names) in expected.items():
        known_names: set[str] = {str(name) for name in node.tables[record][column].to_pylist()}
        reasons = dict.fromkeys(names - known_names, "Prometheus has no series of it")
        for name in known_names:
            rows = tables[record].filter(pc.field(column) == name)
            if not _held(node.period_s, rows, seconds)[1] or _seconds(rows) < least_s:
                held = f"{rows.num_rows} whole intervals ({format_seconds(_seconds(rows))})"
                reasons[name] = f"Prometheus has {held} of the measured {format_seconds(seconds)}"
        if record is NetworkSample and node.network_failure is not None and not known_names:
            yield f"{machine} has no network figures: Prometheus gave no answer: {node.network_failure}"
        osds = {".".join(word.split(".")[:2]) for name in reasons if name in roles for word in roles[name][0].split()}
        for name in set(roles) & known_names - set(reasons):
            if osds & set(roles[name][0].split()):
                reasons[name] = "its OSD has another device without figures"
        tables[record] = tables[record].filter(
            pc.invert(pc.is_in(tables[record][column], pa.array(reasons, pa.string())))
        )
        for why in sorted(set(reasons.values())):
            yield f"{machine} has no figures of {_names(sorted(n for n in reasons if reasons[n] == why))}: {why}"


def _seconds(rows: pa.Table) -> float:
    return float(rows["duration_ns"].to_numpy().sum()) / 1e9


def _held(period_s: float, rows: pa.Table, seconds: float) -> tuple[str, bool]:
    """Return what of a window is seen, in words, and whether that is enough."""
    covered_s = _seconds(rows)
    scraped = f"one scrape every {format_seconds(period_s)}"
    held = f"{rows.num_rows} whole intervals ({format_seconds(covered_s)}) of the measured {format_seconds(seconds)}"
    if rows.num_rows >= INTERVALS_MIN and covered_s >= _COVERED_MIN * seconds:
        # Without the step's own count, so that the caveats of many steps become one.
        return f"{scraped}, so up to {format_seconds(2 * period_s)} at the ends of a step are not in them", True
    needed = math.ceil((INTERVALS_MIN + 2) * period_s)
    return f"{scraped} leaves {held}; {INTERVALS_MIN} are needed, take --runtime {needed}s or more", False


def _names(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _whole(table: pa.Table, start_ns: int, end_ns: int) -> pa.Table:
    at_ns, length_ns = (table[name].to_numpy() for name in ("at_ns", "duration_ns"))
    return table.filter(pa.array((at_ns - length_ns >= start_ns) & (at_ns <= end_ns), type=pa.bool_()))


def _roles(scope: Scope, machine: str) -> dict[str, tuple[str, str]]:
    """Return device of a machine → (what its OSDs use it for: "osd.0 osd.1.db", their class)."""
    roles: dict[str, tuple[str, str]] = {}
    for osd in elsewhere(scope).get(machine, ()):
        uses = [(osd.device, f"osd.{osd.osd}", osd.device_class)]
        uses += [
            (bluefs.device, f"osd.{osd.osd}.{bluefs.use}", bluefs.device_class or "") for bluefs in osd.bluefs_devices
        ]
        for device, name, device_class in uses:
            if device:
                before, its_class = roles.get(device, ("", ""))
                roles[device] = (f"{before} {name}".strip(), its_class or device_class)
    return roles


# --- rows


@dataclasses.dataclass(frozen=True, slots=True)
class _Node:
    """The rows of one machine, the usual time between its scrapes, and why there are none of its network."""

    tables: Tables
    period_s: float
    network_failure: str | None


def _by_label(answers: Sequence[RawAnswer]) -> dict[str, list[RawAnswer]]:
    given: dict[str, list[RawAnswer]] = collections.defaultdict(list)
    for answer in answers:
        given[answer.label].append(answer)
    return given


def _node(given: Mapping[str, Sequence[RawAnswer]], exporter: ScopeExporter, scope: Scope) -> _Node:
    """Return what the answers say of one machine. Raises ParseError, also when there is nothing."""
    of_exporter = {kind: given.get(f"{kind}-{exporter.name}", ()) for kind in _KINDS}
    failures = {kind: _failure(answers) for kind, answers in of_exporter.items()}
    if failures["cpu"] is not None:
        raise ParseError(f"Prometheus gave no answer: {failures['cpu']}")
    with parsing(f"the series of {exporter.name}"):
        courses = {kind: _courses(answers) for kind, answers in of_exporter.items()}
        scrapes = sorted({at_s for course in courses["cpu"].values() for at_s in course})
        if len(scrapes) < 2:
            raise ParseError("Prometheus has no samples of it")
        clock = clock_of(given.get(CLOCK, ()), times)
        if clock is None:
            raise ParseError("Prometheus does not tell its time")
        since_ns = of_exporter["cpu"][0].started_ns
        cpu, disk, network = (_Counted(courses[kind], clock.offset_ns, since_ns) for kind in _KINDS)
        devices, interfaces = _devices(disk, exporter.name, scope), _interfaces(network, exporter.name)
        tables = {
            DeviceSample: pa.concat_tables([schema_of(DeviceSample).empty_table(), *devices]),
            NetworkSample: pa.concat_tables([schema_of(NetworkSample).empty_table(), *interfaces]),
            ProcessSample: _processors(cpu, exporter.name),
        }
        return _Node(tables, float(np.median(np.diff(scrapes))), failures["network"])


def _failure(answers: Sequence[RawAnswer]) -> str | None:
    """Return why none of the answers can be used, or None."""
    return last_line(answers[-1].stderr) if answers and all(answer.exit_code != 0 for answer in answers) else None


def _courses(answers: Sequence[RawAnswer]) -> dict[_Labels, _Course]:
    """Return labels of a series → time in seconds → value, of all good answers together. Raises ParseError."""
    courses: dict[_Labels, _Course] = collections.defaultdict(dict)
    for answer in answers:
        if answer.exit_code != 0:
            continue
        with parsing(answer.label):
            for series in map(as_dict, result_of(answer, "matrix")):
                labels = tuple(sorted((str(k), str(v)) for k, v in as_dict(series["metric"]).items()))
                for at_s, value in map(as_list, as_list(series["values"])):
                    number = as_float(value)
                    if number < 0:
                        raise ParseError(f"{answer.label}: a counter of {number:g}")
                    courses[labels][as_float(at_s)] = number
    return dict(courses)


@dataclasses.dataclass(frozen=True, slots=True)
class _Counted:
    """The courses of one machine's counters of a kind, and what turns their times into ours."""

    courses: Mapping[_Labels, _Course]
    offset_ns: int
    since_ns: int

    def grown(self, courses: Sequence[_Course]) -> tuple[_Ints, _Ints, list[_Floats]]:
        """Return the ends and lengths of the intervals between scrapes that all of `courses` have, and their growth.

        A counter that went back is one that began anew: the interval is left out.
        """
        common = sorted(set.intersection(*map(set, courses)) if courses else ())
        at_ns = np.array([round(at_s * 1000) * 1_000_000 for at_s in common], dtype=np.int64) - self.offset_ns
        growth = [np.diff(np.array([course[at_s] for at_s in common])) for course in courses]
        is_good = (at_ns[1:] > self.since_ns) & (np.diff(at_ns) > 0)
        for each in growth:
            is_good &= each >= 0
        return at_ns[1:][is_good], np.diff(at_ns)[is_good], [each[is_good] for each in growth]

    def by(self, label: str) -> Iterator[tuple[str, dict[str, _Course]]]:
        """Yield a value of `label` and its courses by the metric's name. Raises ParseError for two of one name."""
        grouped: dict[str, dict[str, _Course]] = collections.defaultdict(dict)
        for labels, course in self.courses.items():
            of = dict(labels)
            if of["__name__"] in grouped[of[label]]:
                raise _several(of[label])
            grouped[of[label]][of["__name__"]] = course
        yield from sorted(grouped.items())


def _several(what: str) -> ParseError:
    return ParseError(
        f"Prometheus has several series of {what} for one instance and job; choose with --prometheus-match"
    )


def _devices(counted: _Counted, machine: str, scope: Scope) -> Iterator[pa.Table]:
    roles = _roles(scope, machine)
    for device, metrics in counted.by("device"):
        names = [f"node_disk_{name}" for name in _DISK]
        if device not in roles or not set(names) <= set(metrics):
            continue
        at_ns, length_ns, growth = counted.grown([metrics[name] for name in names])
        reads, writes, read_bytes, written_bytes, busy_s = growth
        yield _table(
            DeviceSample, machine, at_ns, length_ns,
            device=device, role=roles[device][0], device_class=roles[device][1],
            read_count=_whole_numbers(reads), write_count=_whole_numbers(writes),
            read_bytes=_whole_numbers(read_bytes), write_bytes=_whole_numbers(written_bytes),
            busy_ratio=busy_s / (length_ns / 1e9),
        )  # fmt: skip


def _interfaces(counted: _Counted, machine: str) -> Iterator[pa.Table]:
    for interface, metrics in counted.by("device"):
        names = [f"node_network_{name}" for name in _NETWORK]
        if not set(names) <= set(metrics):
            continue
        at_ns, length_ns, (received, sent) = counted.grown([metrics[name] for name in names])
        yield _table(
            NetworkSample, machine, at_ns, length_ns,
            interface=interface, receive_bytes=_whole_numbers(received), transmit_bytes=_whole_numbers(sent),
        )  # fmt: skip


def _processors(counted: _Counted, machine: str) -> pa.Table:
    """Return the processor time of the machine: the row "host". Raises ParseError for two series of one."""
    courses = [(dict(labels)["mode"], dict(labels)["cpu"], course) for labels, course in counted.courses.items()]
    for (mode, cpu), times_seen in collections.Counter((mode, cpu) for mode, cpu, _ in courses).items():
        if times_seen > 1:
            raise _several(f"processor {cpu}, {mode},")
    at_ns, length_ns, growth = counted.grown([course for _, _, course in courses])
    user, system, steal = np.zeros(len(at_ns)), np.zeros(len(at_ns)), np.zeros(len(at_ns))
    for (mode, _, _), each in zip(courses, growth, strict=True):
        if mode in _USER:
            user += each
        elif mode in _SYSTEM:
            system += each
        elif mode == _STEAL:
            steal += each
    return _table(
        ProcessSample, machine, at_ns, length_ns,
        process="host", cpu_user_s=user, cpu_system_s=system, processors=len({cpu for _, cpu, _ in courses}),
        cpu_steal_s=steal if any(mode == _STEAL for mode, _, _ in courses) else None,
    )  # fmt: skip


def _whole_numbers(growth: _Floats) -> _Ints:
    """Return growth as integers. Raises ValueError beyond 64 bits."""
    if (growth >= 2.0**63).any():
        raise ValueError("a counter does not fit 64 bits")
    return np.rint(growth).astype(np.int64)


def _table(record: type[Record], machine: str, at_ns: _Ints, length_ns: _Ints, **columns: Any) -> pa.Table:
    return build_table(record, {"at_ns": at_ns, "duration_ns": length_ns, "host": machine, **columns})
