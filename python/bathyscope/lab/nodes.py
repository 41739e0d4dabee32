"""Nodes: network, PID, UTS and mount namespaces of their own, in which sshd is the first process.

The namespaces have no names and no files: they live as long as a process is in them, and when a node's first process
ends, the kernel ends all others. Daemons of a node are started into the namespaces of its first process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

from bathyscope.errors import LabError
from bathyscope.fields import last_line
from bathyscope.host import outliving
from bathyscope.host.local import DEFAULT_PATH, FOREIGN_VARIABLES, find_program
from bathyscope.lab import journal, network, requirements
from bathyscope.lab.layout import Layout
from bathyscope.lab.run import system

if TYPE_CHECKING:
    from bathyscope.lab.bringup import Bringup

PROCESS = "sshd"  # of node1: sshd.node1
PORT = 22
_NEW_NAMESPACES = ("unshare", "--net", "--uts", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")

_PROGRAMS = ("ip", "unshare", "nsenter", "sshd", "ssh-keygen")
_TRIAL = "ip link add dev one type bridge && ip link add dev two type veth peer name three"

# Arguments: host name, address with prefix length, directory of the ssh files, sshd.
# sshd refuses an account whose password is locked, and needs a directory that only its own service makes.
# /sys shows the interfaces of the network namespace that it was mounted in; control groups are mounted below it. Where
# it may not be mounted, a node sees the interfaces of this machine in it.
_FIRST_PROCESS = f"""set -e
PATH="$PATH:{DEFAULT_PATH}"
echo "$1" > /proc/sys/kernel/hostname
mount --bind "$3/shadow" /etc/shadow
if mount -t sysfs -o ro sysfs /mnt; then
    mount --rbind /sys/fs/cgroup /mnt/fs/cgroup || true
    mount --move /mnt /sys || umount --recursive /mnt
fi
if [ ! -d /run/sshd ]; then mount -t tmpfs tmpfs /run; mkdir /run/sshd; fi
until ip link show dev {network.IN_NODE} >/dev/null 2>&1; do sleep 0.02; done
ip address add "$2" dev {network.IN_NODE}
ip link set {network.IN_NODE} up
ip link set lo up
exec "$4" -D -e -f "$3/$1.conf"
"""
_SHADOW = "root:*:19000:0:99999:7:::\n"


def obstacle() -> str | None:
    """Return why this process cannot make nodes, None when it can. Nothing is left of the trial."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := requirements.missing(_PROGRAMS):
        return f"not installed: {', '.join(missing)}; {requirements.install_command(missing)}"
    trial = system(*_NEW_NAMESPACES, "sh", "-c", _TRIAL)
    return None if trial.exit_code == 0 else f"namespaces or links cannot be made: {last_line(trial.stderr)}"


def make(bringup: Bringup) -> None:
    """Make the nodes, if they are more than names, and wait until each has its sshd."""
    record, layout = bringup.record, bringup.layout
    if record.network is None:
        return
    bringup.progress(f"making {len(record.nodes)} nodes")
    write_ssh_files(layout, record.nodes)
    bridge = network.bridge_name(record.fsid)
    bringup.journal.link(bridge)
    network.make_bridge(bridge, record.network)
    for node in record.nodes:
        bringup.children[f"{PROCESS}.{node}"] = start(node, record.network, record.fsid, layout, bringup.journal)
    for node, address in record.nodes.items():
        while not network.listens(address, PORT):
            bringup.tick(f"{node} has no sshd")


def start(node: str, subnet: IPv4Network, fsid: str, layout: Layout, book: journal.Journal) -> outliving.Started:
    """Start the first process of a node and plug its cable into the lab's bridge. Raises LabError."""
    cable = network.cable_name(fsid, node)
    # That of a node which has just ended can still be there.
    if not network.remove(cable):
        raise LabError(f"the network link {cable} cannot be removed")
    name = f"{PROCESS}.{node}"
    started = outliving.start(
        _first_process(node, subnet, layout),
        log=layout.log / f"{name}.out",
        announce=lambda identity: book.process(name, identity),
        wrapper=_NEW_NAMESPACES,
        announce_wrapper=book.helper,
        without=FOREIGN_VARIABLES,
    )
    book.link(cable)
    network.plug(cable, network.bridge_name(fsid), started.identity.pid)
    return started


def _first_process(node: str, subnet: IPv4Network, layout: Layout) -> list[str]:
    """Return the first process of a node. It waits until its cable is there."""
    # sshd starts itself anew for each connection, and so insists on its whole path.
    sshd = find_program("sshd") or "/usr/sbin/sshd"
    address = f"{network.node_address(subnet, node)}/{subnet.prefixlen}"
    return ["/bin/sh", "-c", _FIRST_PROCESS, "node", node, address, str(layout.ssh), sshd]


def inside(pid: int) -> tuple[str, ...]:
    """Return the program that runs another one in the node whose first process is `pid`."""
    return ("nsenter", "--target", str(pid), "--net", "--uts", "--mount", "--pid")


def write_ssh_files(layout: Layout, addresses: Mapping[str, str]) -> None:
    """Make the keys of the lab and the files of ssh and of each node's sshd. Raises LabError, OSError."""
    for key in (layout.ssh / "host_key", layout.ssh / "id_ed25519"):
        result = system("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bathyscope", "-f", str(key))
        if result.exit_code != 0:
            raise LabError(f"ssh-keygen failed: {last_line(result.stderr)}")
    host_key = (layout.ssh / "host_key.pub").read_text(encoding="ascii").strip()
    texts = {
        "known_hosts": f"{','.join(addresses.values())} {host_key}\n",
        "config": client_config(layout.ssh, addresses),
        "shadow": _SHADOW,
        **{f"{node}.conf": server_config(layout.ssh, address) for node, address in addresses.items()},
    }
    for name, text in texts.items():
        path = layout.ssh / name
        path.touch(0o600, exist_ok=False)
        path.write_text(text, encoding="utf-8")


def client_config(directory: Path, addresses: Mapping[str, str]) -> str:
    """Return the text of a configuration of ssh with which the nodes' names lead to them."""
    hosts = [f"Host {node}\n    HostName {address}\n" for node, address in addresses.items()]
    common = f"""Host {" ".join(addresses)}
    User root
    Port {PORT}
    IdentityFile {directory}/id_ed25519
    IdentitiesOnly yes
    PreferredAuthentications publickey
    UserKnownHostsFile {directory}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
"""
    return "\n".join([*hosts, common])


def server_config(directory: Path, address: str) -> str:
    """Return the text of a configuration of sshd: the lab's user key is the only way in."""
    return f"""ListenAddress {address}:{PORT}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/id_ed25519.pub
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowUsers root
StrictModes no
UsePAM no
UseDNS no
PidFile none
PrintMotd no
PrintLastLog no
Subsystem sftp internal-sftp
"""
