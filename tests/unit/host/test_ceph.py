"""The session against a bridge whose `rados` module is scripted: errors, order, loss, time limits."""

from __future__ import annotations

import errno
import importlib.resources
import json
import sys
import time
from pathlib import Path

import pytest

from bathyscope.errors import ClusterError, DeniedError, EnvironmentError_, ParseError, UnreachableError, UsageError
from bathyscope.host import CephRequest, ProcessRequest
from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost, LocalPipe
from bathyscope.spec import Target

RADOS = """
import errno, json, os, time
class Error(Exception):
    def __init__(self, message, errno=None):
        super().__init__(message)
        self.errno = errno
class Rados:
    def __init__(self, name, conffile, conf):
        text = open(conffile).read()
        if "broken" in text:
            raise Error("error calling conf_read_file", errno.EINVAL)
        self.text = text
    def connect(self):
        print("noise on stdout")
        for word, number in (("denied", 13), ("nokey", 2), ("slow", 110)):
            if word in self.text:
                raise Error("error connecting", number)
    def get_fsid(self):
        return "f-s-i-d"
    def mon_command(self, command, data, timeout=0, target=None):
        words = json.loads(command)
        if words["prefix"] == "sleep":
            time.sleep(words["seconds"])
        if words["prefix"] == "refuse":
            return -13, b"", "access denied"
        if words["prefix"] == "die":
            os._exit(3)
        if words["prefix"] == "raise":
            raise Error("lost", errno.ENOTCONN)
        if words["prefix"] == "text":
            return 0, b"not json", ""
        return 0, json.dumps({"to": target or "mon", **words}).encode(), "note"
    def mgr_command(self, command, data):
        return 1, b"", "positive error"
    def osd_command(self, osd, command, data):
        return 0, b"\\n\\xff" * 1_000_000, ""
"""


class ScriptedHost(LocalHost):
    """The bridge's real source, run by our interpreter beside the scripted module."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open_pipe(self, request: ProcessRequest) -> LocalPipe:
        source = (importlib.resources.files("bathyscope.host") / "ceph_bridge.py").read_text()
        code = f"import sys; sys.path.insert(0, {str(self._directory)!r})\n{source}"
        return super().open_pipe(ProcessRequest(request.label, (sys.executable, "-I", "-c", code)))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedHost:
    (tmp_path / "rados.py").write_text(RADOS)
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    (bin_directory / "ceph").write_text(f"#!{sys.executable}\n")
    (bin_directory / "ceph").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_directory))
    return ScriptedHost(tmp_path)


def target(tmp_path: Path, text: str = "") -> Target:
    (tmp_path / "ceph.conf").write_text(text)
    return Target(name="t", conf=str(tmp_path / "ceph.conf"))


def request(prefix: str, daemon: str = "mon", timeout_s: float = 10.0, **words: object) -> CephRequest:
    return CephRequest(prefix, daemon, (("prefix", prefix), *words.items()), timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("broken", UsageError, "cannot be used"),
        ("denied", DeniedError, "refuses client.admin"),
        ("nokey", DeniedError, "no key for client.admin"),
        ("slow", UnreachableError, "no monitor answered within 3 s"),
    ],
)
def test_what_goes_wrong_at_the_start_is_told_apart(
    host: ScriptedHost, tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        connect(host, target(tmp_path, text), timeout_s=3)
    assert raised.value.hint  # type: ignore[attr-defined]


def test_files_that_cannot_be_read_are_usage_errors(host: ScriptedHost, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ceph\.conf /absent"):
        connect(host, Target(name="t", conf="/absent"))
    with pytest.raises(UsageError, match="keyring /absent"):
        connect(host, target(tmp_path).model_copy(update={"keyring": "/absent"}))


def test_a_missing_rados_module_is_said(host: ScriptedHost, tmp_path: Path) -> None:
    (tmp_path / "rados.py").write_text("raise ImportError('no module')")
    with pytest.raises(EnvironmentError_, match="no module"):
        connect(host, target(tmp_path))


def test_missing_ceph_programs_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bathyscope.host.ceph.find_program", lambda *_: None)
    with pytest.raises(EnvironmentError_, match="ceph is not installed"):
        connect(LocalHost(), target(tmp_path))


def test_commands_are_answered_in_the_order_asked_and_side_by_side(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        assert session.fsid == "f-s-i-d"
        began = time.monotonic()
        answers = session.commands([request("sleep", seconds=0.5 - 0.1 * i, n=i) for i in range(5)])
        assert time.monotonic() - began < 1.2
        assert [json.loads(answer.stdout)["n"] for answer in answers] == [0, 1, 2, 3, 4]
        assert session.json("mon.a", "status")["to"] == "a"


def test_binary_answers_come_back_whole(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        assert session.command(request("x", "osd.3")).stdout == b"\n\xff" * 1_000_000


def test_refusals_are_answers_and_json_makes_them_errors(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        assert session.command(request("refuse")).exit_code == -errno.EACCES
        assert session.command(request("x", "mgr")).exit_code == -1
        assert session.command(request("raise")).exit_code == -errno.ENOTCONN
        assert session.command(request("x", "mds.a")).exit_code == -errno.EINVAL
        with pytest.raises(DeniedError, match="access denied"):
            session.json("mon", "refuse")
        with pytest.raises(ClusterError):
            session.json("mds.a", "status")
        with pytest.raises(ParseError):
            session.json("mon", "text")


def test_a_slow_command_times_out_alone(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        late = session.command(request("sleep", timeout_s=0.2, seconds=1.0))
        assert (late.exit_code, late.timed_out) == (-errno.ETIMEDOUT, True)
        assert session.command(request("status")).exit_code == 0


def test_the_loss_of_the_bridge_is_unreachable_for_all(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        with pytest.raises(UnreachableError, match="lost"):
            session.commands([request("sleep", seconds=5), request("die")])
        with pytest.raises(UnreachableError, match="lost"):
            session.command(request("status"))
