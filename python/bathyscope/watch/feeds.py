"""What a live screen is fed with: a cluster as it is now, or a recording as it was at some moment."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from bathyscope.analysis.see import VIEWS
from bathyscope.analysis.see.shape import Question
from bathyscope.host import Host
from bathyscope.recording.recorder import Recorder
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.spec import Target
from bathyscope.spec.collect import CollectSpec
from bathyscope.store import RunDirectory, duck
from bathyscope.watch.asking import question_of, view_of
from bathyscope.watch.jobs import allowed_jobs
from bathyscope.watch.live import LiveSink
from bathyscope.watch.opening import keep_start, opened

# A view shows the mean over this many intervals: reports come in stairs of five seconds.
_INTERVALS = 3
_SHOWN_LEAST_S = 15.0
# Rows are kept some longer than they are shown: sources are asked at times of their own.
_MARGIN_S = 30.0


def _shown_s(spec: CollectSpec) -> float:
    return max(_SHOWN_LEAST_S, _INTERVALS * spec.interval_s)


class LiveFeed:
    """A cluster as it is now: views over the last seconds."""

    def __init__(self, host: Host, sink: LiveSink, recorder: Recorder, name: str, spec: CollectSpec) -> None:
        self._host, self._sink, self._recorder, self._name = host, sink, recorder, name
        self.shown_s = _shown_s(spec)
        self.period_s = spec.interval_s

    def view(self, name: str) -> ActivityFinding:
        """Return a view of the last seconds. Raises what ended the recording, AnalysisError."""
        if (failure := self._recorder.failure) is not None:
            raise failure
        now_ns = self._host.now_ns()
        question = Question("", self._name, now_ns - round(self.shown_s * 1e9), now_ns)
        view = VIEWS[name]
        return view.build(duck.query_tables(self._sink.tables(), view.queries(question)), question)

    def problems(self) -> Sequence[str]:
        """Return what is wrong with the sources now, in words."""
        return self._sink.problems()

    def move(self, steps: int) -> None:
        """Only a recording can be moved in."""


@contextlib.contextmanager
def live(
    host: Host, spec: CollectSpec, target: Target, *, target_now: Callable[[], Target], note: Callable[[str], None]
) -> Iterator[LiveFeed]:
    """Watch a cluster as long as the context lasts; nothing is changed, nothing is stored. Raises BathyscopeError."""
    with opened(host, target, target_now) as (session, keeper):
        sink = LiveSink(keeper, _shown_s(spec) + _MARGIN_S)
        keep_start(sink, keeper)
        sink.tend()
        with Recorder(host, session, keeper, allowed_jobs(session, spec, keeper.scope, note), sink) as recorder:
            yield LiveFeed(host, sink, recorder, target.name, spec)


class ReplayFeed:
    """A recording at a moment that moves: the views that were live then."""

    def __init__(self, run: RunDirectory, *, shown_s: float = _SHOWN_LEAST_S) -> None:
        self._run = run
        whole = question_of(run)
        self._whole, self._first_ns, self._last_ns = whole, whole.start_ns, whole.end_ns
        self.shown_s = shown_s
        self.period_s = 1.0
        self._at_ns = min(self._last_ns, self._first_ns + round(shown_s * 1e9))

    def view(self, name: str) -> ActivityFinding:
        """Return a view of the seconds before the moment. Raises StoreError, AnalysisError."""
        start_ns = self._at_ns - round(self.shown_s * 1e9)
        return view_of(self._run, name, dataclasses.replace(self._whole, start_ns=start_ns, end_ns=self._at_ns))

    def problems(self) -> Sequence[str]:
        """Return nothing: what was wrong then is in `bathy runs show`."""
        return ()

    def move(self, steps: int) -> None:
        """Go on by `steps` of half the time that is shown, or back."""
        moved_ns = self._at_ns + round(steps * self.shown_s / 2 * 1e9)
        self._at_ns = max(self._first_ns, min(self._last_ns, moved_ns))
