"""What a run switches on a cluster while it lasts, and how each switch goes back exactly to where it was.

Quiescing (scrub flags, balancer) happens only when the plan asks for it. The op history of the OSDs under test is
enlarged when the plan captures it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bathyscope.errors import BusyError, ClusterError, ParseError, UnreachableError
from bathyscope.host import CephRequest, CephSession, Host
from bathyscope.host.ceph import send
from bathyscope.layers import needs
from bathyscope.recording import options
from bathyscope.recording.journal import Change, Journal
from bathyscope.recording.options import OPTION_KINDS
from bathyscope.sources import op_history
from bathyscope.spec.plan import Quiesce

# Longer than what is wanted of a step (`analysis.window.OP_WINDOW_NS`) by the time until the question reaches the
# OSDs, on a busy machine too.
HISTORY_DURATION_S = 4
# A burst of `bathy collect --depth deep` holds histories for 5 s, and for its commands and answers on a busy machine.
_BURST_S, _RETRY_S = 15.0, 0.5
SETTING_KINDS = ("mon_option", "osd_flag", "balancer", "osd_option")
_FLAGS = ("noscrub", "nodeep-scrub")
_BALANCER_OPTION = "mgr/balancer/active"


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
    switches = []
    if wanted.scrub:
        flags = _flags(session)
        switches += [
            Switch(flag, "osd_flag", {"flag": flag}, needs.change(flag, "osd set", key=flag))
            for flag in _FLAGS
            if flag not in flags
        ]
    if wanted.balancer:
        active, stored = _balancer(session)
        if active:
            off = needs.change("balancer", "balancer off", daemon="mgr")
            switches.append(Switch("balancer off", "balancer", {"stored": stored}, off))
    return switches


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

    def enlarge_history(self, host: Host, osds: Iterable[int], size: int) -> None:
        """Let the OSDs keep more of their op history, for a shorter time. An OSD that refuses is left as it is.

        One that another run has enlarged is waited for as long as a recording's burst may last. Raises BusyError when
        it is not put back by then.
        """
        osds = list(osds)
        ends_ns = host.monotonic_ns() + round(_BURST_S * 1e9)
        while busy := options.enlarge_history(self._session, self._journal, osds, size, HISTORY_DURATION_S):
            if host.monotonic_ns() >= ends_ns:
                error = next(iter(busy.values()))
                raise BusyError(f"{error.message}, and has not put it back in {_BURST_S:g} s", hint=error.hint)
            # Two runs of which each holds a part would wait for each other.
            ours = [c for c in self._journal.pending() if c.details.get("option") in op_history.OPTIONS]
            failed = self.undo(ours)
            self._journal.undone(*(change for change in ours if change.number not in failed))
            host.sleep(_RETRY_S)

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
        failed |= options.restore(self._session, [c for c in changes if c.kind in OPTION_KINDS])
        return failed

    def _is_back(self, change: Change) -> bool:
        """Return whether a switch is known to be as it was before the run. Raises UnreachableError."""
        try:
            if change.kind == "osd_flag":
                return str(change.details["flag"]) not in _flags(self._session)
            return _balancer(self._session) == (True, change.details.get("stored"))
        except UnreachableError:
            raise
        except (ClusterError, ParseError):
            return False


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
