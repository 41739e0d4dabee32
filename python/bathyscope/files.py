"""Files and directories that exist whole or not at all, also after a power cut; locks; where our own files lie.

The order is always: write under a temporary name, fsync the content, rename, fsync the parent directory. A name that
begins with .partial- or .removed- is never part of anything; `sweep` deletes what killed processes left under such
names.

What we keep (workspaces, runs, journals, labs, locks) decides which programs run and what is deleted, often as root. So
it is made for its owner only, and `open_own` and `own_directory` are the only ways to it: what another user owns or can
write is refused. What lies in such a directory may come from elsewhere all the same (a run that was copied): `listed`
says what is what without following a link, and `open_plain` opens nothing but a regular file. SECURITY.md says what
follows from that and what does not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from bathyscope.errors import BusyError, UntrustedError

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700

# A file for others to read, such as a report at a place that the user names: what the umask leaves of it.
SHARED_FILE = 0o666

# Our own state files are kilobytes, a journal of a large cluster a few megabytes.
_READ_LIMIT_BYTES = 64 << 20
_LOG_END_BYTES = 64 << 10

_LOOK_HINT = "bathy did not make it: look at it, then move it away"

# `is_held` takes a shared lock for a moment; a writer that meets it must not give up at once.
_ATTEMPTS = 10
_PAUSE_S = 0.02


def state_directory() -> Path:
    """Return where journals and labs lie: $XDG_STATE_HOME/bathyscope, by default ~/.local/state/bathyscope."""
    return _base_directory("XDG_STATE_HOME", ".local/state") / "bathyscope"


def cache_directory() -> Path:
    """Return where what can be built again lies: $XDG_CACHE_HOME/bathyscope, by default ~/.cache/bathyscope."""
    return _base_directory("XDG_CACHE_HOME", ".cache") / "bathyscope"


def _base_directory(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path is invalid and ignored. (platformdirs takes it, and a journal would then
    # be looked for in another directory at the next start.)
    return Path(value) if value.startswith("/") else Path.home() / fallback


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, whoever it belongs to; return its descriptor.

    A symbolic link is not followed and a pipe not waited for. Raises UntrustedError, OSError.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        # ENXIO: a socket, or a pipe that nobody reads.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise UntrustedError(f"{path} is not a regular file", hint=_LOOK_HINT) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UntrustedError(f"{path} is not a regular file", hint=_LOOK_HINT)
    return descriptor


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file that belongs to this user and that no other can write, as `open_plain` does.

    With O_CREAT a file that is not there is made for this user only. Raises UntrustedError, OSError.
    """
    descriptor = open_plain(path, flags)
    try:
        _must_be_own(os.fstat(descriptor), path, stat.S_ISREG, "a regular file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_own(path: Path) -> bytes:
    """Return the content of a file that `open_own` accepts. Raises UntrustedError, OSError."""
    with os.fdopen(open_own(path), "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > _READ_LIMIT_BYTES:
            raise UntrustedError(f"{path} is larger than {_READ_LIMIT_BYTES >> 20} MiB", hint=_LOOK_HINT)
        return file.read(_READ_LIMIT_BYTES)


def read_bounded(path: Path) -> bytes:
    """Return the content of a file that the user, or the system's configuration, names.

    Whoever it belongs to: links are followed and pipes read to their end. Raises OSError (EFBIG) for more than 64 MiB.
    """
    with path.open("rb") as file:
        content = file.read(_READ_LIMIT_BYTES + 1)
    if len(content) > _READ_LIMIT_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {_READ_LIMIT_BYTES >> 20} MiB", str(path))
    return content


def read_end(log: Path, start: int = 0) -> bytes:
    """Return the last 64 KiB of a log of ours, without what lies before `start`. Raises UntrustedError, OSError."""
    with os.fdopen(open_plain(log), "rb") as file:
        file.seek(max(start, os.fstat(file.fileno()).st_size - _LOG_END_BYTES))
        return file.read(_LOG_END_BYTES)


def own_directory(path: Path, *, make: bool = False) -> Path:
    """Return `path`, a directory that belongs to this user and that no other can write.

    A symbolic link of this user to such a directory is one, too. With `make` it is made for this user only, and so are
    the directories above it that are not there. Raises UntrustedError, OSError.
    """
    if make:
        for missing in reversed([directory for directory in (path, *path.parents) if not os.path.lexists(directory)]):
            with contextlib.suppress(FileExistsError):
                missing.mkdir(mode=PRIVATE_DIRECTORY)
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        _must_belong_to_us(status, path)
        status = path.stat()
    _must_be_own(status, path, stat.S_ISDIR, "a directory")
    return path


Kind = Literal["file", "directory", "other"]


def listed(directory: Path) -> dict[str, Kind]:
    """Return name → what it is, of all that lies in a directory of this user's that no other can write.

    Nothing is followed: `directory` itself may not be a link, and a link in it is "other". So what is listed as a file
    or a directory stays one, as nobody else can put something in its place. Raises UntrustedError, OSError.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:
        # A link, too.
        raise UntrustedError(f"{directory} is not a directory", hint=_LOOK_HINT) from error
    try:
        _must_be_own(os.fstat(descriptor), directory, stat.S_ISDIR, "a directory")
        with os.scandir(descriptor) as entries:
            return {entry.name: _kind(entry) for entry in entries}
    finally:
        os.close(descriptor)


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def plain_files(directory: Path, suffix: str) -> list[Path]:
    """Return the files in a directory that `listed` accepts whose names end with `suffix`, by name.

    Raises UntrustedError, also where something else than a regular file has such a name; OSError.
    """
    kinds = {name: kind for name, kind in listed(directory).items() if Path(name).suffix == suffix}
    for name, kind in kinds.items():
        if kind != "file":
            raise UntrustedError(f"{directory / name} is not a regular file", hint=_LOOK_HINT)
    return [directory / name for name in sorted(kinds)]


def _must_be_own(status: os.stat_result, path: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    if not is_kind(status.st_mode):
        raise UntrustedError(f"{path} is not {kind}", hint=_LOOK_HINT)
    _must_belong_to_us(status, path)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedError(
            f"other users can write {path} (its mode is {stat.S_IMODE(status.st_mode):04o})",
            hint=f"when you trust what is in it: chmod go-w {path}",
        )


def _must_belong_to_us(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise UntrustedError(
            f"{path} belongs to {_user(status.st_uid)}, and this is {_user(os.geteuid())}",
            hint=f"run bathy as {_user(status.st_uid)}, or in directories of your own (--workspace, XDG_STATE_HOME); "
            "a copy that you make is yours",
        )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def write_file(path: Path, content: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Put a file in place, whole or not at all. Raises OSError and leaves what was there before."""
    with _partial_file(path, content, mode) as partial:
        partial.replace(path)


def create_file(path: Path, content: bytes) -> None:
    """Put a new file in place, whole or not at all, for its owner only. Raises FileExistsError, OSError."""
    with _partial_file(path, content, PRIVATE_FILE) as partial:
        # A link, not a rename: it refuses to replace another file.
        os.link(partial, path)


@contextmanager
def _partial_file(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Yield a flushed file beside `path` that the block gives its name; then flush the names."""
    partial = _partial_name(path)
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        yield partial
    finally:
        partial.unlink(missing_ok=True)
    fsync_path(path.parent)


@contextmanager
def making_directory(final: Path) -> Iterator[Path]:
    """Yield an empty directory that becomes `final` at the end of the block, whole or not at all. Raises OSError."""
    partial = partial_directory(final)
    try:
        yield partial
        put_directory(partial, final)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def partial_directory(final: Path) -> Path:
    """Make and return an empty directory beside `final`, for its owner only, that `put_directory` can move there."""
    partial = _partial_name(final)
    final.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
    partial.mkdir(mode=PRIVATE_DIRECTORY)
    return partial


def put_directory(partial: Path, final: Path) -> None:
    """Flush a directory that was filled under a temporary name, for its owner only, and move it into place.

    Raises OSError when `final` exists already and is not empty.
    """
    _seal_tree(partial)
    partial.rename(final)
    fsync_path(final.parent)


def remove_directory(path: Path) -> None:
    """Take a directory out of sight with one rename, then delete it; nobody ever sees half of it."""
    hidden = path.with_name(f".removed-{path.name}-{secrets.token_hex(4)}")
    try:
        path.rename(hidden)
    except FileNotFoundError:
        return
    fsync_path(path.parent)
    shutil.rmtree(hidden, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Delete leftovers (.partial-…, .removed-…) of killed writers. Only the holder of the lock may call it."""
    for entry in directory.iterdir() if directory.is_dir() else ():
        if entry.name.startswith((".partial-", ".removed-")):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def fsync_path(path: Path) -> None:
    """Flush one file or directory to its device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _seal_tree(root: Path) -> None:
    """Flush every file and directory below `root`, and `root` itself, content before names; only its owner reads it."""
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            file = Path(directory) / name
            if not file.is_symlink():
                file.chmod(PRIVATE_FILE)
                fsync_path(file)
        Path(directory).chmod(PRIVATE_DIRECTORY)
        fsync_path(Path(directory))


def _partial_name(path: Path) -> Path:
    return path.with_name(f".partial-{path.name}-{secrets.token_hex(4)}")


class FileLock:
    """An exclusive lock on `path`, for a `with` block.

    `what` names the locked thing in the message, `hint` says what to do then. With `wait` the lock is waited for. The
    kernel drops the lock when the process ends, however it ends, so there are no stale locks to clean up. The process
    id in the file is only for the message; it never decides anything.

    Entering raises BusyError that names the holder, UntrustedError for a file that is not ours alone, OSError when the
    file cannot be made.
    """

    def __init__(self, path: Path, what: str, *, hint: str | None = None, wait: bool = False) -> None:
        self._path = path
        self._what = what
        self._hint = hint
        self._wait = wait

    def __enter__(self) -> Self:
        descriptor = open_own(self._path, os.O_RDWR | os.O_CREAT)
        try:
            self._must_have_one_name(descriptor)
            self._flock(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return self

    def _must_have_one_name(self, descriptor: int) -> None:
        """Raise UntrustedError for a hard link: what is written into it would be written into another file of ours."""
        if os.fstat(descriptor).st_nlink > 1:
            raise UntrustedError(f"the lock {self._path} has other names", hint=_LOOK_HINT)

    def _flock(self, descriptor: int) -> None:
        if self._wait:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt == _ATTEMPTS - 1:
                    raise BusyError(f"{self._what} is in use by {_holder(descriptor)}", hint=self._hint) from None
                time.sleep(_PAUSE_S)
            else:
                return

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


@contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold an exclusive lock on a directory of ours, which leaves no file behind; it is waited for."""
    own_directory(directory)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether any process holds the lock on `path` now. Raises UntrustedError."""
    try:
        with os.fdopen(open_own(path), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return f"process {text}" if text.isdigit() else "another process"
