"""A world made of scripted answers and a clock that only moves when someone waits. For tests."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from bathyscope.errors import EnvironmentError_, UnreachableError
from bathyscope.host.base import (
    CephRequest,
    CephSession,
    Completed,
    HttpRequest,
    NodeAnswer,
    NodeRequest,
    ProcessRequest,
    SocketAnswer,
    SocketRequest,
)
from bathyscope.spec import Target

EPOCH_NS = 1_700_000_000_000_000_000
# Who serves the scripted sockets.
FAKE_SERVER = 6355

ProcessAnswer = Callable[[ProcessRequest], "FakeAnswer"]
CephAnswer = Callable[[CephRequest], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class FakeAnswer:
    """What a scripted process does: takes `duration_s` of virtual time and returns this."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    duration_s: float = 0.0


class FakeClock:
    """A clock that starts at EPOCH_NS and moves by `advance` only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ns = EPOCH_NS

    def now_ns(self) -> int:
        """Return the virtual time."""
        return self._ns

    def advance(self, seconds: float) -> None:
        """Move forward."""
        with self._lock:
            self._ns += max(0, round(seconds * 1e9))


class FakeRunning:
    """A scripted process under way."""

    def __init__(self, request: ProcessRequest, answer: FakeAnswer, clock: FakeClock, pid: int) -> None:
        self._request = request
        self._answer = answer
        self._clock = clock
        self._pid = pid
        self._started_ns = clock.now_ns()
        limit = request.timeout_s
        self._timed_out = limit is not None and answer.duration_s > limit
        duration_s = min(answer.duration_s, limit) if limit is not None else answer.duration_s
        self._ends_ns = self._started_ns + round(duration_s * 1e9)
        self._completed: Completed | None = None

    @property
    def pid(self) -> int:
        """A made-up process id."""
        return self._pid

    def _finish(self, exit_code: int) -> Completed:
        if self._completed is None:
            said, ended_ns = self._answer, min(self._clock.now_ns(), self._ends_ns)
            self._completed = Completed(
                self._request, exit_code, said.stdout, said.stderr, self._started_ns, ended_ns, self._timed_out
            )
        return self._completed

    def wait(self, timeout_s: float | None = None) -> Completed | None:
        """Advance the clock to the end or by `timeout_s`."""
        left_s = max(0, self._ends_ns - self._clock.now_ns()) / 1e9
        self._clock.advance(left_s if timeout_s is None else min(left_s, timeout_s))
        if self._completed is None and self._clock.now_ns() < self._ends_ns:
            return None
        return self._finish(-9 if self._timed_out else self._answer.exit_code)

    def stop(self, grace_s: float = 1.5) -> Completed:  # noqa: ARG002 - the protocol's signature
        """End it now: exit code −2 (SIGINT) when it was still running."""
        ended = self._clock.now_ns() >= self._ends_ns
        return self._finish(self._answer.exit_code if ended else -2)


class FakeHost:
    """A host whose programs, files and cluster are scripted.

    `programs` maps a program's name (argv[0]) to an answer or to a function of the request; a program that is
    not in it is not installed. `files` maps a path to bytes or to a function, `sockets` a path to a function of the
    line that it is sent. Every process request is kept in `requests`.
    """

    def __init__(
        self,
        programs: dict[str, FakeAnswer | ProcessAnswer] | None = None,
        files: dict[str, bytes | Callable[[], bytes]] | None = None,
        sockets: dict[str, Callable[[str], bytes]] | None = None,
        ceph: CephSession | None = None,
        clock: FakeClock | None = None,
    ) -> None:
        self.programs = programs or {}
        self.files = files or {}
        self.sockets = sockets or {}
        self.ceph = ceph
        self.clock = clock or FakeClock()
        self.nodes: Callable[[NodeRequest], NodeAnswer] | None = None
        self.web: Callable[[HttpRequest], Completed] | None = None
        self.requests: list[ProcessRequest] = []
        self._pid = 100_000

    def start(self, request: ProcessRequest) -> FakeRunning:
        """Start a scripted process. Raises EnvironmentError_ when none is scripted."""
        script = self.programs.get(request.argv[0])
        if script is None:
            raise EnvironmentError_(f"the program {request.argv[0]} is not installed")
        self.requests.append(request)
        self._pid += 1
        return FakeRunning(request, script(request) if callable(script) else script, self.clock, self._pid)

    def run(self, request: ProcessRequest) -> Completed:
        """Run a scripted process to its end in virtual time."""
        completed = self.start(request).wait()
        assert completed is not None  # noqa: S101 - wait without a limit ends
        return completed

    def read(self, path: str) -> bytes:
        """Return a scripted file. Raises FileNotFoundError."""
        try:
            content = self.files[path]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory", path) from None
        return content() if callable(content) else content

    def matching(self, pattern: str) -> list[str]:
        """Return the scripted files that match."""
        return sorted(fnmatch.filter(self.files, pattern))

    def read_own(self, pid: int, path: str) -> bytes:
        """Return the scripted file below the process's root. Raises FileNotFoundError."""
        return self.read(f"/proc/{pid}/root{path}")

    def exchange(self, request: SocketRequest) -> SocketAnswer:
        """Return a scripted answer, of the process FAKE_SERVER. Raises FileNotFoundError."""
        if request.path not in self.sockets:
            raise FileNotFoundError(2, "No such file or directory", request.path)
        line, path = self.sockets[request.path](request.line), f"/proc/{FAKE_SERVER}/{request.process_file}"
        return SocketAnswer(line, ((path, self.read(path)),) if path in self.files else ())

    def ask_nodes(self, requests: Sequence[NodeRequest]) -> list[NodeAnswer]:
        """Return what `nodes` says. Raises EnvironmentError_ when no machine is scripted."""
        if self.nodes is None:
            raise EnvironmentError_("no other machine is scripted")
        return [self.nodes(request) for request in requests]

    def leave_nodes(self) -> None:
        """There is no connection to end."""

    def fetch(self, requests: Sequence[HttpRequest]) -> list[Completed]:
        """Return what `web` says. Raises EnvironmentError_ when no server is scripted."""
        if self.web is None:
            raise EnvironmentError_("no HTTP server is scripted")
        return [self.web(request) for request in requests]

    def now_ns(self) -> int:
        """Return the virtual time."""
        return self.clock.now_ns()

    def monotonic_ns(self) -> int:
        """Return the virtual time since its start."""
        return self.clock.now_ns() - EPOCH_NS

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.clock.advance(seconds)

    def connect_ceph(self, target: Target) -> CephSession:  # noqa: ARG002 - the protocol's signature
        """Return the scripted cluster. Raises UnreachableError when there is none."""
        if self.ceph is None:
            raise UnreachableError("no monitor answered within 10 s")
        return self.ceph


