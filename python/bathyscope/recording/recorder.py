"""Runs sources by the clock, side by side, and hands every collection to a sink.

One thread decides when (`schedule`), a pool with room for every source carries it out, so that a slow source delays no
other. Whatever threads share is behind one lock, and nothing polls: the deciding thread sleeps until the next time of
the schedule or until it is woken.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from bathyscope.errors import BathyscopeError
from bathyscope.host import CephRequest, CephSession, Host, ReadRequest, Request
from bathyscope.recording.collect import Collected, measure
from bathyscope.recording.schedule import BUDGET_RATIO, Entry
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.sinks import Sink
from bathyscope.records import Collection, RawAnswer
from bathyscope.sources.shape import Source
from bathyscope.spec.scope import Scope

STILL_RUNNING = "missed: the collection before was still under way"
LATE = "missed: the recorder was late"

# How soon the scope is read again when a daemon is down or not known, doubled until something has changed.
_SOON_NS = 10_000_000_000
_ENDLESS_NS = 1 << 62
_MARGIN_S = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A source to be recorded. `period_s` math.inf: only when `collect_now` asks for it.

    `budget_ratio` is the share of the time that its collections may take before it is slowed down.
    """

    source: Source
    period_s: float | None = None
    timeout_s: float | None = None
    budget_ratio: float = BUDGET_RATIO

    @property
    def limit_s(self) -> float:
        """Time limit of one collection, in seconds."""
        return self.source.timeout_s if self.timeout_s is None else self.timeout_s

    def entry(self, now_ns: int) -> Entry:
        """Return its place in a schedule that begins now."""
        return _entry(self.source.period_s if self.period_s is None else self.period_s, now_ns, self.budget_ratio)


def _entry(period_s: float, due_ns: int, budget_ratio: float) -> Entry:
    """Return an entry that is due at `due_ns` for the first time, never for an endless period."""
    if math.isinf(period_s):
        return Entry(period_ns=_ENDLESS_NS, due_ns=None, budget_ratio=budget_ratio)
    return Entry(period_ns=round(period_s * 1e9), due_ns=due_ns, budget_ratio=budget_ratio)


