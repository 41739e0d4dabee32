"""Interruption: SIGINT, SIGTERM and SIGHUP end a verb in the same way, and its clean-up is not cut short.

A signal raises an exception between any two instructions of the main thread. Whoever shares locks with threads cannot
live with that: the standard library's conditions, futures, events and pools take and release their locks in functions
of Python, and an exception in the right place there leaves a lock taken for ever. So who works with threads holds
signals off (`held`) and says where they may come (`check`).
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SOON_S = 0.5
"""How long a thread that holds signals off may wait without a check."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The first of the three signals; later ones do not interrupt the clean-up that it causes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _State:
    """What the handler and the main thread tell each other; no other thread touches it."""

    holders = 0
    clean_ups = 0
    noted: int | None = None


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted at the first signal, and end the program with 128 + its number. Main thread only."""
    before: dict[signal.Signals, Any] = {}
    _State.noted = None

    def interrupt(number: int, _frame: object) -> None:
        for each in before:
            signal.signal(each, _still_cleaning_up)
        if _State.holders:
            _State.noted = number
        else:
            raise Interrupted(number)

    # What the parent process ignores (nohup, a shell's background job) stays ignored.
    wanted = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before.update((number, signal.signal(number, interrupt)) for number in wanted)
    try:
        yield
    except KeyboardInterrupt as interruption:
        sys.stderr.write("bathy: interrupted\n")
        sys.exit(128 + (interruption.number if isinstance(interruption, Interrupted) else signal.SIGINT))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Hold the signal off: it is raised by the next `check`, and without one at the end; an error goes before it.

    In threads other than the main one, which no signal interrupts, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _State.holders += 1
    try:
        yield
    finally:
        _State.holders -= 1
    if not _State.holders:
        check()


@contextmanager
def put_off() -> Iterator[None]:
    """Hold the signal off from every `check` within: a clean-up is not cut short. The next check after it raises it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with held():
        _State.clean_ups += 1
        try:
            yield
        finally:
            _State.clean_ups -= 1


def noted() -> bool:
    """Return whether a signal has come that was not raised yet."""
    return _State.noted is not None


def check() -> None:
    """Raise the signal that has come while it was held off: nothing is half done here."""
    in_main = threading.current_thread() is threading.main_thread()
    if _State.noted is not None and not _State.clean_ups and in_main:
        number, _State.noted = _State.noted, None
        raise Interrupted(number)


def wait(for_it: Callable[[float], bool], timeout_s: float | None = None) -> bool:
    """Wait with `for_it` (which takes seconds, and returns whether it has come) and return whether it has in time.

    A signal comes between two of its calls and never within one; not here when the caller holds signals off.
    """
    ends_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
    with held():
        while not for_it(min(SOON_S, max(0.0, left_s := ends_s - time.monotonic()))):
            if left_s <= 0:
                return False
            if _State.holders == 1:
                check()
        return True


def _still_cleaning_up(_number: int, _frame: object) -> None:
    # Not sys.stderr: the signal may have interrupted a write to it.
    os.write(2, b"bathy: still cleaning up\n")
