"""One more source is one file, its record in the same file: it is scheduled, stored, queried, and its cost is kept."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.recording.world import Counters, World, keeper_of

from bathyscope import cli, sources
from bathyscope.discovery import members
from bathyscope.errors import ParseError
from bathyscope.host import CephRequest
from bathyscope.host.fake import EPOCH_NS
from bathyscope.recording.recorder import Job, Recorder
from bathyscope.recording.sinks import SegmentSink
from bathyscope.records import RECORDS_BY_TABLE, Collection, from_table
from bathyscope.run_kinds import kind_of
from bathyscope.sources import SOURCES
from bathyscope.store import RunDirectory, Workspace

FILE = '''
"""The monitors' clocks."""

import dataclasses
from typing import ClassVar

from bathyscope.host import CephRequest
from bathyscope.records import Record, column
from bathyscope.sources.shape import Columns


@dataclasses.dataclass(frozen=True, slots=True)
class ClockSkew(Record):
    """One row per look at the cluster and monitor."""

    TABLE: ClassVar[str] = "clock_skew"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column("moment of the observation, since the Unix epoch", unit="ns")
    monitor: str = column("name of the monitor")
    skew_s: float = column("how far its clock is ahead of the leader's", unit="s")


class Clocks:
    name = "clocks"
    records = (ClockSkew,)
    period_s = 15.0
    timeout_s = 5.0
    differences = False

    def plan(self, scope):
        return [CephRequest("clocks", "mon", (("prefix", "time-sync-status"), ("format", "json")), self.timeout_s)]

    def parse(self, answers, scope):
        columns = Columns(ClockSkew)
        for answer in answers:
            for name, skew in answer.json()["time_skew_status"].items() if answer.exit_code == 0 else ():
                columns.add(at_ns=answer.ended_ns, monitor=name, skew_s=float(skew["skew"]))
        return {ClockSkew: columns.table()}


SOURCE = Clocks()
'''
S = 1_000_000_000
DURATION_S = 300


@pytest.fixture
def one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the file beside the sources that exist."""
    (tmp_path / "clocks.py").write_text(FILE)
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    before = dict(SOURCES)
    SOURCES.update(members(sources, "SOURCE"))
    yield
    SOURCES.clear()
    SOURCES.update(before)
    del sys.modules["bathyscope.sources.clocks"]
    del RECORDS_BY_TABLE["clock_skew"]


@pytest.fixture
def run(one_more: None, tmp_path: Path) -> Iterator[RunDirectory]:
    """Five minutes of the new source beside another one; the monitors do not answer for half a minute."""
    world = World()

    def clocks(request: CephRequest) -> Any:
        if 100 <= world.at_s < 130:
            return -22
        return {"time_skew_status": {"a": {"skew": 0}, "b": {"skew": world.at_s / 1000}}}

    host = world.host()
    host.ceph.answers["time-sync-status"] = clocks
    keeper = keeper_of(host)
    jobs = [Job(SOURCES["clocks"]), Job(Counters())]
    periods_s = {"clocks": 15.0, "counters": 1.0}
    with Workspace(tmp_path / "ws").create_run(
        kind="collect", started_ns=host.now_ns(), context={"periods_s": periods_s}
    ) as found:
        with SegmentSink(found, keeper) as sink:
            Recorder(host, host.ceph, keeper, jobs, sink).run(DURATION_S)
        found.update(status="done", ended_ns=host.now_ns())
        yield found


def sql(run: RunDirectory, query: str) -> list[dict[str, Any]]:
    """Ask with `bathy runs sql`."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setenv("BATHY_WORKSPACE", str(run.path.parents[1]))
        cli.app(["runs", "sql", query, "--output", "json"], standalone_mode=False)
    return list(json.loads(out.getvalue()))


def test_it_is_scheduled_and_its_cost_is_kept(run: RunDirectory) -> None:
    costs = [row for row in from_table(Collection, run.table(Collection)) if row.source == "clocks"]
    assert {(row.at_ns - EPOCH_NS) % (15 * S) for row in costs} == {0}
    good = [row for row in costs if row.success]
    assert all(row.request_count == 1 and row.answer_bytes > 0 for row in good)
    assert [row.problem for row in costs if not row.success] == ["clocks: scripted refusal"] * (len(costs) - len(good))
    (source,) = [source for source in kind_of(run).finding(run).recording.sources if source.source == "clocks"]
    assert (source.collection_count, source.failure_count) == (len(costs), len(costs) - len(good))
    assert len(good) < len(costs) <= DURATION_S / 15
    (gap,) = source.gaps
    assert (gap.start_ns - EPOCH_NS) // S <= 105
    assert (gap.end_ns - EPOCH_NS) // S >= 130


def test_its_rows_lie_in_the_segments_and_are_asked_by_sql(run: RunDirectory) -> None:
    assert len(run.segments()) >= 5
    for segment in run.segments().values():
        assert {"clocks", "counters", "recording"} <= set(segment.raw_sources())
    good = [row for row in from_table(Collection, run.table(Collection)) if row.source == "clocks" and row.success]
    assert sql(run, "SELECT monitor, count(*) AS n, max(skew_s) AS most FROM clock_skew GROUP BY 1 ORDER BY 1") == [
        {"monitor": "a", "n": len(good), "most": 0.0},
        {"monitor": "b", "n": len(good), "most": (good[-1].at_ns - EPOCH_NS) / S / 1000},
    ]
    # Its rows join with its cost: both know the time.
    query = "SELECT count(*) AS n FROM clock_skew JOIN collection USING (run_id, at_ns) WHERE source = 'clocks'"
    (joined,) = sql(run, f"{query} AND success")
    assert joined["n"] == 2 * len(good)
    record = RECORDS_BY_TABLE["clock_skew"]
    window = run.table(record, start_ns=EPOCH_NS + 30 * S, end_ns=EPOCH_NS + 60 * S)
    assert [(at_ns - EPOCH_NS) // S for at_ns in window["at_ns"].to_pylist()] == [30, 30, 45, 45]


def test_it_is_parsed_again_and_joined(run: RunDirectory) -> None:
    record = RECORDS_BY_TABLE["clock_skew"]
    before = run.table(record)
    kind = kind_of(run)
    assert kind.reparse is not None
    assert kind.reparse(run) == f"{len(run.segments())} segments were parsed again"
    assert not (run.path / "tables").exists()
    assert run.table(record).equals(before)
    run.compact()
    assert (run.path / "tables" / "clock_skew.parquet").exists()
    assert run.table(record).sort_by("at_ns").equals(before.sort_by("at_ns"))
    kind.reparse(run)
    assert (run.path / "tables" / "clock_skew.parquet").exists()
    assert run.table(record).sort_by("at_ns").equals(before.sort_by("at_ns"))


def test_nothing_is_replaced_when_a_later_segment_is_damaged(run: RunDirectory) -> None:
    run.compact()
    kind, last = kind_of(run), list(run.segments().values())[-1]
    assert kind.reparse is not None
    damaged = last.path / "raw" / "counters.zst"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    before = {file: file.stat().st_ino for file in run.path.rglob("*")}
    with pytest.raises(ParseError, match=re.escape(str(damaged))):
        kind.reparse(run)
    assert {file: file.stat().st_ino for file in run.path.rglob("*")} == before
