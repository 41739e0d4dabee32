"""The resident memory of a cache's daemon, by what the kernel of this machine says of its process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from bathyscope.host import Host

# proc(5): resident set size, and its peak since the process began. "kB" is KiB there.
_SIZES = {"resident_bytes": "VmRSS", "resident_bytes_max": "VmHWM"}


def resident_memory(host: Host, cache: str, pid: Any) -> dict[str, int] | None:
    """Return resident memory and its peak, by the keys of a status; None where they cannot be known.

    A daemon says the number that it has in its own PID namespace. In a container's that can be another process here, so
    the command line must be that of the daemon of this cache.
    """
    if not isinstance(pid, int):
        return None
    try:
        argv = host.read(f"/proc/{pid}/cmdline").decode("utf-8", "replace").rstrip("\0").split("\0")
        status = host.read(f"/proc/{pid}/status").decode("utf-8", "replace")
    except OSError:
        return None
    found = {key: re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE) for key, name in _SIZES.items()}
    sizes = {key: int(match[1]) << 10 for key, match in found.items() if match is not None}
    return sizes if _is_daemon_of(cache, argv) and len(sizes) == len(found) else None


def _is_daemon_of(cache: str, argv: Sequence[str]) -> bool:
    """Return whether a command line is that of bathyd, the program or our module, with the configuration of a cache."""
    *program, config = argv
    names = {word.rpartition(".")[2] for word in (PurePosixPath(path).name for path in program)}
    return "bathyd" in names and PurePosixPath(config).name == f"{cache}.json"
