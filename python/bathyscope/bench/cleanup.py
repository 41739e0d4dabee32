"""Undo what a run changed: at its end, after a kill by the next start, or by `bathy bench cleanup`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from bathyscope.bench.journal import Change, Journal, journals
from bathyscope.bench.resources import Resources
from bathyscope.bench.settings import OPTION_KINDS, SETTING_KINDS, Settings
from bathyscope.errors import BathyscopeError, UnreachableError
from bathyscope.host import CephSession, Host

# A pool goes before the rule that it uses; settings go first, so that a failure later leaves no switch behind.
_ORDER = {"pool": 0, "crush_rule": 1}


def undo_all(
    host: Host,
    session: CephSession,
    journal: Journal,
    *,
    kinds: Collection[str] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Undo what is pending in a journal and return a sentence for each change that could not be undone.

    Raises UnreachableError when the cluster is lost; then the journal keeps the rest.
    """
    pending = [change for change in journal.pending() if kinds is None or change.kind in kinds]
    switched = [change for change in reversed(pending) if change.kind in SETTING_KINDS]
    failed = []
    if switched:
        note(f"restoring {summary(switched)}")
        problems = Settings(session, journal).undo(switched)
        failed += [f"{describe(change)}: {problems[change.number]}" for change in switched if change.number in problems]
        journal.undone(*(change for change in switched if change.number not in problems))
    resources = Resources(host, session, journal.target, journal)
    made = [change for change in pending if change.kind not in SETTING_KINDS]
    for change in sorted(made, key=lambda change: (_ORDER.get(change.kind, 2), -change.number)):
        note(f"removing {describe(change)}")
        try:
            resources.undo(change)
        except UnreachableError:
            raise
        except BathyscopeError as error:
            failed.append(f"{describe(change)}: {error.message}")
        else:
            journal.undone(change)
    if kinds is None and not failed:
        journal.forget_facts()
    return failed


def describe(change: Change) -> str:
    """Return a change in words."""
    details = change.details
    if change.kind in OPTION_KINDS:
        return f"{details.get('option')} of {details.get('daemon')}"
    names = {"pool": "the pool", "crush_rule": "the CRUSH rule", "osd_flag": "the flag"}
    return f"{names.get(change.kind, change.kind)} {details.get('name') or details.get('flag') or ''}".strip()


def summary(changes: Sequence[Change]) -> str:
    """Return settings in words, options once for all of their daemons: a cluster has thousands."""
    single = [describe(change) for change in changes if change.kind not in OPTION_KINDS]
    daemons: dict[str, int] = {}
    for change in changes:
        if change.kind in OPTION_KINDS:
            option = str(change.details.get("option"))
            daemons[option] = daemons.get(option, 0) + 1
    return ", ".join([*single, *(f"{option} of {count} daemons" for option, count in sorted(daemons.items()))])


def abandoned(host: Host, directory: Path) -> list[Journal]:
    """Return the journals with something pending whose owner process is dead."""
    return [j for j in journals(directory) if j.pending() and not j.owner_alive(host)]


def idle(host: Host, directory: Path) -> list[Journal]:
    """Return the journals with nothing pending whose owner process is dead: killed before or after its changes."""
    return [j for j in journals(directory) if not j.pending() and not j.owner_alive(host)]
