"""Bursts of op histories as part of a recording: which OSDs, when, for how long.

A burst asks little of an OSD, and more of whoever takes and keeps the answer: a thousand operations are some 0.7 MB. So
a few OSDs have a burst at a time (`recording.burst`), the busiest first, and every OSD has its turn before one has
another: a round of 1,000 OSDs is 125 bursts. In between there is a pause, the longer the longer a burst took.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import pyarrow.compute as pc

from bathyscope.errors import BathyscopeError, StoreError
from bathyscope.host import CephSession, Host
from bathyscope.recording.burst import OPS_MAX, OSDS_MAX, Burst
from bathyscope.recording.collect import measure
from bathyscope.recording.journal import Journal, journal_directory
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.sinks import Sink
from bathyscope.records import PgIo
from bathyscope.sources import SOURCES
from bathyscope.store import RunDirectory
from bathyscope.watch.clock import Clock

SECONDS = 5
"""Length of a burst, shorter where an OSD is known to do more than its history holds."""
EVERY_S = 20.0
"""Time from the beginning of a burst to the next."""
LONG_EVERY_S, LONG_OPS = 60.0, 1000
"""The same in long recordings, and the operations that an OSD keeps there: days of them must fit a disk."""
SHARE = 0.25
"""Bursts take at most this share of the time, their answers included."""
# A client's write is one operation in the history of its primary OSD and one in that of each replica.
_ENTRIES_OF_AN_OP = 3
# The shortest burst is a second, and may end that much after the recording.
_WORTH_S = 0.5
# The newest segments, of which one has the last looks at the placement groups.
_SEGMENTS = 6


class Turns:
    """Whose turn it is: the busiest of those that had none in this round."""

    def __init__(self) -> None:
        self._had: set[int] = set()

    def next(self, osds: Sequence[int], rates: Mapping[int, float]) -> list[int]:
        """Return at most OSDS_MAX of `osds`; `rates` are operations a second, as far as they are known."""
        busiest = sorted(osds, key=lambda osd: (-rates.get(osd, 0.0), osd))
        chosen = [osd for osd in busiest if osd not in self._had][:OSDS_MAX]
        if len(chosen) < OSDS_MAX:
            # The round is over. Those that have the free places have had their turn of the next one.
            chosen += (first := [osd for osd in busiest if osd not in chosen][: OSDS_MAX - len(chosen)])
            self._had = set(first)
        else:
            self._had.update(chosen)
        return chosen


def seconds_for(osds: Sequence[int], rates: Mapping[int, float], ops: int) -> int:
    """Return how long a burst of `osds` lasts so that histories of `ops` operations hold all, as far as is known."""
    busiest = max((rates.get(osd, 0.0) for osd in osds), default=0.0) * _ENTRIES_OF_AN_OP
    return SECONDS if busiest * SECONDS <= ops else max(1, int(ops / busiest))


def rates_of(run: RunDirectory) -> dict[int, float]:
    """Return the operations a second of the clients on each primary OSD, as they were recorded last; empty for none."""
    # What is rolled up is removed at any time.
    with contextlib.suppress(StoreError):
        for segment in reversed(list(run.segments().values())[-_SEGMENTS:]):
            table = segment.table(PgIo)
            if table.num_rows:
                ends_ns, lengths_ns = table["at_ns"], table["duration_ns"]
                span_ns = pc.max(ends_ns).as_py() - pc.min(pc.subtract(ends_ns, lengths_ns)).as_py()
                sums = table.group_by("osd").aggregate([("read_count", "sum"), ("write_count", "sum")])
                return {
                    row["osd"]: (row["read_count_sum"] + row["write_count_sum"]) / (span_ns / 1e9)
                    for row in sums.to_pylist()
                }
    return {}


class Bursts:
    """The bursts of one recording, which changes options of OSDs in its own journal. Close it at the end."""

    def __init__(
        self,
        host: Host,
        session: CephSession,
        keeper: ScopeKeeper,
        run: RunDirectory,
        sink: Sink,
        *,
        is_long: bool,
        note: Callable[[str], None],
    ) -> None:
        self._host, self._session, self._keeper, self._run, self._sink = host, session, keeper, run, sink
        self._note = note
        self._every_s, self._ops = (LONG_EVERY_S, LONG_OPS) if is_long else (EVERY_S, OPS_MAX)
        scope = keeper.scope
        self._journal = Journal.create(journal_directory(), run.id, str(run.path), scope.target, host, fsid=scope.fsid)
        self._burst = Burst(host, session, self._journal, sink)
        self._turns = Turns()
        self._said: list[str] = []

    def record(self, clock: Clock) -> None:
        """Take bursts for as long as the recording lasts. Raises StoreError."""
        while clock.left_s > _WORTH_S:
            began_s = clock.passed_s
            rates = rates_of(self._run)
            if osds := self._turns.next(self._keeper.scope.asked_osds, rates):
                # One that would not end within the recording is shorter.
                seconds = max(1, int(min(seconds_for(osds, rates, self._ops), clock.left_s)))
                self._take(osds, seconds, clock)
            pause_s = max(self._every_s, (clock.passed_s - began_s) / SHARE) + began_s - clock.passed_s
            if not clock.wait(min(pause_s, clock.left_s)):
                return

    def _take(self, osds: Sequence[int], seconds: int, clock: Clock) -> None:
        try:
            problems = self._burst.take(self._keeper.scope, osds, seconds, self._ops, wait=clock.wait)
        except StoreError:
            raise
        except BathyscopeError as error:
            source = SOURCES["op_history"]
            self._sink.take(source, measure(self._host, self._session, source.name, ()).failed(error))
            problems = [error.message]
        # A cluster that is lost for an hour is said to be once.
        if problems != self._said:
            for problem in problems:
                self._note(f"bursts of op histories: {problem}")
        self._said = problems

    def close(self) -> None:
        """Put back what is still enlarged; what cannot be is put back by the next start."""
        with contextlib.suppress(BathyscopeError):
            self._burst.restore()
        self._journal.close()
        if left := self._journal.pending():
            # Where it cannot be written, this process is the owner, which is dead to the next start.
            with contextlib.suppress(StoreError):
                self._journal.give_up()
            osds = sorted({str(change.details["daemon"]) for change in left})
            self._note(
                f"the op history of {', '.join(osds)} could not be restored: the next `bathy collect` or `bathy bench` "
                f"does it, or: bathy bench cleanup {self._run.id}"
            )
