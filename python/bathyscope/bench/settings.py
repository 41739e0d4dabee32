"""What a run switches on a cluster while it lasts, and how each switch goes back exactly to where it was.

Quiescing (scrub flags, balancer) happens only when the plan asks for it. The op history of the OSDs under test is
enlarged when the plan captures it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bathyscope.bench.journal import Change, Journal
from bathyscope.errors import ClusterError, ParseError, UnreachableError
from bathyscope.host import CephRequest, CephSession, answer_json
from bathyscope.host.ceph import send
from bathyscope.layers import needs
from bathyscope.sources import op_history
from bathyscope.spec.plan import Quiesce

# Longer than what is wanted of a step (`analysis.windows.OP_WINDOW_NS`) by the time until the question reaches the
# OSDs, on a busy machine too.
HISTORY_DURATION_S = 4
SETTING_KINDS = ("mon_option", "osd_flag", "balancer", "osd_option")
OPTION_KINDS = ("mon_option", "osd_option")
_FLAGS = ("noscrub", "nodeep-scrub")
_BALANCER_OPTION = "mgr/balancer/active"

# What a command to a daemon that is down, or that is not known any more, comes back with.
_GONE = (-errno.ENXIO, -errno.ENOENT, -errno.ENOTCONN, -errno.ECONNREFUSED)


@dataclasses.dataclass(frozen=True, slots=True)
class Switch:
    """One switch of a cluster: its name, what the journal holds of it, and the command."""

    words: str
    kind: str
    details: Mapping[str, Any]
    request: CephRequest

    @property
    def back(self) -> list[CephRequest]:
        """The commands that put it back."""
        return _switching_back(self.kind, self.details)


def switches(session: CephSession, wanted: Quiesce) -> list[Switch]:
    """Return what a plan wants switched off and is on now; nothing is changed."""
    found = []
    if wanted.scrub:
        flags = _flags(session)
        found += [
            Switch(flag, "osd_flag", {"flag": flag}, needs.change(flag, "osd set", key=flag))
            for flag in _FLAGS
            if flag not in flags
        ]
    if wanted.balancer:
        active, stored = _balancer(session)
        if active:
            off = needs.change("balancer", "balancer off", daemon="mgr")
            found.append(Switch("balancer off", "balancer", {"stored": stored}, off))
    return found


def _flags(session: CephSession) -> set[str]:
    return set(str((session.json("mon", "osd dump") or {}).get("flags", "")).split(","))


def _balancer(session: CephSession) -> tuple[bool, str | None]:
    """Return whether the balancer is on, and what the manager's module has stored of it: where it had nothing, nothing
    may stay behind."""
    rows = session.json("mon", "config dump") or []
    stored = [str(row.get("value")) for row in rows if row.get("name") == _BALANCER_OPTION]
    active = bool((session.json("mgr", "balancer status") or {}).get("active"))
    return active, stored[0] if stored else None


def _switching_back(kind: str, details: Mapping[str, Any]) -> list[CephRequest]:
    if kind == "osd_flag":
        return [needs.change("unset", "osd unset", key=str(details["flag"]))]
    back = [needs.change("balancer", "balancer on", daemon="mgr")]
    if details.get("stored") is None:
        back.append(needs.change("balancer", "config rm", who="mgr", name=_BALANCER_OPTION))
    return back


class Settings:
    """Changes settings of a cluster, each journaled first, and restores them."""

    def __init__(self, session: CephSession, journal: Journal) -> None:
        self._session = session
        self._journal = journal

    def quiesce(self, wanted: Quiesce) -> list[str]:
        """Switch off what the plan names and return what was switched; what is off already is left alone."""
        done = []
        for switch in switches(self._session, wanted):
            self._journal.will_change(switch.kind, **switch.details)
            send(self._session, switch.request)
            done.append(switch.words)
        return done

    def enlarge_history(self, osds: Iterable[int], size: int) -> None:
        """Let the OSDs keep more of their op history, for a shorter time. An OSD that refuses is left as it is."""
        old = self.overrides([f"osd.{osd}" for osd in osds], op_history.OPTIONS)
        # After a kill what is found is what we set ourselves; what was there before stands in the journal already.
        ours = {_place(change) for change in self._journal.pending() if change.kind in OPTION_KINDS}
        each = [
            {"daemon": daemon, "option": option, "value": value}
            for daemon, options in old.items()
            for option, value in options.items()
            if (daemon, option) not in ours
        ]
        self._journal.will_change_all("osd_option", each)
        self._session.commands(enlarging([int(daemon.removeprefix("osd.")) for daemon in old], size))

    def overrides(self, daemons: Sequence[str], options: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Return daemon → option → the run-time override that is in force, None where there is none.

        A daemon that does not answer for every option is left out.
        """
        asked = [(daemon, option) for daemon in daemons for option in options]
        answers = self._session.commands(
            [
                CephRequest(
                    f"override-{option}-{daemon}",
                    daemon,
                    (("prefix", "config diff get"), ("var", option), ("format", "json")),
                    timeout_s=30.0,
                )
                for daemon, option in asked
            ]
        )
        found: dict[str, dict[str, str | None]] = {}
        for (daemon, option), answer in zip(asked, answers, strict=True):
            with contextlib.suppress(ClusterError, AttributeError):
                levels = ((answer_json(answer) or {}).get("diff") or {}).get(option) or {}
                value = levels.get("override")
                found.setdefault(daemon, {})[option] = None if value is None else str(value)
        return {daemon: values for daemon, values in found.items() if len(values) == len(options)}

    def undo(self, changes: Sequence[Change]) -> dict[int, str]:
        """Undo changes of SETTING_KINDS, side by side where they are many.

        Returns change number → why it could not be undone, for those that could not. What was never switched, or has
        been switched back by somebody else, counts as undone also where the key may not switch it. So does an option
        whose daemon is not there any more: the override went with its process. Raises UnreachableError.
        """
        failed: dict[int, str] = {
            c.number: "no run changes this; it is left alone" for c in changes if not _possible(c)
        }
        changes = [change for change in changes if change.number not in failed]
        for change in (c for c in changes if c.kind not in OPTION_KINDS):
            try:
                for request in _switching_back(change.kind, change.details):
                    send(self._session, request)
            except UnreachableError:
                raise
            except ClusterError as error:
                if not self._is_back(change):
                    failed[change.number] = error.message
        # One restoring for each option, that of the oldest change: they are sent side by side.
        oldest: dict[tuple[str, str], Change] = {}
        for change in sorted((c for c in changes if c.kind in OPTION_KINDS), key=lambda c: c.number):
            oldest.setdefault(_place(change), change)
        options = list(oldest.values())
        requests = [_restoring(change) for change in options]
        for change, request, answer in zip(options, requests, self._session.commands(requests), strict=True):
            if answer.exit_code in (0, *_GONE):
                continue
            try:
                answer_json(answer)
            except ClusterError as error:
                # A daemon that hangs keeps its override; one that is down has lost it with its process.
                undone = request.daemon in self._down() if answer.timed_out else self._is_back(change)
                if not undone:
                    failed[change.number] = f"{request.daemon}: {error.message}"
        return failed

    def _is_back(self, change: Change) -> bool:
        """Return whether a switch is known to be as it was before the run. Raises UnreachableError."""
        try:
            if change.kind == "osd_flag":
                return str(change.details["flag"]) not in _flags(self._session)
            if change.kind in OPTION_KINDS:
                daemon, option = _place(change)
                return self.overrides([daemon], [option]).get(daemon) == {option: change.details.get("value")}
            return _balancer(self._session) == (True, change.details.get("stored"))
        except UnreachableError:
            raise
        except (ClusterError, ParseError):
            return False

    def _down(self) -> set[str]:
        """Return the OSDs that the monitors call down."""
        osds = (self._session.json("mon", "osd dump") or {}).get("osds", [])
        return {f"osd.{osd['osd']}" for osd in osds if not osd.get("up")}


