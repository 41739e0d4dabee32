"""Taking a lab down: by its journal alone, in any state, as often as needed.

The order matters: throttles are lifted first, so that a killed OSD does not wait for its queue; processes end before
mounts, mounts before loop devices, devices before files. Files go last, and the record last of all, so that a kill in
the middle leaves a lab that can be taken down again. Nothing is deleted while anything is mounted below.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from bathyscope.errors import BathyscopeError, LabError
from bathyscope.lab import journal, loop, mount, process, throttle
from bathyscope.lab.layout import Layout, labs_directory
from bathyscope.lab.state import directory_of, list_labs, locked

Progress = Callable[[str], None]


def _quiet(_: str) -> None:
    pass


def down(name: str, progress: Progress = _quiet) -> None:
    """Take the lab `name` down and delete its data. Raises LabError when there is none, or when something stays."""
    directory = directory_of(name)
    if not directory.is_dir():
        entry = labs_directory() / name
        if entry.is_symlink():
            # The directory was deleted by hand; without its journal nothing more can be known.
            entry.unlink()
            return
        known = ", ".join(list_labs()) or "none"
        raise LabError(f"there is no lab '{name}'", hint=f"labs on this machine: {known}")
    layout = Layout(directory)
    with locked(layout):
        release(layout, progress)
        progress("deleting files")
        delete_files(layout)
    forget(name, directory)


def down_all(progress: Progress = _quiet) -> list[str]:
    """Take every lab of this user down; return their names. One that fails does not keep the others up."""
    names, failures = list_labs(), []
    for name in names:
        try:
            down(name, progress)
        except BathyscopeError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return names


def release(layout: Layout, progress: Progress = _quiet) -> None:
    """End the lab's processes and give back its mounts, loop devices and control groups. Raises LabError."""
    resources = journal.read(layout.journal)
    for group in resources.cgroups:
        throttle.lift(Path(group))
    progress("ending processes")
    left = process.end_all([*(entry.identity for entry in resources.processes), *resources.helpers])
    if left:
        raise LabError(f"processes that do not end: {', '.join(str(identity.pid) for identity in left)}")
    # Mounts that others made below the directory (a mounted file system of the lab) would hold it, too.
    if mount.below(layout.directory):
        progress("unmounting")
        still = mount.unmount_below(layout.directory)
        if still:
            raise LabError(f"still mounted: {', '.join(str(path) for path in still)}", hint="umount it by hand")
    for backing in resources.loop_backings:
        if devices := loop.detach(backing):
            raise LabError(f"still in use: {', '.join(devices)}", hint="close what uses it, then: bathy lab down")
    for group in resources.cgroups:
        if not throttle.remove(Path(group)):
            raise LabError(f"the control group {group} cannot be removed")
    for path in reversed(resources.directories):
        with contextlib.suppress(OSError):
            Path(path).rmdir()


def delete_files(layout: Layout) -> None:
    """Delete what the lab wrote. Refuses while anything is mounted below: another file system would be emptied."""
    if still := mount.below(layout.directory):
        raise LabError(f"still mounted: {', '.join(str(path) for path in still)}")
    for path in layout.made():
        shutil.rmtree(path, ignore_errors=True)
    # Only ever a mount point: whatever is in it would be someone else's.
    with contextlib.suppress(OSError):
        layout.root.rmdir()
    for path in (
        layout.conf,
        layout.lifted,
        layout.record.with_suffix(".json.new"),
        layout.journal,
        layout.record,
        layout.lock,
    ):
        path.unlink(missing_ok=True)


def forget(name: str, directory: Path) -> None:
    """Remove the lab's directory, unless foreign files are in it, and its entry in the list."""
    with contextlib.suppress(OSError):
        directory.rmdir()
    entry = labs_directory() / name
    if entry.is_symlink():
        entry.unlink()
