"""The time of a recording: it passes until it is over, or the recording ends by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

from bathyscope import interruption
from bathyscope.host import Host
from bathyscope.recording.recorder import Recorder

Tick = Callable[[float], None]
"""Called about twice a second with the seconds since the beginning; what it raises ends the recording."""


class Clock:
    """The time of a recording that begins now; `duration_s` None: it is never over."""

    def __init__(self, host: Host, recorder: Recorder, duration_s: float | None, tick: Tick) -> None:
        self._host = host
        self._recorder = recorder
        self._duration_s = math.inf if duration_s is None else duration_s
        self._tick = tick
        self._began_ns = host.monotonic_ns()

    @property
    def passed_s(self) -> float:
        """Seconds since the beginning."""
        return (self._host.monotonic_ns() - self._began_ns) / 1e9

    @property
    def left_s(self) -> float:
        """Seconds until the time is over; infinite when it never is."""
        return self._duration_s - self.passed_s

    def wait(self, seconds: float | None = None) -> bool:
        """Wait `seconds`, or until the time is over; return False at once when the recording ends by itself.

        A signal that is held off comes here.
        """
        ends_s = self._duration_s if seconds is None else self.passed_s + seconds
        while (passed_s := self.passed_s) < ends_s:
            if self._recorder.wait(min(interruption.SOON_S, ends_s - passed_s)):
                return False
            interruption.check()
            self._tick(passed_s)
        return True
