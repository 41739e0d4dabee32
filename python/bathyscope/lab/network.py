"""A lab's own network: a bridge on this machine, a /24 of it, and a cable (a veth pair) to each node.

Addresses are of 198.18.0.0/15, which is reserved for benchmarks (RFC 2544): no route of an operator leads there. A link
is known by its name, which carries the lab's fsid. A cable ends with the network namespace that it leads into.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import time
from collections.abc import Container
from ipaddress import IPv4Network
from pathlib import Path

from bathyscope.errors import LabError
from bathyscope.fields import last_line, load_json
from bathyscope.lab.run import system

RESERVED = IPv4Network("198.18.0.0/15")
IN_NODE = "eth0"  # what a node calls its end of the cable
_SYS_NET = Path("/sys/class/net")
_LINK = re.compile(r"by-([0-9a-f]{8})(?:-[0-9]{1,2})?")
_FIRST_NODE = 10
_IFF_UP = 1


def bridge_name(fsid: str) -> str:
    """Return the name of a lab's bridge; the kernel takes 15 characters."""
    return f"by-{fsid[:8]}"


def cable_name(fsid: str, node: str) -> str:
    """Return the name of this machine's end of the cable to `node` ("node3")."""
    return f"{bridge_name(fsid)}-{node.removeprefix('node')}"


def is_link_of(fsid: str | None, name: str) -> bool:
    """Return whether the lab with this fsid (None: any lab) can have made a link of this name."""
    match = _LINK.fullmatch(name)
    return match is not None and (fsid is None or match[1] == fsid[:8])


def machine_address(subnet: IPv4Network) -> str:
    """Return the address of this machine in a lab's network."""
    return str(subnet[1])


def node_address(subnet: IPv4Network, node: str) -> str:
    """Return the address of `node` ("node3") in a lab's network."""
    return str(subnet[_FIRST_NODE + int(node.removeprefix("node"))])


def routed() -> set[str]:
    """Return the destinations of this machine's routes, its own addresses among them. Raises LabError."""
    result = system("ip", "-json", "-4", "route", "show", "table", "all")
    try:
        return {str(route["dst"]) for route in load_json(result.stdout or b"[]")}
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"ip route cannot be read: {last_line(result.stderr) or error}") from error


def choose(taken: Container[IPv4Network | None], routes: set[str]) -> IPv4Network:
    """Return a /24 outside `taken`, the networks of other labs, that no route of this machine leads to.

    Raises LabError when there is none.
    """
    used = []
    for route in routes:
        with contextlib.suppress(ValueError):
            network = IPv4Network(route)
            # A route that holds all of them and more ("default") is a wider one, over which a lab's own has precedence.
            if network.subnet_of(RESERVED):
                used.append(network)
    subnets = list(RESERVED.subnets(new_prefix=24))
    random.SystemRandom().shuffle(subnets)
    for subnet in subnets:
        if subnet not in taken and not any(subnet.overlaps(network) for network in used):
            return subnet
    raise LabError(f"no free network in {RESERVED}", hint="take labs down: bathy lab down, or use --nodes 0")


def make_bridge(name: str, subnet: IPv4Network) -> None:
    """Make the bridge, with this machine's address. Raises LabError."""
    _ip("link", "add", "dev", name, "type", "bridge")
    _ip("address", "add", f"{machine_address(subnet)}/{subnet.prefixlen}", "dev", name)
    _ip("link", "set", name, "up")


def plug(cable: str, bridge: str, pid: int) -> None:
    """Make a cable from the bridge to the network namespace of process `pid`. Raises LabError."""
    _ip("link", "add", "dev", cable, "type", "veth", "peer", "name", IN_NODE, "netns", str(pid))
    _ip("link", "set", cable, "master", bridge, "up")


def set_up(name: str, *, up: bool) -> None:
    """Let the link carry packets, or none. Raises LabError."""
    _ip("link", "set", name, "up" if up else "down")


def is_up(name: str) -> bool:
    """Return whether the link exists and is set up."""
    try:
        return bool(int((_SYS_NET / name / "flags").read_text(encoding="ascii"), 16) & _IFF_UP)
    except OSError:
        return False


def remove(name: str, timeout_s: float = 5.0) -> bool:
    """Remove the link, if it is there, and return whether it is gone."""
    deadline = time.monotonic() + timeout_s
    while (_SYS_NET / name).exists():
        # A cable can go by itself meanwhile, with the namespace that it led to.
        system("ip", "link", "delete", name)
        if time.monotonic() > deadline:
            return False
    return True


def _ip(*words: str) -> None:
    result = system("ip", *words)
    if result.exit_code != 0:
        raise LabError(f"ip {' '.join(words)} failed: {last_line(result.stderr)}")


def listens(address: str, port: int) -> bool:
    """Return whether a server takes connections there."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False
