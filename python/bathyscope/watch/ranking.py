"""Which images are asked for who has them open: the busiest, where the counts of images do not name their clients."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from bathyscope.errors import ParseError
from bathyscope.recording.collect import Collected
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.sinks import Sink
from bathyscope.records import ImageIo, RawAnswer
from bathyscope.sources import image_counters
from bathyscope.sources.shape import Source

IMAGES_MAX = 32
"""Images that are asked for at once; asking opens each of them."""
_FOREMOST = 8
_CHANGED_NS = 60_000_000_000

_Image = tuple[str, str, str]


class BusiestSink:
    """Hands everything on to another sink, and has the busiest images of the last interval watched.

    Others than before are another scope, and so another segment of a recording. So they change once a minute at most,
    and, when there is no room for more, only for one of the foremost.
    """

    def __init__(self, sink: Sink, keeper: ScopeKeeper) -> None:
        self._sink = sink
        self._keeper = keeper
        # Below: only used by the one thread that has just asked for the counts of images.
        self._before: Sequence[RawAnswer] = ()
        self._changed_ns: int | None = None

    def take(self, source: Source, collected: Collected) -> None:
        """Take one collection."""
        self._sink.take(source, collected)
        if source.name == image_counters.SOURCE.name and collected.answers:
            with contextlib.suppress(ParseError):
                self._choose(collected)
            self._before = collected.answers

    def tend(self) -> None:
        """Do what takes time."""
        self._sink.tend()

    def _choose(self, collected: Collected) -> None:
        """Have the busiest images of an interval watched. Raises ParseError."""
        at_ns, scope = collected.cost.at_ns, self._keeper.scope
        if self._changed_ns is not None and at_ns - self._changed_ns < _CHANGED_NS:
            return
        rows = image_counters.SOURCE.parse([*self._before, *collected.answers], scope)[ImageIo].to_pylist()
        rows.sort(key=lambda row: -(row["read_count"] + row["write_count"]))
        busiest: list[_Image] = [(row["pool"], row["namespace"], row["image"]) for row in rows[:IMAGES_MAX]]
        watched = scope.watched_images
        wanted = busiest[:_FOREMOST] if len(watched) == IMAGES_MAX else busiest
        if not set(wanted) <= set(watched):
            chosen = list(dict.fromkeys([*busiest, *watched]))[:IMAGES_MAX]
            self._keeper.narrow(watched_images=tuple(sorted(chosen)))
            self._changed_ns = at_ns
