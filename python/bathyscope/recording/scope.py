"""Keeps the scope of a recording fresh: the cluster's map, read at the beginning and again from time to time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bathyscope.errors import BathyscopeError, ClusterError
from bathyscope.host import CephRequest, CephSession, Host, Request
from bathyscope.recording.collect import Collected, measure
from bathyscope.records import RawAnswer
from bathyscope.sources import cluster_map, exporters, machine, nodes
from bathyscope.sources.shape import Source
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

REFRESH_S = 300.0
# The map names the OSDs; who is asked by name is asked in a second round, and a third finds nothing new.
_ROUNDS_MAX = 3
_SOURCES: tuple[Source, ...] = (cluster_map.SOURCE, machine.SOURCE, nodes.SOURCE, exporters.SOURCE)

ScopeOf = Callable[[Sequence[RawAnswer], Target], Scope]


class ScopeKeeper:
    """Holds the scope. Thread-safe.

    `asked_osds` are the OSDs that daemon commands may go to (None: all); those that are down are left out. What
    `narrow` sets stays through every refresh. `target_now` finds the target's daemons again: after a
    restart they are other processes. `refresh_s` is for the Recorder; math.inf: only who calls `refresh` refreshes.
    `sources` are those that the scope is made from, `answers` the latest raw answers of each; empty before the first.
    """

    def __init__(
        self,
        host: Host,
        session: CephSession | None,
        target: Target,
        *,
        asked_osds: Sequence[int] | None = None,
        refresh_s: float = REFRESH_S,
        target_now: Callable[[], Target] | None = None,
        sources: Sequence[Source] | None = None,
        scope_of: ScopeOf = cluster_map.scope_of,
    ) -> None:
        self.refresh_s = refresh_s
        self.answers: dict[str, list[RawAnswer]] = {}
        self._host = host
        self._session = session
        self._target_now = target_now or (lambda: target)
        self.sources = _SOURCES if sources is None else tuple(sources)
        self._scope_of = scope_of
        self._lock = threading.RLock()
        self._asked_osds = asked_osds
        self._narrowed: dict[str, Any] = {"processes": (("bathy", os.getpid()),)}
        self._scope = Scope(target=target).model_copy(update=self._narrowed)

    @property
    def scope(self) -> Scope:
        """The scope as it is known now. It is replaced, never changed: the same object is the same scope."""
        with self._lock:
            return self._scope

    @property
    def incomplete(self) -> bool:
        """Whether an OSD that is to be asked is down: it may come back at any time."""
        with self._lock:
            wanted = self._asked_osds
            return any(not osd.up for osd in self._scope.osds if wanted is None or osd.osd in wanted)

    def refresh(self) -> None:
        """Read the map again. Raises UnreachableError, ClusterError, ParseError; then the scope stays as it was."""
        self._look([], everything=True)

    def look(self) -> list[Collected]:
        """Read the map again and return what it cost, round by round. A failure leaves the scope as it was.

        What does not come from the cluster (this machine) is only asked the first time, and an OSD once per start.
        """
        looks: list[Collected] = []
        try:
            self._look(looks, everything=False)
        except BathyscopeError as error:
            looks = looks or [measure(self._host, self._session, self.sources[0].name, ())]
            return [collected.failed(error) for collected in looks]
        return looks

    def _look(self, looks: list[Collected], *, everything: bool) -> None:
        """Read the map and add what it cost to `looks`. Raises when it cannot be read."""
        target = self._narrowed.get("target") or self._target_now()
        # The first round asks the cluster, which names its OSDs; the OSDs are asked in the next ones.
        scope = self._narrow(self.scope.model_copy(update={"target": target})).model_copy(update={"asked_osds": ()})
        answers_by_source: dict[str, list[RawAnswer]] = {source.name: [] for source in self.sources}
        for source in () if everything else self.sources:
            if not any(isinstance(request, CephRequest) for request in source.plan(scope)):
                answers_by_source[source.name] += self.answers.get(source.name, [])
        for number in range(_ROUNDS_MAX):
            asked = self._round(scope, answers_by_source)
            looks += asked
            for collected in asked if number == 0 else ():
                # What a later round lacks (the counters of an OSD that hangs) is known from the one before, or missing;
                # and a machine, or a Prometheus, that cannot be reached costs only its own figures.
                if not collected.good and collected.cost.source not in (nodes.SOURCE.name, exporters.SOURCE.name):
                    raise collected.error or ClusterError(str(collected.cost.problem))
            if not asked:
                break
            if number == 0 and not everything:
                mine = cluster_map.SOURCE.name
                answers_by_source.get(mine, []).extend(
                    cluster_map.still_true(self.answers.get(mine, ()), answers_by_source.get(mine, ()))
                )
            scope = self._narrow(
                self._scope_of([answer for kept in answers_by_source.values() for answer in kept], target)
            )
        if self.scope.osds and not scope.osds:
            # The manager may be failing over; a map without OSDs would end the recording of all of them.
            raise ClusterError("the cluster did not give its map of OSDs")
        with self._lock:
            self.answers = answers_by_source
            scope = self._narrow(scope)
            if scope != self._scope:
                self._scope = scope

    def narrow(self, **changes: Any) -> None:
        """Set fields of the scope (asked_osds, own_pools, images, op_history_ops), now and after every refresh."""
        with self._lock:
            if "asked_osds" in changes:
                self._asked_osds = changes.pop("asked_osds")
            unknown = set(changes) - set(Scope.model_fields)
            if unknown:
                raise KeyError(f"a scope has no field {', '.join(sorted(unknown))}")
            self._narrowed.update(changes)
            self._scope = self._narrow(self._scope)

    def watch(self, role: str, pid: int, *, there: bool = False) -> None:
        """Add a process of this machine, or of the client host: role "client" for a load process."""
        where = "processes_there" if there else "processes"
        with self._lock:
            self._narrowed[where] = (*self._narrowed.get(where, ()), (role, pid))
            self._scope = self._narrow(self._scope)

    def _round(self, scope: Scope, known: Mapping[str, list[RawAnswer]]) -> list[Collected]:
        """Ask what the sources plan for `scope` and has not been asked; add the answers to `known`."""
        looks = []
        for source in self.sources:
            asked = {answer.label for answer in known[source.name]}
            requests: list[Request] = [
                request
                for request in source.plan(scope)
                # A plan of a disk alone opens no session, whichever target is named beside it.
                if request.label not in asked and not (self._session is None and isinstance(request, CephRequest))
            ]
            if requests:
                collected = measure(self._host, self._session, source.name, requests, source.timeout_s)
                known[source.name] += collected.answers
                looks.append(collected)
        return looks

    def _narrow(self, scope: Scope) -> Scope:
        """Return `scope` with what was set from outside."""
        with self._lock:
            up = {osd.osd: osd.up for osd in scope.osds}
            wanted = sorted(up) if self._asked_osds is None else self._asked_osds
            asked = tuple(osd for osd in wanted if up.get(osd, True))
            return scope.model_copy(update={**self._narrowed, "asked_osds": asked})
