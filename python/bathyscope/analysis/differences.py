"""What is not the same in two runs besides their figures: the plan, our pools, the layout, the environment.

Every fact that either run holds is compared, so that one more recorded fact is one more compared fact. Left out is
only what differs between any two moments of the same machine, and what only names a thing (ids of our own, process
ids). A difference has a severity:

- refused: what was measured is not the same thing, so no figure of the step is compared;
- warning: the difference can itself make a step faster or slower: it may be what you want to know, or an oversight;
- note: anything else.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bathyscope.analysis.columns import Tables, table_of, where
from bathyscope.records import Placement, Run, Step, from_table
from bathyscope.records.blocks import severity_order
from bathyscope.records.finding import Difference
from bathyscope.units import format_bytes

Facts = Mapping[tuple[str, str, str], str]
"""(area, subject, name) → value."""

NOT_RECORDED = "(not recorded)"

# Rows of one kind beyond which the rest is summed up: a thousand OSDs have a thousand devices.
_ROWS_MAX = 4
# Our own pools and images carry the run's id; without it they are the same thing in both runs.
_RUN_PART = re.compile(r"bathy-[0-9A-Za-z]+")
_OSD = re.compile(r"osd\.[0-9]+")
# What differs between any two moments of the same machine explains nothing.
_VARYING = re.compile(r"loadavg|memory_available|latency_ms|^pgs active\+clean$|^osd_pid$")

# Facts of a step that say when it ran or how it ended, not what it was.
_OF_THE_MOMENT = frozenset({
    "step_index", "step_key", "repeat_index", "started_ns", "ended_ns", "measured_start_ns", "measured_end_ns",
    "prolonged_count", "status", "reason",
})  # fmt: skip
# A step with another one of these is the same load, run differently; with any other, another load.
_STEP_WARNINGS = frozenset({"ramp_s", "runtime_s", "osds"})
_STEP_WORDS = {"working_set_bytes": "working sets", "temperature": "claims on caches"}

# Keys of a plan that decide what a figure means, and those that move it. Others choose which steps there are.
_PLAN_REFUSED = frozenset({"client_cache", "prefill", "io_count"})
_PLAN_WARNINGS = re.compile(
    r"replicas|ramp|runtime|phases|apart|axes\.image_size|quiesce\..*|limits\.prolong|load_generators\..*"
)
_ENVIRONMENT_WARNINGS = frozenset({"target", "fsid", "host_name", "cpu_count"})
_LAYOUT_NOTES = frozenset({"device", "ceph_version"})


def differences(a: Tables, b: Tables, recorded: tuple[Facts, Facts]) -> tuple[Difference, ...]:
    """Return every difference between two runs, the most severe first.

    `recorded` are the facts of each run that are in none of its tables: see `recorded_facts`.
    """
    facts_a, facts_b = ({**given, **_facts(tables)} for tables, given in zip((a, b), recorded, strict=True))
    # An OSD of one run only is told by the list of OSDs, not by each of its facts.
    apart = _osds(a) ^ _osds(b) if _osds(a) and _osds(b) else frozenset()
    both = {key[:2] for key in facts_a} & {key[:2] for key in facts_b}
    differences = []
    for area, subject, name in sorted(facts_a.keys() | facts_b.keys()):
        before, after = (facts.get((area, subject, name), NOT_RECORDED) for facts in (facts_a, facts_b))
        if before != after and not _VARYING.search(name) and subject not in apart:
            # What one run has and the other lacks as a whole (a pool, a class) has no step in both of them.
            severity = _severity(area, name) if (area, subject) in both else "note"
            differences.append(Difference(area, subject, name, before, after, severity))
    return joined(differences)


def step_differences(a: Step, b: Step) -> list[Difference]:
    """Return what is not the same in two steps of the same key."""
    differences = []
    for name in Step.__dataclass_fields__:
        values = getattr(a, name), getattr(b, name)
        if name in _OF_THE_MOMENT or values[0] == values[1]:
            continue
        severity = "warning" if name in _STEP_WARNINGS else "refused"
        shown = [_shown(name, value) for value in values]
        differences.append(Difference("step", a.step_key, name, shown[0], shown[1], severity))
    return differences


def obstacle(differences: Iterable[Difference]) -> str | None:
    """Return the first difference that forbids to compare a step, as a sentence, or None."""
    for difference in differences:
        if difference.severity == "refused":
            name = _STEP_WORDS.get(difference.name, f"values of {difference.name}")
            return f"the {name} differ: {difference.a} and {difference.b}"
    return None


def recorded_facts(plan: Mapping[str, Any], target: Mapping[str, Any]) -> Facts:
    """Return the facts that a run holds beside its tables: its plan, and of its target what is no mere name.

    The limits of emulated devices are part of the layout: a disk with another limit is another disk.
    """
    facts = {("plan", "plan", name): value for name, value in _flat(plan)}
    limits: dict[tuple[str, str], set[str]] = {}
    for daemon in target.get("daemons", ()):
        bluefs = [
            (f"limit of block.{bluefs_device['use']}", bluefs_device)
            for bluefs_device in daemon.get("bluefs_devices", ())
        ]
        for name, device in [("limit", daemon), *bluefs]:
            if device.get("limit"):
                subject = f"OSDs of class {daemon.get('device_class')}"
                limits.setdefault((subject, name), set()).add(_joined(device["limit"]))
    for device_class, disk in dict(target.get("disks", {})).items():
        facts["layout", f"disk {device_class}", "size_bytes"] = str(disk.get("size_bytes"))
        if disk.get("limit"):
            limits.setdefault((f"disk {device_class}", "limit"), set()).add(_joined(disk["limit"]))
    facts |= {("layout", *about): "; ".join(sorted(texts)) for about, texts in limits.items()}
    facts["layout", "load", "remote clients"] = str(len(target.get("clients", ())))
    return facts


def _joined(limit: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in sorted(limit.items()) if value is not None)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each leaf; a list is one leaf."""
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{name}.")
        elif isinstance(item, list | tuple):
            yield f"{prefix}{name}", ", ".join(map(str, item)) or "(default)"
        else:
            yield f"{prefix}{name}", "(default)" if item is None else str(item)


