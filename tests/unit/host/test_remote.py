"""A process on another machine: a program in ssh's place runs the command here."""

from __future__ import annotations

import ast
import inspect
import os
from pathlib import Path

import pytest
from tests.unit.waiting import until

from bathyscope.errors import EnvironmentError_
from bathyscope.host import Completed, Elsewhere, ProcessRequest, load_runner, local
from bathyscope.host.local import LocalHost
from bathyscope.host.ssh import NO_CONNECTION, login_argv
from bathyscope.recording.collect import describe
from bathyscope.spec import SshAccess

# Directories of programs there are made in one of this test, to see what is left.
_SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
case $2 in
  refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
  noisy) echo "Welcome to noisy" ;;
  liar) echo "bathy load runner 1 77"; cat "{directory}/lie"; exit 0 ;;
esac
export TMPDIR="{directory}/there"
exec sh -c "$3"
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ssh").write_text(_SSH.replace("{directory}", str(tmp_path)))
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "there").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "there"


def request(tmp_path: Path, script: str, *arguments: str, node: str = "noisy") -> ProcessRequest:
    (tmp_path / "key").write_text("secret\n")
    place = Elsewhere(login_argv(SshAccess(), node), (("KEY", str(tmp_path / "key")),))
    argv = ("sh", "-c", script, "sh", *arguments)
    return ProcessRequest("load", argv, (("COLOUR", "red"),), elsewhere=place, confined=str(tmp_path / "back"))


def run(asked: ProcessRequest) -> Completed:
    return LocalHost().run(asked)


def test_its_answer_and_its_files_come_back_and_nothing_stays(there: Path, tmp_path: Path) -> None:
    script = 'cat "$KEY" "${1#--conf=}"; echo $COLOUR >&2; echo one > log_1.log; printf "\\0" > log_2.log; exit 3'
    asked = request(tmp_path, script, f"--conf={tmp_path}/key")
    ended = run(asked)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (3, b"secret\nsecret\n", b"red\n")
    assert ended.request == asked
    assert {path.name: path.read_bytes() for path in (tmp_path / "back").iterdir()} == {
        "log_1.log": b"one\n",
        "log_2.log": b"\0",
    }
    assert list(there.iterdir()) == []
    # What is kept of it is the command that the operator could run, without any key.
    assert describe(asked)[-6:] == ("noisy", *asked.argv[:3], "sh", f"--conf={tmp_path}/key")


def test_what_it_is_sent_is_in_no_directory(there: Path, tmp_path: Path) -> None:
    ended = run(request(tmp_path, 'readlink "$KEY"; stat -L -c %h:%a "$KEY"; pwd'))
    link, about, directory = ended.stdout.decode().splitlines()
    assert link.endswith("(deleted)")
    assert about == "0:600"
    assert Path(directory).parent == there


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_it_ends_with_its_connection(there: Path, tmp_path: Path, end: str) -> None:
    running = LocalHost().start(request(tmp_path, "echo $$; exec sleep 600"))
    pid = running.pid
    # The shell tells its number before it becomes the program.
    until(lambda: Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0"))
    if end == "stop":
        assert running.stop().exit_code != 0
    else:
        os.kill(running._ssh.pid, 9)  # type: ignore[attr-defined]
        ended = running.wait(60)
        assert ended is not None
        assert ended.exit_code != 0
    until(lambda: not Path(f"/proc/{pid}").exists())
    if end == "stop":
        until(lambda: list(there.iterdir()) == [])


@pytest.mark.parametrize(
    ("node", "lie", "why"),
    [
        ("refused", b"", "Connection refused"),
        ("liar", b"", "unexpected form"),
        ("liar", b'{"exit_code": 0, "stdout": 9, "stderr": 0, "files": []}\nx', "is not whole"),
        ("liar", b'{"exit_code": 0, "stdout": 0, "stderr": 0, "files": [["../x", 1]]}\nx', "no load makes"),
        ("liar", b'{"exit_code": 0, "stdout": 0, "stderr": 0, "files": [["/x", 1]]}\nx', "no load makes"),
        ("liar", b'{"exit_code": 0, "stdout": 2, "stderr": -1, "files": []}\nx', "no load makes"),
    ],
)
def test_what_is_no_answer_is_a_failure(there: Path, tmp_path: Path, node: str, lie: bytes, why: str) -> None:
    (tmp_path / "lie").write_bytes(lie)
    ended = run(request(tmp_path, "true", node=node))
    assert ended.exit_code == NO_CONNECTION
    assert why in ended.stderr.decode()
    assert not (tmp_path / "x").exists()


def test_a_program_that_is_not_there_and_a_file_that_cannot_be_sent(there: Path, tmp_path: Path) -> None:
    asked = request(tmp_path, "true")
    missing = ProcessRequest("load", ("no-such-program",), elsewhere=asked.elsewhere)
    ended = run(missing)
    assert ended.exit_code != 0
    assert b"cannot run no-such-program: No such file" in ended.stderr
    (tmp_path / "key").unlink()
    with pytest.raises(EnvironmentError_, match="cannot be sent to the client host"):
        run(asked)


def test_an_old_python_understands_the_runner() -> None:
    ast.parse(inspect.getsource(load_runner), feature_version=(3, 6))


def test_a_client_host_that_sends_without_end_is_left(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "OUTPUT_BYTES", 1 << 20)
    (tmp_path / "lie").write_bytes(
        b'{"exit_code": 0, "stdout": 33554432, "stderr": 0, "files": []}\n' + bytes(32 << 20)
    )
    ended = run(request(tmp_path, "true", node="liar"))
    assert ended.exit_code != 0
    assert len(ended.stdout) == 0
    assert b"cut off at 1 MiB" in ended.stderr
