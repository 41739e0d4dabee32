"""A burst: for some seconds a few OSDs keep every operation, and say where the time of each went.

By default an OSD keeps the 20 slowest operations of ten minutes. For a burst its history is made large enough for all
of some seconds, is asked for once, and is made what it was. That is a change of the cluster: it stands in a journal
before it is made, and whoever starts next undoes what a killed process left (`bench.session.tidy`).

The history is as long as the burst, so that it claims completeness for no moment before it (`complete_since_ns`). An
OSD that did more operations than fit keeps the slowest of them; its rows say so (`complete_sample`). Operations that
are under way when it is asked are in no history: of those that take long a burst sees fewer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from bathyscope.errors import BathyscopeError, UsageError
from bathyscope.host import CephSession, Host
from bathyscope.recording import options
from bathyscope.recording.collect import measure
from bathyscope.recording.journal import Journal
from bathyscope.recording.sinks import Sink
from bathyscope.sources.op_history import SOURCE
from bathyscope.spec.scope import Scope

# On 16.2 the 28,000 operations of one OSD came in 1.4 s, without a measurable loss of IOPS.
OSDS_MAX = 8
OPS_MAX = 5000
SECONDS_MAX = 30


class Burst:
    """Takes bursts of op histories into a recording's sink. `journal` is that of this recording alone."""

    def __init__(self, host: Host, session: CephSession, journal: Journal, sink: Sink) -> None:
        self._host = host
        self._session = session
        self._journal = journal
        self._sink = sink

    def take(
        self, scope: Scope, osds: Sequence[int], seconds: int, ops: int = OPS_MAX, *, wait: Callable[[float], bool]
    ) -> list[str]:
        """Record `seconds` of at most OSDS_MAX OSDs; return what was missed or could not be restored, a sentence each.

        An OSD whose history another run has enlarged is left out. `wait` lets that many seconds pass; where it returns
        False they have not, and nothing is asked. Whatever ends it (an error, an interruption), what it changed is
        restored first. Raises UsageError beyond the limits, UnreachableError, StoreError from the journal.

        The sink is tended by those who collect by the clock.
        """
        if not 1 <= seconds <= SECONDS_MAX or not 1 <= ops <= OPS_MAX or len(osds) > OSDS_MAX:
            limits = f"1 to {SECONDS_MAX} s and 1 to {OPS_MAX} operations of each of {OSDS_MAX} OSDs at most"
            raise UsageError(f"a burst takes {limits} (got {seconds} s and {ops} of {len(osds)})")
        try:
            busy = options.enlarge_history(self._session, self._journal, osds, ops, duration_s=seconds)
            free = tuple(osd for osd in osds if osd not in busy)
            for error in busy.values():
                self._sink.take(SOURCE, measure(self._host, self._session, SOURCE.name, ()).failed(error))
            if free and wait(seconds):
                asked = SOURCE.plan(scope.model_copy(update={"asked_osds": free}))
                self._sink.take(SOURCE, measure(self._host, self._session, SOURCE.name, asked, SOURCE.timeout_s))
        except BaseException:
            # An interruption stays one where the cluster is lost as well: the journal has what is not restored.
            with contextlib.suppress(BathyscopeError):
                self.restore()
            raise
        return [*(error.message for error in busy.values()), *self.restore()]

    def restore(self) -> list[str]:
        """Put back what is enlarged; return what could not be, a sentence each. Raises UnreachableError."""
        changes = [change for change in self._journal.pending() if change.kind == "osd_option"]
        if not changes:
            return []
        failed = options.restore(self._session, changes)
        self._journal.undone(*(change for change in changes if change.number not in failed))
        return list(failed.values())
