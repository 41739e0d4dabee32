"""Makes what steps need, and removes it again. Each thing is in the journal before it exists.

What is made and how it is removed stands in `layers.needs`; this carries it out. Names begin with the run's prefix, so
that nothing of other tenants can match.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from bathyscope.errors import (
    ClusterError,
    DeniedError,
    ParseError,
    PolicyError,
    ToolError,
    UnhealthyError,
    UnreachableError,
)
from bathyscope.fields import last_line, parsing
from bathyscope.host import CephRequest, CephSession, Host, answer_json, is_denied
from bathyscope.host.ceph import send
from bathyscope.layers import Action, MakeContext, Need
from bathyscope.layers.needs import REMOVALS, Removal
from bathyscope.recording import options
from bathyscope.recording.journal import Change, Journal
from bathyscope.records import ClusterStatus
from bathyscope.spec.scope import Scope

PREFIX = "bathy-"
_SETTLE_POLL_S = 0.25


def prefix_of(run_id: str) -> str:
    """Return the prefix of everything that a run makes: bathy- and the run's random part."""
    return PREFIX + run_id.rpartition("-")[2]


def made_by(run_id: str, name: str) -> bool:
    """Return whether the run can have made a thing of this name; what a journal says beyond that is left alone."""
    return re.fullmatch(re.escape(prefix_of(run_id)) + r"-[0-9A-Za-z._-]+", name) is not None


