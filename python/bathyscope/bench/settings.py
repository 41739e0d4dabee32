"""What a run switches on a cluster while it lasts, and how each switch goes back exactly to where it was.

Quiescing (scrub flags, balancer) happens only when the plan asks for it. The op history of the OSDs under test is
enlarged when the plan captures it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Sequence
from typing import Any

from bathyscope.bench import cluster
from bathyscope.bench.journal import Change, Journal
from bathyscope.errors import ClusterError, UnreachableError
from bathyscope.host import CephRequest, CephSession
from bathyscope.host.ceph import answer_json
from bathyscope.sources import op_history
from bathyscope.spec.plan import Quiesce

# The last HISTORY_WINDOW_S of a step are wanted from the histories; what they keep beyond is for the time until the
# question reaches them, on a busy machine too.
HISTORY_WINDOW_S = 2.5
HISTORY_DURATION_S = 4
SETTING_KINDS = ("mon_option", "osd_flag", "balancer", "osd_option")
OPTION_KINDS = ("mon_option", "osd_option")
_FLAGS = ("noscrub", "nodeep-scrub")
_BALANCER_OPTION = "mgr/balancer/active"

# What a command to a daemon that is down, or that is not known any more, comes back with.
_GONE = (-errno.ENXIO, -errno.ENOENT, -errno.ENOTCONN, -errno.ECONNREFUSED, -errno.ETIMEDOUT)


class Settings:
    """Changes settings of a cluster, each journaled first, and restores them."""

    def __init__(self, session: CephSession, journal: Journal) -> None:
        self._session = session
        self._journal = journal

    def quiesce(self, wanted: Quiesce) -> list[str]:
        """Switch off what the plan names and return what was switched; what is off already is left alone."""
        done = []
        if wanted.scrub:
            flags = set(str((self._session.json("mon", "osd dump") or {}).get("flags", "")).split(","))
            for flag in _FLAGS:
                if flag not in flags:
                    self._journal.will_change("osd_flag", flag=flag)
                    cluster.send(self._session, flag, "mon", "osd set", key=flag)
                    done.append(flag)
        if wanted.balancer and (self._session.json("mgr", "balancer status") or {}).get("active"):
            # The switch is an option of the manager's module; where it had none, none may stay behind.
            rows = self._session.json("mon", "config dump") or []
            stored = [str(row.get("value")) for row in rows if row.get("name") == _BALANCER_OPTION]
            self._journal.will_change("balancer", stored=stored[0] if stored else None)
            cluster.send(self._session, "balancer", "mgr", "balancer off")
            done.append("balancer off")
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
        self._session.commands(
            op_history.plan_set([int(daemon.removeprefix("osd.")) for daemon in old], size, HISTORY_DURATION_S)
        )

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

        Returns change number → why it could not be undone, for those that could not. An option whose daemon is not
        there any more counts as undone: the override went with its process. Raises UnreachableError.
        """
        failed: dict[int, str] = {}
        for change in changes:
            try:
                if change.kind == "osd_flag":
                    cluster.send(self._session, "unset", "mon", "osd unset", key=str(change.details["flag"]))
                elif change.kind == "balancer":
                    cluster.send(self._session, "balancer", "mgr", "balancer on")
                    if change.details.get("stored") is None:
                        cluster.send(self._session, "balancer", "mon", "config rm", who="mgr", name=_BALANCER_OPTION)
            except UnreachableError:
                raise
            except ClusterError as error:
                failed[change.number] = error.message
        # One restoring for each option, that of the oldest change: they are sent side by side.
        oldest: dict[tuple[str, str], Change] = {}
        for change in sorted((c for c in changes if c.kind in OPTION_KINDS), key=lambda c: c.number):
            oldest.setdefault(_place(change), change)
        options = list(oldest.values())
        requests = [_restoring(change) for change in options]
        for change, request, answer in zip(options, requests, self._session.commands(requests), strict=True):
            if answer.exit_code in (0, *_GONE) or answer.timed_out:
                continue
            try:
                answer_json(answer)
            except ClusterError as error:
                failed[change.number] = f"{request.daemon}: {error.message}"
        return failed


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
