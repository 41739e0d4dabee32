"""The journal of what a run changes on a cluster: written and flushed before each change.

One JSON line per event in $XDG_STATE_HOME/bathyscope/journal/RUN.jsonl. It lies outside the workspace, so
that a workspace that was deleted or is full does not hide what is still on a cluster. Events:

    owner    the process that works on the run now (pid and start time, so a reused pid is no owner)
    change   what is about to be changed, with all that is needed to undo it
    undone   the change with this number has been undone
    fact     something to remember about a resource of ours: it has been prefilled

A change is undone whether or not it was carried out: every undo accepts that its object does not exist.
A last line without its newline was never flushed, so its change was never begun; it is dropped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic

from bathyscope.errors import BusyError, StoreError
from bathyscope.host import Host
from bathyscope.spec import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One change to the cluster or to this machine, with what is needed to undo it."""

    number: int
    kind: str
    details: Mapping[str, Any]


def journal_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Return the directory of the journals: $XDG_STATE_HOME/bathyscope/journal."""
    variables = os.environ if environment is None else environment
    state = variables.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "bathyscope" / "journal"


def process_start_ticks(host: Host, pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, or None when there is no such process."""
    try:
        text = host.read(f"/proc/{pid}/stat").decode(errors="replace")
        # The name in parentheses may hold spaces and parentheses; the fields are counted from the last one.
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