class Recorder:
    """Records `jobs` into `sink` from `start` (or `__enter__`) to `stop` (or `__exit__`).

    A failed collection is a row of Collection and backs its source off; a lost cluster is asked again until it is back.
    Only the sink (a full disk) and errors of the program end a recording: `failure` holds the reason, `stop` raises it.
    """

    def __init__(
        self, host: Host, session: CephSession | None, scope_keeper: ScopeKeeper, jobs: Sequence[Job], sink: Sink
    ) -> None:
        self._host = host
        self._session = session
        self._keeper = scope_keeper
        self._sink = sink
        self._jobs = {job.source.name: job for job in jobs}
        self._changed = threading.Condition()
        # Below: shared by threads, behind `_changed`.
        now_ns = host.monotonic_ns()
        self._begun = False
        self._entries = {name: job.entry(now_ns) for name, job in self._jobs.items()}
        self._scope_entry = _entry(scope_keeper.refresh_s, now_ns, math.inf)
        self._soon_ns = _SOON_NS
        self._refreshed_ns = now_ns
        self._stopping = False
        self._failure: BaseException | None = None
        self._under_way: set[concurrent.futures.Future[object]] = set()
        # Room for every source, the scope, one that tends the sink and one that brings it what was missed.
        self._pool = concurrent.futures.ThreadPoolExecutor(len(self._jobs) + 3, thread_name_prefix="bathy-recorder")
        self._thread = threading.Thread(target=self._decide, name="bathy-recorder", daemon=True)

    @property
    def failure(self) -> BaseException | None:
        """What ended the recording, None while it goes on."""
        with self._changed:
            return self._failure

    @property
    def periods_s(self) -> dict[str, float]:
        """The planned period of each source that is recorded by the clock, in seconds."""
        with self._changed:
            return {name: entry.period_ns / 1e9 for name, entry in self._entries.items() if entry.due_ns is not None}

    # --- in the background

    def start(self) -> None:
        """Begin in the background; every source is asked at once for the first time."""
        with self._changed:
            self._begin()
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the recording has ended by itself; return whether it has within `timeout_s`. See `failure`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopping, timeout_s)

    def stop(self) -> None:
        """End: no new collection begins, those under way are waited for, within their time limits.

        Raises what ended the recording before: StoreError for a full disk. May be called again.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        with self._changed:
            under_way = set(self._under_way)
        limit_s = max((job.limit_s for job in self._jobs.values()), default=0.0) + _MARGIN_S
        concurrent.futures.wait(under_way, timeout=limit_s)
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._changed:
            failure = self._failure
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BathyscopeError) if error is not None else contextlib.nullcontext():
            self.stop()

    def collect_now(self, name: str) -> list[RawAnswer]:
        """Collect the source `name` once, now, in the caller's thread, and return its answers.

        A collection under way is waited for first. The sink takes it as any other. Raises KeyError for a source without
        a job, UnreachableError when the cluster does not answer, StoreError from the sink.
        """
        job = self._jobs[name]
        with self._changed:
            self._changed.wait_for(lambda: not self._entries[name].running)
            self._entries[name] = self._entries[name].begin_asked()
        collected = self._collect(job)
        if collected is None:
            return []
        if collected.error is not None:
            raise collected.error
        return list(collected.answers)

    # --- inline

    def run(self, duration_s: float) -> None:
        """Record for `duration_s` in the caller's thread, one source after the other: for a clock that is not real.

        May be called again to go on. Raises what ends the recording.
        """
        ends_ns = self._host.monotonic_ns() + round(duration_s * 1e9)
        self._begin()
        while True:
            now_ns = self._host.monotonic_ns()
            due_ns = min(self._next_ns(), ends_ns)
            if due_ns > now_ns:
                self._host.sleep((due_ns - now_ns) / 1e9)
            elif now_ns >= ends_ns:
                return
            else:
                names, missed, refresh = self._take_due(now_ns)
                self._hand_on(missed)
                if refresh:
                    self._refresh()
                for name in names:
                    self._collect(self._jobs[name])

    # --- deciding; the caller holds the lock, or is alone

    def _begin(self) -> None:
        """Put the first collections at this moment."""
        if self._begun:
            return
        self._begun = True
        now_ns = self._refreshed_ns = self._host.monotonic_ns()
        self._entries = {name: job.entry(now_ns) for name, job in self._jobs.items()}
        first_ns = now_ns + (self._scope_entry.period_ns if self._keeper.answers else 0)
        self._scope_entry = _entry(self._keeper.refresh_s, first_ns, math.inf)

    def _decide(self) -> None:
        """Begin what is due, and sleep until something is: the deciding thread."""
        try:
            self._decide_until_stopped()
        except BaseException as error:  # noqa: BLE001 - a recording must not end without a reason
            with self._changed:
                self._failure, self._stopping = self._failure or error, True
                self._changed.notify_all()

    def _decide_until_stopped(self) -> None:
        with self._changed:
            while not self._stopping:
                names, missed, refresh = self._take_due(self._host.monotonic_ns())
                if missed:
                    self._submit(self._hand_on, missed)
                if refresh:
                    self._submit(self._refresh)
                for name in names:
                    self._submit(self._collect, self._jobs[name])
                pause_ns = self._next_ns() - self._host.monotonic_ns()
                if pause_ns > 0:
                    self._changed.wait(min(pause_ns / 1e9, threading.TIMEOUT_MAX))

    def _next_ns(self) -> int:
        """Return when the next collection is due."""
        entries = (*self._entries.values(), self._scope_entry)
        return min((entry.due_ns for entry in entries if entry.due_ns is not None), default=_ENDLESS_NS)

    def _take_due(self, now_ns: int) -> tuple[list[str], list[Collection], bool]:
        """Return the sources to collect now, what was missed, and whether the scope is to be read; all are begun."""
        names, missed = [], []
        for name, entry in self._entries.items():
            if not entry.is_due(now_ns):
                continue
            if entry.running:
                if not entry.asked:
                    missed.append(self._missed(name, entry, STILL_RUNNING))
                self._entries[name] = entry.skip(now_ns)
            else:
                if entry.late(now_ns):
                    missed.append(self._missed(name, entry, LATE))
                self._entries[name] = entry.begin(now_ns)
                names.append(name)
        refresh = self._scope_entry.is_due(now_ns)
        if refresh:
            refresh = not self._scope_entry.running
            self._scope_entry = self._scope_entry.begin(now_ns) if refresh else self._scope_entry.skip(now_ns)
        return names, missed, refresh

    def _missed(self, name: str, entry: Entry, problem: str) -> Collection:
        """Return the row of a collection that did not take place; the present one when several in a row did not."""
        due_ns = entry.due_ns or 0
        at_ns = self._host.now_ns() - (self._host.monotonic_ns() - due_ns)
        return Collection(
            at_ns=at_ns, source=name, duration_ns=0, request_count=0, failure_count=0, answer_bytes=0, success=False,
            problem=problem,
        )  # fmt: skip

    def _submit(self, work: Callable[..., object], *arguments: object) -> None:
        """Have the pool do `work`; what it raises ends the recording."""
        future = self._pool.submit(work, *arguments)
        self._under_way.add(future)
        future.add_done_callback(self._done)

    def _done(self, future: concurrent.futures.Future[object]) -> None:
        with self._changed:
            self._under_way.discard(future)
            error = None if future.cancelled() else future.exception()
            if error is not None:
                self._failure = self._failure or error
                self._stopping = True
                self._changed.notify_all()

    # --- the work

    def _collect(self, job: Job) -> Collected | None:
        """Collect one source and hand it to the sink; None when there was nothing to ask."""
        collected = None
        try:
            requests = job.source.plan(self._keeper.scope)
            if requests:
                collected = measure(self._host, self._session, job.source.name, requests, job.limit_s)
                self._sink.take(job.source, Collected(self._cost(job, collected), collected.answers))
        finally:
            self._end(job, collected)
        if collected is not None:
            if _unknown(requests, collected.answers):
                self._refresh_soon()
            self._sink.tend()
        return collected

    def _cost(self, job: Job, collected: Collected) -> Collection:
        """Return the row of a collection; a good one says that its source is slowed down."""
        with self._changed:
            note = self._entries[job.source.name].note
        cost = collected.cost
        return dataclasses.replace(cost, problem=note) if cost.success and note is not None else cost

    def _end(self, job: Job, collected: Collected | None) -> None:
        """Make the source free for its next collection."""
        name = job.source.name
        with self._changed:
            entry, now_ns = self._entries[name], self._host.monotonic_ns()
            if collected is None:
                self._entries[name] = entry.drop(now_ns)
            else:
                self._entries[name] = entry.end(now_ns, collected.cost.duration_ns, failed=not collected.good)
            self._changed.notify_all()

    def _hand_on(self, missed: Sequence[Collection]) -> None:
        for cost in missed:
            self._sink.take(self._jobs[cost.source].source, Collected(cost))

    def _refresh(self) -> None:
        """Read the scope again; sooner than planned the next time while something is down or not known."""
        known = _who(self._keeper.scope)
        looks: list[Collected] = []
        try:
            looks = self._keeper.look()
        finally:
            with self._changed:
                now_ns = self._refreshed_ns = self._host.monotonic_ns()
                failed = any(collected.error is not None for collected in looks)
                self._scope_entry = self._scope_entry.end(now_ns, 0, failed=failed)
                self._soon_ns = _SOON_NS if _who(self._keeper.scope) != known else self._soon_ns * 2
                if self._keeper.incomplete:
                    self._scope_entry = self._scope_entry.hasten(now_ns + self._soon_ns)
                self._changed.notify_all()
        sources = {source.name: source for source in self._keeper.sources}
        for collected in looks:
            # What the map said is in the scope, which the sink keeps: its answers are not kept a second time.
            self._sink.take(sources[collected.cost.source], Collected(collected.cost))

    def _refresh_soon(self) -> None:
        """A daemon or process that the scope names was not there: read the scope at once, but not again and again."""
        with self._changed:
            due_ns = max(self._host.monotonic_ns(), self._refreshed_ns + self._soon_ns)
            self._scope_entry = self._scope_entry.hasten(due_ns)
            self._changed.notify_all()


def _unknown(requests: Sequence[Request], answers: Sequence[RawAnswer]) -> bool:
    """Whether a daemon did not answer, or a file of a process was not there."""
    for request, answer in zip(requests, answers, strict=False):
        if isinstance(request, CephRequest) and request.daemon.startswith("osd.") and answer.exit_code != 0:
            return True
        if isinstance(request, ReadRequest) and len(answer.files) < len(request.paths):
            return True
    return False


def _who(scope: Scope) -> object:
    """Return which daemons there are."""
    return {osd.osd: osd.up for osd in scope.osds}, scope.target.daemons
