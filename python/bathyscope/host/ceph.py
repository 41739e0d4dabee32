"""The connection to a cluster: one bridge process per session, many commands, milliseconds each.

A bridge is needed because the `rados` module belongs to the Ceph release (and to the system's Python), not to
our interpreter, and because a lab may run another release in another root file system. What it costs is one
process per session; the `ceph` program would cost one per command (0.3 s of CPU).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import errno
import importlib.resources
import itertools
import json
import os
import select
import shlex
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from bathyscope import files, interruption
from bathyscope.errors import (
    BathyscopeError,
    ClusterError,
    DeniedError,
    EnvironmentError_,
    UnreachableError,
    UsageError,
)
from bathyscope.fields import as_int, last_line, load_json
from bathyscope.host.base import CephRequest, CephSession, Completed, Host, ProcessRequest, answer_json
from bathyscope.host.local import LocalHost, LocalPipe, find_program
from bathyscope.spec import Target

DEFAULT_CONF = "/etc/ceph/ceph.conf"

# Where Ceph's packages and container images put their modules.
_PYTHON = "/usr/bin/python3"
# The program comes over stdin: as an argument it would be too long for some of those who pass it on (kubectl's server).
_FROM_STDIN = "import sys; i = sys.stdin.buffer; exec(i.read(int(i.readline())))"
_NOISE_BYTES = 64 << 10

# What one command may answer: `pg dump` has 2.5 kB for each of some 300,000 placement groups of 10,000 OSDs. And what
# those may that are sent side by side, all of which are held at once.
_ANSWER_BYTES = 1 << 30
_TOGETHER_BYTES = 2 << 30
_HEADER_BYTES = 4096
_PIECE_BYTES = 1 << 20


@runtime_checkable
class ConnectsCeph(Protocol):
    """A host that brings its own cluster session: the fake."""

    def connect_ceph(self, target: Target) -> CephSession:
        """Return the session."""


def connect(host: Host, target: Target, timeout_s: float = 10.0) -> CephSession:
    """Open a session to the cluster of `target`.

    Raises UsageError (no ceph.conf), EnvironmentError_ (no Ceph client software), DeniedError (keyring),
    UnreachableError (no monitor answered within `timeout_s`).
    """
    if isinstance(host, ConnectsCeph):
        return host.connect_ceph(target)
    if not isinstance(host, LocalHost):
        raise EnvironmentError_(f"{type(host).__name__} cannot reach a cluster")
    conf = target.conf or DEFAULT_CONF
    source = (importlib.resources.files("bathyscope.host") / "ceph_bridge.py").read_bytes()
    if target.ceph_prefix:
        # What the files are there is not known here. A container takes its time to start, and to end.
        argv, start_s, grace_s = (*target.ceph_prefix, _PYTHON, "-I", "-c", _FROM_STDIN), 60.0, 10.0
    else:
        _check_conf(target, conf)
        argv, start_s, grace_s = (*_interpreter(target.root), "-I", "-c", _FROM_STDIN), 5.0, 1.0
    pipe = host.open_pipe(ProcessRequest("ceph-bridge", argv, root=target.root))
    settings = {"conf": conf, "keyring": target.keyring, "client": target.client, "timeout_s": timeout_s}
    settings["answer_bytes"] = _ANSWER_BYTES
    try:
        # A prefix that ends at once takes no more than its first words; its last words say why.
        with contextlib.suppress(BrokenPipeError):
            pipe.stdin.write(b"%d\n%s%s\n" % (len(source), source, json.dumps(settings).encode()))
            pipe.stdin.flush()
        greeting = _greeting(pipe, timeout_s + start_s)
    except BaseException:
        pipe.close(grace_s=0)
        raise
    if not greeting.get("ready"):
        pipe.close(grace_s=0)
        raise _connect_error(greeting, target, conf, timeout_s)
    return BridgeSession(pipe, str(greeting["fsid"]), target.client, grace_s)


def _check_conf(target: Target, conf: str) -> None:
    """Raise UsageError when a file that was named, or the default one, cannot be read."""
    for what, name, option in (("ceph.conf", conf, "--conf"), ("keyring", target.keyring, "--keyring")):
        if name is None:
            continue
        path = Path(target.root, name.lstrip("/")) if target.root else Path(name)
        try:
            files.read_bounded(path)
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
        first = files.read_bounded(inside)[:256].splitlines()[0].decode("utf-8", "replace")
    except (OSError, IndexError):
        first = ""
    words = shlex.split(first[2:]) if first.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = words[1:]
    return (words[0],) if words and "python" in words[0] else (_PYTHON,)


def _greeting(pipe: LocalPipe, patience_s: float) -> dict[str, Any]:
    """Return the bridge's first line; what a prefix prints before it is passed over."""
    ends_s, line, before, read_bytes = time.monotonic() + patience_s, b"", b"", 0
    # Not `select`, which takes no descriptor beyond 1,023.
    poll = select.poll()
    poll.register(pipe.stdout, select.POLLIN)
    while read_bytes < _NOISE_BYTES:
        if not poll.poll(max(0.0, ends_s - time.monotonic()) * 1e3):
            return {"ready": False, "phase": "connect", "errno": errno.ETIMEDOUT, "message": "no answer"}
        # Byte by byte: what follows the line belongs to the session's reader.
        byte = os.read(pipe.stdout.fileno(), 1)
        if not byte:
            break
        read_bytes += 1
        line += byte
        if byte == b"\n":
            with contextlib.suppress(ValueError):
                answer = load_json(line)
                if isinstance(answer, dict) and "ready" in answer:
                    return answer
            line, before = b"", line
    said = pipe.stderr().strip() or line or before
    return {"ready": False, "phase": "start", "errno": 0, "message": last_line(said)}


