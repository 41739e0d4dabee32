"""What goes wrong with whole nodes on demand: `down` kills all processes of a node, `partition` cuts its cable.

They are undone by `up`, which starts the node and its OSDs again, and `heal`.
"""

from __future__ import annotations

from pathlib import Path

from bathyscope.errors import LabError, UsageError
from bathyscope.host import outliving
from bathyscope.lab import daemons, journal, network, nodes, throttle
from bathyscope.lab.state import DaemonState, LabState, load, locked

KINDS = ("down", "up", "partition", "heal")


def apply(state: LabState, node: str, kind: str) -> str:
    """Do what `kind` says to a node; return what came of it, in words. Raises UsageError, LabError, BusyError."""
    if kind not in KINDS:
        raise UsageError(f"a node can have no '{kind}'", hint=f"one of {', '.join(KINDS)}")
    with locked(state.layout):
        # What another process did to the node before the lock was ours.
        state = load(state.name)
        first, osds = _processes(state, node)
        if first.alive != (kind != "up"):
            raise UsageError(f"{node} is {'up' if first.alive else 'down'}", hint="bathy lab fault list")
        cable = network.cable_name(state.record.fsid, node)
        if kind == "down":
            # The kernel ends the others with the first one; they are named to be waited for.
            if outliving.end_all([daemon.identity for daemon in (first, *osds)]):
                raise LabError(f"{node} does not end", hint="bathy lab status shows what runs")
            return f"{node} is down; back with: up"
        if kind == "up":
            try:
                _bring_up(state, node, osds)
            except OSError as error:
                raise LabError(
                    f"{node} cannot be brought up: {error}", hint="bathy lab status shows what runs"
                ) from error
            return f"{node} is up; its OSDs are starting"
        network.set_up(cable, up=kind == "heal")
        return f"{node} is cut off; back with: heal" if kind == "partition" else f"{node} is reachable"


def undo(state: LabState, node: str | None) -> int:
    """Undo the faults of `node`, or of all nodes; return how many there were."""
    wrong = {name: kind for name, kind in state.node_faults().items() if node in (None, name)}
    for name, kind in wrong.items():
        apply(state, name, "up" if kind == "down" else "heal")
    return len(wrong)


def _processes(state: LabState, node: str) -> tuple[DaemonState, list[DaemonState]]:
    """Return the first process of a node, and its OSDs."""
    of_node = [daemon for daemon in state.daemons() if daemon.node == node]
    (first,) = (daemon for daemon in of_node if daemon.kind == nodes.PROCESS)
    return first, [daemon for daemon in of_node if daemon.kind == "osd"]


def _bring_up(state: LabState, node: str, osds: list[DaemonState]) -> None:
    record, layout, book = state.record, state.layout, journal.Journal(state.layout.journal)
    assert record.network is not None  # noqa: S101 - otherwise there are no nodes
    first = nodes.start(node, record.network, record.fsid, layout, book)
    group = Path(record.cgroup) if record.cgroup is not None else None
    for osd in osds:
        daemons.start(
            osd.name,
            layout,
            book,
            root=record.root,
            node=first.identity,
            before=lambda identity: throttle.join(group, identity.pid) if group is not None else None,
        )
