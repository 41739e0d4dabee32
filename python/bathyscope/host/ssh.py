"""Other machines over ssh: one connection for each, which carries a sampler and is kept until `close`.

The connection is the operator's own OpenSSH, so that its configuration, jump hosts, agents and certificates work as
always. It never asks anything (there is no terminal), makes no forwarding, and leaves no process on either side: ssh
ends with this program, and the sampler with its connection.

All machines are asked at once by one thread. What a machine sends is at its mercy, so all of it is bounded, and
whatever does not fit ends the connection. One that does not answer is waited for once: until its answer has come, it is
asked no more. One whose connection was lost is connected to again, and nobody waits longer for that than for an answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.resources
import json
import os
import selectors
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from bathyscope.errors import BathyscopeError, ParseError
from bathyscope.fields import as_dict, as_int, as_list, last_line, load_json, parsing
from bathyscope.host.base import Completed, NodeAnswer, NodeRequest, ProcessRequest
from bathyscope.host.node_sampler import GREETING
from bathyscope.spec import SshAccess

# Exit code of ssh for whatever goes wrong with a connection, and so ours.
NO_CONNECTION = 255

# The one remote command, the same for every machine: read a program's length and the program from stdin, and become it.
REMOTE = 'exec {}python3 -I -c "import sys; i = sys.stdin.buffer; exec(i.read(int(i.readline())))"'
_OPTIONS = (
    *("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"),
    # A connection that is there already is used; none is left behind.
    *("ControlMaster=no", "ClearAllForwardings=yes", "PermitLocalCommand=no", "RequestTTY=no"),
)

# What a login may print before the sampler's greeting, its answer's first line, and an answer in all.
_NOISE_BYTES = 64 << 10
_HEADER_BYTES = 1 << 20
_ANSWER_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 18
_RETRY_S = 10.0


def login_argv(access: SshAccess, node: str) -> tuple[str, ...]:
    """Return the command that connects to a node, without what is to run there."""
    config = () if access.config is None else ("-F", access.config)
    user = () if access.user is None else ("-l", access.user)
    options = tuple(word for option in _OPTIONS for word in ("-o", option))
    return ("ssh", *config, "-a", "-x", *options, *user, "--", access.names.get(node, node))


def ssh_argv(access: SshAccess, node: str) -> tuple[str, ...]:
    """Return the command that connects to a node and starts its sampler."""
    return (*login_argv(access, node), REMOTE.format("sudo -n " if access.sudo else ""))


class _Pipe(Protocol):
    """What is needed of `local.LocalPipe`."""

    stdin: Any
    stdout: Any

    def stderr(self) -> bytes: ...

    def close(self, grace_s: float = 1.0) -> int: ...


class _BrokenError(Exception):
    """A connection that cannot be used any more, and why."""


@dataclasses.dataclass
class _Asked:
    """A question under way."""

    number: int
    request: NodeRequest
    sent_ns: int


class _Connection:
    """The connection to one machine. Never waits."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._received = bytearray()
        self._greeted = False
        self._header: tuple[dict[str, Any], list[tuple[str, int]], int] | None = None
        self.asked: _Asked | None = None
        for stream in (pipe.stdin, pipe.stdout):
            os.set_blocking(stream.fileno(), False)

    @property
    def output(self) -> int:
        return int(self._pipe.stdout.fileno())

    def begin(self, source: bytes) -> None:
        """Send the sampler."""
        self._write(b"%d\n%s" % (len(source), source))

    def ask(self, number: int, request: NodeRequest) -> None:
        """Send a question."""
        line = json.dumps({"id": number, **request.question}).encode() + b"\n"
        self.asked = _Asked(number, request, time.time_ns())
        self._write(line)

    def _write(self, data: bytes) -> None:
        try:
            # A pipe takes 64 KiB, and there is never more than one question in it.
            if os.write(self._pipe.stdin.fileno(), data) != len(data):
                raise _BrokenError("it takes no questions")
        except OSError as error:
            raise _BrokenError(self._last_words()) from error

    def receive(self) -> NodeAnswer | None:
        """Read what is there; return the answer to what was asked when it is whole."""
        try:
            chunk = os.read(self.output, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        received_ns = time.time_ns()
        if not chunk:
            raise _BrokenError(self._last_words())
        self._received += chunk
        if not self._greeted and not self._greet():
            return None
        return self._answer(received_ns)

    def _greet(self) -> bool:
        """Drop what came before the greeting; return whether it is there."""
        start = self._received.find(GREETING + b"\n")
        if start < 0:
            if len(self._received) > _NOISE_BYTES:
                raise _BrokenError("what answers there is not the sampler")
            return False
        del self._received[: start + len(GREETING) + 1]
        self._greeted = True
        return True

    def _answer(self, received_ns: int) -> NodeAnswer | None:
        if self._header is None:
            end = self._received.find(b"\n")
            if max(end, 0 if end >= 0 else len(self._received)) > _HEADER_BYTES:
                raise _BrokenError("its answer has no end")
            if end < 0:
                return None
            self._header = _header(bytes(self._received[:end]))
            del self._received[: end + 1]
        said, sizes, size_bytes = self._header
        if len(self._received) < size_bytes:
            return None
        if len(self._received) > size_bytes or self.asked is None or said.pop("id") != self.asked.number:
            raise _BrokenError("it answers what was not asked")
        files, start = [], 0
        for path, size in sizes:
            files.append((path, bytes(self._received[start : start + size])))
            start += size
        self._received.clear()
        asked, self.asked, self._header = self.asked, None, None
        out = json.dumps(said).encode()
        return NodeAnswer(Completed(asked.request, 0, out, b"", asked.sent_ns, received_ns), tuple(files))

    def _last_words(self) -> str:
        """Return why the connection is at its end, as ssh says it."""
        said = self._pipe.stderr()
        return last_line(said[-_NOISE_BYTES:]) if said.strip() else "the connection was lost"

    def close(self) -> None:
        """End ssh at once, and with it the sampler's input."""
        self._pipe.close(grace_s=0)
        with contextlib.suppress(OSError):
            self._pipe.stdout.close()


def _header(line: bytes) -> tuple[dict[str, Any], list[tuple[str, int]], int]:
    """Return an answer's first line without its files, their paths and sizes, and the sum of these."""
    try:
        with parsing("its answer"):
            said = as_dict(load_json(line))
            sizes = [(str(path), as_int(size)) for path, size in map(as_list, as_list(said.pop("files")))]
    except ParseError as error:
        raise _BrokenError("its answer is not understood") from error
    if any(size < 0 for _, size in sizes) or sum(size for _, size in sizes) > _ANSWER_BYTES:
        raise _BrokenError(f"its answer is larger than {_ANSWER_BYTES >> 20} MiB")
    return said, sizes, sum(size for _, size in sizes)


class Nodes:
    """Connections by their commands. Thread-safe: who asks while others are waited for waits for its turn."""

    def __init__(self, open_pipe: Callable[[ProcessRequest], _Pipe]) -> None:
        self._open_pipe = open_pipe
        self._source = (importlib.resources.files("bathyscope.host") / "node_sampler.py").read_bytes()
        self._lock = threading.Lock()
        self._connections: dict[tuple[str, ...], _Connection] = {}
        self._refusals: dict[tuple[str, ...], tuple[str, float]] = {}
        self._number = 0

    def ask(self, requests: Sequence[NodeRequest]) -> list[NodeAnswer]:
        """Ask all machines at once, each one question after the other, and return the answers in order.

        A failure is an answer. A machine that does not answer in time gets none of its other questions.
        """
        with self._lock:
            answers: dict[int, NodeAnswer] = {}
            while len(answers) < len(requests):
                asked: dict[tuple[str, ...], int] = {}
                for index, request in enumerate(requests):
                    if index in answers or request.argv in asked:
                        continue
                    try:
                        self._send(request)
                        asked[request.argv] = index
                    except _BrokenError as broken:
                        answers[index] = self._failed(request, str(broken))
                for argv, index, outcome in self._receive(requests, asked):
                    answers[index] = (
                        outcome if isinstance(outcome, NodeAnswer) else self._lost(requests[index], argv, outcome)
                    )
            return [answers[index] for index in range(len(requests))]

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
            self._refusals = {}
        for connection in connections:
            connection.close()

    def _send(self, request: NodeRequest) -> None:
        """Send a question, connecting where that is necessary."""
        argv = request.argv
        connection = self._connections.get(argv)
        if connection is None:
            refusal, until_s = self._refusals.get(argv, ("", 0.0))
            if time.monotonic() < until_s:
                raise _BrokenError(refusal)
            try:
                pipe = self._open_pipe(ProcessRequest(request.label, argv))
            except BathyscopeError as error:
                raise _BrokenError(error.message) from error
            connection = self._connections[argv] = _Connection(pipe)
            self._checked(argv, lambda made: made.begin(self._source))
        elif connection.asked is not None:
            # It may have answered meanwhile, too late to be of use; one read is enough for all but large answers.
            self._checked(argv, _Connection.receive)
            if connection.asked is not None:
                raise _BrokenError("it does not answer")
        self._number += 1
        self._checked(argv, lambda made: made.ask(self._number, request))

    def _checked(self, argv: tuple[str, ...], do: Callable[[_Connection], object]) -> None:
        """Do something with a connection; one that breaks is ended."""
        try:
            do(self._connections[argv])
        except _BrokenError as broken:
            self._forget(argv, str(broken))
            raise

    def _receive(
        self, requests: Sequence[NodeRequest], asked: Mapping[tuple[str, ...], int]
    ) -> list[tuple[tuple[str, ...], int, NodeAnswer | _BrokenError | None]]:
        """Return what came of every question: an answer, the end of its connection, or nothing in time."""
        outcomes: list[tuple[tuple[str, ...], int, NodeAnswer | _BrokenError | None]] = []
        began_s = time.monotonic()
        left = dict(asked)
        with selectors.DefaultSelector() as selector:
            for argv in left:
                selector.register(self._connections[argv].output, selectors.EVENT_READ, argv)
            while left:
                patience_s = max(requests[index].timeout_s for index in left.values())
                ready = selector.select(max(0.0, began_s + patience_s - time.monotonic()))
                for key, _ in ready:
                    argv = key.data
                    result: NodeAnswer | _BrokenError | None
                    try:
                        result = self._connections[argv].receive()
                    except _BrokenError as broken:
                        result = broken
                    if result is not None:
                        selector.unregister(key.fileobj)
                        outcomes.append((argv, left.pop(argv), result))
                late = [a for a, p in left.items() if time.monotonic() - began_s >= requests[p].timeout_s]
                for argv in late:
                    selector.unregister(self._connections[argv].output)
                    outcomes.append((argv, left.pop(argv), None))
        return outcomes

    def _lost(self, request: NodeRequest, argv: tuple[str, ...], broken: _BrokenError | None) -> NodeAnswer:
        if broken is None:
            return self._failed(request, f"no answer within {request.timeout_s:g} s")
        self._forget(argv, str(broken))
        return self._failed(request, str(broken))

    def _forget(self, argv: tuple[str, ...], why: str) -> None:
        """End a connection; it is made again after a while."""
        self._refusals[argv] = (why, time.monotonic() + _RETRY_S)
        self._connections.pop(argv).close()

    def _failed(self, request: NodeRequest, why: str) -> NodeAnswer:
        now_ns = time.time_ns()
        return NodeAnswer(Completed(request, NO_CONNECTION, b"", why.encode(), now_ns, now_ns))
