"""QEMU's guest agent: JSON lines over a Unix socket, on whose other side a process in the guest obeys.

Each request has a connection of its own, because a guest serves one connection at a time. An answer to somebody
who has gone can still be on its way; answers are told apart by their `id`.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import secrets
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bathyscope.errors import LabError
from bathyscope.fields import load_json

TIMEOUT_S = 60.0
_POLL_S = 0.2
# What a program printed comes in one line; the agent cuts it at 16 MiB.
_LINE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class GuestAnswer:
    """What a program in a guest printed, and its exit code."""

    exit_code: int
    stdout: bytes
    stderr: bytes


def ask(agent: Path, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = TIMEOUT_S) -> Any:
    """Return what the agent behind the socket returns for a command.

    Raises LabError when it refuses or does not answer in time.
    """
    label = secrets.token_hex(8)
    request = {"execute": command, "arguments": dict(arguments or {}), "id": label}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(timeout_s)
            _connect(channel, agent, time.monotonic() + timeout_s)
            # The byte 0xff, which is in no JSON text, ends what somebody else began to send.
            channel.sendall(b"\xff" + json.dumps(request).encode() + b"\n")
            with channel.makefile("rb") as lines:
                answer = _answer_to(label, iter(lambda: lines.readline(_LINE_BYTES), b""))
    except (OSError, ValueError) as error:
        raise LabError(f"the guest {agent.stem} does not answer ({error})", hint="bathy lab vm list") from error
    if "error" in answer:
        raise LabError(f"the guest {agent.stem} refuses {command}: {answer['error'].get('desc')}")
    return answer["return"]


def _connect(channel: socket.socket, agent: Path, deadline: float) -> None:
    """Connect when the guest has room for one more who waits; a socket with a time limit does not wait by itself."""
    while True:
        try:
            channel.connect(str(agent))
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return


def _answer_to(label: str, lines: Iterable[bytes]) -> dict[str, Any]:
    for line in lines:
        answer: dict[str, Any] = load_json(line.lstrip(b"\xff"))
        if answer.get("id") == label:
            return answer
    raise ConnectionError("it has ended")


def answers(agent: Path) -> bool:
    """Return whether the agent is there, waiting for it a moment."""
    try:
        ask(agent, "guest-ping", timeout_s=1.0)
    except LabError:
        return False
    return True


def run(agent: Path, program: str, arguments: Sequence[str]) -> GuestAnswer:
    """Run a program in the guest to its end. It is ended when this is interrupted. Raises LabError."""
    started = ask(agent, "guest-exec", {"path": program, "arg": list(arguments), "capture-output": True})
    pid = int(started["pid"])
    try:
        while not (status := ask(agent, "guest-exec-status", {"pid": pid}))["exited"]:
            time.sleep(_POLL_S)
    except BaseException:
        with contextlib.suppress(LabError):
            ask(agent, "guest-exec", {"path": "/bin/busybox", "arg": ["kill", str(pid)]})
        raise
    # A program that a signal ended has the exit code that a shell would give it.
    code = status["exitcode"] if "exitcode" in status else 128 + status["signal"]
    return GuestAnswer(int(code), *(base64.b64decode(status.get(name, "")) for name in ("out-data", "err-data")))
