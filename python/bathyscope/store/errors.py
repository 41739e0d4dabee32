"""Turns what the operating system and Arrow say into `StoreError` with a hint."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator
from pathlib import Path

from bathyscope.errors import BathyscopeError, StoreError

_HINTS = {
    errno.ENOSPC: "free space there, or choose another workspace with --workspace; then resume the run",
    errno.EDQUOT: "the quota is used up: free space, or choose another workspace with --workspace",
    errno.EACCES: "check the owner and mode of the directory, or choose another workspace",
    errno.EPERM: "check the owner and mode of the directory, or choose another workspace",
    errno.EROFS: "the file system is mounted read-only: choose another workspace",
    errno.EMFILE: "more tables than this process may have open: name fewer runs, or raise the limit: ulimit -n",
    errno.EIO: "the device under the workspace reports I/O errors: see the kernel log",
}

_DAMAGED = "the file is damaged or was not written by bathyscope; move it away"


@contextlib.contextmanager
def store_errors(doing: str, path: Path) -> Iterator[None]:
    """Raise StoreError for every OSError or Arrow error inside the block; other errors pass through.

    `doing` completes the sentence "cannot … PATH". Errors of ours are passed on unchanged.
    """
    try:
        yield
    except BathyscopeError:
        raise
    except OSError as error:
        number = error.errno if error.errno is not None else _errno_from_text(str(error))
        reason = error.strerror or (str(error).splitlines() or ["unknown error"])[0]
        # Arrow says with an OSError of no number that it does not understand what it reads.
        hint = _DAMAGED if number is None else _HINTS.get(number)
        raise StoreError(f"cannot {doing} {path}: {reason}", hint=hint) from error
    except Exception as error:
        if not _is_of_arrow(error):
            raise
        raise StoreError(
            f"cannot {doing} {path}: {str(error).splitlines()[0]}",
            hint=_DAMAGED,
        ) from error


def _is_of_arrow(error: Exception) -> bool:
    # Arrow is slow to load; while it is not loaded, no error is its own.
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(error, arrow.ArrowException)


def _errno_from_text(text: str) -> int | None:
    """Return the errno that Arrow put into the text of an OSError it made itself, or None."""
    return errno.ENOSPC if "No space left on device" in text else None
