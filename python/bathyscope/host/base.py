"""What the outside world looks like to the rest of the program: requests in, verbatim answers out.

`Host` is the only way to start a process, read a file of a machine, ask the cluster, or read a clock.
Requests are plain values, so that a plan can be printed by `--dry-run`, tested without a world, and
stored beside its answer. Implementations: `local.LocalHost` and `fake.FakeHost`.
"""

from __future__ import annotations

import abc
import dataclasses
import errno
from collections.abc import Sequence
from typing import Any, Protocol

from bathyscope.errors import ClusterError, DeniedError, ParseError, PolicyError, UnreachableError
from bathyscope.fields import load_json


@dataclasses.dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another machine that a process is to run on: the ssh that leads there, the machine its last word.

    `files` are (environment variable, path here): the program finds the file's content there by that variable, and by
    arguments that are the path, or OPTION=path.
    """

    ssh: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessRequest:
    """A process to run to its end. `argv` is a vector, never a shell string.

    `root` runs it inside another root file system (a lab of another release); `cgroup` places it in that
    control group before it starts, so that the group's throttles hold from its first I/O. `exclusive` names block
    devices that nothing may have in use (mounted, part of a volume, held by a daemon) when it starts. `confined` is for
    a program that obeys another machine: the directory, as `root` shows it, that is made empty for it and in which it
    runs, without privileges when this program has them.

    `elsewhere` runs it on another machine, in an empty directory there. What it leaves in that comes back into
    `confined`; the other fields of its place are not for it.
    """

    label: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    stdin: bytes | None = None
    timeout_s: float | None = None
    root: str | None = None
    cgroup: str | None = None
    exclusive: tuple[str, ...] = ()
    confined: str | None = None
    elsewhere: Elsewhere | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CephRequest:
    """A command for a daemon of the cluster, as the command-line tool would send it.

    `daemon` is "mon", "mgr", or "mon.a" and "osd.3" (`ceph tell`). `command` is the JSON command: {"prefix": "osd df"}.
    "pool.NAME" is no daemon but the objects of a pool: `ceph_bridge` lists its few commands.
    """

    label: str
    daemon: str
    command: tuple[tuple[str, Any], ...]
    timeout_s: float = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class ReadRequest:
    """Files of this machine to read at one moment, /proc and /sys above all.

    A path with an asterisk stands for all that match it, /proc/PID/cgroup/*/NAME for a file of the process's control
    groups (`node_sampler`). One that cannot be read is left out.
    """

    label: str
    paths: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SocketRequest:
    """A line for whoever serves a Unix socket of this machine, which answers with a line.

    `process_file` is a name in /proc/PID of that process, read with the answer: "status".
    """

    label: str
    path: str
    line: str
    timeout_s: float = 10.0
    process_file: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SocketAnswer:
    """The line that was answered, and the file of the process that was asked for, if it can be read."""

    line: bytes
    files: tuple[tuple[str, bytes], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeRequest:
    """A question to the sampler on another machine; `ssh.ssh_argv` makes the command that reaches it.

    `question` as `node_sampler` describes it. The connection is kept for the next question to the same machine.
    """

    label: str
    argv: tuple[str, ...]
    question: dict[str, Any]
    timeout_s: float = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET of an HTTP server. `auth` is a file with the credential, which is read when it is sent and kept nowhere."""

    label: str
    url: str
    parameters: tuple[tuple[str, str], ...]
    auth: str | None = None
    timeout_s: float = 10.0


Request = ProcessRequest | CephRequest | ReadRequest | SocketRequest | NodeRequest | HttpRequest


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


@dataclasses.dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What another machine answered: its sampler's word of it as JSON on stdout, and the files that it read."""

    completed: Completed
    files: tuple[tuple[str, bytes], ...] = ()


class Running(Protocol):
    """A process under way."""

    @property
    def pid(self) -> int:
        """Process id of the started program."""

    def wait(self, timeout_s: float | None = None) -> Completed | None:
        """Return what came back, or None when it is still running after `timeout_s`."""

    def stop(self, grace_s: float = 1.5) -> Completed:
        """Ask it to end, make it end after `grace_s`, and return what came back."""


class Host(Protocol):
    """This machine and the cluster that it can reach. Thread-safe."""

    def run(self, request: ProcessRequest) -> Completed:
        """Run a process to its end. A failing program is an answer, not an exception.

        Raises EnvironmentError_ when the program does not exist.
        """

    def start(self, request: ProcessRequest) -> Running:
        """Start a process. It ends with this program at the latest, however this program ends."""

    def read(self, path: str) -> bytes:
        """Return the bytes of a file of this machine (/proc and /sys above all), 1 GiB at most. Raises OSError.

        It may lie where others write: a pipe in its place is not waited for.
        """

    def matching(self, pattern: str) -> list[str]:
        """Return the paths of this machine that match a pattern with asterisks, as `node_sampler` says."""

    def read_own(self, pid: int, path: str) -> bytes:
        """Return the bytes of a file as a process sees it, if that process has the file's directory open.

        Another process in the same file system sees the file as well. Raises OSError.
        """

    def exchange(self, request: SocketRequest) -> SocketAnswer:
        """Send a line to a Unix socket and return what is answered. Raises OSError."""

    def ask_nodes(self, requests: Sequence[NodeRequest]) -> list[NodeAnswer]:
        """Ask several machines at once; answers in the order of the requests. A failure is an answer."""

    def leave_nodes(self) -> None:
        """End the connections to other machines."""

    def fetch(self, requests: Sequence[HttpRequest]) -> list[Completed]:
        """Ask HTTP servers side by side; answers in the order of the requests. A failure is an answer."""

    def now_ns(self) -> int:
        """Return the nanoseconds since the Unix epoch."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that never steps back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class CephSession(abc.ABC):
    """One connection to a cluster, kept open: a command costs milliseconds, not a process.

    `client` is the cephx entity that it was opened with.
    """

    client: str = "client.admin"

    @abc.abstractmethod
    def commands(self, requests: Sequence[CephRequest]) -> list[Completed]:
        """Send several commands side by side; answers in the order of the requests.

        A refusal or a time-out is an answer (exit_code −errno). Raises UnreachableError when the connection is lost.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """End the connection."""

    def command(self, request: CephRequest) -> Completed:
        """Send one command and return its answer, as `commands` does."""
        return self.commands([request])[0]

    def json(self, daemon: str, prefix: str, **arguments: Any) -> Any:
        """Send one command with format json and return what `answer_json` makes of its answer."""
        words = {"prefix": prefix, **arguments, "format": "json"}
        return answer_json(self.command(CephRequest(prefix, daemon, tuple(words.items()))), self.client)


def answer_json(completed: Completed, client: str = "the key") -> Any:
    """Return the JSON of an answered command that `client` sent, None when it is empty.

    Raises ClusterError, DeniedError, PolicyError, UnreachableError (also for no answer in time), ParseError.
    """
    request = completed.request
    what = str(dict(request.command).get("prefix")) if isinstance(request, CephRequest) else request.label
    if completed.exit_code != 0:
        message = completed.stderr.decode(errors="replace").strip() or f"error {completed.exit_code}"
        if completed.timed_out:
            raise UnreachableError(f"the cluster did not answer '{what}': {message}")
        if isinstance(request, CephRequest) and is_denied(completed):
            raise denied(request, client, message)
        if -completed.exit_code == errno.EPERM:
            raise PolicyError(f"the cluster forbids '{what}': {message}", hint=_POLICY_HINT)
        raise ClusterError(f"'{what}' failed: {message}")
    if not completed.stdout.strip():
        return None
    try:
        return load_json(completed.stdout)
    except ValueError as error:
        raise ParseError(f"'{what}' did not answer with JSON: {error}") from error


_POLICY_HINT = "the text names the option or flag that forbids it; an administrator of the cluster can change it"


def is_denied(completed: Completed) -> bool:
    """Return whether the caps of the key do not allow a command.

    Monitors, managers and OSDs say so with EACCES. EPERM is a monitor's word for what a setting of the cluster forbids
    to everyone; only for the objects of a pool it is the OSD's word for missing caps.
    """
    request = completed.request
    of_pool = isinstance(request, CephRequest) and request.daemon.startswith(_POOL)
    return completed.exit_code == -errno.EACCES or (of_pool and completed.exit_code == -errno.EPERM)


_POOL = "pool."
_READING = ("osd dump", "osd df", "osd lspools", "osd crush rule ls", "balancer status", "mon dump", "fsid", "df")


def denied(request: CephRequest, client: str, message: str) -> DeniedError:
    """Return the error for a command that the caps of `client` do not allow. It names the cap that would."""
    prefix, (kind, _, name) = str(dict(request.command).get("prefix")), request.daemon.partition(".")
    if request.daemon.startswith(_POOL):
        cap = f"osd 'allow rwx pool={name}'"
    elif name:
        cap = f"{kind} 'allow *'"
    elif prefix in _READING:
        cap = f"{kind} 'allow r'"
    else:
        cap = f"{kind} 'allow command \"{prefix}\"'"
    return DeniedError(
        f"{client} may not use '{prefix}' on {request.daemon.replace(_POOL, 'the pool ')}: {message}",
        hint=f"it needs {cap}; `bathy caps bench` prints all that a run needs",
    )
