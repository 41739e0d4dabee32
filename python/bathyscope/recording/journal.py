"""The journal of what a run changes on a cluster: written and flushed before each change.

One JSON line per event in $XDG_STATE_HOME/bathyscope/journal/RUN.jsonl. It lies outside the workspace, so
that it is still there when the workspace was deleted, and can be written when the workspace is full. Events:

    owner    the process that works on the run now (pid, start time and boot, so that neither a reused pid nor a
             process of an earlier boot is taken for it)
    change   what is about to be changed, with all that is needed to undo it
    undone   the change with this number has been undone
    fact     a fact about a resource of ours for a resumed run: it has been prefilled

A journal decides what is deleted and which processes run for that. So it is read only when it is ours alone
(`files.open_own`), and its name is that of the run's id, which has the form of one.

A change is undone whether or not it was carried out: every undo accepts that its object does not exist.
A last line without its newline was not flushed, so its change was not begun; the line is dropped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pydantic

from bathyscope import files
from bathyscope.errors import BusyError, StoreError
from bathyscope.fields import as_int, load_json
from bathyscope.host import Host
from bathyscope.host.process import NOBODY, ProcessIdentity, identity_of, is_alive
from bathyscope.spec import Target
from bathyscope.store import is_run_id

_DAMAGED = "look in it for what is still on the cluster (names that begin with bathy-), then remove it"


def journal_directory() -> Path:
    """Return the directory of the journals."""
    return files.state_directory() / "journal"


def journal_path(directory: Path, run_id: str) -> Path:
    """Return the file that holds the journal of one run."""
    return directory / f"{run_id}.jsonl"


def changed_by(run_id: str, what: str) -> BusyError:
    """Return the error of what another run has changed and not put back; `what` is such as "changed the pool a"."""
    hint = f"wait until it has ended; if it was killed: bathy bench cleanup {run_id}"
    return BusyError(f"run {run_id} has {what}", hint=hint)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One change to the cluster or to this machine, with what is needed to undo it."""

    number: int
    kind: str
    details: Mapping[str, Any]


