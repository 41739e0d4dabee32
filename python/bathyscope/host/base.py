"""What the outside world looks like to the rest of the program: requests in, verbatim answers out.

`Host` is the only way to start a process, read a file of a machine, ask the cluster, or read a clock.
Requests are plain values, so that a plan can be printed by `--dry-run`, tested without a world, and
stored beside its answer. Implementations: `local.LocalHost` and `fake.FakeHost`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessRequest:
    """A process to run to its end. `argv` is a vector, never a shell string.

    `root` runs it inside another root file system (a lab of another release); `cgroup` places it in that
    control group before it starts, so that the group's throttles hold from its first I/O. `exclusive` names block
    devices that nothing may have in use (mounted, part of a volume, held by a daemon) when it starts.
    """

    label: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    stdin: bytes | None = None
    timeout_s: float | None = None
    root: str | None = None
    cgroup: str | None = None
    exclusive: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class CephRequest:
    """A command for a daemon of the cluster, as the command-line tool would send it.

    `daemon` is "mon", "mgr" or "osd.3" (`ceph tell`). `command` is the JSON command: {"prefix": "osd df", …}.
    """

    label: str
    daemon: str
    command: tuple[tuple[str, Any], ...]
    timeout_s: float = 10.0


Request = ProcessRequest | CephRequest


@dataclasses.dataclass(frozen=True, slots=True)
class Completed:
    """What came back, verbatim. `exit_code` is the process's, negative for a signal, or the command's −errno.

    Times are nanoseconds since the Unix epoch by this machine's clock.
    """

    request: Request
    exit_code: int
    stdout: bytes
    stderr: bytes
    started_ns: int
    ended_ns: int
    timed_out: bool = False


class Running(Protocol):
    """A process under way."""

    @property
    def pid(self) -> int:
        """Process id of the started program."""
        ...

    def wait(self, timeout_s: float | None = None) -> Completed | None:
        """Return what came back, or None when it is still running after `timeout_s`."""
        ...

    def stop(self, grace_s: float = 1.5) -> Completed:
        """Ask it to end, make it end after `grace_s`, and return what came back."""
        ...


class Host(Protocol):
    """This machine and the cluster that it can reach. Thread-safe."""

    def run(self, request: ProcessRequest) -> Completed:
        """Run a process to its end. A failing program is an answer, not an exception.

        Raises EnvironmentError_ when the program does not exist.
        """
        ...

    def start(self, request: ProcessRequest) -> Running:
        """Start a process. It ends with this program at the latest, however this program ends."""
        ...

    def read(self, path: str) -> bytes:
        """Return the bytes of a file of this machine (/proc and /sys above all). Raises OSError."""
        ...

    def now_ns(self) -> int:
        """Return the nanoseconds since the Unix epoch."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that never steps back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class CephSession(Protocol):
    """One connection to a cluster, kept open: a command costs milliseconds, not a process."""

    def command(self, request: CephRequest) -> Completed:
        """Send one command and return its answer. A refusal is an answer (exit_code −errno), not an exception.

        Raises UnreachableError when the connection is lost.
        """
        ...

    def commands(self, requests: Sequence[CephRequest]) -> list[Completed]:
        """Send several commands side by side; answers in the order of the requests."""
        ...

    def json(self, daemon: str, prefix: str, **arguments: Any) -> Any:
        """Send one command with format json and return the parsed answer. Raises ClusterError, DeniedError."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...
