"""Interruption: what a signal may break in two, and what it may not."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import pytest
from tests.unit.signals import Signalled, ended_by_a_signal

from bathyscope import interruption
from bathyscope.host import ProcessRequest
from bathyscope.host.local import LocalHost


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_that_is_held_off_comes_where_it_may(capfd: pytest.CaptureFixture[str]) -> None:
    done = []
    with ended_by_a_signal(), interruption.held():
        interrupt()
        done.append("all of it")
        interrupt()
        # Not in a thread, which is not interrupted.
        other = threading.Thread(target=interruption.check)
        other.start()
        other.join()
        assert interruption.noted()
        interruption.check()
        done.append("no more")
    assert done == ["all of it"]
    assert capfd.readouterr().err == "bathy: still cleaning up\nbathy: interrupted\n"


def test_a_signal_that_no_check_has_seen_comes_at_the_end_of_all_that_holds_it_off() -> None:
    done = []
    with ended_by_a_signal(), interruption.held():
        with interruption.held():
            interrupt()
        done.append("within")
    assert done == ["within"]


def test_an_error_goes_before_a_signal_that_is_held_off() -> None:
    def fail() -> None:
        interrupt()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), interruption.interruptible(), interruption.held():
        fail()


def test_a_pause_ends_soon_after_a_signal_that_is_held_off() -> None:
    began = time.monotonic()
    with ended_by_a_signal(), interruption.held():
        interrupt()
        LocalHost().sleep(60)
    assert time.monotonic() - began < 10


@pytest.mark.timeout(120)
def test_a_process_that_is_waited_for_ends_wherever_a_signal_comes() -> None:
    host, place, sent = LocalHost(), 0, True
    while sent:
        signalled = Signalled(place)
        # One that comes when all is done ends nothing.
        with contextlib.suppress(SystemExit), interruption.interruptible(), signalled():
            host.run(ProcessRequest("sleep", ("sleep", "0.01"), timeout_s=60.0))
        sent, place = signalled.was_sent, place + 1
    assert place > 20
