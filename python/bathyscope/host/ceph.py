"""The connection to a cluster: one bridge process per session, many commands, milliseconds each.

A bridge is needed because the `rados` module belongs to the Ceph release (and to the system's Python), not to
our interpreter, and because a lab may run another release in another root file system. What it costs is one
process per session; the `ceph` program would cost one per command (0.3 s of CPU).
"""

from __future__ import annotations

import contextlib
import errno
import importlib.resources
import json
import select
import shlex
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Protocol, Self, runtime_checkable

from bathyscope.errors import (
    BathyscopeError,
    ClusterError,
    DeniedError,
    EnvironmentError_,
    ParseError,
    UnreachableError,
    UsageError,
)
from bathyscope.host.base import CephRequest, CephSession, Completed, Host, ProcessRequest
from bathyscope.host.local import find_program
from bathyscope.spec import Target

DEFAULT_CONF = "/etc/ceph/ceph.conf"
_DENIED = (errno.EPERM, errno.EACCES)


class Pipe(Protocol):
    """A process that is talked to over its stdin and stdout."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def stderr(self) -> bytes:
        """Return what it has written to stderr so far."""
        ...

    def close(self, grace_s: float = 1.0) -> int:
        """End it and return its exit code."""
        ...


@runtime_checkable
class OpensPipes(Protocol):
    """A host that can start a process and talk to it."""

    def open_pipe(self, request: ProcessRequest) -> Pipe:
        """Start the process."""
        ...


@runtime_checkable
class ConnectsCeph(Protocol):
    """A host that brings its own cluster session: the fake."""

    def connect_ceph(self, target: Target) -> CephSession:
        """Return the session."""
        ...


def connect(host: Host, target: Target, timeout_s: float = 10.0) -> CephSession:
    """Open a session to the cluster of `target`.

    Raises UsageError (no ceph.conf), EnvironmentError_ (no Ceph client software), DeniedError (keyring),
    UnreachableError (no monitor answered within `timeout_s`).
    """
    if isinstance(host, ConnectsCeph):
        return host.connect_ceph(target)
    if not isinstance(host, OpensPipes):
        raise EnvironmentError_(f"{type(host).__name__} cannot reach a cluster")
    conf = target.conf or DEFAULT_CONF
    _check_conf(target, conf)
    source = (importlib.resources.files("bathyscope.host") / "ceph_bridge.py").read_text(encoding="utf-8")
    interpreter = _interpreter(target.root)
    request = ProcessRequest("ceph-bridge", (*interpreter, "-I", "-c", source), root=target.root)
    pipe = host.open_pipe(request)
    try:
        settings = {"conf": conf, "keyring": target.keyring, "client": target.client, "timeout_s": timeout_s}
        pipe.stdin.write(json.dumps(settings).encode() + b"\n")
        pipe.stdin.flush()
        greeting = _greeting(pipe, timeout_s)
    except BaseException:
        pipe.close(grace_s=0)
        raise
    if not greeting.get("ready"):
        pipe.close(grace_s=0)
        raise _connect_error(greeting, target, conf, timeout_s)
    return BridgeSession(pipe, str(greeting["fsid"]))


def _check_conf(target: Target, conf: str) -> None:
    """Raise UsageError when a file that was named, or the default one, cannot be read."""
    for what, name, option in (("ceph.conf", conf, "--conf"), ("keyring", target.keyring, "--keyring")):
        if name is None:
            continue
        path = Path(target.root, name.lstrip("/")) if target.root else Path(name)
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            hint = f"name it with {option}, or start a cluster of your own: bathy lab up"
            raise UsageError(f"cannot read the {what} {name}: {error.strerror}", hint=hint) from error


def _interpreter(root: str | None) -> tuple[str, ...]:
    """Return the Python that the `ceph` program runs under: it is the one that has the `rados` module."""
    path = find_program("ceph", root)
    if path is None:
        where = f" in {root}" if root else ""
        hint = "install the Ceph client programs: apt install ceph-common"
        raise EnvironmentError_(f"the program ceph is not installed{where}", hint=hint)
    inside = Path(root, path.lstrip("/")) if root else Path(path)
    try:
        first = inside.read_bytes()[:256].splitlines()[0].decode("utf-8", "replace")
    except (OSError, IndexError):
        first = ""
    words = shlex.split(first[2:]) if first.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = words[1:]
    return (words[0],) if words and "python" in words[0] else ("/usr/bin/python3",)


def _greeting(pipe: Pipe, timeout_s: float) -> dict[str, Any]:
    """Return the bridge's first line. It limits itself to `timeout_s`; the margin is for a loaded machine."""
    ready, _, _ = select.select([pipe.stdout], [], [], timeout_s + 5.0)
    if not ready:
        return {"ready": False, "phase": "connect", "errno": errno.ETIMEDOUT, "message": "no answer"}
    # The bridge writes the line in one piece, so that a line that has begun is there.
    line = pipe.stdout.readline()
    if not line:
        last = pipe.stderr().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        return {"ready": False, "phase": "module", "errno": 0, "message": last[0]}
    answer = json.loads(line)
    return answer if isinstance(answer, dict) else {"ready": False, "phase": "module", "errno": 0, "message": "?"}


