"""Carries out the requests of one collection: the answers, and what asking cost."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

from bathyscope.errors import BathyscopeError, ClusterError, EnvironmentError_, UnreachableError
from bathyscope.host import (
    CephRequest,
    CephSession,
    Completed,
    Host,
    HttpRequest,
    NodeRequest,
    ProcessRequest,
    ReadRequest,
    Request,
    SocketAnswer,
    SocketRequest,
)
from bathyscope.host.node_sampler import resolved
from bathyscope.records import Collection, RawAnswer
from bathyscope.sources import csi, libvirt, op_history
from bathyscope.sources.facts import redacted

_NOT_INSTALLED = 127
_LEAST_S = 0.1

_Timed = TypeVar("_Timed", CephRequest, ProcessRequest)


@dataclasses.dataclass(frozen=True, slots=True)
class Collected:
    """One collection: its cost and its answers; `error` is why there are none that can be used."""

    cost: Collection
    answers: tuple[RawAnswer, ...] = ()
    error: BathyscopeError | None = None

    @property
    def good(self) -> bool:
        """Whether at least one question got a good answer."""
        return self.cost.request_count > self.cost.failure_count

    def failed(self, error: BathyscopeError) -> Collected:
        """Return the collection as one whose answers cannot be used."""
        count = self.cost.request_count
        cost = dataclasses.replace(self.cost, failure_count=count, success=False, problem=error.message)
        return Collected(cost, self.answers, error)


def describe(request: Request) -> tuple[str, ...]:
    """Return a request as the command line that a person would type for it."""
    if isinstance(request, CephRequest):
        words = [f"{key}={value}" if key != "prefix" else str(value) for key, value in request.command]
        return ("ceph", *(() if request.daemon in ("mon", "mgr") else ("tell", request.daemon)), *words)
    if isinstance(request, ReadRequest):
        return ("cat", *request.paths)
    if isinstance(request, SocketRequest):
        return ("socat", "-", f"UNIX-CONNECT:{request.path}", request.line)
    if isinstance(request, NodeRequest):
        return request.argv
    if isinstance(request, HttpRequest):
        given = (word for name, value in request.parameters for word in ("--data-urlencode", f"{name}={value}"))
        return ("curl", "-sfG", request.url, *given)
    chroot = ("chroot", request.root) if request.root else ()
    prefix = chroot if request.elsewhere is None else request.elsewhere.ssh
    return (*prefix, *request.argv)


def to_raw(completed: Completed, files: Iterable[tuple[str, bytes]] = ()) -> RawAnswer:
    """Return what a host answered as a raw answer; `files` are those that the program wrote.

    Raw answers are kept, so this is where values of the cluster's settings that may be secret are taken out.
    """
    request = completed.request
    answer = RawAnswer(
        label=request.label,
        argv=describe(request),
        environment=request.environment if isinstance(request, ProcessRequest) else (),
        exit_code=completed.exit_code,
        stdout=completed.stdout,
        stderr=completed.stderr,
        started_ns=completed.started_ns,
        ended_ns=completed.ended_ns,
        files=tuple(files),
    )
    return redacted(libvirt.compact(csi.compact(op_history.compact(answer))))


def collect(
    host: Host, session: CephSession | None, requests: Sequence[Request], timeout_s: float | None = None
) -> list[RawAnswer]:
    """Carry out `requests` and return their answers in order; all of it takes at most about `timeout_s`.

    Commands for the cluster go side by side, and so do questions to other machines and to HTTP servers; then files and
    sockets are read, then processes run one after the other. A refusal, a time-out, a program that is not installed
    (exit code 127) are answers. Raises UnreachableError when the connection is lost, ClusterError when the cluster is
    asked without a session.
    """
    ends_ns = None if timeout_s is None else host.monotonic_ns() + round(timeout_s * 1e9)
    ceph = [(index, request) for index, request in enumerate(requests) if isinstance(request, CephRequest)]
    answers: dict[int, RawAnswer] = {}
    if ceph:
        if session is None:
            raise ClusterError("there is no connection to a cluster")
        asked = [request if timeout_s is None else _limited(request, timeout_s) for _, request in ceph]
        for (index, _), completed in zip(ceph, session.commands(asked), strict=True):
            answers[index] = to_raw(completed)
    nodes = {index: request for index, request in enumerate(requests) if isinstance(request, NodeRequest)}
    if nodes:
        for index, answer in zip(nodes, host.ask_nodes(list(nodes.values())), strict=True):
            answers[index] = to_raw(answer.completed, answer.files)
    web = {index: request for index, request in enumerate(requests) if isinstance(request, HttpRequest)}
    if web:
        answers.update((i, to_raw(c)) for i, c in zip(web, host.fetch(list(web.values())), strict=True))
    for index, request in enumerate(requests):
        if isinstance(request, ReadRequest):
            answers[index] = _read(host, request)
        if isinstance(request, SocketRequest):
            answers[index] = _exchange(host, request)
    for index, request in enumerate(requests):
        if isinstance(request, ProcessRequest):
            left_s = None if ends_ns is None else max(_LEAST_S, (ends_ns - host.monotonic_ns()) / 1e9)
            answers[index] = _run(host, request if left_s is None else _limited(request, left_s))
    return [answers[index] for index in range(len(requests))]


def measure(
    host: Host, session: CephSession | None, source: str, requests: Sequence[Request], timeout_s: float | None = None
) -> Collected:
    """Carry out the requests of `source` and return the answers with their cost.

    Whatever is raised makes a failed collection; a cluster that answers nothing in time is an UnreachableError in it.
    """
    at_ns, began_ns = host.now_ns(), host.monotonic_ns()
    answers: list[RawAnswer] = []
    error: BathyscopeError | None = None
    try:
        answers = collect(host, session, requests, timeout_s)
    except BathyscopeError as caught:
        error = caught
    failed = [answer for answer in answers if answer.exit_code != 0]
    problem = _complaint(failed[0]) if failed else None
    if answers and all(answer.exit_code == -errno.ETIMEDOUT for answer in answers):
        error = UnreachableError(f"the cluster did not answer: {problem}")
    cost = Collection(
        at_ns=at_ns,
        source=source,
        duration_ns=host.monotonic_ns() - began_ns,
        request_count=len(requests),
        failure_count=len(failed),
        answer_bytes=sum(answer.size_bytes for answer in answers),
        success=bool(requests) and problem is None,
        problem=problem,
    )
    collected = Collected(cost, tuple(answers))
    return collected if error is None else collected.failed(error)


def as_collected(source: str, answers: Sequence[RawAnswer]) -> Collected:
    """Return answers that were given before the recording as one of its collections; there must be one at least."""
    failed = [answer for answer in answers if answer.exit_code != 0]
    began_ns = min(answer.started_ns for answer in answers)
    cost = Collection(
        at_ns=began_ns,
        source=source,
        duration_ns=max(answer.ended_ns for answer in answers) - began_ns,
        request_count=len(answers),
        failure_count=len(failed),
        answer_bytes=sum(answer.size_bytes for answer in answers),
        success=not failed,
        problem=_complaint(failed[0]) if failed else None,
    )
    return Collected(cost, tuple(answers))


def _limited(request: _Timed, timeout_s: float) -> _Timed:
    """Return `request` with a time limit of at most `timeout_s`."""
    own_s = request.timeout_s
    return request if own_s is not None and own_s <= timeout_s else dataclasses.replace(request, timeout_s=timeout_s)


def _read(host: Host, request: ReadRequest) -> RawAnswer:
    """Read the files that can be read. None of them at all is a failure."""
    started_ns = host.now_ns()
    files: list[tuple[str, bytes]] = []
    problem = b""
    paths = resolved(request.paths, host.matching)
    for path in paths:
        try:
            files.append((path, host.read(path)))
        except OSError as error:
            problem = f"cat: {path}: {error.strerror}".encode()
    failed = bool(paths) and not files
    completed = Completed(request, int(failed), b"", problem if failed else b"", started_ns, ended_ns=host.now_ns())
    return to_raw(completed, files)


def _exchange(host: Host, request: SocketRequest) -> RawAnswer:
    """Ask a socket's server; that nobody answers is an answer."""
    started_ns = host.now_ns()
    code, answer, problem = 0, SocketAnswer(b""), b""
    try:
        answer = host.exchange(request)
    except OSError as error:
        code, problem = -(error.errno or errno.EIO), f"{request.path}: {error.strerror or error}".encode()
    completed = Completed(request, code, answer.line, problem, started_ns, ended_ns=host.now_ns())
    return to_raw(completed, answer.files)


def _run(host: Host, request: ProcessRequest) -> RawAnswer:
    """Run a process to its end; that it cannot be started is an answer."""
    started_ns = host.now_ns()
    try:
        return to_raw(host.run(request))
    except EnvironmentError_ as error:
        return to_raw(
            Completed(request, _NOT_INSTALLED, b"", error.message.encode(), started_ns, ended_ns=host.now_ns())
        )


def _complaint(answer: RawAnswer) -> str:
    """Return which question failed, and what was said."""
    lines = answer.stderr.decode(errors="replace").strip().splitlines()
    # A daemon that refuses says no more than its error number; of a process it would be a signal.
    refused = answer.exit_code < 0 and answer.argv[0] == "ceph"
    silent = os.strerror(-answer.exit_code) if refused else f"exit code {answer.exit_code}"
    return f"{answer.label}: {lines[-1] if lines else silent}"
