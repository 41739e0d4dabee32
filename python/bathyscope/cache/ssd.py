"""The SSD of a cache, or the file in its place: what may become one, and making it one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from bathyscope.cache.config import CacheConfig
from bathyscope.cache.daemon import bathyd
from bathyscope.errors import CacheError, UsageError
from bathyscope.fields import as_dict, load_json, parsing
from bathyscope.files import PRIVATE_FILE
from bathyscope.host import Host


def checked_place(path: Path, size_bytes: int | None, configs: list[CacheConfig]) -> Path:
    """Return the absolute path of what can become a cache. Raises UsageError.

    What stands on it is judged by bathyd, which opens it.
    """
    # A link below /dev/disk/by-id stays as it is written: it is the name that lasts.
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - without following links
    try:
        status = whole.stat()
    except FileNotFoundError:
        if not whole.parent.is_dir():
            raise UsageError(f"{whole.parent} does not exist", hint="make the directory first") from None
        if size_bytes is None:
            raise UsageError(f"{whole} does not exist", hint="a new file needs its size: --size 40G") from None
        if whole.is_relative_to("/dev"):
            raise UsageError(f"the device {whole} does not exist", hint="lsblk lists devices") from None
        return whole
    except OSError as error:
        raise UsageError(f"{whole}: {error.strerror}", hint="name a block device or a file") from error
    if not (stat.S_ISBLK(status.st_mode) or stat.S_ISREG(status.st_mode)):
        raise UsageError(f"{whole} is neither a block device nor a file", hint="name a block device or a file")
    for config in configs:
        other = Path(config.ssd)
        if other.exists() and os.path.samestat(other.stat(), status):
            hint = f"bathy cache delete {config.name}"
            raise UsageError(f"{whole} is the SSD of the cache '{config.name}'", hint=hint)
        if other.exists() and stat.S_ISBLK(status.st_mode) and other.stat().st_rdev == status.st_rdev:
            raise UsageError(
                f"{whole} is the SSD of the cache '{config.name}'", hint=f"bathy cache delete {config.name}"
            )
    return whole


def size_of(path: Path) -> int | None:
    """Return the size of a block device or file in bytes; None where it cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def create(host: Host, config: Path, ssd: Path, size_bytes: int | None, *, force: bool) -> dict[str, Any]:
    """Write an empty cache and return what bathyd says of it. Raises CacheError; then a file that was made is gone."""
    is_new = _make_file(ssd, size_bytes) if size_bytes is not None and not ssd.exists() else False
    words = ["create", str(config), *(["--force"] if force else [])]
    if size_bytes is not None and not is_new:
        words += ["--size", str(size_bytes)]
    try:
        with parsing("what bathyd says of an SSD"):
            return as_dict(load_json(bathyd(host, *words)))
    except BaseException:
        if is_new:
            ssd.unlink(missing_ok=True)
        raise


def resize(host: Host, config: Path, size_bytes: int) -> dict[str, Any]:
    """Give a cache that does not run another size and return what bathyd says of it. Raises CacheError."""
    with parsing("what bathyd says of an SSD"):
        return as_dict(load_json(bathyd(host, "resize", str(config), "--size", str(size_bytes))))


def _make_file(path: Path, size_bytes: int) -> bool:
    """Make a file whose space is reserved: a full file system must not meet the cache later. Raises CacheError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            path.unlink(missing_ok=True)
        raise CacheError(f"{path}: {error.strerror}", hint="choose another place or a smaller --size") from error
    return True
