"""Interruption: SIGINT, SIGTERM and SIGHUP end a verb in the same way, and its clean-up is not cut short."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The first of the three signals; later ones do not interrupt the clean-up that it causes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted at the first signal, and end the program with 128 + its number. Main thread only."""
    before: dict[signal.Signals, Any] = {}

    def interrupt(number: int, _frame: object) -> None:
        for each in before:
            signal.signal(each, _still_cleaning_up)
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


def _still_cleaning_up(_number: int, _frame: object) -> None:
    # Not sys.stderr: the signal may have interrupted a write to it.
    os.write(2, b"bathy: still cleaning up\n")
