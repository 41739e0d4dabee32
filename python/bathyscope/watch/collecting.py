"""Records a cluster into a run: what `bathy collect` does, from the first look to the end of the run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from bathyscope import __version__, interruption
from bathyscope.errors import ClusterError
from bathyscope.host import CephSession, Host
from bathyscope.recording.recorder import Recorder
from bathyscope.recording.sinks import SegmentSink
from bathyscope.spec import Target
from bathyscope.spec.collect import CollectSpec
from bathyscope.store import RunDirectory, Workspace
from bathyscope.store.roll_up import roll_up
from bathyscope.watch.bursts import Bursts
from bathyscope.watch.clock import Clock, Tick
from bathyscope.watch.drill_down import zoom
from bathyscope.watch.jobs import allowed_jobs
from bathyscope.watch.opening import keep_start, opened
from bathyscope.watch.ranking import BusiestSink

_SHORT_S = 3600.0
_LONG_SEGMENT_S = 60.0


def collect(
    host: Host,
    workspace: Workspace,
    spec: CollectSpec,
    target: Target,
    *,
    target_now: Callable[[], Target],
    tidy: Callable[[CephSession], None],
    note: Callable[[str], None],
    tick: Tick,
) -> RunDirectory:
    """Record `spec` and return the run, closed. An interruption ends the recording as its time does, within seconds.

    `target_now` finds a lab's daemons again after a restart; `tidy` restores what dead runs left on the cluster.
    Nothing of the cluster is changed but, at the depth `deep`, the length of op histories. Raises BathyscopeError; what
    was recorded until then is in the run.
    """
    with opened(host, target, target_now) as (session, keeper):
        tidy(session)
        if spec.images:
            keeper.narrow(**zoom(host, session, keeper.scope, spec.images))
        asked = allowed_jobs(session, spec, keeper.scope, note)
        run = workspace.create_run(
            kind="collect",
            name=spec.depth,
            spec_text=spec.model_dump_json(indent=1),
            started_ns=host.now_ns(),
            target=target.model_dump(mode="json"),
            versions={"bathy": __version__, **({"fsid": keeper.scope.fsid} if keeper.scope.fsid else {})},
        )
        # What is recorded is closed in order, whenever a signal comes.
        with interruption.held(), run:
            # A kill costs one segment at most; days of short ones would be a hundred thousand files.
            is_short = spec.duration_s is not None and spec.duration_s <= _SHORT_S
            segment_s = 2 * spec.interval_s if is_short else _LONG_SEGMENT_S
            sink = SegmentSink(run, keeper, segment_s=segment_s, tidy=lambda now_ns: roll_up(run, now_ns))
            recorder = Recorder(host, session, keeper, asked, BusiestSink(sink, keeper))
            keep_start(sink, keeper)
            run.update(context={"periods_s": recorder.periods_s})
            with contextlib.ExitStack() as stack:
                stack.callback(host.leave_nodes)
                bursts: Bursts | None = None
                if spec.depth == "deep":
                    bursts = Bursts(host, session, keeper, run, sink, is_long=not is_short, note=note)
                    stack.callback(bursts.close)
                stack.enter_context(sink)
                stack.enter_context(recorder)
                with contextlib.suppress(KeyboardInterrupt):
                    clock = Clock(host, recorder, spec.duration_s, tick)
                    if bursts is not None:
                        bursts.record(clock)
                    clock.wait()
                # Images that were made or renamed meanwhile have their names in every view.
                if "images" in recorder.periods_s:
                    with contextlib.suppress(ClusterError):
                        recorder.collect_now("images")
            run.update(status="done", ended_ns=host.now_ns())
            run.compact()
    return workspace.open_run(str(run.path))
