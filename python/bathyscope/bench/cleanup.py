"""Undo what a run changed: at its end, after a kill by the next start, or by `bathy bench cleanup`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from bathyscope.bench.journal import Change, Journal, journals
from bathyscope.bench.resources import Resources
from bathyscope.bench.settings import SETTING_KINDS, Settings
from bathyscope.errors import BathyscopeError, UnreachableError
from bathyscope.host import CephSession, Host

# A pool goes before the rule that it uses; settings go first, so that a failure later leaves no switch behind.
_ORDER = {"osd_option": 0, "osd_flag": 0, "balancer": 0, "config": 0, "pool": 1, "crush_rule": 2}


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
    resources = Resources(host, session, journal.target, journal)
    settings = Settings(session, journal)
    failed = []
    pending = [change for change in journal.pending() if kinds is None or change.kind in kinds]
    for change in sorted(pending, key=lambda change: (_ORDER.get(change.kind, 3), -change.number)):
        note(
            f"removing {describe(change)}" if change.kind in ("pool", "crush_rule") else f"restoring {describe(change)}"
        )
        try:
            (settings if change.kind in SETTING_KINDS else resources).undo(change)
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
    if change.kind == "osd_option":
        return f"{details.get('option')} of osd.{details.get('osd')}"
    names = {"pool": "the pool", "crush_rule": "the CRUSH rule", "osd_flag": "the flag", "config": "the option"}
    return f"{names.get(change.kind, change.kind)} {details.get('name') or details.get('flag') or ''}".strip()


def abandoned(host: Host, directory: Path) -> list[Journal]:
    """Return the journals with something pending whose owner process is dead."""
    return [j for j in journals(directory) if j.pending() and not j.owner_alive(host)]
