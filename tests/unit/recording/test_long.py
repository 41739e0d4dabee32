"""A day of recording by a clock that is not real: bounded memory, every gap stated, no growth lost, nor by roll-ups."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.recording.world import Counters, Readings, Status, World, keeper_of

from bathyscope.analysis.recording import build
from bathyscope.host.fake import EPOCH_NS
from bathyscope.recording.recorder import Job, Recorder
from bathyscope.recording.sinks import SegmentSink
from bathyscope.records import ClusterStatus, Collection, PerfCounter, Placement, ProcessSample, Record, to_table
from bathyscope.records.recording_finding import DaemonAbsence
from bathyscope.store import RunDirectory, Workspace
from bathyscope.store.roll_up import Retention, roll_up

S = 1_000_000_000
HOUR_S = 3600
DAY_S = 24 * HOUR_S
LOST = "the connection to the cluster was lost"


def moment(at_s: float) -> int:
    return EPOCH_NS + round(at_s * S)


@pytest.fixture
def world() -> Any:
    """osd.1 is restarted and away from 5:00:00 to 5:00:20; the cluster is lost from 10:00:00 to 11:00:00."""
    return World(
        restarts={1: 5 * HOUR_S + 20},
        down=lambda osd, at_s: osd == 1 and 5 * HOUR_S <= at_s < 5 * HOUR_S + 20,
        lost=lambda at_s: 10 * HOUR_S <= at_s < 11 * HOUR_S,
        garbled=lambda osd, at_s: osd == 2 and at_s == 20 * HOUR_S,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_day_at_one_second(world: Any, tmp_path: Path) -> None:
    host = world.host()
    # What the fake remembers is not the recording's.
    host.ceph.requests = Nothing()
    keeper = keeper_of(host)
    jobs = [Job(Counters()), Job(Readings(), period_s=5.0), Job(Status(), period_s=30.0)]
    run = Workspace(tmp_path).create_run(kind="collect", started_ns=EPOCH_NS)
    with SegmentSink(run, keeper, segment_s=600.0) as sink:
        recorder = Recorder(host, host.ceph, keeper, jobs, sink)
        recorder.run(HOUR_S)
        tracemalloc.start(1)
        recorder.run(HOUR_S / 3)
        held_bytes, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        recorder.run(DAY_S - HOUR_S * 4 / 3)
    # What is held and what is needed at once: of one segment of 600 collections of four answers each.
    assert held_bytes < 4 << 20
    assert peak_bytes < 16 << 20
    assert len(run.segments()) in range(24 * 6, 24 * 6 + 8)

    tables = {"collection": run.table(Collection), "perf_counter": run.table(PerfCounter)}
    assert recorder.periods_s == {"counters": 1.0, "readings": 5.0, "status": 30.0}
    finding = build(tables, moment(0), moment(DAY_S), recorder.periods_s)
    gaps = {source.source: source.gaps for source in finding.sources}
    (outage, garbled) = gaps["counters"]
    assert (outage.start_ns, outage.reason) == (moment(10 * HOUR_S - 1), LOST)
    # Backed off by 16 s: at most so long after its end.
    assert moment(11 * HOUR_S) <= outage.end_ns < moment(11 * HOUR_S + 16)
    assert (garbled.start_ns, garbled.end_ns) == (moment(20 * HOUR_S - 1), moment(20 * HOUR_S + 1))
    assert "perf_dump-osd.2 did not answer with JSON" in garbled.reason
    assert gaps["readings"] == ()
    (status,) = gaps["status"]
    assert (status.start_ns, status.reason) == (moment(10 * HOUR_S - 30), LOST)
    # The way back: the map is read again every 10, 20 s while an OSD is down.
    assert finding.absences == (
        DaemonAbsence("osd.1", moment(5 * HOUR_S - 1), finding.absences[0].end_ns, returned=True),
    )
    assert moment(5 * HOUR_S + 20) <= finding.absences[0].end_ns < moment(5 * HOUR_S + 45)

    # No growth is lost: not by segments, not by the outage, not by an answer that was garbled.
    rows = run.table(PerfCounter)
    for osd in (0, 2):
        mine = rows.filter(pc.field("daemon") == f"osd.{osd}")
        assert pc.sum(mine["delta"]).as_py() == (DAY_S - 1) * world.rate_per_s
        assert pc.sum(mine["duration_ns"]).as_py() == (DAY_S - 1) * S
        assert np.all(np.diff(mine["at_ns"].to_numpy()) == mine["duration_ns"].to_numpy()[1:])
    restarted = rows.filter(pc.field("daemon") == "osd.1")
    seen_s = (DAY_S - 1) - (finding.absences[0].end_ns - finding.absences[0].start_ns) / S
    assert pc.sum(restarted["delta"]).as_py() == seen_s * world.rate_per_s
    assert run.table(ProcessSample).num_rows == DAY_S / 5 - 1
    assert pc.sum(run.table(ProcessSample)["cpu_user_s"]).as_py() == pytest.approx(DAY_S - 5)
    recorded = everything(run)
    roll_up(run, moment(DAY_S), Retention(raw_s=0, recorded_s=6 * HOUR_S, minute_s=math.inf, event_s=math.inf))
    assert_joined(everything(run), recorded, 60)
    for _ in range(2):
        roll_up(run, moment(3 * DAY_S), Retention(raw_s=0, recorded_s=0, minute_s=0, event_s=math.inf))
    by_hour = everything(run)
    run.close()
    assert_joined(by_hour, recorded, HOUR_S)
    assert by_hour[ProcessSample].num_rows <= 25


def test_days_on_disk_are_joined_while_they_are_recorded_and_the_map_is_kept(tmp_path: Path) -> None:
    """As `bathy collect --follow` does it: a past day is one segment, of hours, without raw answers and events."""
    world = World()
    host = world.host()
    keeper = keeper_of(host)
    jobs = [Job(Counters(), period_s=HOUR_S), Job(Status(), period_s=HOUR_S)]
    run = Workspace(tmp_path).create_run(kind="collect", started_ns=EPOCH_NS)
    place = Placement(0, "node1", "ssd", None, None, None, None, None, None)
    with run.begin_segment("20231114T221319.000Z") as writer:
        writer.table(Placement, to_table(Placement, [place]))
        writer.commit()
    kept = Retention(raw_s=HOUR_S, recorded_s=3 * HOUR_S, minute_s=DAY_S / 2, event_s=DAY_S / 4)
    segment_s = 3.0 * HOUR_S
    with SegmentSink(run, keeper, segment_s, tidy=lambda now_ns: roll_up(run, now_ns, kept), tidy_s=segment_s) as sink:
        Recorder(host, host.ceph, keeper, jobs, sink).run(4 * DAY_S)
    roll_up(run, moment(4 * DAY_S), kept)
    segments = run.segments()
    resolutions = [segment.facts.resolution_s for segment in segments.values()]
    # The run began within a day: it reaches into five.
    assert resolutions.count(HOUR_S) in (3, 4), resolutions
    assert len(segments) <= 4 + 2 * DAY_S / segment_s, sorted(segments)
    old = [segment for segment in segments.values() if segment.facts.resolution_s == HOUR_S]
    assert not any(segment.raw_sources() for segment in old)
    assert pc.min(run.table(ClusterStatus)["at_ns"]).as_py() > moment(2 * DAY_S)
    assert run.table(Placement).to_pylist()[0]["host"] == "node1"
    assert pc.sum(run.table(PerfCounter)["delta"]).as_py() == 3 * (4 * DAY_S - HOUR_S) * world.rate_per_s
    run.close()


def everything(run: RunDirectory) -> dict[type[Record], pa.Table]:
    return {record: run.table(record) for record in (Collection, PerfCounter, ProcessSample)}


def assert_joined(rolled: Any, recorded: Any, to_s: int) -> None:
    """Fewer rows of samples, that say the same of each interval of `to_s`; and all rows of the others."""
    assert rolled[Collection].num_rows == recorded[Collection].num_rows
    assert rolled[PerfCounter].num_rows < recorded[PerfCounter].num_rows
    after, before = (sums(tables[PerfCounter], "daemon", "delta", to_s) for tables in (rolled, recorded))
    assert after == before
    after, before = (sums(tables[ProcessSample], "process", "cpu_user_s", to_s) for tables in (rolled, recorded))
    assert after.keys() == before.keys()
    assert np.allclose([after[key] for key in before], list(before.values()))


def sums(table: pa.Table, key: str, value: str, interval_s: int) -> dict[tuple[str, int], tuple[float, int]]:
    """Return (key, interval that a row ends in) → the sums of a value and of the durations."""
    interval = pa.array(-(-table["at_ns"].to_numpy() // (interval_s * S)))
    grouped = table.append_column("interval", interval).group_by([key, "interval"])
    rows = grouped.aggregate([(value, "sum"), ("duration_ns", "sum")]).to_pylist()
    return {(row[key], row["interval"]): (row[f"{value}_sum"], row["duration_ns_sum"]) for row in rows}


class Nothing(list[Any]):
    """Remembers nothing."""

    def append(self, item: Any) -> None:
        pass
