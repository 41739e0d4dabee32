"""Undo what a run changed: at its end, after a kill by the next start, or by `bathy bench cleanup`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from bathyscope import interruption
from bathyscope.bench import phases
from bathyscope.bench.phases import PHASE_KINDS
from bathyscope.bench.resources import Resources
from bathyscope.bench.settings import SETTING_KINDS, Settings
from bathyscope.errors import BathyscopeError, UnreachableError
from bathyscope.host import CephSession, Host
from bathyscope.layers.needs import REMOVALS
from bathyscope.recording.journal import Change, Journal
from bathyscope.recording.options import OPTION_KINDS

SWITCHED_KINDS = (*PHASE_KINDS, *SETTING_KINDS)
"""What holds for a while. The rest are things that a run has made."""


@interruption.put_off()
def undo_all(
    host: Host,
    session: CephSession,
    journal: Journal,
    *,
    kinds: Collection[str] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Undo what is pending in a journal and return a sentence for each change that could not be undone.

    What leads back from a phase goes first, so that all OSDs are there for the rest; then settings, so that a failure
    later leaves no switch behind. What does not exist (any more) is not mentioned.

    Raises UnreachableError when the cluster is lost; then the journal keeps the rest.
    """
    pending = [change for change in journal.pending() if kinds is None or change.kind in kinds]
    switched = [change for change in reversed(pending) if change.kind in SETTING_KINDS]
    failed = []
    if left := [change for change in pending if change.kind in PHASE_KINDS]:
        note(f"undoing {summary(left)}")
        problems = phases.undo(phases.Stage(host, session, journal, note), left)
        failed += [f"{describe(change)}: {problems[change.number]}" for change in left if change.number in problems]
    if switched:
        note(f"restoring {summary(switched)}")
        problems = Settings(session, journal).undo(switched)
        failed += [f"{describe(change)}: {problems[change.number]}" for change in switched if change.number in problems]
        journal.undone(*(change for change in switched if change.number not in problems))
    if any(change.kind not in SWITCHED_KINDS for change in pending):
        failed += _remove(host, session, journal, note)
    if kinds is None and not failed:
        journal.forget_facts()
    return failed


def _remove(host: Host, session: CephSession, journal: Journal, note: Callable[[str], None]) -> list[str]:
    left, failed = still_there(host, session, journal)
    resources = Resources(host, session, journal)
    for change in left:
        note(f"removing {describe(change)}")
        try:
            resources.undo(change)
        except UnreachableError:
            raise
        except BathyscopeError as error:
            failed.append(f"{describe(change)}: {error.message}")
        else:
            journal.undone(change)
    return failed


def still_there(host: Host, session: CephSession, journal: Journal) -> tuple[list[Change], list[str]]:
    """Return what a run made and is still on its cluster, in the order of removal, and what could not be looked at.

    What is gone is written down as undone. Raises UnreachableError.
    """
    resources = Resources(host, session, journal)
    left, unknown = [], []
    for change in sorted((c for c in journal.pending() if c.kind not in SWITCHED_KINDS), key=_order):
        try:
            if resources.exists(change):
                left.append(change)
            else:
                journal.undone(change)
        except UnreachableError:
            raise
        except BathyscopeError as error:
            unknown.append(f"{describe(change)}: {error.message}")
    return left, unknown


def _order(change: Change) -> tuple[int, int]:
    removal = REMOVALS.get(change.kind)
    return (removal.order if removal is not None else len(REMOVALS), -change.number)


def describe(change: Change) -> str:
    """Return a change in words."""
    details = change.details
    if change.kind in OPTION_KINDS:
        return f"{details.get('option')} of {details.get('daemon')}"
    if change.kind in PHASE_KINDS:
        return phases.describe(change)
    removal = REMOVALS.get(change.kind)
    words = removal.words if removal is not None else {"osd_flag": "the flag"}.get(change.kind, change.kind)
    name = "/".join(str(part) for part in (details.get("pool"), details.get("name") or details.get("flag")) if part)
    return f"{words} {name}".strip()


def summary(changes: Sequence[Change]) -> str:
    """Return settings in words, options once for all of their daemons: a cluster has thousands."""
    single = [describe(change) for change in changes if change.kind not in OPTION_KINDS]
    daemons: dict[str, int] = {}
    for change in changes:
        if change.kind in OPTION_KINDS:
            option = str(change.details.get("option"))
            daemons[option] = daemons.get(option, 0) + 1
    return ", ".join([*single, *(f"{option} of {count} daemons" for option, count in sorted(daemons.items()))])
