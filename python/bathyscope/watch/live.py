"""The last seconds of a watch as tables: what a live view asks, without a run on disk."""

from __future__ import annotations

import collections
import threading
from collections.abc import Mapping, Sequence

import pyarrow as pa

from bathyscope.errors import BathyscopeError
from bathyscope.recording.collect import Collected
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import Collection, RawAnswer, Record, to_table
from bathyscope.sources.facts import latest
from bathyscope.sources.shape import Source
from bathyscope.units import format_seconds

NOTE_SHOWN_NS = 30_000_000_000
"""How long a live view shows what is said once: that a source answers again, or what was said at the start."""
SECTIONS = ("osd", "bluestore", "filestore")
"""The sections of perf counters that views read. A thousand OSDs have millions of others each minute."""


class LiveSink:
    """Parses every collection when it comes, and keeps the rows of the last `kept_s` seconds. Thread-safe.

    Rows without a time (the cluster's map) are kept as the latest collection has them.
    """

    def __init__(self, keeper: ScopeKeeper, kept_s: float) -> None:
        self._keeper = keeper
        self._kept_ns = round(kept_s * 1e9)
        self._lock = threading.Lock()
        self._waiting: collections.deque[tuple[Source, Collected]] = collections.deque()
        self._parsing = threading.Lock()
        # Below: guarded by `_parsing`.
        self._last: dict[str, dict[str, RawAnswer]] = {}
        self._rows: dict[tuple[str, type[Record]], list[pa.Table]] = {}
        self._costs: list[Collection] = []
        # Source → when it began to fail; source → what is said of its recovery, and when it was.
        self._failing_ns: dict[str, int] = {}
        self._recovered: dict[str, tuple[int, str]] = {}

    def take(self, source: Source, collected: Collected) -> None:
        """Keep one collection until it is parsed."""
        with self._lock:
            self._waiting.append((source, collected))

    def tend(self) -> None:
        """Parse what waits."""
        with self._parsing:
            while True:
                with self._lock:
                    if not self._waiting:
                        break
                    source, collected = self._waiting.popleft()
                self._parse(source, collected)

    def _parse(self, source: Source, collected: Collected) -> None:
        cost = collected.cost
        ends_ns = cost.at_ns + cost.duration_ns
        before = list(self._last.get(source.name, {}).values()) if source.differences else []
        try:
            scope = self._keeper.scope.model_copy(update={"counter_sections": SECTIONS})
            tables = source.parse([*before, *collected.answers], scope) if collected.answers else {}
        except BathyscopeError as error:
            cost = collected.failed(error).cost
            tables = {}
        self._note(cost, ends_ns)
        # The last one of each source stays: some are asked every few minutes only.
        last = {each.source: each for each in self._costs} | {cost.source: cost}
        kept_ns = ends_ns - self._kept_ns
        self._costs = [each for each in self._costs if each.at_ns >= kept_ns or last[each.source] is each] + [cost]
        for record, table in tables.items():
            key = source.name, record
            kept = [table] if record.TIME is None else [*self._rows.get(key, []), table]
            self._rows[key] = [recent for each in kept if (recent := self._recent(record, each, ends_ns)).num_rows]
        if source.differences:
            self._last[source.name] = self._last.get(source.name, {}) | latest(collected.answers)

    def _note(self, cost: Collection, ends_ns: int) -> None:
        """Remember since when a source fails, and that it answers again."""
        if not cost.success:
            self._failing_ns.setdefault(cost.source, cost.at_ns)
            self._recovered.pop(cost.source, None)
        elif (since_ns := self._failing_ns.pop(cost.source, None)) is not None:
            words = f"answers again after {format_seconds((ends_ns - since_ns) / 1e9)}"
            self._recovered[cost.source] = ends_ns, words
        self._recovered = {name: said for name, said in self._recovered.items() if said[0] >= ends_ns - NOTE_SHOWN_NS}

    def _recent(self, record: type[Record], table: pa.Table, now_ns: int) -> pa.Table:
        if record.TIME is None or not table.num_rows:
            return table
        at_ns = table[record.TIME].to_numpy()
        return table.filter(pa.array(at_ns >= now_ns - self._kept_ns))

    def tables(self) -> Mapping[str, pa.Table]:
        """Return the rows that are kept, by the tables' names."""
        with self._parsing:
            parts_by_record: dict[type[Record], list[pa.Table]] = {}
            for (_, record), kept in self._rows.items():
                parts_by_record.setdefault(record, []).extend(kept)
            tables = {record.TABLE: pa.concat_tables(parts) for record, parts in parts_by_record.items() if parts}
            return {**tables, Collection.TABLE: to_table(Collection, self._costs)}

    def problems(self) -> Sequence[str]:
        """Return what the latest collection of each source says is wrong, in words: one line for one problem."""
        with self._parsing:
            last = {cost.source: cost for cost in self._costs}
        return _joined({name: cost.problem for name, cost in last.items() if cost.problem and not cost.success})

    def notes(self) -> Sequence[str]:
        """Return which sources answer again since a short time, and which are asked less often, in words."""
        with self._parsing:
            last = {cost.source: cost for cost in self._costs}
            slowed = {name: cost.problem for name, cost in last.items() if cost.problem and cost.success}
            return _joined({**slowed, **{name: words for name, (_, words) in self._recovered.items()}})


def _joined(said: Mapping[str, str]) -> list[str]:
    """Return "a, b: WORDS" for all sources of which the same is said."""
    sources: dict[str, list[str]] = {}
    for name, words in sorted(said.items()):
        sources.setdefault(words, []).append(name)
    return [f"{', '.join(names)}: {words}" for words, names in sources.items()]
