"""Bringing a lab up: claiming its name and directory, and taking it down again whatever stops it."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from bathyscope import files
from bathyscope.errors import BathyscopeError, EnvironmentError_, LabError, UsageError
from bathyscope.fields import last_lines
from bathyscope.host import Host
from bathyscope.host.local import LocalHost
from bathyscope.lab import builder
from bathyscope.lab.layout import Layout, labs_directory
from bathyscope.lab.spec import LabSpec
from bathyscope.lab.state import LabRecord, LabState, directory_of, list_labs, load, locked, must_be_lab, read_record
from bathyscope.lab.teardown import delete_files, forget, release

# Below it a daemon that aborts writes its stack and what it did last.
_REASON = re.compile(r"FAILED ceph_assert|terminate called|Fatal Python error|\*\*\* Caught signal")


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
        try:
            bringup = builder.prepare(
                spec, layout, progress, host or LocalHost(), choice_lock=_choice_lock, others=_other_labs
            )
            builder.build(bringup)
        except BaseException as error:
            progress("taking the unfinished lab down")
            hint = _reason(layout) if isinstance(error, LabError) else None
            release(layout, spec.name)
            delete_files(layout, spec.name)
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
    files.own_directory(labs_directory(), make=True)
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
            raise LabError(
                f"a lab '{spec.name}' was not taken down completely", hint=f"bathy lab down --name {spec.name}"
            )
        # The entry comes first: what has an entry can be taken down.
        entry.symlink_to(layout.directory)
    files.own_directory(layout.directory, make=True)
    if any(layout.directory.iterdir()):
        # What is left of a lab that was killed, or the lab that another process brings up.
        must_be_lab(layout, spec.name)
    else:
        os.close(files.open_own(layout.mark(spec.name), os.O_WRONLY | os.O_CREAT))
    with locked(layout):
        yield


def _system_error(error: OSError) -> BathyscopeError:
    """Return what an error of the operating system means for a lab."""
    where = f" ({error.filename})" if error.filename else ""
    message = f"the lab could not be made: {error.strerror or error}{where}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentError_(message, hint="free some space, or choose another place with --directory")
    return LabError(message, hint="the lab was taken down again")


def _reason(layout: Layout) -> str | None:
    """Return the last line of the logs that says why a daemon ended, else the newest, before logs are deleted."""
    logs = sorted(layout.log.glob("*.out"), key=lambda path: path.stat().st_mtime)
    said = [(log.stem, lines) for log in logs if (lines := last_lines(files.read_end(log)))]
    reasons = [(name, line) for name, lines in said for line in lines if _REASON.search(line)]
    for name, line in (reasons or [(name, lines[-1]) for name, lines in said])[-1:]:
        return f"from the log of {name}: {line[:300]}"
    return None


def _other_labs() -> list[LabRecord]:
    """Return the records of every lab of this user, up or not."""
    records = []
    for name in list_labs():
        with contextlib.suppress(BathyscopeError):
            records.append(load(name).record)
    return records


def _choice_lock() -> files.FileLock:
    """Labs that come up at the same time choose ports and network one after the other, seeing the others' records."""
    return files.FileLock(labs_directory() / ".ports.lock", "the choice of ports", wait=True)
