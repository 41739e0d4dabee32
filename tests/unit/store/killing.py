"""Ends a piece of work as kill -9 would: between two changes of a name, and without tidying up."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Killed(BaseException):
    """Stands for kill -9: nothing of the program runs after it."""


def run_until(doing: Callable[[], object], call: int) -> bool:
    """Run `doing` and end it before its `call`-th change of a name; return whether it got to its end."""
    real_rename, count = Path.rename, 0

    def rename(self: Path, target: Any) -> Path:
        nonlocal count
        if count == call:
            raise Killed
        count += 1
        return real_rename(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        # A killed program does not tidy up behind itself.
        patch.setattr(shutil, "rmtree", lambda *arguments, **options: None)
        try:
            doing()
        except Killed:
            return False
    return True


def leftovers(directory: Path) -> list[Path]:
    """Return what killed writers left."""
    return [path for path in directory.rglob("*") if path.name.startswith((".partial", ".removed"))]


def no_space(descriptor: int) -> None:
    """Stand for os.fsync on a disk that is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
