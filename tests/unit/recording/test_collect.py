"""One collection: every kind of request, every kind of answer, and what it cost."""

from __future__ import annotations

import errno

import pytest

from bathyscope.errors import ClusterError, UnreachableError
from bathyscope.host import CephRequest, Completed, ProcessRequest, ReadRequest
from bathyscope.host.fake import EPOCH_NS, FakeAnswer, FakeCephSession, FakeHost
from bathyscope.recording.collect import collect, describe, measure

STATUS = CephRequest("status", "mon", (("prefix", "status"), ("format", "json")))
PERF = CephRequest("perf-osd.3", "osd.3", (("prefix", "perf dump"),))
READ = ReadRequest("proc", ("/proc/stat", "/proc/7/stat"))
FIO = ProcessRequest("fio_version", ("fio", "--version"), environment=(("A", "b"),), root="/r")


def test_requests_are_described_as_a_person_would_type_them() -> None:
    assert describe(STATUS) == ("ceph", "status", "format=json")
    assert describe(PERF) == ("ceph", "tell", "osd.3", "perf dump")
    assert describe(READ) == ("cat", "/proc/stat", "/proc/7/stat")
    assert describe(FIO) == ("chroot", "/r", "fio", "--version")


def test_answers_come_in_the_order_of_the_requests() -> None:
    session = FakeCephSession({"status": {"ok": 1}, "perf dump": -6})
    host = FakeHost({"fio": FakeAnswer(b"fio-3.36\n")}, {"/proc/stat": b"cpu 1"})
    version, status, proc, perf = collect(host, session, [FIO, STATUS, READ, PERF])
    assert (version.stdout, version.environment, version.exit_code) == (b"fio-3.36\n", (("A", "b"),), 0)
    assert status.json() == {"ok": 1}
    assert (proc.files, proc.exit_code, proc.started_ns) == ((("/proc/stat", b"cpu 1"),), 0, EPOCH_NS)
    assert (perf.exit_code, perf.stderr) == (-6, b"scripted refusal")


def test_what_is_missing_is_an_answer() -> None:
    (version, proc) = collect(FakeHost(), None, [FIO, READ])
    assert (version.exit_code, version.stderr) == (127, b"the program fio is not installed")
    assert (proc.exit_code, proc.files) == (1, ())
    assert b"No such file" in proc.stderr
    with pytest.raises(ClusterError, match="no connection"):
        collect(FakeHost(), None, [STATUS])


def test_the_time_limit_holds_for_the_whole_collection() -> None:
    session = FakeCephSession({"status": {}})
    host = FakeHost({"fio": FakeAnswer(duration_s=3.0)})
    again = ProcessRequest("again", ("fio",))
    first, second, _ = collect(host, session, [again, again, STATUS], timeout_s=4.0)
    assert session.requests[0].timeout_s == 4.0
    assert (first.exit_code, second.exit_code) == (0, -9)
    assert host.now_ns() == EPOCH_NS + 4_000_000_000
    collect(host, session, [STATUS], timeout_s=100.0)
    assert session.requests[1].timeout_s == STATUS.timeout_s


def test_the_cost_of_a_collection_is_its_row() -> None:
    session = FakeCephSession({"status": b"12345", "perf dump": -errno.ENXIO})
    host = FakeHost({"fio": FakeAnswer(b"123", duration_s=2.0)})
    collected = measure(host, session, "it", [STATUS, PERF, FIO], 10.0)
    cost = collected.cost
    assert (cost.at_ns, cost.source, cost.duration_ns) == (EPOCH_NS, "it", 2_000_000_000)
    assert (cost.request_count, cost.failure_count, cost.success) == (3, 1, False)
    assert cost.answer_bytes == 5 + 3 + len("scripted refusal")
    assert cost.problem == "perf-osd.3: scripted refusal"
    assert collected.good
    assert len(collected.answers) == 3
    assert measure(host, session, "it", [STATUS]).cost.success


def test_a_daemon_that_refuses_without_a_word_is_quoted_with_its_error() -> None:
    class Mute(FakeCephSession):
        def command(self, request: CephRequest) -> Completed:
            return Completed(request, -errno.EACCES, b"", b"", 1, 2)

    assert measure(FakeHost(), Mute(), "it", [PERF]).cost.problem == "perf-osd.3: Permission denied"
    host = FakeHost({"fio": FakeAnswer(exit_code=-11)})
    assert measure(host, None, "it", [FIO]).cost.problem == "fio_version: exit code -11"


def test_a_lost_cluster_is_a_failed_collection() -> None:
    session = FakeCephSession({"status": UnreachableError("no monitor answered")})
    with pytest.raises(UnreachableError):
        collect(FakeHost(), session, [STATUS])
    collected = measure(FakeHost(), session, "it", [STATUS])
    assert isinstance(collected.error, UnreachableError)
    assert (collected.cost.failure_count, collected.cost.success, collected.good) == (1, False, False)
    assert collected.cost.problem == "no monitor answered"


def test_a_cluster_that_answers_nothing_in_time_is_lost_too() -> None:
    class Silent(FakeCephSession):
        def command(self, request: CephRequest) -> Completed:
            return Completed(request, -errno.ETIMEDOUT, b"", b"no answer within 5 s", 1, 2, timed_out=True)

    collected = measure(FakeHost(), Silent(), "it", [STATUS, PERF])
    assert isinstance(collected.error, UnreachableError)
    assert collected.cost.problem == "the cluster did not answer: status: no answer within 5 s"
    assert collected.cost.failure_count == 2
    assert len(collected.answers) == 2
