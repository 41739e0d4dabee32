"""A process on another machine, over one ssh of its own: it ends with the connection, and its files come back.

What the other machine sends is read as data: sizes are checked, and a file's name must be a plain one.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import re
import shutil
import time
from pathlib import Path
from typing import Protocol

from bathyscope import files
from bathyscope.errors import EnvironmentError_, ParseError
from bathyscope.fields import as_dict, as_int, as_list, load_json, parsing
from bathyscope.host.base import Completed, ProcessRequest, Running
from bathyscope.host.load_runner import GREETING
from bathyscope.host.ssh import NO_CONNECTION, REMOTE

_GREETED = re.compile(rb"^%s (\d{1,10})\n" % re.escape(GREETING), re.MULTILINE)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.#-]{0,99}")
_FILES_MAX = 100
_LOGIN_S = 30.0
# What a login may print before the runner's greeting, and the answer's first line.
_NOISE_BYTES = 64 << 10
_HEADER_BYTES = 1 << 20


class _Ssh(Running, Protocol):
    """What is needed of `local.LocalRunning`."""

    def stdout(self, limit_bytes: int) -> bytes: ...


def ssh_request(request: ProcessRequest) -> ProcessRequest:
    """Return the ssh that carries a process elsewhere: what is on its stdin is all that the other machine gets.

    Raises EnvironmentError_ when a file that is to be sent cannot be read.
    """
    assert request.elsewhere is not None  # noqa: S101 - the caller's question
    contents = []
    for variable, path in request.elsewhere.files:
        try:
            contents.append((variable, path, files.read_bounded(Path(path))))
        except OSError as error:
            raise EnvironmentError_(f"{path} cannot be sent to the client host: {error.strerror}") from error
    source = (importlib.resources.files("bathyscope.host") / "load_runner.py").read_bytes()
    asked = {
        "argv": request.argv,
        "environment": dict(request.environment),
        "files": [(variable, path, len(content)) for variable, path, content in contents],
    }
    sent = b"%d\n%s%s\n" % (len(source), source, json.dumps(asked).encode())
    return ProcessRequest(
        label=request.label,
        argv=(*request.elsewhere.ssh, REMOTE.format("")),
        stdin=sent + b"".join(content for *_, content in contents),
        timeout_s=request.timeout_s,
    )


class RemoteRunning:
    """A process under way on another machine. `ssh` was started from `ssh_request(request)`, its stdin left open."""

    def __init__(self, request: ProcessRequest, ssh: _Ssh) -> None:
        self._request = request
        self._ssh = ssh
        self._ended: Completed | None = None

    @property
    def pid(self) -> int:
        """Process id on the other machine; 0 when the program did not start. Waits for the login."""
        deadline = time.monotonic() + _LOGIN_S
        while time.monotonic() < deadline:
            ended = self._ssh.wait(0.02)
            match = _GREETED.search(self._ssh.stdout(_NOISE_BYTES) if ended is None else ended.stdout, 0, _NOISE_BYTES)
            if match is not None:
                return int(match[1])
            if ended is not None:
                break
        return 0

    def wait(self, timeout_s: float | None = None) -> Completed | None:
        """Return what came back, or None when it is still running after `timeout_s`."""
        if self._ended is None and (completed := self._ssh.wait(timeout_s)) is not None:
            self._ended = self._read(completed)
        return self._ended

    def stop(self, grace_s: float = 1.5) -> Completed:
        """End the connection, and with it the program there. A load that is stopped has no answer."""
        if self._ended is None:
            self._ended = self._read(self._ssh.stop(grace_s))
        return self._ended

    def _read(self, completed: Completed) -> Completed:
        """Return the program's own answer; without one, that of ssh. Files are written to the directory for them."""
        own = dataclasses.replace(completed, request=self._request)
        match = _GREETED.search(completed.stdout, 0, _NOISE_BYTES)
        if match is None or completed.exit_code != 0:
            return dataclasses.replace(own, exit_code=completed.exit_code or NO_CONNECTION, stdout=b"")
        try:
            code, stdout, stderr, files = _parts(completed.stdout, match.end())
        except ParseError as error:
            return dataclasses.replace(own, exit_code=NO_CONNECTION, stdout=b"", stderr=error.message.encode())
        if self._request.confined is not None:
            directory = Path(self._request.confined)
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(mode=0o700, parents=True)
            for name, content in files:
                (directory / name).write_bytes(content)
        return dataclasses.replace(own, exit_code=code, stdout=stdout, stderr=stderr)


def _parts(answer: bytes, start: int) -> tuple[int, bytes, bytes, list[tuple[str, bytes]]]:
    """Return exit code, stdout, stderr and files of the runner's answer, which begins at `start`. Raises ParseError."""
    end = answer.find(b"\n", start, start + _HEADER_BYTES)
    end = min(start + _HEADER_BYTES, len(answer)) if end < 0 else end
    body = memoryview(answer)[end + 1 :]
    with parsing("the answer of the client host"):
        said = as_dict(load_json(answer[start:end]))
        sizes = [(str(name), as_int(size)) for name, size in map(as_list, as_list(said["files"]))]
        sizes = [("stdout", as_int(said["stdout"])), ("stderr", as_int(said["stderr"])), *sizes]
        code = as_int(said["exit_code"])
    if len(sizes) > _FILES_MAX or any(size < 0 or not _PLAIN_NAME.fullmatch(name) for name, size in sizes):
        raise ParseError("the answer of the client host has files that no load makes")
    if sum(size for _, size in sizes) != len(body):
        raise ParseError("the answer of the client host is not whole")
    contents, at = [], 0
    for name, size in sizes:
        contents.append((name, bytes(body[at : at + size])))
        at += size
    (_, stdout), (_, stderr), *files = contents
    return code, stdout, stderr, files
