"""A lab for the time of one verb: brought up at its start, taken down at its end, whatever ends it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bathyscope.commands.talk import say
from bathyscope.errors import BathyscopeError, BusyError
from bathyscope.units import format_seconds

if TYPE_CHECKING:
    from bathyscope.files import FileLock
    from bathyscope.lab import LabSpec, LabState
    from bathyscope.store import RunDirectory

_IN_USE = "wait until it has ended, or interrupt it"


@contextlib.contextmanager
def own_lab(spec: LabSpec) -> Iterator[LabState]:
    """Yield a lab that nobody else uses. The lab of a verb that was killed, of the same name, is taken down first.

    Raises BusyError while a run on it is under way.
    """
    from bathyscope import lab as labs

    # A run on it has a journal; while it comes up, until the run begins, there is this lock alone.
    with _claimed(spec.name):
        if spec.name in labs.list_labs():
            _must_be_idle(spec.name)
            say(f"taking down the lab '{spec.name}' of an earlier start")
            labs.down(spec.name)
            _forget()
        began = time.monotonic()
        say(f"starting a real Ceph: {', '.join(f'{g.count} {g.device_class}' for g in spec.devices)} OSDs")
        try:
            state = labs.up(spec, lambda text: say(f"  {text}"))
            say(f"the cluster is up after {format_seconds(time.monotonic() - began)}")
            yield state
        finally:
            # `up` takes an unfinished lab down itself.
            if spec.name in labs.list_labs():
                _take_down(spec.name)


def _claimed(name: str) -> FileLock:
    """Return the lock that a verb holds on the lab of its own; a kill ends it. Taking it raises BusyError."""
    from bathyscope import files
    from bathyscope.lab.layout import labs_directory

    directory = files.own_directory(labs_directory(), make=True)
    return files.FileLock(directory / f".{name}.lock", f"the lab '{name}'", hint=_IN_USE)


def _must_be_idle(name: str) -> None:
    from bathyscope.host.local import LocalHost
    from bathyscope.recording.journal import journal_directory, journals

    host = LocalHost()
    for journal in journals(journal_directory())[0]:
        if journal.target.kind == "lab" and journal.target.name == name and journal.owner_alive(host):
            raise BusyError(f"run {journal.run_id} uses the lab '{name}' now", hint=_IN_USE)


def take_down_after(run: RunDirectory) -> None:
    """Take down the lab that was brought up for a run which has ended now, and that a kill has left."""
    from bathyscope import lab as labs
    from bathyscope.bench.session import OWN_LAB

    name = run.info.context.get(OWN_LAB)
    if name in labs.list_labs() and labs.load(name).record.fsid == run.info.versions.get("fsid"):
        _take_down(name)


def _take_down(name: str) -> None:
    """Take a lab down, with what is noted of runs on it."""
    from bathyscope import lab as labs

    say("taking the cluster down")
    try:
        labs.down(name)
    except BathyscopeError as error:
        say(f"the lab could not be taken down: {error.message}; try: bathy lab down --name {name}")
    else:
        _forget()


def _forget() -> None:
    from bathyscope.bench.session import forget_gone

    forget_gone()
