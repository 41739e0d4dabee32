"""Where a recording goes: into memory (a step of a benchmark, a live view), or into segments of a run."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import threading
from collections.abc import Callable, Mapping
from typing import Protocol, Self

from bathyscope.recording.collect import Collected
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.segment import RECORDING, pack, parse_segment
from bathyscope.records import Collection, RawAnswer
from bathyscope.sources.facts import latest
from bathyscope.sources.shape import Source
from bathyscope.spec.scope import Scope
from bathyscope.store import RunDirectory

LIMIT_BYTES = 64 << 20
# The latest collections of a source, which are never thinned.
_FRESH = 16
# How long the last answer of a daemon that has gone is carried on while others of its source answer.
_CARRIED_NS = 3_600_000_000_000


class Sink(Protocol):
    """Takes what a Recorder collects. Called from several threads."""

    def take(self, source: Source, collected: Collected) -> None:
        """Take one collection. Quick: whatever takes time belongs to `tend`."""
        ...

    def tend(self) -> None:
        """Do what takes time; called after each `take`, by a thread that no source waits for.

        Raises StoreError; then the recording ends.
        """
        ...


class MemorySink:
    """Keeps the latest `limit` collections of each source. Thread-safe.

    `thinned` names sources with the bytes that their answers may take: beyond them every second collection goes, so
    that those of hours still lie evenly over the whole time.
    """

    def __init__(self, limit: int = 10_000, *, thinned: Mapping[str, int] | None = None) -> None:
        self._lock = threading.Lock()
        self._thinned = dict(thinned or {})
        # With the number of each collection among those of its source.
        self._collected: dict[str, collections.deque[tuple[int, Collected]]] = collections.defaultdict(
            lambda: collections.deque(maxlen=limit)
        )

    def take(self, source: Source, collected: Collected) -> None:
        """Keep one collection; the oldest of its source goes when there are too many."""
        with self._lock:
            kept = self._collected[source.name]
            kept.append((kept[-1][0] + 1 if kept else 1, collected))
            limit_bytes = self._thinned.get(source.name)
            if limit_bytes is not None and sum(collected.cost.answer_bytes for _, collected in kept) > limit_bytes:
                # The first stays, and the last ones, which may not have been looked at.
                fewer = [*list(kept)[:-_FRESH:2], *list(kept)[-_FRESH:]]
                kept.clear()
                kept.extend(fewer)

    def tend(self) -> None:
        """Nothing takes time here."""

    def collected(self, name: str) -> list[Collected]:
        """Return the collections of one source that gave an answer, in order of time."""
        with self._lock:
            return [collected for _, collected in self._collected.get(name, ()) if collected.answers]

    def answers(self, name: str) -> list[RawAnswer]:
        """Return all answers of one source in order of time."""
        return [answer for collected in self.collected(name) for answer in collected.answers]

    def after(self, name: str, number: int = 0) -> list[tuple[int, Collected]]:
        """Return the collections of one source that took place, with or without an answer, each with its number.

        Only those that came after the one with `number`.
        """
        with self._lock:
            kept = self._collected.get(name, ())
            return [entry for entry in kept if entry[0] > number and entry[1].cost.request_count]

    @property
    def costs(self) -> list[Collection]:
        """What every collection that is kept has cost, in order of time."""
        with self._lock:
            costs = [collected.cost for entries in self._collected.values() for _, collected in entries]
        return sorted(costs, key=lambda cost: (cost.at_ns, cost.source))


@dataclasses.dataclass
class _Batch:
    """What one segment is made of. It has one scope."""

    scope: Scope
    begins_ns: int
    collected: list[Collected] = dataclasses.field(default_factory=list)
    size_bytes: int = 0


class SegmentSink:
    """Parses and writes what is collected as segments of a run, one for each `segment_s` of time. Thread-safe.

    A segment ends early when its answers reach `limit_bytes`, and when the scope changes: it is parsed with one scope.
    The last answers of a source of differences are the first of its next segment, so that no interval is lost between
    them and each segment can be parsed alone. Close it (or leave the `with` block) after the Recorder has stopped.

    `tidy` (the roll-up, with the time in ns since the Unix epoch) is called after a segment, about every `tidy_s`, by
    the thread that writes: the run has one writer.
    """

    def __init__(
        self,
        run: RunDirectory,
        scope_keeper: ScopeKeeper,
        segment_s: float = 60.0,
        limit_bytes: int = LIMIT_BYTES,
        *,
        tidy: Callable[[int], object] | None = None,
        tidy_s: float = 600.0,
    ) -> None:
        self._run = run
        self._keeper = scope_keeper
        self._tidy = tidy
        self._tidy_ns = round(tidy_s * 1e9)
        self._segment_ns = round(segment_s * 1e9)
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._open: _Batch | None = None
        self._full: collections.deque[_Batch] = collections.deque()
        self._writing = threading.Lock()
        # Below: guarded by the lock `_writing`.
        self._sources: dict[str, Source] = {}
        self._carried: dict[str, dict[str, RawAnswer]] = {}
        self._last_name_ms = 0
        self._tidied_ns: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, source: Source, collected: Collected) -> None:
        """Keep one collection until its segment is written."""
        scope, cost = self._keeper.scope, collected.cost
        # By its end: a collection that took long comes after those that began later. What ends with a segment's span
        # belongs to it, as a row belongs to the interval that it ends.
        ended_ns = cost.at_ns + cost.duration_ns
        with self._lock:
            self._sources[source.name] = source
            batch = self._open
            if batch is not None and (
                (ended_ns - 1) // self._segment_ns > (batch.begins_ns - 1) // self._segment_ns
                or batch.size_bytes + cost.answer_bytes > self._limit_bytes
                or batch.scope is not scope
            ):
                self._full.append(batch)
                batch = None
            if batch is None:
                batch = self._open = _Batch(scope, ended_ns)
            batch.collected.append(collected)
            batch.size_bytes += cost.answer_bytes

    def tend(self) -> None:
        """Write the segments that are full. Raises StoreError; the segment is then tried once more by `close`."""
        with self._lock:
            behind = len(self._full) > 1
        # One thread writes. When it cannot keep up the others wait for it, and what they do not collect is missed.
        if self._writing.acquire(blocking=behind):
            try:
                self._write()
            finally:
                self._writing.release()

    def close(self) -> None:
        """Write what is left. Raises StoreError; the segments that were written before stay."""
        with self._lock:
            if self._open is not None:
                self._full.append(self._open)
            self._open = None
        with self._writing:
            self._write()

    def _write(self) -> None:
        while True:
            with self._lock:
                if not self._full:
                    return
                batch = self._full[0]
                sources = dict(self._sources)
            ended_ns = self._write_segment(batch, sources)
            with self._lock:
                self._full.popleft()
            if self._tidied_ns is None:
                self._tidied_ns = ended_ns
            if self._tidy is not None and ended_ns - self._tidied_ns >= self._tidy_ns:
                self._tidied_ns = ended_ns
                self._tidy(ended_ns)

    def _write_segment(self, batch: _Batch, sources: Mapping[str, Source]) -> int:
        """Write one segment and return its end. Parsing sees what `reparse` will see, and nothing else."""
        carried = {
            name: sorted(carried_answers.values(), key=lambda a: a.started_ns)
            for name, carried_answers in self._carried.items()
        }
        raw = pack(batch.scope, batch.collected, carried)
        tables = parse_segment(raw, sources)
        name_ms = max(batch.begins_ns // 1_000_000, self._last_name_ms + 1)
        about = raw[RECORDING][0]
        with self._run.begin_segment(segment_name(name_ms)) as writer:
            for name, answers in raw.items():
                writer.raw(name, answers)
            for record, table in tables.items():
                writer.table(record, table)
            writer.commit()
        self._last_name_ms = name_ms
        for name, source in sources.items():
            fresh = latest(
                a for collected in batch.collected if collected.cost.source == name for a in collected.answers
            )
            if source.differences and fresh:
                since_ns = max(answer.ended_ns for answer in fresh.values()) - _CARRIED_NS
                old = self._carried.get(name, {})
                self._carried[name] = {k: a for k, a in old.items() if a.ended_ns >= since_ns} | fresh
        return about.ended_ns


def segment_name(at_ms: int) -> str:
    """Return the name of the segment that begins at `at_ms` since the Unix epoch: 20260823T141500.000Z."""
    at = datetime.datetime.fromtimestamp(at_ms // 1000, tz=datetime.UTC)
    return f"{at:%Y%m%dT%H%M%S}.{at_ms % 1000:03d}Z"
