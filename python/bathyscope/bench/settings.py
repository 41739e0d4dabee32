"""What a run switches on a cluster while it lasts, and how each switch goes back exactly to where it was.

Quiescing (scrub flags, balancer) happens only when the plan asks for it. The op history of the OSDs under test is
enlarged when the plan captures it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from bathyscope.bench import cluster
from bathyscope.bench.journal import Change, Journal
from bathyscope.errors import ClusterError, UnreachableError
from bathyscope.host import CephRequest, CephSession
from bathyscope.host.ceph import answer_json
from bathyscope.sources import op_history
from bathyscope.spec.plan import Quiesce

HISTORY_DURATION_S = 3
SETTING_KINDS = ("config", "osd_flag", "balancer", "osd_option")
_FLAGS = ("noscrub", "nodeep-scrub")


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
            self._journal.will_change("balancer")
            cluster.send(self._session, "balancer", "mgr", "balancer off")
            done.append("balancer off")
        return done

    def enlarge_history(self, osds: Iterable[int], size: int) -> None:
        """Let the OSDs keep more of their op history, for a shorter time. An OSD that refuses is left as it is."""
        osds = list(osds)
        old = self._overrides(osds)
        for osd, options in old.items():
            for option, value in options.items():
                self._journal.will_change("osd_option", osd=osd, option=option, value=value)
        self._session.commands(op_history.plan_set(old, size, HISTORY_DURATION_S))

    def _overrides(self, osds: list[int]) -> dict[int, dict[str, str | None]]:
        """Return osd → option → the run-time override that is in force, None where there is none."""
        asked = [(osd, option) for osd in osds for option in op_history.OPTIONS]
        answers = self._session.commands(
            [
                CephRequest(
                    f"override-{option}-osd.{osd}",
                    f"osd.{osd}",
                    (("prefix", "config diff get"), ("var", option), ("format", "json")),
                )
                for osd, option in asked
            ]
        )
        found: dict[int, dict[str, str | None]] = {}
        for (osd, option), answer in zip(asked, answers, strict=True):
            with contextlib.suppress(ClusterError, AttributeError):
                levels = ((answer_json(answer) or {}).get("diff") or {}).get(option) or {}
                value = levels.get("override")
                found.setdefault(osd, {})[option] = None if value is None else str(value)
        return {osd: options for osd, options in found.items() if len(options) == len(op_history.OPTIONS)}

    def undo(self, change: Change) -> None:
        """Undo one change of SETTING_KINDS. Raises ClusterError."""
        details = change.details
        if change.kind == "osd_flag":
            cluster.send(self._session, "unset", "mon", "osd unset", key=str(details["flag"]))
        elif change.kind == "balancer":
            cluster.send(self._session, "balancer", "mgr", "balancer on")
        elif change.kind == "config":
            words = {"who": str(details["who"]), "name": str(details["name"])}
            if details.get("value") is None:
                cluster.send(self._session, "config", "mon", "config rm", **words)
            else:
                cluster.send(self._session, "config", "mon", "config set", **words, value=str(details["value"]))
        elif change.kind == "osd_option":
            self._restore_option(int(details["osd"]), str(details["option"]), details.get("value"))

    def _restore_option(self, osd: int, option: str, value: object) -> None:
        """Put a run-time override back; an OSD that is down has lost the override with its process."""
        with contextlib.suppress(ClusterError, UnreachableError):
            if value is None:
                cluster.send(self._session, "unset", f"osd.{osd}", "config unset", var=option)
            else:
                cluster.send(self._session, "set", f"osd.{osd}", "config set", var=option, val=[str(value)])
