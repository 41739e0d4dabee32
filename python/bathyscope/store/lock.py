"""A lock that dies with its process: flock on a file that names the holder.

The kernel drops the lock when the process ends, however it ends, so there are no stale locks to clean
up. The process id in the file is only for the message; it never decides anything.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from bathyscope.errors import BusyError
from bathyscope.store.errors import store_errors

# `is_held` takes a shared lock for a moment; a writer that meets it must not give up at once.
_ATTEMPTS = 10
_PAUSE_S = 0.02


class FileLock:
    """An exclusive lock on `path`; `what` names the locked thing in the message."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises BusyError that names the holder, StoreError when the file cannot be made."""
        with store_errors("lock", self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._flock(descriptor)
            with store_errors("lock", self.path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _flock(self, descriptor: int) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt == _ATTEMPTS - 1:
                    raise BusyError(
                        f"{self._what} is in use by {_holder(descriptor)}",
                        hint="wait until it has ended, or use another workspace with --workspace",
                    ) from None
                time.sleep(_PAUSE_S)
            else:
                return

    def release(self) -> None:
        """Give the lock back; releasing twice is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None


def is_held(path: Path) -> bool:
    """Return whether any process holds the lock on `path` now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return False
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return f"process {text}" if text.isdigit() else "another process"