def _connect_error(greeting: dict[str, Any], target: Target, conf: str, timeout_s: float) -> BathyscopeError:
    """Return the error for a session that did not come up: which file, which entity, and what to look at."""
    phase, number, message = greeting.get("phase"), greeting.get("errno"), str(greeting.get("message"))
    if phase == "module":
        return EnvironmentError_(
            f"the Ceph Python module cannot be used: {message}", hint="install it: apt install python3-rados"
        )
    if phase == "conf":
        return UsageError(f"{conf} cannot be used: {message}", hint="does `ceph -c FILE status` accept it?")
    keyring = f" with the keyring {target.keyring}" if target.keyring else ""
    if number in _DENIED:
        hint = f"does the keyring hold the cluster's present key? compare with `ceph auth get {target.client}`"
        return DeniedError(f"the cluster refuses {target.client}{keyring}", hint=hint)
    if number == errno.ENOENT:
        hint = "name the keyring with --keyring and its entity with --client"
        return DeniedError(f"no key for {target.client} was found{keyring}", hint=hint)
    if number == errno.ETIMEDOUT:
        hint = f"is the address in {conf} right, and does `ceph -c {conf} status` answer?"
        return UnreachableError(f"no monitor answered within {timeout_s:g} s", hint=hint)
    return ClusterError(f"cannot connect to the cluster: {message}", hint=f"does `ceph -c {conf} status` answer?")


class _Waiting:
    """One command under way."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.code = -errno.EIO
        self.out = b""
        self.err = b""
        self.ended_ns = 0
        self.lost = False


class BridgeSession:
    """A session over the bridge process. Thread-safe. Use as a context manager, or call close()."""

    def __init__(self, pipe: Pipe, fsid: str) -> None:
        self.fsid = fsid
        self._pipe = pipe
        self._lock = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._next_id = 0
        self._lost = False
        self._reader = threading.Thread(target=self._read, name="bathy-ceph-bridge", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        """Hand every answer to whoever waits for it; at the end of the bridge, wake all with the loss."""
        stream = self._pipe.stdout
        with contextlib.suppress(OSError, ValueError, KeyError):
            while line := stream.readline():
                header = json.loads(line)
                out, err = stream.read(header["out_bytes"]), stream.read(header["err_bytes"])
                with self._lock:
                    waiting = self._waiting.pop(header["id"], None)
                if waiting is not None:
                    waiting.code, waiting.out, waiting.err = header["code"], out, err
                    waiting.ended_ns = time.time_ns()
                    waiting.event.set()
        with self._lock:
            self._lost = True
            left, self._waiting = list(self._waiting.values()), {}
        for waiting in left:
            waiting.lost = True
            waiting.event.set()

    def _send(self, request: CephRequest) -> tuple[int, _Waiting]:
        waiting = _Waiting()
        with self._lock:
            if self._lost:
                raise self._loss()
            number, self._next_id = self._next_id, self._next_id + 1
            self._waiting[number] = waiting
            message = {"id": number, "daemon": request.daemon, "command": dict(request.command)}
            try:
                self._pipe.stdin.write(json.dumps(message).encode() + b"\n")
                self._pipe.stdin.flush()
            except (OSError, ValueError) as error:
                raise self._loss() from error
        return number, waiting

    def _loss(self) -> UnreachableError:
        last = self._pipe.stderr().decode(errors="replace").strip().splitlines()[-1:]
        return UnreachableError(
            "the connection to the cluster was lost" + (f": {last[0]}" if last else ""),
            hint="is the cluster still up? a run can be continued with: bathy bench resume",
        )

    def command(self, request: CephRequest) -> Completed:
        """Send one command and return its answer; a refusal or a time-out is an answer (exit_code −errno)."""
        return self.commands([request])[0]

    def commands(self, requests: Sequence[CephRequest]) -> list[Completed]:
        """Send several commands side by side; answers in the order of the requests."""
        started_ns, started = time.time_ns(), time.monotonic()
        sent = [(request, *self._send(request)) for request in requests]
        answers = []
        for request, number, waiting in sent:
            in_time = waiting.event.wait(max(0.0, started + request.timeout_s - time.monotonic()))
            if waiting.lost:
                raise self._loss()
            if not in_time:
                with self._lock:
                    self._waiting.pop(number, None)
                waiting.code, waiting.err = -errno.ETIMEDOUT, f"no answer within {request.timeout_s:g} s".encode()
            ended_ns = waiting.ended_ns or time.time_ns()
            answers.append(
                Completed(request, waiting.code, waiting.out, waiting.err, started_ns, ended_ns, timed_out=not in_time)
            )
        return answers

    def json(self, daemon: str, prefix: str, **arguments: Any) -> Any:
        """Send one command with format json and return the parsed answer (None when it is empty).

        Raises ClusterError, DeniedError, UnreachableError (also for no answer in time), ParseError.
        """
        words = {"prefix": prefix, **arguments, "format": "json"}
        return answer_json(self.command(CephRequest(prefix, daemon, tuple(words.items()))))

    def close(self) -> None:
        """End the bridge."""
        self._pipe.close()
        self._reader.join(timeout=2.0)
        with contextlib.suppress(OSError):
            self._pipe.stdout.close()


def answer_json(completed: Completed) -> Any:
    """Return the JSON of an answered command. Raises as `CephSession.json` does."""
    request = completed.request
    what = request.label if isinstance(request, ProcessRequest) else f"{dict(request.command).get('prefix')}"
    if completed.exit_code != 0:
        message = completed.stderr.decode(errors="replace").strip() or f"error {completed.exit_code}"
        if completed.timed_out:
            raise UnreachableError(f"the cluster did not answer '{what}': {message}")
        if -completed.exit_code in _DENIED:
            hint = "the caps of this client do not allow it; see docs for the caps that each verb needs"
            raise DeniedError(f"the cluster refuses '{what}': {message}", hint=hint)
        raise ClusterError(f"'{what}' failed: {message}")
    if not completed.stdout.strip():
        return None
    try:
        return json.loads(completed.stdout)
    except ValueError as error:
        raise ParseError(f"'{what}' did not answer with JSON: {error}") from error