class FakeCephSession(CephSession):
    """A cluster of scripted answers.

    `answers` maps (daemon, prefix), or prefix alone, to what comes back: bytes verbatim, an exception to
    raise, an int (−errno), a function of the request, or any other value as JSON. Every request is kept in
    `requests`.
    """

    def __init__(self, answers: dict[str | tuple[str, str], Any] | None = None, clock: FakeClock | None = None) -> None:
        self.answers = answers or {}
        self.clock = clock or FakeClock()
        self.requests: list[CephRequest] = []
        self.closed = False

    def command(self, request: CephRequest) -> Completed:
        """Return the scripted answer; −22 (EINVAL) when none is scripted, as a cluster answers the unknown."""
        self.requests.append(request)
        prefix = str(dict(request.command)["prefix"])
        value = self.answers.get((request.daemon, prefix), self.answers.get(prefix, -22))
        if callable(value) and not isinstance(value, type):
            value = value(request)
        if isinstance(value, BaseException):
            raise value
        code, out, err = 0, b"", b""
        if isinstance(value, bytes):
            out = value
        elif isinstance(value, int) and not isinstance(value, bool) and value < 0:
            code, err = value, b"scripted refusal"
        else:
            out = json.dumps(value).encode()
        now_ns = self.clock.now_ns()
        return Completed(request, code, out, err, now_ns, now_ns)

    def commands(self, requests: Sequence[CephRequest]) -> list[Completed]:
        """Return the scripted answers in order."""
        return [self.command(request) for request in requests]

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True
