"""A recording on a real Ceph while an OSD is killed and started again. BATHY_LONG=1 makes a minute ten."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from tests.cluster.daemons import kill, start

from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost
from bathyscope.recording.connection import LastingSession
from bathyscope.recording.recorder import Job, Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.segment import parse_segment
from bathyscope.recording.sinks import SegmentSink
from bathyscope.records import ClusterStatus, Collection, DeviceSample, PerfCounter, ProcessSample
from bathyscope.run_kinds import KINDS
from bathyscope.sources import SOURCES
from bathyscope.store import RunDirectory, Workspace

LONG = os.environ.get("BATHY_LONG") == "1"
DURATION_S = 600 if LONG else 60
AWAY_S = 10
S = 1_000_000_000

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(DURATION_S + 240)]


def stood_at(run: RunDirectory, daemon: str, section: str, name: str) -> dict[int, int]:
    """Return time → what a counter of a daemon stood at, of every good answer in the raw answers, in order."""
    values: dict[int, int] = {}
    for segment in run.segments().values():
        for answer in segment.raw("perf_counters"):
            if answer.exit_code == 0 and answer.label.endswith(f"-{daemon}"):
                values[answer.ended_ns] = int(json.loads(answer.stdout)[section][name])
    return dict(sorted(values.items()))


def test_an_osd_restarts_during_a_recording(borrowed_lab: Any, tmp_path: Path, tools: Any) -> None:
    host = LocalHost()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(borrowed_lab("ssd=3"))
        session = LastingSession(lambda: connect(host, cluster.target))
        stack.callback(session.close)
        keeper = ScopeKeeper(host, session, cluster.target, target_now=lambda: cluster.target)
        keeper.refresh()
        assert keeper.scope.asked_osds == (0, 1, 2)
        # The machine of a test may be slow: nothing is slowed down for it.
        jobs = [
            Job(SOURCES[name], period_s=1.0, budget_ratio=1.0) for name in ("perf_counters", "proc", "cluster_status")
        ]
        periods_s = {job.source.name: 1.0 for job in jobs}
        run = stack.enter_context(
            Workspace(tmp_path).create_run(kind="collect", started_ns=host.now_ns(), context={"periods_s": periods_s})
        )
        with SegmentSink(run, keeper, segment_s=20.0) as sink, Recorder(host, session, keeper, jobs, sink) as recorder:
            began = time.monotonic()
            assert not recorder.wait(DURATION_S / 4)
            kill(cluster, "osd.1")
            killed_ns = host.now_ns()
            assert not recorder.wait(AWAY_S)
            start(cluster, "osd.1")
            started_ns = host.now_ns()
            tools.wait_for(lambda: 1 in keeper.scope.asked_osds or recorder.failure, what="osd.1 in the scope")
            assert not recorder.wait(max(15.0, DURATION_S - (time.monotonic() - began)))
        run.update(status="done", ended_ns=host.now_ns())

        # Everything is stored, and parsed again each segment gives the same.
        assert len(run.segments()) >= DURATION_S // 20
        for segment in run.segments().values():
            assert "recording" in segment.raw_sources()
            raw = {name: segment.raw(name) for name in segment.raw_sources()}
            for record, table in parse_segment(raw, SOURCES).items():
                assert segment.table(record).select(table.column_names).equals(table), record
        for record in (Collection, PerfCounter, DeviceSample, ProcessSample, ClusterStatus):
            assert run.table(record).num_rows > 0, record
        assert "1" in run.table(ClusterStatus)["osds_down"].to_pylist()

        # Every gap is stated: recounted from the rows.
        finding = KINDS["collect"].finding(run).recording
        assert {source.source for source in finding.sources} >= {*periods_s, "cluster_map"}
        for source in finding.sources:
            if source.source not in periods_s:
                assert source.gaps == ()
            else:
                assert source.collection_count > DURATION_S / 3
                rows = run.table(Collection).filter(pc.field("source") == source.source).sort_by("at_ns")
                good = rows.filter(pc.greater(rows["request_count"], rows["failure_count"]))["at_ns"].to_numpy()
                wide = np.flatnonzero(np.diff(good) > 1.5 * S)
                stated = [(gap.start_ns, gap.end_ns) for gap in source.gaps]
                for place in wide:
                    assert any(start <= good[place] and good[place + 1] <= end for start, end in stated)
                assert sum(gap.collection_count + 1 for gap in source.gaps) - len(wide) in (0, 1, 2)

        # So is the restart, and nothing else.
        (absence,) = finding.absences
        assert (absence.daemon, absence.returned) == ("osd.1", True)
        assert killed_ns - 20 * S < absence.start_ns <= killed_ns + S
        assert absence.end_ns > started_ns
        pids = {daemon.pid for daemon in keeper.scope.target.daemons}
        assert {daemon.pid for daemon in cluster.target.daemons} == pids
        seen = run.table(ProcessSample).filter(pc.field("process") == "osd.1")["at_ns"].to_numpy()
        assert seen.min() < killed_ns
        assert seen.max() > started_ns

        # What was counted adds up to what the daemons say; a restart costs its interval and nothing goes backwards.
        section, name = "AsyncMessenger::Worker-0", "msgr_recv_bytes"
        counters = run.table(PerfCounter).filter((pc.field("section") == section) & (pc.field("name") == name))
        assert pc.min(counters["delta"]).as_py() >= 0
        for osd in (0, 1, 2):
            values = stood_at(run, f"osd.{osd}", section, name)
            at_ns, steps = np.array(list(values)), np.diff(list(values.values()))
            if osd == 1:
                # An answer that was under way when the daemon was killed is still the old one's.
                steps = np.delete(steps, np.searchsorted(at_ns, started_ns) - 1)
            mine = counters.filter(pc.field("daemon") == f"osd.{osd}")
            assert len(steps) > DURATION_S / 3
            assert np.all(steps >= 0)
            assert pc.sum(mine["delta"]).as_py() == steps.sum()
