"""Faults on demand: what a dying disk looks like, on a disk that is none.

Faults of disks live in the process that serves the simulated disks, and end with it. Their texts are its own:
`slow=10x`, `spike=50ms`, `eio`, `hang`, `read-only`, `full`, `flip`, with their restrictions; `power-cut` and
`power-on` are commands of it. Faults of nodes are those of `node_faults`.
"""

from __future__ import annotations

import dataclasses

from bathyscope.errors import UsageError
from bathyscope.lab import node_faults, simdisk
from bathyscope.lab.state import LabState

_POWER = ("power-cut", "power-on")


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a disk or a node.

    Of a disk: `hits` is how many requests it has met, `left` how many it will (None: no end).
    """

    target: str
    number: int | None
    text: str
    hits: int | None
    left: int | None


def add_fault(state: LabState, target: str, text: str) -> str:
    """Give the disk of `target` (osd.2, osd.2.db, a spare's hdd) or a node a fault; return what came of it.

    Raises UsageError when there is no such disk or fault, LabError when the disks do not answer.
    """
    if target in state.record.nodes:
        return node_faults.apply(state, target, text)
    disk, control = _disk(state, target), state.layout.disk_control
    kind, _, value = text.partition("=")
    if kind not in _POWER:
        number = simdisk.ask(control, op="fault", disk=disk, add=text)["id"]
        return f"{target} has fault {number}: {text}"
    if kind == "power-on":
        simdisk.ask(control, op="power-on", disk=disk)
        return f"{target} has power again; its OSD does not come back by itself"
    mode = {"mode": value} if value else {}
    lost = simdisk.ask(control, op="power-cut", disk=disk, stay_off=True, **mode)
    return (
        f"{target} has no power: of its unflushed writes {lost['kept']} were kept, {lost['lost']} lost, "
        f"{lost['torn']} torn; back with: power-on"
    )


def list_faults(state: LabState) -> list[Fault]:
    """Return the faults of all nodes and disks of a lab. Raises LabError when the disks do not answer."""
    of_nodes = [Fault(node, None, kind, None, None) for node, kind in state.node_faults().items()]
    if state.disk_control is None:
        return of_nodes
    names = {device.disk_name: device.name for device in state.record.devices}
    answer = simdisk.ask(state.disk_control, op="faults")
    return of_nodes + [
        Fault(names.get(disk["name"], disk["name"]), fault["id"], fault["fault"], fault["hits"], fault["left"])
        for disk in answer["disks"]
        for fault in disk["faults"]
    ]


def clear_faults(state: LabState, target: str | None = None) -> int:
    """Take every fault from `target`, or from all nodes and disks; return how many there were.

    Raises UsageError when there is no such disk, LabError when the disks do not answer.
    """
    if target in state.record.nodes:
        return node_faults.undo(state, target)
    of_nodes = node_faults.undo(state, None) if target is None else 0
    if target is None and state.disk_control is None:
        return of_nodes
    only = {} if target is None else {"disk": _disk(state, target)}
    cleared: int = simdisk.ask(state.layout.disk_control, op="fault", clear="all", **only)["cleared"]
    return of_nodes + cleared


def _disk(state: LabState, target: str) -> str:
    """Return the name of the simulated disk that a user calls `target`."""
    devices = {device.name: device for device in state.record.devices}
    if target not in devices:
        raise UsageError(
            f"the lab '{state.name}' has no '{target}'", hint=f"one of {', '.join([*devices, *state.record.nodes])}"
        )
    disk = devices[target].disk_name
    if disk is None:
        able = [name for name, device in devices.items() if device.simulated]
        raise UsageError(
            f"the disk of {target} is not simulated, so it can have no faults",
            hint=f"simulated: {', '.join(able)}" if able else "disks of class hdd are, where FUSE is permitted",
        )
    return disk
