"""The journal: each resource is written down before it exists, so that nothing can be lost by a kill.

One JSON object in a line, appended by a single write. What survives `kill -9` is the page cache, so no fsync is
needed; what does not survive a power failure (processes, loop devices, mounts, control groups, links) needs no journal.
A torn last line is ignored: its resource had not been made yet. Entries:

    {"make": "process", "pid", "start_ticks", "boot_id", "name"}    the program waits until this is written
    {"make": "helper", "pid", "start_ticks", "boot_id"}             a short program; it dies with the tool, but may take
                                                                    a while to, and `down` has to wait for that
    {"make": "loop", "backing"}     the device is found again by its backing file
    {"make": "cgroup", "path"}
    {"make": "link", "name"}        a network link: a bridge, or a cable to a node
    {"make": "mount", "path"}
    {"make": "directory", "path"}   an empty directory outside the lab, made as a mount point
    {"end": "process", "name"}      the daemon has ended, and is not part of the lab any more
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from typing import Any

from bathyscope import files
from bathyscope.fields import load_json
from bathyscope.host.process import ProcessIdentity


@dataclasses.dataclass(slots=True)
class Resources:
    """What the journal says may exist. Lists are in the order of making; `processes` are daemons with their names."""

    processes: list[tuple[str, ProcessIdentity]] = dataclasses.field(default_factory=list)
    helpers: list[ProcessIdentity] = dataclasses.field(default_factory=list)
    loop_backings: list[str] = dataclasses.field(default_factory=list)
    cgroups: list[str] = dataclasses.field(default_factory=list)
    links: list[str] = dataclasses.field(default_factory=list)
    mounts: list[str] = dataclasses.field(default_factory=list)
    directories: list[str] = dataclasses.field(default_factory=list)


class Journal:
    """Append-only list of resources of one lab. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.Lock()

    def process(self, name: str, identity: ProcessIdentity) -> None:
        """A process is about to become the daemon `name`."""
        self._append({"make": "process", "name": name, **dataclasses.asdict(identity)})

    def ended(self, name: str) -> None:
        """The daemon `name` has ended for good."""
        self._append({"end": "process", "name": name})

    def helper(self, identity: ProcessIdentity) -> None:
        """A short program was started; it cannot outlive this one, except by the time that it takes to die."""
        self._append({"make": "helper", **dataclasses.asdict(identity)})

    def loop(self, backing: Path) -> None:
        """A loop device over `backing` is about to be made."""
        self._append({"make": "loop", "backing": str(backing)})

    def cgroup(self, path: Path) -> None:
        """A control group is about to be made."""
        self._append({"make": "cgroup", "path": str(path)})

    def link(self, name: str) -> None:
        """A network link is about to be made."""
        self._append({"make": "link", "name": name})

    def mount(self, path: Path) -> None:
        """Something is about to be mounted at `path`."""
        self._append({"make": "mount", "path": str(path)})

    def directory(self, path: Path) -> None:
        """An empty directory outside the lab's own is about to be made."""
        self._append({"make": "directory", "path": str(path)})

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        with self._mutex:
            descriptor = files.open_own(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                size = os.fstat(descriptor).st_size
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                data = b"\n" + line if torn else line
                if os.write(descriptor, data) != len(data):
                    raise OSError(f"short write to {self._path}")
            finally:
                os.close(descriptor)


def read(path: Path) -> Resources:
    """Return what the journal at `path` says may exist; nothing when there is no journal. Raises UntrustedError."""
    resources = Resources()
    try:
        lines = files.read_own(path).split(b"\n")
    except FileNotFoundError:
        return resources
    for line in lines:
        try:
            entry = load_json(line)
            if isinstance(entry, dict):
                _apply(resources, entry)
        except (ValueError, KeyError, TypeError):
            continue
    return resources


def _apply(resources: Resources, entry: dict[str, Any]) -> None:
    if entry.get("end") == "process":
        resources.processes = [process for process in resources.processes if process[0] != entry["name"]]
    match entry.get("make"):
        case "process":
            resources.processes.append((str(entry["name"]), ProcessIdentity.of(entry)))
        case "helper":
            resources.helpers.append(ProcessIdentity.of(entry))
        case "loop":
            resources.loop_backings.append(str(entry["backing"]))
        case "cgroup":
            resources.cgroups.append(str(entry["path"]))
        case "link":
            resources.links.append(str(entry["name"]))
        case "mount":
            resources.mounts.append(str(entry["path"]))
        case "directory":
            resources.directories.append(str(entry["path"]))
