"""What a live screen is fed with: a cluster as it is now, or a recording as it was at some moment."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from bathyscope import interruption
from bathyscope.analysis import image_names
from bathyscope.analysis.activity import VIEWS, image_objects, last_ops, op_rows, slow
from bathyscope.analysis.activity.shape import TREND_PARTS, Question
from bathyscope.analysis.columns import table_of, where
from bathyscope.errors import AnalysisError
from bathyscope.host import CephSession, Host
from bathyscope.recording.collect import measure
from bathyscope.recording.recorder import Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import Collection, Image, Op
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.finding import Verdict
from bathyscope.sources import images, mgr_counters, op_history, perf_counters
from bathyscope.spec import Target
from bathyscope.spec.collect import CollectSpec
from bathyscope.store import RunDirectory, duck
from bathyscope.watch import drill_down
from bathyscope.watch.jobs import allowed_jobs
from bathyscope.watch.live import NOTE_SHOWN_NS, LiveSink
from bathyscope.watch.opening import keep_start, opened
from bathyscope.watch.ranking import BusiestSink
from bathyscope.window.recording import images_of, load_of, question_of, view_of

# A view shows the mean over this many intervals: reports come in stairs of five seconds.
_INTERVALS = 3
_REPORT_S = 5.0
_SHOWN_LEAST_S = 15.0
# Rows are kept some longer than they are shown: sources are asked at times of their own.
_MARGIN_S = 30.0
# What OSDs keep by default (`osd_op_history_duration`). They are asked for it only while one of these views is shown.
_HISTORY_S = 600.0
# They change slowly, and answers are large while a run has enlarged them.
_HISTORY_EVERY_S = 5.0
_OF_HISTORIES = (last_ops.VIEW.name, slow.VIEW.name)

NO_MODULE = (
    "Single objects are not counted: the manager module bathyscope, which counts them, is not enabled "
    "(`bathy mgr install`)."
)
UNSAFE_MODULE = (
    "Single objects are not counted: the manager module bathyscope that is enabled is not asked, because a client "
    "could end the manager through version {version} (`bathy mgr install` replaces it)."
)
NOT_YET = (
    "The manager's module counts the objects of this image as long as you look at it. The first counts come some 15 s "
    "after its next I/O."
)
NOT_LISTED = (
    "Objects are counted as soon as the id of the image is known. Images are listed at the start and every 5 minutes, "
    "which needs the cap osd 'profile rbd-read-only'."
)
NO_HISTORIES = (
    "Single operations are not known: OSDs are not asked with --depth light, or with a key without the cap for it "
    "(`bathy caps collect --tell`)."
)
HISTORIES = (
    "Operations are what the histories of the OSDs hold: by Ceph's default the 20 slowest of 10 minutes, more while a "
    "run has enlarged them. `bathy collect --depth deep` records all of some seconds."
)
SOME_OSDS = "{asked} of {all} OSDs were asked."


def _shown_s(spec: CollectSpec) -> float:
    return max(_SHOWN_LEAST_S, _INTERVALS * spec.interval_s)


def _trend_s(spec: CollectSpec) -> float:
    return TREND_PARTS * max(_REPORT_S, spec.interval_s)


def kept_s(spec: CollectSpec) -> float:
    """Return how long a live feed needs rows: some longer than it shows them."""
    return max(_shown_s(spec), _trend_s(spec)) + _MARGIN_S


class LiveFeed:
    """A cluster as it is now: views over the last seconds, and over the operations that OSDs keep.

    `session` is for the commands to OSDs, None where they may not be asked; `said` is what was said at the start.
    """

    def __init__(
        self,
        host: Host,
        sink: LiveSink,
        keeper: ScopeKeeper,
        recorder: Recorder,
        spec: CollectSpec,
        *,
        session: CephSession | None,
        said: Sequence[str] = (),
    ) -> None:
        self._session = session
        # When the OSDs were asked for their histories last, the operations, and what these are not.
        self._asked: tuple[int, Mapping[str, pa.Table], list[str]] | None = None
        self._host, self._sink, self._keeper, self._recorder = host, sink, keeper, recorder
        # What was said at the start would be covered by a screen.
        self._said, self._said_until_ns = said, host.now_ns() + NOTE_SHOWN_NS
        self._name = keeper.scope.target.name
        self._trend_ns = round(_trend_s(spec) * 1e9)
        self.shown_s = _shown_s(spec)
        self.period_s = spec.interval_s
        self._zoomed: str | None = None

    def view(self, name: str, only: Mapping[str, Any]) -> ActivityFinding:
        """Return a view of the last seconds, narrowed to `only`: fields of its question.

        Raises what ended the recording, UsageError, AnalysisError.
        """
        if (failure := self._recorder.failure) is not None:
            raise failure
        tables, shown_s = self._sink.tables(), self.shown_s
        remarks: list[str] = []
        if name in _OF_HISTORIES:
            histories, remarks = self._histories()
            tables, shown_s = {**tables, **histories}, _HISTORY_S
        now_ns = self._host.now_ns()
        begins_ns = now_ns - round(shown_s * 1e9)
        question = Question("", self._name, begins_ns, now_ns, history_start_ns=now_ns - self._trend_ns, **only)
        view = VIEWS[name]
        finding = view.build(duck.query_tables(tables, view.queries(question)), question)
        unseen = [self._why_nothing() if remark == image_objects.NOTHING else remark for remark in finding.unseen]
        unseen = remarks + [remark for remark in unseen if remark != op_rows.NOTHING]
        return dataclasses.replace(finding, unseen=tuple(unseen))

    def verdict(self) -> Verdict | None:
        """Return what limits the clients in these seconds; None where nobody counts what they do."""
        # As in `window.recording`.
        from bathyscope.analysis import recorded_load  # noqa: PLC0415

        now_ns = self._host.now_ns()
        question = Question("", self._name, now_ns - round(self.shown_s * 1e9), now_ns)
        with contextlib.suppress(AnalysisError):
            answers = duck.query_tables(self._sink.tables(), recorded_load.queries(question))
            return recorded_load.build(answers, question).verdict
        return None

    def _histories(self) -> tuple[Mapping[str, pa.Table], list[str]]:
        """Return the operations that OSDs keep now, and what they are not.

        They are asked here and not by the recorder: nobody else needs the answer, and as each has what the one
        before had, no older one is kept. Raises UnreachableError, ParseError.
        """
        if self._session is None:
            return {}, [NO_HISTORIES]
        now_ns = self._host.monotonic_ns()
        if self._asked is not None and now_ns - self._asked[0] < _HISTORY_EVERY_S * 1e9:
            return self._asked[1:]
        scope, source = self._keeper.scope, op_history.SOURCE
        requests = source.plan(scope)
        collected = measure(self._host, self._session, source.name, requests, source.timeout_s)
        if collected.error is not None:
            raise collected.error
        remarks = [HISTORIES]
        if len(requests) < len(scope.osds):
            remarks.append(SOME_OSDS.format(asked=len(requests), all=len(scope.osds)))
        if collected.cost.problem is not None:
            remarks.append(collected.cost.problem)
        self._asked = now_ns, {Op.TABLE: source.parse(collected.answers, scope)[Op]}, remarks
        return self._asked[1:]

    def problems(self) -> Sequence[str]:
        """Return what is wrong with the sources now, in words."""
        return self._sink.problems()

    def notes(self) -> Sequence[str]:
        """Return which sources answer again, and which are asked less often, in words; first what was said before."""
        said = self._said if self._host.now_ns() < self._said_until_ns else ()
        return [*said, *self._sink.notes()]

    def zoom(self, image: str | None) -> None:
        """Have the objects of an image counted from now on, those of no image for None.

        The manager's module does so for a minute after it was last asked to.
        """
        if image == self._zoomed:
            return
        rows = []
        if image is not None and mgr_counters.may_count(self._keeper.scope):
            listed = self._sink.tables().get(Image.TABLE)
            rows = [] if listed is None else [row for row in listed.to_pylist() if image in image_names.names([row])]
        # One that is not listed yet is looked for again.
        self._zoomed = image if rows else None
        self._keeper.narrow(**(drill_down.fields(rows[-1:]) if rows else {"zoomed_images": ()}))

    def images(self) -> list[str]:
        """Return the names of all images; none while it is not known which there are."""
        tables = self._sink.tables()
        listings = where(tables[Collection.TABLE], source=images.SOURCE.name).to_pylist()
        if not listings or not max(listings, key=lambda row: row["at_ns"])["success"]:
            return []
        return image_names.names(table_of(tables, Image.TABLE).to_pylist())

    def _why_nothing(self) -> str:
        scope = self._keeper.scope
        if mgr_counters.MODULE not in scope.mgr_modules:
            return NO_MODULE
        if not mgr_counters.may_count(scope):
            return UNSAFE_MODULE.format(version=scope.mgr_module_version)
        return NOT_YET if scope.zoomed_images else NOT_LISTED

    def move(self, steps: int) -> None:
        """Only a recording can be moved in."""


@contextlib.contextmanager
def live(
    host: Host, spec: CollectSpec, target: Target, *, target_now: Callable[[], Target], note: Callable[[str], None]
) -> Iterator[LiveFeed]:
    """Watch a cluster as long as the context lasts; nothing is changed, nothing is stored. Raises BathyscopeError.

    Signals are held off meanwhile.
    """
    with opened(host, target, target_now) as (session, keeper):
        sink = LiveSink(keeper, kept_s(spec))
        keep_start(sink, keeper)
        sink.tend()
        said: list[str] = []
        asked = allowed_jobs(session, spec, keeper.scope, said.append)
        for words in said:
            note(words)
        with (
            interruption.held(),
            Recorder(host, session, keeper, asked, BusiestSink(sink, keeper)) as recorder,
        ):
            # Who may be asked for counters may be asked for operations.
            asks_osds = any(job.source.name == perf_counters.SOURCE.name for job in asked)
            yield LiveFeed(host, sink, keeper, recorder, spec, session=session if asks_osds else None, said=said)


class ReplayFeed:
    """A recording at a moment that moves: the views that were live then."""

    def __init__(self, run: RunDirectory, *, shown_s: float = _SHOWN_LEAST_S) -> None:
        self._run = run
        whole = question_of(run)
        self._whole, self._first_ns, self._last_ns = whole, whole.start_ns, whole.end_ns
        self.shown_s = shown_s
        self.period_s = 1.0
        self._at_ns = min(self._last_ns, self._first_ns + round(shown_s * 1e9))

    def view(self, name: str, only: Mapping[str, Any]) -> ActivityFinding:
        """Return a view of the seconds before the moment, narrowed to `only`. Raises StoreError, AnalysisError."""
        begins_ns = self._at_ns - round(self.shown_s * 1e9)
        trend_ns = self._at_ns - round(TREND_PARTS * _REPORT_S * 1e9)
        shown = dataclasses.replace(self._whole, start_ns=begins_ns, end_ns=self._at_ns, history_start_ns=trend_ns)
        return view_of(self._run, name, dataclasses.replace(shown, **only))

    def verdict(self) -> Verdict | None:
        """Return what limited the clients in these seconds; None where nobody counted what they did."""
        begins_ns = self._at_ns - round(self.shown_s * 1e9)
        with contextlib.suppress(AnalysisError):
            question = dataclasses.replace(self._whole, start_ns=begins_ns, end_ns=self._at_ns)
            return load_of(self._run, question).verdict
        return None

    def images(self) -> list[str]:
        """Return the names of the images that the recording knows. Raises StoreError."""
        return images_of(self._run)

    def problems(self) -> Sequence[str]:
        """Return nothing: what was wrong then is in `bathy runs show`."""
        return ()

    def notes(self) -> Sequence[str]:
        """Return nothing, as `problems`."""
        return ()

    def zoom(self, image: str | None) -> None:
        """A recording has the objects of the images that it was told."""

    def move(self, steps: int) -> None:
        """Go on by `steps` of half the time that is shown, or back."""
        moved_ns = self._at_ns + round(steps * self.shown_s / 2 * 1e9)
        self._at_ns = max(self._first_ns, min(self._last_ns, moved_ns))