def _connect_error(greeting: dict[str, Any], target: Target, conf: str, timeout_s: float) -> BathyscopeError:
    """Return the error for a session that did not come up: which file, which entity, and what to look at."""
    phase, number, message = greeting.get("phase"), greeting.get("errno"), str(greeting.get("message"))
    if phase in ("module", "start"):
        return _no_module(target, message)
    check = shlex.join((*target.ceph_prefix, "ceph", "-c", conf, "status"))
    if phase == "conf":
        return UsageError(f"{conf} cannot be used: {message}", hint=f"check it with: {check}")
    keyrings = [(str(path), str(state)) for path, state in greeting.get("keyrings", ())]
    monitors = [(str(address), str(state)) for address, state in greeting.get("monitors", ())]
    # A keyring without the entity gives the one or the other, by release.
    if number == errno.ENOENT or (target.keyring, "no key") in keyrings:
        return _nothing_to_present(target, conf, keyrings, monitors)
    if number in (errno.EPERM, errno.EACCES):
        return _not_let_in(target, keyrings)
    if number == errno.ETIMEDOUT:
        return _no_monitor(conf, timeout_s, monitors, check)
    return ClusterError(f"cannot connect to the cluster: {message}", hint=f"check it with: {check}")


def _no_module(target: Target, message: str) -> EnvironmentError_:
    """Return the error for a bridge that does not run, or finds no `rados` module."""
    if not target.ceph_prefix:
        return EnvironmentError_(
            f"the Ceph Python module cannot be used: {message}", hint="install it: apt install python3-rados"
        )
    there = shlex.join((*target.ceph_prefix, _PYTHON, "-c", "import rados"))
    return EnvironmentError_(
        f"Ceph's Python module cannot be used behind the prefix '{shlex.join(target.ceph_prefix)}': {message}",
        hint=f"this must run without an error, and pass its standard input on: {there}",
    )


def _not_let_in(target: Target, keyrings: Sequence[tuple[str, str]]) -> DeniedError:
    """Return the error for a key that the monitors refuse: it is not the cluster's, or it has no caps for them.

    They answer both with the same word.
    """
    used = target.keyring or next((path for path, state in keyrings if state == "key"), None)
    return DeniedError(
        f"the cluster refuses {target.client}{f' with the key in {used}' if used else ''}: "
        "it is another key than the cluster's, or the entity is unknown or has no mon caps",
        hint=f"compare key and caps, as an administrator of the cluster: ceph auth get {target.client}",
    )


def _nothing_to_present(
    target: Target, conf: str, keyrings: Sequence[tuple[str, str]], monitors: Sequence[tuple[str, str]]
) -> BathyscopeError:
    """Return the error for a configuration without monitors or a client without a key."""
    if not monitors and any(state == "key" for _, state in keyrings):
        return UsageError(f"{conf} names no monitor", hint="it needs a line like: mon_host = 10.0.0.1,10.0.0.2")
    words = {"no key": "has none", "unreadable": "cannot be read", "key": "has one"}
    seen = [f"{path} {words[state]}" for path, state in keyrings if state in words]
    where = f": {', '.join(seen)}" if seen else f": there is no {' and no '.join(p for p, _ in keyrings) or 'keyring'}"
    hint = (
        "name the keyring with --keyring and its entity with --client; "
        f"an administrator saves a key with: ceph auth get {target.client} -o FILE"
    )
    return DeniedError(f"no key for {target.client} was found{where}", hint=hint)


def _no_monitor(conf: str, timeout_s: float, monitors: Sequence[tuple[str, str]], check: str) -> UnreachableError:
    """Return the error for monitors that did not answer, with what is found at each of their addresses."""
    by_state: dict[str, list[str]] = {}
    for address, state in monitors:
        by_state.setdefault(state, []).append(address)
    words = {
        "ceph": "a monitor listens at {} but lets nobody in: the monitors have no quorum, or it hangs",
        "refused": "nothing listens at {} (connection refused): the monitor is down, or the port is wrong",
        "silent": "{} does not answer at all: the address is wrong, or the machine or its network is down",
        "no ceph": "what listens at {} is not a Ceph monitor: the address is wrong",
    }
    seen = [
        words.get(state, "{} cannot be reached (" + state.replace("{", "") + "): the address is wrong").format(
            ", ".join(addresses)
        )
        for state, addresses in by_state.items()
    ]
    hint = f"check mon_host in {conf}, then: {check}"
    if "ceph" in by_state:
        hint = "on a monitor's machine: ceph daemon mon.NAME mon_status"
    return UnreachableError("; ".join([f"no monitor answered within {timeout_s:g} s", *seen]), hint=hint)


