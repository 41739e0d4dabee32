"""Taking a lab down: by its journal alone, in any state, as often as needed.

Only a directory with the lab's own mark and name is touched, and in its journal only what that lab can have made
counts.

The order matters: throttles are removed first, so that a killed OSD does not wait for its queue; processes end before
links and mounts, mounts before loop devices, these before the simulated disks beneath them, devices before files. Files
go last, and the record last of all, so that a kill in the middle leaves a lab that can be taken down again. Nothing is
deleted while anything is mounted below.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

from bathyscope import files
from bathyscope.errors import BathyscopeError, LabError
from bathyscope.host import outliving
from bathyscope.lab import journal, loop, mount, network, throttle
from bathyscope.lab.layout import Layout, labs_directory, roots_directory
from bathyscope.lab.state import directory_of, list_labs, locked, must_be_lab, read_record

Progress = Callable[[str], None]


# How long processes may take to end before what they wait for is ended.
_WAIT_S = 3.0


def _quiet(_: str) -> None:
    pass


def down(name: str, progress: Progress = _quiet) -> None:
    """Take the lab `name` down and delete its data. Raises LabError when there is none, or when something stays."""
    directory, entry = directory_of(name), labs_directory() / name
    if not directory.is_dir():
        if entry.is_symlink():
            # The directory was deleted by hand; without its journal nothing more can be known.
            entry.unlink()
            return
        names = ", ".join(list_labs()) or "none"
        raise LabError(f"there is no lab '{name}'", hint=f"labs on this machine: {names}")
    layout = Layout(directory)
    if not any(directory.iterdir()):
        # A kill came before the mark, or after it: nothing is lost with the entry.
        entry.unlink() if entry.is_symlink() else entry.rmdir()
        return
    must_be_lab(layout, name)
    with locked(layout):
        release(layout, name, progress)
        progress("deleting files")
        delete_files(layout, name)
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


def release(layout: Layout, name: str, progress: Progress = _quiet) -> None:
    """End the lab's processes and give back its links, mounts, loop devices and control groups. Raises LabError."""
    resources = _made_by(layout, name, journal.read(layout.journal))
    for group in resources.cgroups:
        throttle.clear(Path(group))
    progress("ending processes")
    started = [*(identity for _, identity in resources.processes), *resources.helpers]
    left = outliving.end_all(started, timeout_s=_WAIT_S)
    if left and layout.disks in mount.below(layout.directory):
        mount.abort(layout.disks)
    left = left and outliving.end_all(left)
    if left:
        raise LabError(f"processes that do not end: {', '.join(str(identity.pid) for identity in left)}")
    for link in resources.links:
        if not network.remove(link):
            raise LabError(f"the network link {link} cannot be removed", hint=f"ip link delete {link}")
    # Mounts that others made below the directory (a mounted file system of the lab) would hold it, too.
    if mount.below(layout.directory):
        progress("unmounting")
    _unmount(layout, but=layout.disks)
    for backing in resources.loop_backings:
        if devices := loop.detach(backing):
            raise LabError(f"still in use: {', '.join(devices)}", hint="close what uses it, then: bathy lab down")
    _unmount(layout)
    for group in resources.cgroups:
        if not throttle.remove(Path(group)):
            raise LabError(f"the control group {group} cannot be removed")
    for path in reversed(resources.directories):
        with contextlib.suppress(OSError):
            Path(path).rmdir()


def _unmount(layout: Layout, but: Path | None = None) -> None:
    if still := mount.unmount_below(layout.directory, but):
        raise LabError(f"still mounted: {', '.join(str(path) for path in still)}", hint="umount it by hand")


def _made_by(layout: Layout, name: str, listed: journal.Resources) -> journal.Resources:
    """Return what this lab can have made of what its journal lists."""
    fsid = None
    with contextlib.suppress(BathyscopeError):
        # Where the record is damaged, the form of a link's name must do.
        record = read_record(layout)
        fsid = record.fsid if record else None
    return dataclasses.replace(
        listed,
        links=[link for link in listed.links if network.is_link_of(fsid, link)],
        loop_backings=[file for file in listed.loop_backings if Path(file).is_relative_to(layout.directory)],
        cgroups=[path for path in listed.cgroups if throttle.is_group_of(name, Path(path))],
        directories=[path for path in listed.directories if Path(path).is_relative_to(roots_directory())],
    )


def delete_files(layout: Layout, name: str) -> None:
    """Delete what the lab wrote. Refuses while anything is mounted below: another file system would be emptied."""
    if still := mount.below(layout.directory):
        raise LabError(f"still mounted: {', '.join(str(path) for path in still)}")
    for path in layout.made():
        shutil.rmtree(path, ignore_errors=True)
    # Only ever a mount point: whatever is in it would be someone else's.
    with contextlib.suppress(OSError):
        layout.root.rmdir()
    files.sweep(layout.directory)
    files_of_lab = (layout.conf, layout.unthrottled, layout.journal, layout.record, layout.lock, layout.mark(name))
    for path in files_of_lab:
        path.unlink(missing_ok=True)


def forget(name: str, directory: Path) -> None:
    """Remove the lab's directory, unless foreign files are in it, and its entry in the list."""
    with contextlib.suppress(OSError):
        directory.rmdir()
    entry = labs_directory() / name
    if entry.is_symlink():
        entry.unlink()
