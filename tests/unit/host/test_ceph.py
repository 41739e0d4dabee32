"""The session against a bridge whose `rados` module is scripted: errors, order, loss, time limits."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.signals import Signalled

from bathyscope.errors import (
    BathyscopeError,
    ClusterError,
    DeniedError,
    EnvironmentError_,
    ParseError,
    PolicyError,
    UnreachableError,
    UsageError,
)
from bathyscope.host import CephRequest, ProcessRequest, answer_json
from bathyscope.host.ceph import BridgeSession, connect
from bathyscope.host.local import LocalHost, LocalPipe
from bathyscope.interruption import interruptible
from bathyscope.spec import Target

RADOS = """
import errno, json, os, time
class Error(Exception):
    def __init__(self, message, errno=None):
        super().__init__(message)
        self.errno = errno
class Done:
    def __init__(self, code):
        self.code = code
    def wait_for_complete(self):
        pass
    def get_return_value(self):
        return self.code
class Ioctx:
    objects = {"theirs", "ours.1", "ours.70", "rbd_info"}
    def __init__(self, pool):
        self.pool = pool
    def close(self):
        pass
    def stat(self, name):
        if name not in self.objects:
            raise Error("no such object", errno.ENOENT)
    def remove_object(self, name):
        if self.pool == "readonly":
            raise Error("not permitted", errno.EPERM)
        raise Error("no such object", errno.ENOENT)
    def execute(self, name, cls, method, data):
        raise Error("no such object", errno.ENOENT)
    def aio_stat(self, name, done):
        return Done(0 if name in self.objects else -2)
    def aio_remove(self, name):
        if self.pool == "readonly":
            return Done(-1)
        there = name in self.objects
        self.objects.discard(name)
        return Done(0 if there else -2)
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
    def conf_get(self, name):
        lines = [line.split(" = ") for line in self.text.splitlines() if line.startswith(name + " = ")]
        return lines[0][1] if lines else ""
    def open_ioctx(self, pool):
        if pool == "absent":
            raise Error("error opening pool", errno.ENOENT)
        return Ioctx(pool)
    def mon_command(self, command, data, timeout=0, target=None):
        words = json.loads(command)
        if words["prefix"] == "sleep":
            time.sleep(words["seconds"])
        if words["prefix"] == "refuse":
            return -13, b"", "access denied"
        if words["prefix"] == "forbid":
            return -1, b"", "configuring pool size as 1 is disabled by default."
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
        words = json.loads(command)
        if words["prefix"] == "endless":
            # What librados would take for an answer that has no end.
            return 0, b"x" * (8 << 30), ""
        return 0, b"\\n\\xff" * words.get("pairs", 1_000_000), ""
"""


class ScriptedHost(LocalHost):
    """The bridge's real source, run by our interpreter beside the scripted module."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open_pipe(self, request: ProcessRequest) -> LocalPipe:
        # The last words are Python's options: what a prefix stands before.
        *words, _, isolated, option, code = request.argv
        assert (isolated, option) == ("-I", "-c")
        code = f"import sys; sys.path.insert(0, {str(self._directory)!r})\n{code}"
        return super().open_pipe(ProcessRequest(request.label, (*words, sys.executable, isolated, option, code)))


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


