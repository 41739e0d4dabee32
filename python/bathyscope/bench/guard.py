"""Watches a cluster while a load runs, and stops the load when the cluster or its other clients suffer."""

from __future__ import annotations

import contextlib
import threading

from bathyscope.bench import cluster
from bathyscope.bench.preflight import ClusterLook
from bathyscope.errors import BathyscopeError, UnreachableError
from bathyscope.host import CephSession
from bathyscope.spec.plan import Limits

PERIOD_S = 2.0


class Guard:
    """Looks every PERIOD_S seconds. `violation` is a sentence once a limit is broken; it stays.

    `trouble` collects what makes the step of the moment doubtful without ending the run: placement groups
    that were not whole while other OSDs than those under test were lost, say. `blind` is the last reason why a
    look gave no answer: then the limits were not watched, and the run must say so.
    """

    def __init__(self, session: CephSession, limits: Limits, before: ClusterLook) -> None:
        self._session = session
        self._limits = limits
        self._slow_before = before.health.slow_ops
        self._up_before = {node.osd for node in before.nodes if node.up}
        self._was_error = before.health.status == "HEALTH_ERR"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="bathy-guard", daemon=True)
        self.violation: str | None = None
        self.blind: str | None = None
        self._trouble: str | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End. The present look is waited for."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=15.0)

    def take_trouble(self, *, look: bool = False) -> str | None:
        """Return what was seen since the last call, and forget it. `look`: once more now, for a step of a second."""
        if look:
            with contextlib.suppress(BathyscopeError):
                self.violation = self.violation or self.check()
        trouble, self._trouble = self._trouble, None
        return trouble

    def _loop(self) -> None:
        silent = False
        while not self._stop.wait(PERIOD_S):
            try:
                found = self.check()
            except UnreachableError as error:
                # One late answer is what a heavy load does to a small machine; two in a row are a lost cluster.
                found, silent = error.message if silent else None, True
            except BathyscopeError as error:
                self.blind = error.message
                continue
            else:
                silent = False
            if found is not None and self.violation is None:
                self.violation = found

    def check(self) -> str | None:
        """Look once and return the broken limit, or None."""
        health = cluster.health(self._session)
        states = cluster.pg_states(self._session)
        if states.unwhole:
            self._trouble = states.unwhole
        if health.status == "HEALTH_ERR" and not self._was_error:
            return "the cluster went to HEALTH_ERR: " + "; ".join(health.checks.values())
        if "OSD_DOWN" in health.checks:
            lost = sorted(self._up_before - {node.osd for node in cluster.osd_nodes(self._session) if node.up})
            if lost:
                return f"OSDs went down during the load: {', '.join(f'osd.{osd}' for osd in lost)}"
        slow = health.slow_ops - self._slow_before
        if slow > self._limits.max_slow_ops:
            return f"{slow} slow operations appeared (limit {self._limits.max_slow_ops}): {health.checks['SLOW_OPS']}"
        return self._latency()

    def _latency(self) -> str | None:
        """Return a sentence when an OSD's mean commit latency, all clients together, is over the limit."""
        with contextlib.suppress(BathyscopeError, KeyError, TypeError, ValueError):
            for osd, latency_ms in cluster.commit_latencies_ms(self._session).items():
                if latency_ms / 1000 > self._limits.max_client_latency:
                    return (
                        f"osd.{osd} commits in {latency_ms / 1000:.1f} s, "
                        f"the plan's limit is {self._limits.max_client_latency:g} s"
                    )
        return None
