"""The conversation with QEMU's guest agent, against lines that the agent of QEMU 7.2 answered."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bathyscope.errors import LabError
from bathyscope.lab import guest_agent

# What a byte 0xff is answered with; an answer to somebody who has gone; the end of a program, and of one that was
# ended by a signal.
PARSE_ERROR = """{"error": {"class": "GenericError", "desc": "JSON parse error, stray '\\\\uFFFD'"}}"""
STALE = '{"return": {"pid": 96}, "id": "5f1d6f0c2b7e4a39"}'
EXITED = (
    '{"return": {"exitcode": 3, "err-data": "ZXJyCg==", "out-data": "b3V0Cg==", "err-truncated": false, '
    '"out-truncated": false, "exited": true}, "id": "ID"}'
)
KILLED = '{"return": {"signal": 15, "exited": true}, "id": "ID"}'
RUNNING = '{"return": {"exited": false}, "id": "ID"}'
NO_PROGRAM = (
    '{"id": "ID", "error": {"class": "GenericError", "desc": "Guest agent command failed, error was \'Failed to '
    "execute child process \\\\u201C/bin/nothing\\\\u201D (No such file or directory)'\"}}"
)

Agent = Callable[..., tuple[Path, list[dict[str, Any]]]]


@pytest.fixture
def agent() -> Iterator[Agent]:
    """Serve the answers given, one connection each, like QEMU; return the socket and the requests as they come."""
    with tempfile.TemporaryDirectory(prefix="bathy-", dir="/tmp") as directory, socket.socket(socket.AF_UNIX) as server:
        path = Path(directory, "vm1.sock")
        server.bind(str(path))
        server.listen()
        server.settimeout(30)
        threads = []

        def serve(*answers: str) -> tuple[Path, list[dict[str, Any]]]:
            requests: list[dict[str, Any]] = []

            def work() -> None:
                for answer in answers:
                    channel, _ = server.accept()
                    with channel, channel.makefile("rb") as lines:
                        line = lines.readline()
                        assert line.startswith(b"\xff")
                        requests.append(json.loads(line[1:]))
                        lines_out = f"{PARSE_ERROR}\n{answer}\n".replace('"ID"', json.dumps(requests[-1]["id"]))
                        channel.sendall(lines_out.encode())

            threads.append(threading.Thread(target=work))
            threads[-1].start()
            return path, requests

        yield serve
        for thread in threads:
            thread.join(30)


def test_answers_to_others_are_passed_over(agent: Agent) -> None:
    path, requests = agent(f'{STALE}\n{{"return": {{}}, "id": "ID"}}')
    assert guest_agent.answers(path)
    assert [(request["execute"], request["arguments"]) for request in requests] == [("guest-ping", {})]


def test_a_program_runs_to_its_end(agent: Agent) -> None:
    path, requests = agent('{"return": {"pid": 96}, "id": "ID"}', RUNNING, EXITED)
    answer = guest_agent.run(path, "/bin/busybox", ["sh", "-c", "exit 3"])
    assert answer == guest_agent.GuestAnswer(3, b"out\n", b"err\n")
    assert requests[0]["arguments"] == {"path": "/bin/busybox", "arg": ["sh", "-c", "exit 3"], "capture-output": True}
    assert [request["arguments"] for request in requests[1:]] == [{"pid": 96}, {"pid": 96}]


def test_one_who_finds_no_room_waits() -> None:
    # A queue of one: more connections than it holds are refused at once, not made to wait.
    with tempfile.TemporaryDirectory(prefix="bathy-", dir="/tmp") as directory, socket.socket(socket.AF_UNIX) as server:
        path = Path(directory, "vm1.sock")
        server.bind(str(path))
        server.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(path))
            with pytest.raises(LabError, match="does not answer"):
                guest_agent.ask(path, "guest-ping", timeout_s=0.3)

            def serve() -> None:
                server.accept()[0].close()
                channel, _ = server.accept()
                with channel, channel.makefile("rb") as lines:
                    label = json.loads(lines.readline()[1:])["id"]
                    channel.sendall(json.dumps({"return": {}, "id": label}).encode() + b"\n")

            thread = threading.Timer(0.5, serve)
            thread.start()
            assert guest_agent.ask(path, "guest-ping") == {}
            thread.join(30)


def test_a_signals_exit_code_is_a_shells(agent: Agent) -> None:
    path, _ = agent('{"return": {"pid": 96}, "id": "ID"}', KILLED)
    assert guest_agent.run(path, "/bin/fio", []) == guest_agent.GuestAnswer(143, b"", b"")


def test_an_interrupted_program_is_ended(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(guest_agent.time, "sleep", interrupted)
    started = '{"return": {"pid": 96}, "id": "ID"}'
    path, requests = agent(started, RUNNING, started)
    with pytest.raises(KeyboardInterrupt):
        guest_agent.run(path, "/bin/fio", [])
    assert requests[-1]["arguments"] == {"path": "/bin/busybox", "arg": ["kill", "96"]}


def test_refusal_and_silence_are_one_error(agent: Agent, tmp_path: Path) -> None:
    path, _ = agent(NO_PROGRAM)
    with pytest.raises(LabError, match=r"vm1 refuses guest-exec: .*No such file"):
        guest_agent.run(path, "/bin/nothing", [])
    agent(STALE)
    with pytest.raises(LabError, match=r"vm1 does not answer \(it has ended\)"):
        guest_agent.ask(path, "guest-ping")
    with pytest.raises(LabError, match="vm2 does not answer"):
        guest_agent.ask(tmp_path / "vm2.sock", "guest-ping")
    # Nobody accepts: the connection is made, as with a guest that still boots, and no answer comes.
    assert not guest_agent.answers(path)
