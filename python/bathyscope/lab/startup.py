"""Bringing a lab up: claiming its name and directory, and taking it down again whatever stops it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from bathyscope.errors import BathyscopeError, EnvironmentError_, LabError, UsageError
from bathyscope.host import Host
from bathyscope.host.local import LocalHost
from bathyscope.lab.builder import Builder
from bathyscope.lab.layout import Layout, labs_directory
from bathyscope.lab.spec import LabSpec
from bathyscope.lab.state import LabState, directory_of, list_labs, load, locked, read_record
from bathyscope.lab.teardown import delete_files, forget, release


def up(spec: LabSpec, progress: Callable[[str], None] = lambda _: None, host: Host | None = None) -> LabState:
    """Bring a lab up and return it: all OSDs in, every placement group active+clean, a write acknowledged.

    Whatever stops it (an error, Ctrl-C) takes the lab down again. Raises UsageError, EnvironmentError_, LabError.
    """
    spec.check()
    directory = spec.directory if spec.directory is not None else labs_directory() / spec.name
    # The kernel knows mounts and backing files by their resolved paths.
    layout = Layout(Path(os.path.realpath(directory)))
    layout.check()
    with _claimed(spec, layout):
        builder = Builder(spec, layout, progress, host or LocalHost())
        try:
            builder.prepare(_ports_locked, _taken_ports)
            builder.build()
        except BaseException as error:
            progress("taking the unfinished lab down")
            hint = _last_words(layout) if isinstance(error, LabError) else None
            release(layout)
            delete_files(layout)
            forget(spec.name, layout.directory)
            if isinstance(error, LabError) and error.hint is None and hint:
                raise LabError(error.message, hint=hint) from error
            if isinstance(error, OSError):
                raise _system_error(error) from error
            raise
    return load(spec.name)


@contextlib.contextmanager
def _claimed(spec: LabSpec, layout: Layout) -> Iterator[None]:
    """Hold the lab's directory, made and entered in the list. Raises UsageError, LabError when it is in use."""
    entry = labs_directory() / spec.name
    labs_directory().mkdir(parents=True, exist_ok=True)
    if read_record(Layout(directory_of(spec.name))) is not None:
        raise LabError(
            f"there is a lab '{spec.name}' already",
            hint=f"take it down with `bathy lab down --name {spec.name}`, or choose another --name",
        )
    if spec.directory is not None:
        if layout.directory.exists() and (not layout.directory.is_dir() or any(layout.directory.iterdir())):
            raise UsageError(f"{layout.directory} is not empty", hint="a lab needs a directory of its own")
        if entry.is_symlink():
            entry.unlink()
        if entry.exists():
            raise LabError(f"there are remains of a lab '{spec.name}'", hint=f"bathy lab down --name {spec.name}")
        # The entry comes first: what has an entry can be taken down.
        entry.symlink_to(layout.directory)
    layout.directory.mkdir(parents=True, exist_ok=True)
    with locked(layout):
        yield


def _system_error(error: OSError) -> BathyscopeError:
    """Return what an error of the operating system means for a lab."""
    where = f" ({error.filename})" if error.filename else ""
    message = f"the lab could not be made: {error.strerror or error}{where}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentError_(message, hint="free some space, or choose another place with --directory")
    return LabError(message, hint="the lab was taken down again")


def _last_words(layout: Layout) -> str | None:
    """Return the last line of the log that was written last, before the logs are deleted."""
    logs = [log for log in layout.log.glob("*.out") if log.stat().st_size > 0]
    for log in sorted(logs, key=lambda path: path.stat().st_mtime, reverse=True):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return f"{log.stem} said: {lines[-1][:300]}"
    return None


def _taken_ports() -> set[int]:
    """Return the monitor ports of every lab of this user, up or not."""
    taken: set[int] = set()
    for name in list_labs():
        with contextlib.suppress(BathyscopeError):
            taken.update(load(name).record.ports)
    return taken


@contextlib.contextmanager
def _ports_locked() -> Iterator[None]:
    """Labs that come up at the same time choose their ports one after the other, each seeing the others' records."""
    descriptor = os.open(labs_directory() / ".ports.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