class Journal:
    """The journal of one run. `create` or `load` makes one; `take_over` makes this process its owner."""

    def __init__(self, path: Path, run_id: str, run_path: str, target: Target, fsid: str | None = None) -> None:
        self.path = path
        self.run_id = run_id
        self.run_path = run_path
        self.target = target
        self.fsid = fsid
        self._changes: dict[int, Change] = {}
        self._undone: set[int] = set()
        self._facts: dict[str, Any] = {}
        self._owner: tuple[int, int] | None = None
        self._length = 0

    @classmethod
    def create(
        cls, directory: Path, run_id: str, run_path: str, target: Target, host: Host, *, fsid: str | None = None
    ) -> Journal:
        """Begin the journal of a new run on the cluster `fsid`, owned by this process. Raises StoreError."""
        journal = cls(directory / f"{run_id}.jsonl", run_id, run_path, target, fsid)
        plain = target.model_dump(mode="json")
        event = {"event": "run", "run_id": run_id, "run_path": run_path, "target": plain, "fsid": fsid}
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        beginning = journal.path.with_suffix(".new")
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with beginning.open("wb") as file:
                beginning.chmod(0o600)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            # A link, not a rename: it refuses to replace the journal of another run.
            os.link(beginning, journal.path)
            beginning.unlink()
        except OSError as error:
            raise StoreError(
                f"cannot write the journal {journal.path}: {error.strerror}",
                hint="without a journal nothing is changed on a cluster; set XDG_STATE_HOME to a writable directory",
            ) from error
        journal._length = len(line)
        _sync_directory(directory)
        journal.take_over(host)
        return journal

    @classmethod
    def load(cls, path: Path) -> Journal:
        """Read a journal. Raises StoreError when it is damaged other than by a torn last line."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StoreError(f"cannot read the journal {path}: {error.strerror}") from error
        whole = content[: content.rfind(b"\n") + 1]
        journal: Journal | None = None
        try:
            for line in whole.splitlines():
                event = json.loads(line)
                if event["event"] == "run":
                    target = Target.model_validate(event["target"])
                    journal = cls(path, str(event["run_id"]), str(event["run_path"]), target, event.get("fsid"))
                elif journal is not None:
                    journal._replay(event)
        except (ValueError, KeyError, TypeError, pydantic.ValidationError) as error:
            raise StoreError(f"the journal {path} is damaged: {error}", hint=_DAMAGED) from error
        if journal is None:
            raise StoreError(f"the journal {path} has no beginning", hint=_DAMAGED)
        journal._length = len(whole)
        return journal

    def _replay(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "owner":
            self._owner = (int(event["pid"]), int(event["start_ticks"]))
        elif kind == "change":
            change = Change(int(event["number"]), str(event["kind"]), dict(event["details"]))
            self._changes[change.number] = change
        elif kind == "undone":
            self._undone.add(int(event["number"]))
        elif kind == "fact":
            self._facts[str(event["name"])] = event["value"]
        else:
            raise ValueError(f"unknown event {kind!r}")

    def _append(self, *events: Mapping[str, Any]) -> None:
        """Add a line for each event and flush them to the device, once, before anything else happens."""
        line = b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)
        try:
            with self.path.open("r+b") as file:
                # What lies beyond the last whole line was torn off by a kill.
                file.truncate(self._length)
                file.seek(self._length)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(
                f"cannot write the journal {self.path}: {error.strerror}",
                hint="nothing is changed on the cluster without it; free space there or set XDG_STATE_HOME",
            ) from error
        self._length += len(line)

    def take_over(self, host: Host) -> None:
        """Make this process the owner. Raises BusyError when another living process is."""
        if self.owner_alive(host) and self._owner is not None and self._owner[0] != os.getpid():
            raise BusyError(
                f"run {self.run_id} is under way in process {self._owner[0]}", hint="wait until it has ended"
            )
        pid = os.getpid()
        self._owner = (pid, process_start_ticks(host, pid) or 0)
        self._append({"event": "owner", "pid": pid, "start_ticks": self._owner[1]})

    def give_up(self) -> None:
        """Make nobody the owner: this process has tidied up and does not go on with the run."""
        self._owner = (0, 0)
        self._append({"event": "owner", "pid": 0, "start_ticks": 0})

    def owner_alive(self, host: Host) -> bool:
        """Return whether the process that worked on the run still exists."""
        return self._owner is not None and process_start_ticks(host, self._owner[0]) == self._owner[1]

    def will_change(self, kind: str, **details: Any) -> Change:
        """Write down a change that is about to be made; the same pending change is not written twice."""
        return self.will_change_all(kind, [details])[0]

    def will_change_all(self, kind: str, each: Sequence[Mapping[str, Any]]) -> list[Change]:
        """Write down many changes with one flush: a thousand OSDs must not cost a thousand of them."""
        known = {_identity(change.kind, change.details): change for change in self.pending()}
        number = max(self._changes, default=0)
        events: list[dict[str, Any]] = []
        for details in each:
            identity = _identity(kind, details)
            if identity not in known:
                number += 1
                known[identity] = Change(number, kind, dict(details))
                events.append({"event": "change", "number": number, "kind": kind, "details": dict(details)})
        if events:
            self._append(*events)
        wanted = [known[_identity(kind, details)] for details in each]
        self._changes.update({change.number: change for change in wanted})
        return wanted

    def undone(self, *changes: Change) -> None:
        """Write down that changes have been undone."""
        if changes:
            self._append(*({"event": "undone", "number": change.number} for change in changes))
            self._undone.update(change.number for change in changes)

    def remember(self, name: str, value: Any) -> None:
        """Keep a fact about a resource of ours, for a resumed run."""
        self._append({"event": "fact", "name": name, "value": value})
        self._facts[name] = value

    def recall(self, name: str) -> Any:
        """Return a fact, or None."""
        return self._facts.get(name)

    def forget_facts(self, about: str = "") -> None:
        """Drop the facts whose name holds `about`, every one by default: what they were about is gone."""
        names = [name for name, value in self._facts.items() if value is not None and about in name]
        if names:
            self._append(*({"event": "fact", "name": name, "value": None} for name in names))
            self._facts.update(dict.fromkeys(names))

    def pending(self) -> list[Change]:
        """Return the changes that have not been undone, in the order in which they were made."""
        return [change for number, change in sorted(self._changes.items()) if number not in self._undone]

    def close(self) -> None:
        """Remove the journal when nothing is pending; otherwise it stays for the clean-up."""
        if not self.pending():
            self.discard()

    def discard(self) -> None:
        """Remove the journal whatever it says: the cluster that it is about is gone."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def _identity(kind: str, details: Mapping[str, Any]) -> str:
    return json.dumps([kind, details], sort_keys=True)


def journals(directory: Path) -> list[Journal]:
    """Return the readable journals, oldest first; one that is damaged is skipped here and named by `damaged`."""
    found = []
    for path in sorted(directory.glob("*.jsonl")) if directory.is_dir() else []:
        with contextlib.suppress(StoreError):
            found.append(Journal.load(path))
    return found


def damaged_journals(directory: Path) -> list[Path]:
    """Return the journals that cannot be read."""
    bad = []
    for path in sorted(directory.glob("*.jsonl")) if directory.is_dir() else []:
        try:
            Journal.load(path)
        except StoreError:
            bad.append(path)
    return bad


def _sync_directory(directory: Path) -> None:
    """Flush the directory entry of a new file."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_DAMAGED = "look in it for what is still on the cluster (everything of ours begins with bathy-), then remove it"
