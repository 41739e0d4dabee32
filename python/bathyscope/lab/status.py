"""What a lab is doing: its processes, its devices, and what the cluster says of itself."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence

from bathyscope.errors import BathyscopeError, UsageError
from bathyscope.host import Host
from bathyscope.host.ceph import connect
from bathyscope.host.local import FOREIGN_VARIABLES
from bathyscope.lab import guest_agent, guests, requirements, rgw
from bathyscope.lab.guest_agent import GuestAnswer
from bathyscope.lab.spec import RBD_POOL
from bathyscope.lab.state import LabState
from bathyscope.units import format_rate


def health(state: LabState, host: Host, timeout_s: float = 10.0) -> str:
    """Return the cluster's own summary ("HEALTH_OK, 3/3 OSDs up"), or why there is none. Never raises."""
    if state.record.status != "running":
        return state.record.status
    try:
        with contextlib.closing(connect(host, state.target(), timeout_s=timeout_s)) as session:
            answer = session.json("mon", "status")
    except BathyscopeError as error:
        return f"unreachable: {error.message}"
    osdmap = answer["osdmap"]
    # Releases before Octopus nested the map once more.
    osdmap = osdmap.get("osdmap", osdmap)
    return f"{answer['health']['status']}, {osdmap['num_up_osds']}/{osdmap['num_osds']} OSDs up"


def daemon_rows(state: LabState) -> list[dict[str, object]]:
    """Return a row for each daemon except guests: name, node, pid, running or not, device, class, limit."""
    rows: list[dict[str, object]] = []
    for daemon in state.daemons():
        if daemon.kind == guests.PROCESS:
            continue
        device = daemon.device
        limit = device.limit if device else None
        rows.append(
            {
                "daemon": daemon.name,
                "node": daemon.node or "",
                "state": "running" if daemon.alive else "gone",
                "pid": daemon.identity.pid,
                "device": device.path if device else "",
                "class": device.device_class if device else "",
                **{bluefs_device.use: bluefs_device.path for bluefs_device in daemon.bluefs_devices},
                "limit_iops": format_rate(limit.read_iops) if limit and limit.read_iops else "",
            }
        )
    return rows


def guest_rows(state: LabState) -> list[dict[str, object]]:
    """Return a row for each guest: name, image, cephx client, running or not, pid, accelerator, socket of its agent."""
    guest_daemons = [
        (daemon.name.partition(".")[2], daemon) for daemon in state.daemons() if daemon.kind == guests.PROCESS
    ]
    return [
        {
            "guest": guest,
            "image": f"{RBD_POOL}/{guest}",
            "client": f"client.{guest}",
            "state": "running" if daemon.alive else "gone",
            "pid": daemon.identity.pid,
            "accelerator": state.record.accelerator,
            "agent": str(state.layout.guest_agent(guest)),
        }
        for guest, daemon in guest_daemons
    ]


def run_fio(state: LabState, guest: str, options: Sequence[str]) -> GuestAnswer:
    """Run fio in a guest, on its own disk unless `options` name another file; it prints JSON.

    Raises UsageError when there is no such guest, LabError when it does not answer.
    """
    if guest not in state.record.spec.guests:
        known = state.record.spec.guests
        hint = f"one of {', '.join(known)}" if known else "bathy lab up --vms 2 makes guests"
        raise UsageError(f"the lab '{state.name}' has no guest '{guest}'", hint=hint)
    return guest_agent.run(state.layout.guest_agent(guest), "/bin/fio", [*guests.fio_options(guest), *options])


def ssh_command(state: LabState, node: str, command: Sequence[str]) -> list[str]:
    """Return what runs `command`, or a shell, on a node. Raises UsageError when there is no such node."""
    nodes = state.record.nodes
    if node not in nodes:
        hint = f"one of {', '.join(nodes)}" if nodes else "bathy lab up --nodes 3 makes nodes that are more than names"
        raise UsageError(f"the lab '{state.name}' has no node '{node}' to reach", hint=hint)
    requirements.require(["ssh"])
    return ["ssh", "-F", str(state.layout.ssh_config), node, *command]


def shell_exports(state: LabState) -> str:
    """Return shell text after which plain `ceph -s` and `rbd ls` reach this lab.

    For a lab of another release its own programs are needed; wrappers of them come first in PATH. With an object
    gateway, the variables of S3 clients lead to it.
    """
    layout = state.layout
    arguments = f"--conf={layout.conf} --keyring={layout.admin_keyring} --name=client.admin"
    values = {"CEPH_CONF": str(layout.conf), "CEPH_ARGS": arguments, "CEPH_KEYRING": str(layout.admin_keyring)}
    lines = [f"export {name}={shlex.quote(values[name])}" for name in sorted(FOREIGN_VARIABLES)]
    lines.append(f"export BATHY_LAB={shlex.quote(state.name)}")
    if state.record.s3_endpoint is not None:
        access_key, secret_key = rgw.s3_keys(layout)
        lines.append(f"export AWS_ACCESS_KEY_ID={shlex.quote(access_key)}")
        lines.append(f"export AWS_SECRET_ACCESS_KEY={shlex.quote(secret_key)}")
        lines.append(f"export AWS_ENDPOINT_URL={state.record.s3_endpoint} AWS_DEFAULT_REGION=us-east-1")
    if state.record.nodes:
        lines.append(f'# nodes: ssh -F "$BATHY_SSH_CONFIG" {next(iter(state.record.nodes))}')
        lines.append(f"export BATHY_SSH_CONFIG={shlex.quote(str(layout.ssh_config))}")
    if state.record.root is not None:
        lines.append(f"# Ceph {state.record.release} lies in a root file system of its own; these programs enter it:")
        lines.append(f'export PATH={shlex.quote(str(layout.bin))}:"$PATH"')
        lines.append(f"# any other program: chroot {shlex.quote(state.record.root)} PROGRAM")
    return "\n".join(lines) + "\n"