class Resources:
    """Makes and removes what a run needs. Making twice is harmless, removing what does not exist is too."""

    def __init__(self, host: Host, session: CephSession, journal: Journal) -> None:
        self._host = host
        self._session = session
        self._journal = journal

    def make(
        self,
        needs: Sequence[Need],
        scope: Scope,
        *,
        status: Callable[[], ClusterStatus],
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Make `needs` on the cluster of `scope`, pools first, and wait until their placement groups are clean.

        `status` asks the cluster anew. Raises ClusterError, ToolError, UnhealthyError.
        """
        context = make_context(self._session, scope)
        settling = [need for need in needs if need.settles]
        for need in settling:
            self._make(need, context)
        if settling:
            self.wait_until_settled(status, note)
        for need in needs:
            if not need.settles:
                self._make(need, context)

    def _make(self, need: Need, context: MakeContext) -> None:
        """Make one need.

        A need with journal entries of its own is made again by every start: a kill may have come between any two of its
        commands. A need that goes with another one (an image with its pool) is made once. When a pool is gone, the
        journal's facts about its content are forgotten.
        """
        actions = need.make(context)
        for pool in need.pools:
            if pool not in context.scope.pools:
                self._journal.forget_facts(pool)
        made = f"made {need.key}"
        goes_with_another = bool(actions) and not any(action.creates for action in actions)
        if goes_with_another and self._journal.recall(made):
            return
        for action in actions:
            if action.creates is not None:
                kind, name = action.creates
                self._journal.will_change(kind, name=name, **action.details)
            self._carry_out(action)
        if goes_with_another:
            self._journal.remember(made, value=True)

    def _carry_out(self, action: Action) -> None:
        request = action.request
        if isinstance(request, CephRequest):
            try:
                send(self._session, request)
            except UnreachableError:
                raise
            except ClusterError as error:
                if action.accept is None or action.accept not in error.message:
                    raise
            return
        if request is None:
            return
        completed = self._host.run(request)
        text = completed.stderr
        if completed.exit_code != 0 and (action.accept is None or action.accept.encode() not in text):
            message = f"`{request.argv[0]}` failed ({request.label}): {last_line(text)}"
            if os.strerror(errno.EPERM).encode() in text:
                hint = "`bathy caps bench` prints all that a run needs"
                raise DeniedError(f"{self._session.client} may not do this: {message}", hint=hint)
            raise ToolError(message)

    def wait_until_settled(
        self, status: Callable[[], ClusterStatus], note: Callable[[str], None], timeout_s: float = 300.0
    ) -> None:
        """Wait until all placement groups are active and clean. Raises UnhealthyError after `timeout_s`.

        The manager hears of a new pool's placement groups a moment after the monitors have made it: until it names
        as many as there are, "all" is not all.
        """
        deadline = self._host.monotonic_ns() + int(timeout_s * 1e9)
        reported = False
        pools = (self._session.json("mon", "osd dump") or {}).get("pools", [])
        expected = sum(int(pool.get("pg_num", 0)) for pool in pools)
        while True:
            now = status()
            if now.pg_count >= max(1, expected) and now.pg_clean_count == now.pg_count:
                return
            if self._host.monotonic_ns() > deadline:
                raise UnhealthyError(
                    f"the placement groups are not clean after {timeout_s:.0f} s: {now.pg_not_clean or 'unknown'}",
                    hint="look at: ceph health detail",
                )
            if not reported:
                note("waiting until all placement groups are active and clean")
                reported = True
            self._host.sleep(_SETTLE_POLL_S)

    def exists(self, change: Change) -> bool:
        """Return whether the cluster has what one change created. Raises ClusterError when that cannot be known."""
        return str(change.details.get("name")) in existing(self._session, _removal(change), change.details)

    def undo(self, change: Change) -> None:
        """Remove what one change created. Raises ClusterError."""
        removal = _removal(change)
        name = str(change.details.get("name"))
        if not made_by(self._journal.run_id, name):
            raise ClusterError(f"run {self._journal.run_id} cannot have made {name}; it is left alone")
        with parsing("the journal"):
            request = removal.request(change.details)
        try:
            send(self._session, request)
        except PolicyError as error:
            if removal.option is None or removal.option not in error.message:
                raise
            with self._permitted(removal.option):
                send(self._session, request)

    @contextlib.contextmanager
    def _permitted(self, option: str) -> Iterator[None]:
        """Let the monitors remove what is ours for a moment, and put their setting back exactly as it was.

        Their run-time overrides are changed, not the cluster's configuration: an override wins over ceph.conf too,
        and is forgotten at the monitor's next start at the latest.
        """
        old = options.overrides(self._session, [f"mon.{name}" for name in _monitors(self._session)], [option])
        each = [{"daemon": daemon, "option": option, "value": values[option]} for daemon, values in old.items()]
        changes = self._journal.will_change_all("mon_option", each)
        try:
            for daemon in old:
                words = (("prefix", "config set"), ("var", option), ("val", ["true"]))
                send(self._session, CephRequest("allow", daemon, words, timeout_s=60.0))
            yield
        finally:
            problems = options.restore(self._session, changes)
            self._journal.undone(*(change for change in changes if change.number not in problems))


def _removal(change: Change) -> Removal:
    """Return how a change is undone. Raises ClusterError when it is not one of ours."""
    removal = REMOVALS.get(change.kind)
    if removal is None:
        raise ClusterError(f"this version does not know how to remove a {change.kind}")
    return removal


def make_context(session: CephSession, scope: Scope) -> MakeContext:
    """Return what needs are made on; nothing is changed. Raises ClusterError."""
    return MakeContext(scope, crush_roots(session.json("mon", "osd tree") or {}), default_replicas(session))


def existing(session: CephSession, removal: Removal, details: Mapping[str, Any]) -> Collection[str]:
    """Return the names of what the cluster has of one kind. Raises ClusterError, ParseError."""
    with parsing("the journal"):
        listing = removal.listing(details)
    completed = session.command(listing)
    if completed.exit_code == -errno.ENOENT:
        # The pool that it was in is gone, and it with the pool.
        return ()
    answer = answer_json(completed, session.client)
    with parsing(completed.request.label):
        return removal.names(answer or ())


def default_replicas(session: CephSession) -> int:
    """Return the replicas that the monitors give to a new pool, as they see it: ceph.conf included."""
    with contextlib.suppress(TypeError, ValueError):
        return int(monitor_option(session, "osd_pool_default_size") or "")
    return 3


def monitor_option(session: CephSession, option: str) -> str | None:
    """Return the value of an option as the monitors have it, ceph.conf and run-time changes included.

    A monitor says it only to a key with mon 'allow *'; the manager knows it from the monitors' reports, which are a few
    seconds old at most. None when neither says it.
    """
    for name in _monitors(session):
        with contextlib.suppress(ClusterError, ParseError, TypeError, KeyError):
            return str(session.json(f"mon.{name}", "config get", var=option)[option])
        reported = session.command(
            CephRequest("config show", "mgr", (("prefix", "config show"), ("who", f"mon.{name}"), ("key", option)))
        )
        if reported.exit_code == 0 and reported.stdout.strip():
            return reported.stdout.decode(errors="replace").strip()
    return None


def may_tell_monitors(session: CephSession) -> bool:
    """Return whether the key may change options of the running monitors (`ceph tell mon.X`): it needs mon 'allow *'."""
    asked = [
        CephRequest(
            "try tell", f"mon.{name}", (("prefix", "config get"), ("var", "mon_allow_pool_delete"), ("format", "json"))
        )
        for name in _monitors(session)
    ]
    return not any(is_denied(answer) for answer in session.commands(asked))


def _monitors(session: CephSession) -> list[str]:
    return [str(monitor["name"]) for monitor in (session.json("mon", "mon dump") or {}).get("mons", [])]


def crush_roots(tree: Mapping[str, Any]) -> dict[str, frozenset[int]]:
    """Return CRUSH root → the OSDs below it, from the answer to `osd tree`. Shadow trees of classes are left out."""
    nodes = {int(node["id"]): node for node in tree.get("nodes", [])}

    def below(number: int) -> frozenset[int]:
        children = nodes.get(number, {}).get("children", [])
        osds = frozenset({number}) if number >= 0 else frozenset()
        return osds.union(*(below(int(child)) for child in children))

    return {
        str(node["name"]): below(number)
        for number, node in nodes.items()
        if node["type"] == "root" and "~" not in node["name"]
    }
