"""The fake world keeps virtual time and answers as the real one would."""

from __future__ import annotations

import pytest

from bathyscope.errors import ClusterError, DeniedError, EnvironmentError_, UnreachableError
from bathyscope.host import CephRequest, ProcessRequest
from bathyscope.host.ceph import connect
from bathyscope.host.fake import EPOCH_NS, FakeAnswer, FakeCephSession, FakeHost
from bathyscope.spec import Target


def test_a_scripted_process_takes_virtual_time() -> None:
    host = FakeHost({"fio": FakeAnswer(b"{}", duration_s=10)})
    running = host.start(ProcessRequest("fio-0", ("fio",)))
    assert running.wait(4) is None
    assert host.now_ns() == EPOCH_NS + 4_000_000_000
    completed = running.wait()
    assert completed is not None
    assert completed.ended_ns - completed.started_ns == 10_000_000_000


def test_stop_ends_a_scripted_process_early() -> None:
    host = FakeHost({"fio": FakeAnswer(duration_s=10)})
    running = host.start(ProcessRequest("fio-0", ("fio",)))
    host.sleep(1)
    assert running.stop().exit_code == -2
    assert host.run(ProcessRequest("x", ("fio",), timeout_s=2)).timed_out


def test_what_is_not_scripted_is_missing() -> None:
    host = FakeHost()
    with pytest.raises(EnvironmentError_):
        host.run(ProcessRequest("x", ("fio",)))
    with pytest.raises(FileNotFoundError):
        host.read("/proc/stat")
    with pytest.raises(UnreachableError):
        connect(host, Target(name="t"))


def test_a_scripted_cluster_answers_by_daemon_and_prefix() -> None:
    session = FakeCephSession({"status": {"ok": 1}, ("osd.3", "perf dump"): b"{}", "config set": -13})
    assert connect(FakeHost(ceph=session), Target(name="t")) is session
    assert session.json("mon", "status") == {"ok": 1}
    assert session.command(CephRequest("x", "osd.3", (("prefix", "perf dump"),))).stdout == b"{}"
    with pytest.raises(DeniedError):
        session.json("mon", "config set")
    with pytest.raises(ClusterError):
        session.json("osd.4", "perf dump")