class Journal:
    """The journal of one run. `create` or `load` makes one; `take_over` makes this process its owner."""

    def __init__(self, path: Path, run_id: str, target: Target, fsid: str | None) -> None:
        self.path = path
        self.run_id = run_id
        self.target = target
        self.fsid = fsid
        self._changes: dict[int, Change] = {}
        self._undone: set[int] = set()
        # Numbers are not used again, also where the changes are forgotten.
        self._number = 0
        self._facts: dict[str, Any] = {}
        self._owner = NOBODY
        self._length = 0
        # How long it is without changes, where nothing but changes has been written since.
        self._idle_length: int | None = None

    @classmethod
    def create(
        cls, directory: Path, run_id: str, run_path: str, target: Target, host: Host, *, fsid: str | None = None
    ) -> Journal:
        """Begin the journal of a new run on the cluster `fsid`, owned by this process. Raises StoreError."""
        journal = cls(journal_path(directory, run_id), run_id, target, fsid)
        plain = target.model_dump(mode="json")
        journal._owner = identity_of(host, os.getpid()) or NOBODY
        # At once with its owner: a journal without one looks like that of a dead run.
        content = _lines(
            {"event": "run", "run_id": run_id, "run_path": run_path, "target": plain, "fsid": fsid},
            journal._owner_event(),
        )
        try:
            files.own_directory(directory, make=True)
            files.create_file(journal.path, content)
        except OSError as error:
            raise StoreError(
                f"cannot write the journal {journal.path}: {error.strerror}",
                hint="nothing is changed on a cluster without a journal; set XDG_STATE_HOME to a writable directory",
            ) from error
        journal._length = journal._idle_length = len(content)
        return journal

    @classmethod
    def load(cls, path: Path) -> Journal:
        """Read a journal. Raises StoreError when it is damaged other than by a torn last line, or is not ours alone."""
        try:
            content = files.read_own(path)
        except OSError as error:
            raise StoreError(f"cannot read the journal {path}: {error.strerror}") from error
        complete = content[: content.rfind(b"\n") + 1]
        journal: Journal | None = None
        try:
            for line in complete.splitlines():
                event = load_json(line)
                if event["event"] == "run":
                    target = Target.model_validate(event["target"])
                    journal = cls(path, _own_run(path, event["run_id"]), target, event.get("fsid"))
                elif journal is not None:
                    journal._replay(event)
        except (ValueError, KeyError, TypeError, pydantic.ValidationError) as error:
            raise StoreError(f"the journal {path} is damaged: {error}", hint=_DAMAGED) from error
        if journal is None:
            raise StoreError(f"the journal {path} has no beginning", hint=_DAMAGED)
        journal._length = len(complete)
        journal._idle_length = None if journal.pending() else journal._length
        return journal

    def _replay(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "owner":
            self._owner = ProcessIdentity.of(event)
        elif kind == "change":
            change = Change(as_int(event["number"]), str(event["kind"]), dict(event["details"]))
            self._changes[change.number] = change
            self._number = max(self._number, change.number)
        elif kind == "undone":
            self._undone.add(as_int(event["number"]))
        elif kind == "fact":
            self._facts[str(event["name"])] = event["value"]
        else:
            raise ValueError(f"unknown event {kind!r}")

    def _append(self, *events: Mapping[str, Any]) -> None:
        """Add a line for each event and flush them to the device, once, before anything else happens."""
        line = _lines(*events)
        if any(event["event"] not in ("change", "undone") for event in events):
            self._idle_length = None
        self._write(line)
        if self._idle_length is None and not self.pending():
            self._idle_length = self._length

    def _write(self, line: bytes) -> None:
        try:
            with os.fdopen(files.open_own(self.path, os.O_RDWR), "r+b") as file:
                # What lies beyond the last complete line was torn off by a kill.
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
        """Make this process the owner. Raises BusyError when another process that is alive is."""
        if self.owner_alive(host) and self._owner.pid != os.getpid():
            raise BusyError(
                f"run {self.run_id} is under way in process {self._owner.pid}", hint="wait until that process has ended"
            )
        self._set_owner(identity_of(host, os.getpid()) or NOBODY)

    def give_up(self) -> None:
        """Give up ownership: this process has tidied up and does not continue the run."""
        self._set_owner(NOBODY)

    def _set_owner(self, owner: ProcessIdentity) -> None:
        self._owner = owner
        self._append(self._owner_event())

    def _owner_event(self) -> dict[str, Any]:
        return {"event": "owner", **dataclasses.asdict(self._owner)}

    def owner_alive(self, host: Host) -> bool:
        """Return whether the process that worked on the run still exists."""
        return is_alive(host, self._owner)

    def will_change(self, kind: str, **details: Any) -> Change:
        """Write down a change that is about to be made; the same pending change is not written twice."""
        return self.will_change_all(kind, [details])[0]

    def will_change_all(self, kind: str, each: Sequence[Mapping[str, Any]]) -> list[Change]:
        """Write down many changes with one flush: a thousand OSDs must not cost a thousand of them."""
        noted = {_identity(change.kind, change.details): change for change in self.pending()}
        number = self._number
        events: list[dict[str, Any]] = []
        for details in each:
            identity = _identity(kind, details)
            if identity not in noted:
                number += 1
                noted[identity] = Change(number, kind, dict(details))
                events.append({"event": "change", "number": number, "kind": kind, "details": dict(details)})
        if events:
            self._append(*events)
        wanted = [noted[_identity(kind, details)] for details in each]
        self._number = number
        self._changes.update({change.number: change for change in wanted})
        return wanted

    def undone(self, *changes: Change) -> None:
        """Write down that changes have been undone.

        When nothing is left that could be undone, all of it is cut off again: a recording of months changes options
        every minute.
        """
        if not changes:
            return
        self._undone.update(change.number for change in changes)
        if self._idle_length is None or self.pending():
            self._append(*({"event": "undone", "number": change.number} for change in changes))
            return
        self._length = self._idle_length
        self._write(b"")
        self._changes.clear()
        self._undone.clear()

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

    def alone(self) -> AbstractContextManager[None]:
        """Return the lock of all journals here, to be held from looking at the others until a change is written down.

        It is waited for.
        """
        return files.directory_lock(self.path.parent)

    def others(self) -> list[Journal]:
        """Return the journals of other runs on the same cluster, also of those that are under way."""
        others, _ = journals(self.path.parent)
        return [other for other in others if other.run_id != self.run_id and other.fsid == self.fsid]

    def close(self) -> None:
        """Remove the journal when nothing is pending; otherwise it stays for the clean-up."""
        if not self.pending():
            self.discard()

    def discard(self) -> None:
        """Remove the journal whatever it says: the cluster that it is about is gone."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def _lines(*events: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


def _own_run(path: Path, run_id: Any) -> str:
    """Return the run that a journal is about. Raises ValueError for none, and when the file's name says another one."""
    if not isinstance(run_id, str) or not is_run_id(run_id) or run_id != path.stem:
        raise ValueError(f"it is about the run {run_id!r:.120}, which its name does not say")
    return run_id


def _identity(kind: str, details: Mapping[str, Any]) -> str:
    return json.dumps([kind, details], sort_keys=True)


def journals(directory: Path) -> tuple[list[Journal], list[Path]]:
    """Return the journals, oldest first, and the files among them that cannot be read.

    Raises UntrustedError when another user owns the directory or can write it.
    """
    readable, damaged = [], []
    if directory.exists():
        files.own_directory(directory)
    for path in sorted(directory.glob("*.jsonl")):
        try:
            readable.append(Journal.load(path))
        except StoreError:
            damaged.append(path)
    return readable, damaged
