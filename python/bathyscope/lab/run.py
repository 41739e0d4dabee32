"""Short programs: the system's own, and Ceph's inside a lab's root file system if it has one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bathyscope.errors import LabError
from bathyscope.fields import last_line
from bathyscope.host import Completed, Host, ProcessRequest, Running
from bathyscope.host.local import LocalHost


def system(*argv: str, timeout_s: float = 30.0) -> Completed:
    """Run a program of this machine (losetup, mount). Raises EnvironmentError_ when it is not installed."""
    return LocalHost().run(ProcessRequest(label=argv[0], argv=argv, timeout_s=timeout_s))


class Tools:
    """Short programs of the lab's release. Thread-safe; `cancel` ends what is under way and refuses the rest.

    `announce` gets the pid of each program as soon as it exists.
    """

    def __init__(self, host: Host, root: str | None, announce: Callable[[int], None]) -> None:
        self._host = host
        self._announce = announce
        self._root = root
        self._mutex = threading.Lock()
        self._running: set[Running] = set()
        self._cancelled = False

    def run(self, *argv: str, timeout_s: float = 120.0) -> bytes:
        """Run a program and return its stdout. It ends with this program. Raises LabError when it fails."""
        request = ProcessRequest(argv[0], argv, timeout_s=timeout_s, root=self._root)
        with self._mutex:
            if self._cancelled:
                raise LabError(f"{argv[0]} was not started: the lab is being taken down")
            running = self._host.start(request)
            self._announce(running.pid)
            self._running.add(running)
        completed = running.wait()
        with self._mutex:
            self._running.discard(running)
        words = " ".join(argv[:3])
        if completed is None or completed.timed_out:
            raise LabError(f"{words} did not end within {timeout_s:.0f} s")
        if completed.exit_code != 0:
            raise LabError(f"{words} failed ({completed.exit_code}): {last_line(completed.stderr)}")
        return completed.stdout

    def cancel(self) -> None:
        """End every program that is under way; from now on none is started."""
        with self._mutex:
            self._cancelled = True
            running = list(self._running)
        for process in running:
            process.stop(grace_s=0.0)
