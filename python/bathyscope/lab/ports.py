"""Free ports for the monitor and the object gateway.

Only these need ports that are known beforehand; the other daemons take the first free one of Ceph's own range.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Container

# Below the kernel's range for outgoing connections (32768 up), so that no client takes the port by chance.
_FIRST, _LAST = 20_000, 32_000


def free(port: int, address: str = "127.0.0.1") -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the monitor does: a connection that lingers in TIME_WAIT is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def choose(count: int, taken: Container[int], attempts: int = 200) -> tuple[int, ...]:
    """Return `count` neighbouring free ports outside `taken`, the ports of other labs. Raises OSError."""
    generator = random.SystemRandom()
    for _ in range(attempts):
        first = generator.randrange(_FIRST, _LAST, 2)
        ports = tuple(range(first, first + count))
        if all(port not in taken and free(port) for port in ports):
            return ports
    raise OSError(f"no {count} neighbouring free ports between {_FIRST} and {_LAST}")