# What came back of a command: code, out, err, and when.
_Answer = tuple[int, bytes, bytes, int]


@dataclasses.dataclass
class _Budget:
    """How much may still come of the commands that were sent together."""

    left_bytes: int


class _Waiting:
    """Whoever waits for the answer to one command."""

    def __init__(self, budget: _Budget) -> None:
        self.answer: concurrent.futures.Future[_Answer] = concurrent.futures.Future()
        self.budget = budget

    def has_come(self, timeout_s: float) -> bool:
        """Wait for the answer, and return whether it is there."""
        with contextlib.suppress(TimeoutError):
            self.answer.exception(timeout_s)
            return True
        return False


class BridgeSession(CephSession):
    """A session over the bridge process. Thread-safe. Use as a context manager, or call close()."""

    @interruption.held()
    def __init__(self, pipe: LocalPipe, fsid: str, client: str, grace_s: float = 1.0) -> None:
        self.fsid = fsid
        self._grace_s = grace_s
        self.client = client
        self._pipe = pipe
        self._lock = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = itertools.count()
        self._lost = False
        self._reader = threading.Thread(target=self._read, name="bathy-ceph-bridge", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        """Hand every answer to whoever waits for it; at the end of the bridge, wake all with the loss."""
        # Garbage between the answers, or JSON that is no header: where the next answer begins nobody knows.
        with contextlib.suppress(OSError, EOFError, ValueError, KeyError, TypeError, OverflowError):
            while line := self._pipe.stdout.readline(_HEADER_BYTES):
                self._receive(load_json(line))
        with self._lock:
            self._lost = True
            left, self._waiting = list(self._waiting.values()), {}
        for waiting in left:
            waiting.answer.set_exception(self._loss())

    def _receive(self, header: dict[str, Any]) -> None:
        """Read an answer whose first line is `header`; what nobody waits for, or is too long, is not kept."""
        number, code = as_int(header["id"]), as_int(header["code"])
        sizes = [as_int(header[name]) for name in ("out_bytes", "err_bytes")]
        if min(sizes) < 0:
            raise ValueError(f"{min(sizes)} bytes")
        with self._lock:
            waiting = self._waiting.pop(number, None)
        try:
            if waiting is not None and sum(sizes) <= min(_ANSWER_BYTES, waiting.budget.left_bytes):
                waiting.budget.left_bytes -= sum(sizes)
                out, err = map(self._exactly, sizes)
            else:
                self._pass_over(sum(sizes))
                why = f"its answer of {sum(sizes) >> 20} MiB is more than is taken at a time"
                code, out, err = -errno.EFBIG, b"", why.encode()
        except BaseException:
            # The rest will not come: it is lost with the others.
            if waiting is not None:
                with self._lock:
                    self._waiting[number] = waiting
            raise
        if waiting is not None:
            waiting.answer.set_result((code, out, err, time.time_ns()))

    def _exactly(self, size_bytes: int) -> bytes:
        content = self._pipe.stdout.read(size_bytes)
        if len(content) < size_bytes:
            raise EOFError
        return content

    def _pass_over(self, size_bytes: int) -> None:
        while size_bytes:
            size_bytes -= len(self._exactly(min(size_bytes, _PIECE_BYTES)))

    @interruption.held()
    def _send(self, request: CephRequest, budget: _Budget) -> tuple[int, _Waiting]:
        waiting = _Waiting(budget)
        with self._lock:
            if self._lost:
                raise self._loss()
            number = next(self._numbers)
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
            hint="check the cluster, then continue the run: bathy bench resume last",
        )

    def commands(self, requests: Sequence[CephRequest]) -> list[Completed]:
        """Send several commands side by side; answers in the order of the requests."""
        started_ns, started = time.time_ns(), time.monotonic()
        budget = _Budget(_TOGETHER_BYTES)
        sent = [(request, *self._send(request, budget)) for request in requests]
        answers = []
        for request, number, waiting in sent:
            left_s = max(0.0, started + request.timeout_s - time.monotonic())
            timed_out = not interruption.wait(waiting.has_come, left_s)
            if timed_out:
                with self._lock:
                    self._waiting.pop(number, None)
                ended_ns = time.time_ns()
                code, out, err = -errno.ETIMEDOUT, b"", f"no answer within {request.timeout_s:g} s".encode()
            else:
                code, out, err, ended_ns = waiting.answer.result()
            answers.append(Completed(request, code, out, err, started_ns, ended_ns, timed_out))
        return answers

    def close(self) -> None:
        """End the bridge."""
        self._pipe.close(self._grace_s)
        self._reader.join(timeout=2.0)
        # What a prefix has left behind may hold the other end open: then the reader has ours until this program ends.
        if not self._reader.is_alive():
            with contextlib.suppress(OSError):
                self._pipe.stdout.close()


def send(session: CephSession, request: CephRequest) -> None:
    """Send a command that changes something. Raises as `answer_json` does."""
    completed = session.command(request)
    if completed.exit_code != 0:
        answer_json(completed, session.client)
