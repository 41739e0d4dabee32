"""Load processes run side by side, and end together when one fails, a guard speaks or a person interrupts."""

from __future__ import annotations

import os
import time

import pytest

from bathyscope.bench.load import run_load
from bathyscope.errors import EnvironmentError_, UnhealthyError
from bathyscope.host import ProcessRequest
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.host.local import LocalHost


def requests(*names: str) -> list[ProcessRequest]:
    return [ProcessRequest(name, (name,)) for name in names]


def test_all_answers_come_back_in_the_order_of_the_requests() -> None:
    host = FakeHost({"slow": FakeAnswer(b"slow", duration_s=9), "quick": FakeAnswer(b"quick", duration_s=1)})
    pids: list[int] = []
    ticks: list[float] = []
    answers = run_load(host, requests("slow", "quick"), started=pids.append, tick=ticks.append)
    assert [answer.stdout for answer in answers] == [b"slow", b"quick"]
    assert len(set(pids)) == 2
    assert ticks == sorted(ticks)
    assert ticks[-1] == pytest.approx(9, abs=0.1)


def test_when_one_fails_the_others_are_stopped_and_all_is_told() -> None:
    host = FakeHost({"good": FakeAnswer(duration_s=600), "bad": FakeAnswer(exit_code=5, duration_s=1)})
    began_ns = host.now_ns()
    answers = run_load(host, requests("good", "bad", "good"))
    assert [answer.exit_code for answer in answers] == [-2, 5, -2]
    assert (host.now_ns() - began_ns) / 1e9 < 2


def test_a_failure_at_the_very_end_stops_nobody() -> None:
    host = FakeHost({"good": FakeAnswer(duration_s=1), "bad": FakeAnswer(exit_code=5, duration_s=2)})
    assert [answer.exit_code for answer in run_load(host, requests("good", "bad"))] == [0, 5]


def test_a_violation_stops_everything_with_its_sentence() -> None:
    host = FakeHost({"load": FakeAnswer(duration_s=600)})
    began_ns = host.now_ns()
    with pytest.raises(UnhealthyError, match=r"osd\.2 is down") as error:
        run_load(
            host, requests("load", "load"),
            violation=lambda: "osd.2 is down" if host.now_ns() - began_ns > 3e9 else None,
        )  # fmt: skip
    assert "resume" in (error.value.hint or "")
    assert (host.now_ns() - began_ns) / 1e9 < 4


def test_a_program_that_cannot_start_stops_those_that_did() -> None:
    host = LocalHost()
    pids: list[int] = []
    with pytest.raises(EnvironmentError_, match="not installed"):
        run_load(host, [ProcessRequest("a", ("sleep", "60")), *requests("no-such-program")], started=pids.append)
    (pid,) = pids
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_interruption_ends_real_processes_within_2_s_even_those_that_do_not_listen() -> None:
    deaf = ("sh", "-c", "trap '' INT TERM; while :; do sleep 0.1; done")
    pids: list[int] = []

    def interrupt(seconds: float) -> None:
        if seconds > 0.3:
            raise KeyboardInterrupt

    wanted = [ProcessRequest(f"deaf-{i}", deaf) for i in range(3)]
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_load(LocalHost(), wanted, started=pids.append, tick=interrupt)
    assert time.monotonic() - began < 0.3 + 2.0
    assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
