"""The simulated disks of a lab, by their own counters: how long they were busy, and with what.

What the kernel counts of a loop device holds this machine's delays as well; the disk itself counts the times of its
model. And only the disk can say how much later than these it answered, because processors were busy: then its times,
measured from outside, are not those of the drive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bathyscope.fields import as_dict, as_float, as_int, as_list, parsing
from bathyscope.host import Request, SocketRequest
from bathyscope.records import RawAnswer, Record, SimulatedDiskSample, Tables
from bathyscope.sources.shape import Columns, Source
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

# Column of the record → where the disk's answer has the counter.
_COUNTERS = {
    "read_count": ("read", "count"),
    "write_count": ("write", "count"),
    "flush_count": ("flush", "count"),
    "busy_ns": ("busy_ns",),
    "queue_ns": ("queue_ns",),
    "seek_count": ("work", "seeks"),
    "seek_ns": ("work", "seek_ns"),
    "rotation_ns": ("work", "rotation_ns"),
    "transfer_ns": ("work", "transfer_ns"),
    "media_read_bytes": ("work", "media_read_bytes"),
    "media_write_bytes": ("work", "media_write_bytes"),
    "erase_count": ("work", "erases"),
    "reply_count": ("lateness", "count"),
    "lateness_ns": ("lateness", "sum_ns"),
    "late_count": ("late_ops",),
}
_KINDS = ("read", "write", "flush", "discard")


class SimulatedDisks:
    """`stats` on the control socket of a lab's simulated disks."""

    name = "simulated_disks"
    records: tuple[type[Record], ...] = (SimulatedDiskSample,)
    period_s = 0.2
    timeout_s = 5.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the one request; none for a target without simulated disks."""
        control = scope.target.disk_control
        line = json.dumps({"op": "stats", "buckets": False})
        return [] if control is None else [SocketRequest(self.name, control, line, self.timeout_s)]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each disk and pair of consecutive answers."""
        columns, devices = Columns(SimulatedDiskSample), _devices(scope.target)
        before: dict[str, tuple[int, dict[str, int]]] = {}
        with parsing(self.name):
            for answer in answers:
                if answer.exit_code != 0:
                    continue
                said = as_dict(answer.json())
                at_ns, seen = as_int(said["time_ns"]), dict[str, tuple[int, dict[str, int]]]()
                for disk in map(as_dict, as_list(said["disks"])):
                    name, counted = str(disk["name"]), _counted(disk)
                    seen[name] = (at_ns, counted)
                    last_ns, last = before.get(name, (at_ns, counted))
                    grown = {column: value - last[column] for column, value in counted.items()}
                    # Counters that went back are those of a program that was started anew.
                    if at_ns <= last_ns or min(grown.values()) < 0:
                        continue
                    faults = "; ".join(str(as_dict(fault)["fault"]) for fault in as_list(disk["faults"]))
                    columns.add(
                        at_ns=at_ns, duration_ns=at_ns - last_ns, disk=name, drive=str(disk["profile"]),
                        device=devices.get(name, ""), faults=faults,
                        wear_ratio=as_float(as_dict(disk["work"])["wear_ratio"]), **grown,
                    )  # fmt: skip
                before = seen
        return {SimulatedDiskSample: columns.table()}


SOURCE: Source = SimulatedDisks()


def _devices(target: Target) -> dict[str, str]:
    """Return disk → kernel name of the device that it is."""
    used = [(disk.simulated, disk.device) for disk in target.disks.values()]
    used += [(daemon.simulated, daemon.device) for daemon in target.daemons]
    used += [(bluefs.simulated, bluefs.device) for daemon in target.daemons for bluefs in daemon.bluefs_devices]
    return {name: device for name, device in used if name and device}


def _counted(disk: Mapping[str, Any]) -> dict[str, int]:
    """Return column → counter."""
    counters = {}
    for column, path in _COUNTERS.items():
        value: Any = disk
        for key in path:
            value = as_dict(value)[key]
        counters[column] = as_int(value)
    counters["error_count"] = sum(as_int(as_dict(disk[kind])["errors"]) for kind in _KINDS)
    return counters
