"""What a lab is doing: its processes, its devices, and what the cluster says of itself."""

from __future__ import annotations

import shlex

from bathyscope.errors import BathyscopeError
from bathyscope.host import Host
from bathyscope.host.ceph import connect
from bathyscope.lab.run import FOREIGN_VARIABLES
from bathyscope.lab.state import LabState
from bathyscope.units import format_rate


def health(state: LabState, host: Host, timeout_s: float = 10.0) -> str:
    """Return the cluster's own summary ("HEALTH_OK, 3/3 OSDs up"), or why there is none. Never raises."""
    if state.record.status != "running":
        return state.record.status
    try:
        session = connect(host, state.target(), timeout_s=timeout_s)
        try:
            answer = session.json("mon", "status")
        finally:
            session.close()
    except BathyscopeError as error:
        return f"unreachable: {error.message}"
    osdmap = answer["osdmap"]
    # Releases before Octopus nested the map once more.
    osdmap = osdmap.get("osdmap", osdmap)
    return f"{answer['health']['status']}, {osdmap['num_up_osds']}/{osdmap['num_osds']} OSDs up"


def daemon_rows(state: LabState) -> list[dict[str, object]]:
    """Return a row for each daemon: name, node, pid, running or not, device, class, limit."""
    devices = {f"osd.{device.osd_id}": device for device in state.record.devices if device.osd_id is not None}
    rows: list[dict[str, object]] = []
    for daemon in state.daemons():
        device = devices.get(daemon.name)
        limit = device.limit if device else None
        rows.append(
            {
                "daemon": daemon.name,
                "node": device.node if device else "",
                "state": "running" if daemon.alive else "gone",
                "pid": daemon.identity.pid,
                "device": device.path if device else "",
                "class": device.device_class if device else "",
                "limit_iops": format_rate(limit.read_iops) if limit and limit.read_iops else "",
            }
        )
    return rows


def shell_exports(state: LabState) -> str:
    """Return shell text after which plain `ceph -s` and `rbd ls` reach this lab.

    For a lab of another release its own programs are needed; wrappers of them come first in PATH.
    """
    layout = state.layout
    arguments = f"--conf={layout.conf} --keyring={layout.admin_keyring} --name=client.admin"
    values = {"CEPH_CONF": str(layout.conf), "CEPH_ARGS": arguments, "CEPH_KEYRING": str(layout.admin_keyring)}
    lines = [f"export {name}={shlex.quote(values[name])}" for name in sorted(FOREIGN_VARIABLES)]
    lines.append(f"export BATHY_LAB={shlex.quote(state.name)}")
    if state.record.root is not None:
        lines.append(f"# Ceph {state.record.release} lies in a root file system of its own; these programs enter it:")
        lines.append(f'export PATH={shlex.quote(str(layout.bin))}:"$PATH"')
        lines.append(f"# any other program: chroot {shlex.quote(state.record.root)} PROGRAM")
    return "\n".join(lines) + "\n"
