"""Signals at chosen places: where a function of the standard library has a lock in its hands."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from bathyscope.interruption import interruptible

_FILES = (threading.__file__, concurrent.futures.__path__[0])


class Signalled:
    """Sends SIGINT to this process, once, as the main thread enters or leaves such a function for the `place`th time.

    It counts while `counts` says so. A handler that raises does so there.
    """

    def __init__(self, place: int, counts: Callable[[], bool] = lambda: True) -> None:
        self.left = place
        self._counts = counts

    @property
    def was_sent(self) -> bool:
        return self.left < 0

    def _at(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event in ("call", "return") and frame.f_code.co_filename.startswith(_FILES) and self._counts():
            self.left -= 1
            if self.left == -1:
                os.kill(os.getpid(), signal.SIGINT)
        return self._at

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._at)
        try:
            yield
        finally:
            sys.settrace(before)


@contextlib.contextmanager
def ended_by_a_signal() -> Iterator[None]:
    """Run as a verb does, and expect the end of one that was interrupted."""
    with pytest.raises(SystemExit) as ended, interruptible():
        yield
    assert ended.value.code == 128 + signal.SIGINT