@contextlib.contextmanager
def listening(banner: bytes) -> Iterator[int]:
    """Listen on a port and greet one client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(banner)
                    connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("text", "error", "message", "hint"),
    [
        ("broken", UsageError, "cannot be used", "ceph -c"),
        ("denied", DeniedError, "refuses client.admin: it is another key", "ceph auth get client.admin"),
        ("denied\nkeyring = KEY", DeniedError, "client.admin with the key in .*/key: ", "ceph auth get client.admin"),
        ("nokey\nmon_host = 127.0.0.1:1", DeniedError, "no key for client.admin was found: there is no", "--client"),
        ("nokey\nkeyring = /absent,OTHER", DeniedError, "no key for client.admin .*/other has none", "--keyring"),
        ("nokey\nkeyring = KEY", UsageError, "names no monitor", "mon_host = "),
        ("slow", UnreachableError, "no monitor answered within 3 s$", "mon_host"),
        ("slow\nmon_host = no.such.host.invalid", UnreachableError, "invalid:3300.*cannot be reached", "mon_host"),
    ],
)  # fmt: skip
def test_what_goes_wrong_at_the_start_is_told_apart(  # noqa: PLR0917
    host: ScriptedHost, tmp_path: Path, text: str, error: type[BathyscopeError], message: str, hint: str
) -> None:
    (tmp_path / "key").write_text("[client.admin]\nkey = x\n")
    (tmp_path / "other").write_text("[client.other]\nkey = x\n")
    text = text.replace("KEY", str(tmp_path / "key")).replace("OTHER", str(tmp_path / "other"))
    with pytest.raises(error, match=message) as raised:
        connect(host, target(tmp_path, text), timeout_s=3)
    assert hint in (raised.value.hint or "")


def test_a_dead_monitor_a_wrong_address_and_one_without_quorum_are_told_apart(
    host: ScriptedHost, tmp_path: Path
) -> None:
    with listening(b"ceph v2\n") as monitor, listening(b"SSH-2.0\r\n") as other:
        addresses = f"[v2:127.0.0.1:1/0,v1:127.0.0.1:{monitor}/0] 127.0.0.1:{other},[v2:[::1]:1]"
        with pytest.raises(UnreachableError) as raised:
            connect(host, target(tmp_path, f"slow\nmon_host = {addresses}"), timeout_s=3)
    assert "nothing listens at 127.0.0.1:1" in raised.value.message
    assert f"a monitor listens at 127.0.0.1:{monitor} but lets nobody in" in raised.value.message
    assert f"what listens at 127.0.0.1:{other} is not a Ceph monitor" in raised.value.message
    assert "::1:1" in raised.value.message
    assert "mon_status" in (raised.value.hint or "")


def test_the_objects_of_a_pool_are_looked_for_removed_and_tried(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]

        def ask(prefix: str, pool: str = "p", **words: object) -> object:
            return answer_json(session.command(request(prefix, f"pool.{pool}", **words)), "client.x")

        everything = {"read": True, "write": True, "execute": True, "initialised": True}
        assert ask("access", name="trial") == everything
        assert ask("access", "readonly", name="trial") == {**everything, "write": False}
        assert ask("objects ls", name="ours", count=100) == ["ours"]
        assert ask("objects ls", name="ours", count=1) == []
        with pytest.raises(DeniedError, match="may not use 'objects rm' on the pool readonly"):
            ask("objects rm", "readonly", name="ours", count=100)
        assert ask("objects rm", name="ours", count=100) == ["ours"]
        assert ask("objects ls", name="ours", count=100) == []
        assert session.command(request("access", "pool.absent", name="x")).exit_code == -errno.ENOENT


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
        with pytest.raises(PolicyError, match="the cluster forbids 'forbid': configuring pool size as 1"):
            session.json("mon", "forbid")
        with pytest.raises(ClusterError):
            session.json("mds.a", "status")
        with pytest.raises(ParseError):
            session.json("mon", "text")


def test_a_slow_command_times_out_alone(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        late = session.command(request("sleep", timeout_s=0.2, seconds=1.0))
        assert (late.exit_code, late.timed_out) == (-errno.ETIMEDOUT, True)
        assert session.command(request("status")).exit_code == 0


def test_a_signal_anywhere_in_a_question_leaves_the_session_to_the_next(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        place, sent = 0, True
        while sent:
            signalled = Signalled(place)
            with contextlib.suppress(SystemExit), interruptible(), signalled():
                session.commands([request("sleep", seconds=0.01, n=n) for n in range(2)])
            assert session.command(request("status")).exit_code == 0, place
            sent, place = signalled.was_sent, place + 1
        assert place > 20


def test_the_loss_of_the_bridge_is_unreachable_for_all(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        with pytest.raises(UnreachableError, match="lost"):
            session.commands([request("sleep", seconds=5), request("die")])
        with pytest.raises(UnreachableError, match="lost"):
            session.command(request("status"))


@pytest.mark.parametrize("noise", ["words", "7", "[]", '"id"', "null", '{"out_bytes": "x"}'])
def test_noise_between_the_answers_is_the_loss_of_the_bridge(host: ScriptedHost, tmp_path: Path, noise: str) -> None:
    # The greeting is the first line.
    prefix = ("env", "sh", "-c", f"\"$@\" | /bin/sed -u '1a{noise}'", "sh")
    there = target(tmp_path).model_copy(update={"ceph_prefix": prefix})
    with connect(host, there) as session, pytest.raises(UnreachableError, match="lost"):  # type: ignore[attr-defined]
        session.command(request("status", timeout_s=60.0))


class Pipe:
    """A bridge that has said all that it will ever say; unless `open_`, it has ended."""

    def __init__(self, said: bytes, *, open_: bool = False) -> None:
        reading, self._writing = os.pipe()
        self.stdin, self.stdout = io.BytesIO(), os.fdopen(reading, "rb")
        threading.Thread(target=self._say, args=(said, open_), daemon=True).start()

    def _say(self, said: bytes, open_: bool) -> None:
        with contextlib.suppress(OSError), os.fdopen(os.dup(self._writing), "wb") as out:
            out.write(said)
        if not open_:
            self.close()

    def stderr(self) -> bytes:
        return b""

    def close(self, grace_s: float = 0.0) -> None:
        writing, self._writing = self._writing, -1
        if writing >= 0:
            os.close(writing)


def of_pipe(said: bytes, *, open_: bool = False) -> BridgeSession:
    return BridgeSession(Pipe(said, open_=open_), "f-s-i-d", "client.x")  # type: ignore[arg-type]


@pytest.mark.parametrize("header", [b'{"id": 0, "code": 0, "out_bytes": -1, "err_bytes": 0}\n', b"x" * 5000])
def test_a_header_that_bounds_nothing_is_the_loss_of_the_bridge(header: bytes) -> None:
    # Nothing comes after it: whoever reads on waits for ever.
    with of_pipe(header, open_=True) as session, pytest.raises(UnreachableError, match="lost"):
        session.command(request("status", timeout_s=60.0))


@pytest.mark.parametrize("said", [b"half", b"all", b"all!!"])
def test_half_an_answer_is_the_loss_of_the_bridge(said: bytes) -> None:
    with (
        of_pipe(b'{"id": 0, "code": 0, "out_bytes": 3, "err_bytes": 5}\n' + said) as session,
        pytest.raises(UnreachableError, match="lost"),
    ):
        session.command(request("status", timeout_s=60.0))


@settings(max_examples=200)
@given(
    headers=st.lists(
        st.tuples(
            st.dictionaries(
                st.sampled_from(["id", "code", "out_bytes", "err_bytes"]),
                st.one_of(st.integers(-1, 3), st.sampled_from([2**70, 1e300, None, True, "1", [], {}])),
            )
            | st.integers()
            | st.none(),
            st.binary(max_size=4),
        ),
        max_size=4,
    )
)
def test_whatever_a_bridge_says_is_an_answer_or_its_loss(headers: list[tuple[object, bytes]]) -> None:
    said = b"".join(json.dumps(header).encode() + b"\n" + content for header, content in headers)
    with of_pipe(said) as session, contextlib.suppress(UnreachableError):
        for answer in session.commands([request("a", timeout_s=60.0), request("b", timeout_s=60.0)]):
            assert not answer.timed_out
            assert len(answer.stdout) + len(answer.stderr) <= len(said)


def test_an_answer_that_is_too_long_fails_alone(
    host: ScriptedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bathyscope.host.ceph._ANSWER_BYTES", 1 << 20)
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        long, short = session.commands([request("x", "osd.3"), request("status")])
        assert (long.exit_code, long.stdout) == (-errno.EFBIG, b"")
        with pytest.raises(ClusterError, match="its answer of 1 MiB is longer than the 1 MiB that are taken"):
            answer_json(long)
        assert short.exit_code == 0
        # A bridge that sends it all the same, for it is another's: it is not kept, and the next one is understood.
        monkeypatch.setattr("bathyscope.host.ceph._ANSWER_BYTES", 1000)
        long, short = session.commands([request("x", "osd.3", pairs=5000), request("status")])
        assert (long.exit_code, long.stdout, short.exit_code) == (-errno.EFBIG, b"", 0)


def test_answers_that_are_held_together_have_one_budget(
    host: ScriptedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bathyscope.host.ceph._TOGETHER_BYTES", 5_000_000)
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        for _ in range(2):
            answers = session.commands([request("x", f"osd.{osd}") for osd in range(4)])
            assert sorted(answer.exit_code for answer in answers) == [-errno.EFBIG, -errno.EFBIG, 0, 0]


def test_an_answer_without_an_end_takes_the_bridge_and_no_more(host: ScriptedHost, tmp_path: Path) -> None:
    with connect(host, target(tmp_path)) as session:  # type: ignore[attr-defined]
        # Python turns the refusal of memory into an error; librados would abort, which is the loss of the bridge.
        assert session.command(request("endless", "osd.3", timeout_s=120.0)).exit_code < 0
        assert session.command(request("status")).exit_code == 0


@pytest.mark.parametrize("noise", ["", "Inferring fsid 1\\n", '{"a": 1}\\n{\\n"ready"\\n'])
def test_a_session_behind_a_prefix_and_what_the_prefix_prints(host: ScriptedHost, tmp_path: Path, noise: str) -> None:
    prefix = ("env", "sh", "-c", f"printf '{noise}'; exec \"$@\"", "sh")
    # The paths are those behind the prefix: nothing of them is looked for here.
    there = target(tmp_path).model_copy(update={"ceph_prefix": prefix})
    with connect(host, there) as session:  # type: ignore[attr-defined]
        assert session.fsid == "f-s-i-d"
        assert session.command(request("x", "osd.3")).stdout == b"\n\xff" * 1_000_000


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (("sh", "-c", "echo cannot connect to the container >&2; exit 3"), "container$"),
        (("sh", "-c", "echo no such pod"), "no such pod$"),
        # It takes no input, and it writes without an end.
        (("yes", "spam", "--"), "spam"),
        (("no-such-program", "--"), "no-such-program is not installed"),
    ],
)
def test_a_prefix_that_does_not_work_is_said_with_its_own_words(
    host: ScriptedHost, tmp_path: Path, prefix: tuple[str, ...], message: str
) -> None:
    there = target(tmp_path).model_copy(update={"ceph_prefix": prefix})
    with pytest.raises(EnvironmentError_, match=message) as raised:
        connect(host, there)
    if prefix[0] != "no-such-program":
        assert f"behind the prefix '{shlex.join(prefix)}'" in raised.value.message
        assert "import rados" in (raised.value.hint or "")


def test_a_configuration_that_is_missing_behind_a_prefix_is_said(host: ScriptedHost, tmp_path: Path) -> None:
    there = Target(name="t", conf="/absent", ceph_prefix=("env",))
    with pytest.raises(UsageError, match="/absent cannot be used") as raised:
        connect(host, there)
    assert raised.value.hint == "check it with: env ceph -c /absent status"