def _facts(tables: Tables) -> dict[tuple[str, str, str], str]:
    """Return what a run stood on: its own row, its OSDs, and the environment before it."""
    facts: dict[tuple[str, str, str], str] = {}
    for run in from_table(Run, table_of(tables, "run")):
        for name in ("target", "bathy_version", "ceph_version", "fio_version", "host_name", "kernel", "cpu_count"):
            value = getattr(run, name)
            if value is not None:
                facts["environment", "run", name] = str(value)
    for row in where(table_of(tables, "environment"), moment="before").to_pylist():
        subject = _RUN_PART.sub("bathy-*", row["subject"])
        ours = subject != row["subject"] and subject.startswith("pool ")
        # The number of a rule says nothing, and ours has the run's id in its name.
        value = _RUN_PART.sub("bathy-*", row["value"])
        if not (ours and row["name"] == "crush_rule" and value.isdigit()):
            facts["pool" if ours else "environment", subject, row["name"]] = value
    places: dict[str, list[Placement]] = {}
    for placement in from_table(Placement, table_of(tables, "placement")):
        places.setdefault(placement.device_class, []).append(placement)
        for name in Placement.__dataclass_fields__:
            value = getattr(placement, name)
            # How many placement groups it holds follows from the rest and the pools' ids, which are new in each run.
            if name not in ("osd", "osd_pid", "pg_count") and value is not None:
                facts["layout", f"osd.{placement.osd}", name] = str(value)
    for device_class, members in places.items():
        subject = f"OSDs of class {device_class}" if device_class else "OSDs without a class"
        facts["layout", subject, "count"] = str(len(members))
        facts["layout", subject, "numbers"] = " ".join(
            str(placement.osd) for placement in sorted(members, key=lambda p: p.osd)
        )
        facts["layout", subject, "hosts"] = str(len({placement.host for placement in members}))
    return facts


def _osds(tables: Tables) -> frozenset[str]:
    return frozenset(f"osd.{number}" for number in table_of(tables, "placement").column("osd").to_pylist())


def joined(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Return equal differences of many OSDs or steps as one row each, the most severe first.

    Beyond _ROWS_MAX pairs of values of one name, one row stands for all of them.
    """
    groups: dict[tuple[str, ...], dict[tuple[str, str], list[Difference]]] = {}
    for difference in differences:
        many = difference.area == "step" or _OSD.fullmatch(difference.subject)
        key = (difference.severity, difference.area, "" if many else difference.subject, difference.name)
        groups.setdefault(key, {}).setdefault((difference.a, difference.b), []).append(difference)
    rows = []
    for pairs in groups.values():
        if len(pairs) > _ROWS_MAX:
            every = [difference for same in pairs.values() for difference in same]
            row = _row(every)
            rows.append(dataclasses.replace(row, a=f"{row.a} and others", b=f"{row.b} and others"))
        else:
            rows += map(_row, pairs.values())
    return tuple(sorted(rows, key=severity_order))


def _row(same: Sequence[Difference]) -> Difference:
    first = same[0]
    return first if len(same) == 1 else dataclasses.replace(first, subject=f"{first.subject} and {len(same) - 1} more")


def _severity(area: str, name: str) -> str:
    """Return how much a difference of a fact matters."""
    if area == "plan":
        return "refused" if name in _PLAN_REFUSED else "warning" if _PLAN_WARNINGS.fullmatch(name) else "note"
    if area == "layout":
        return "note" if name in _LAYOUT_NOTES else "warning"
    if area == "environment":
        return "warning" if name in _ENVIRONMENT_WARNINGS else "note"
    return "warning"


def _shown(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    return format_bytes(value) if name.endswith("_bytes") and isinstance(value, int) else str(value)