def _possible(change: Change) -> bool:
    """Return whether a run can have made this change: a journal must not be a way to set other options."""
    daemon, option = str(change.details.get("daemon")), change.details.get("option")
    match change.kind:
        case "osd_flag":
            return change.details.get("flag") in _FLAGS
        case "osd_option":
            return option in op_history.OPTIONS and re.fullmatch(r"osd\.[0-9]+", daemon) is not None
        case "mon_option":
            options = {removal.option for removal in needs.REMOVALS.values()} - {None}
            return option in options and daemon.startswith("mon.")
        case _:
            return True


def caps(wanted: Quiesce) -> tuple[list[str], list[str]]:
    """Return the caps for the monitors and for the manager that switching and restoring need."""
    mon, mgr = [], []
    if wanted.scrub:
        mon += [f'allow command "osd {verb}" with key={flag}' for flag in _FLAGS for verb in ("set", "unset")]
    if wanted.balancer:
        mon.append(f'allow command "config rm" with who=mgr name={_BALANCER_OPTION}')
        mgr += [f'allow command "balancer {state}"' for state in ("off", "on")]
    return mon, mgr


def enlarging(osds: Iterable[int], size: int) -> list[CephRequest]:
    """Return the commands that let the OSDs keep `size` ops of their history."""
    return op_history.resize(osds, size, HISTORY_DURATION_S)


def _place(change: Change) -> tuple[str, str]:
    return str(change.details["daemon"]), str(change.details["option"])


def _restoring(change: Change) -> CephRequest:
    """Return the command that puts a run-time override back to what it was."""
    details = change.details
    daemon, option, value = str(details["daemon"]), str(details["option"]), details.get("value")
    if value is None:
        words: tuple[tuple[str, Any], ...] = (("prefix", "config unset"), ("var", option))
    else:
        words = (("prefix", "config set"), ("var", option), ("val", [str(value)]))
    return CephRequest(f"restore-{option}-{daemon}", daemon, words, timeout_s=30.0)
