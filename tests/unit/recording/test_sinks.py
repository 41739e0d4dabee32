"""Where a recording goes: into memory within a limit, and into segments that can be parsed again alone."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from tests.unit.recording.world import Counters, Readings, Status, World, keeper_of
from tests.unit.store.killing import no_space

from bathyscope.errors import ParseError, StoreError
from bathyscope.host import CephRequest
from bathyscope.host.fake import EPOCH_NS, FakeCephSession, FakeHost
from bathyscope.recording.collect import Collected
from bathyscope.recording.recorder import Job, Recorder
from bathyscope.recording.segment import RECORDING, parse_collections, parse_segment
from bathyscope.recording.sinks import MemorySink, SegmentSink
from bathyscope.records import Collection, Op, PerfCounter, ProcessSample, RawAnswer
from bathyscope.sources import op_history
from bathyscope.store import RunDirectory, Segment, Workspace

S = 1_000_000_000


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with Workspace(tmp_path).create_run(kind="collect", started_ns=EPOCH_NS) as made:
        yield made


def raw_of(segment: Segment) -> dict[str, list[RawAnswer]]:
    return {source: segment.raw(source) for source in segment.raw_sources()}


def answers_of(run: RunDirectory, source: str) -> list[list[RawAnswer]]:
    return [segment.raw(source) for segment in run.segments().values()]


def record(world: Any, run: Any, duration_s: float, sources: Any = None, *, refresh_s: float = 1e9, **more: Any) -> Any:
    """Record `world` into `run` for a while and return the keeper."""
    host = world.host()
    keeper = keeper_of(host, refresh_s=refresh_s)
    with SegmentSink(run, keeper, **more) as sink:
        jobs = [Job(source) for source in sources or [Counters(), Readings()]]
        Recorder(host, host.ceph, keeper, jobs, sink).run(duration_s)
    return keeper


# --- memory


def test_memory_keeps_the_latest() -> None:
    sink = MemorySink(limit=3)
    host = World().host()
    Recorder(host, host.ceph, keeper_of(host), [Job(Counters()), Job(Status())], sink).run(20)
    assert [take.cost.at_ns - EPOCH_NS for take in sink.collected("counters")] == [17 * S, 18 * S, 19 * S]
    assert len(sink.answers("counters")) == 9
    assert [answer.label for answer in sink.after("status")[-1][1].answers] == ["status", "health", "osd_perf"]
    assert [cost.source for cost in sink.costs] == ["status", "status", *["counters"] * 2, "status", "counters"]
    assert sink.after("nothing") == []


def test_what_is_thinned_stays_even_over_the_whole_time_and_every_look_is_handed_out_once() -> None:
    sink = MemorySink(thinned={"counters": 20_000})
    host = World().host()
    recorder = Recorder(host, host.ceph, keeper_of(host), [Job(Counters())], sink)
    seen: list[int] = []
    for _ in range(50):
        recorder.run(7)
        seen += [number for number, _ in sink.after("counters", seen[-1] if seen else 0)]
    assert seen == list(range(1, len(seen) + 1))
    kept = [take.cost.at_ns - EPOCH_NS for take in sink.collected("counters")]
    assert sum(take.cost.answer_bytes for take in sink.collected("counters")) <= 20_000
    assert (kept[0], kept[-1]) == (0, (len(seen) - 1) * S)
    pauses = {later - earlier for earlier, later in itertools.pairwise(kept)}
    assert len(kept) > 30
    assert max(pauses) <= 0.1 * kept[-1]


# --- segments


def test_a_segment_for_each_span_of_time(run: RunDirectory) -> None:
    # The clock begins 20 s into a minute.
    record(World(), run, 150)
    assert list(run.segments()) == ["20231114T221320.000Z", "20231114T221401.000Z", "20231114T221501.000Z"]
    facts = [segment.facts for segment in run.segments().values()]
    assert [((fact.start_ns or 0) - EPOCH_NS) // S for fact in facts] == [0, 41, 101]
    assert [((fact.end_ns or 0) - EPOCH_NS) // S for fact in facts] == [40, 100, 149]
    assert run.table(Collection).num_rows == 300


def test_no_interval_is_lost_between_segments(run: RunDirectory) -> None:
    record(World(), run, 150)
    assert [len(answers) for answers in answers_of(run, "counters")] == [123, 183, 150]
    for daemon in ("osd.0", "osd.1", "osd.2"):
        rows = run.table(PerfCounter).filter(pc.field("daemon") == daemon)
        assert rows["at_ns"].to_pylist() == [EPOCH_NS + second * S for second in range(1, 150)]
        assert set(rows["duration_ns"].to_pylist()) == {S}
        assert pc.sum(rows["delta"]).as_py() == 14_900
    assert run.table(ProcessSample).num_rows == 149


def test_histories_are_not_carried_from_one_segment_to_the_next(run: RunDirectory) -> None:
    """An op ends every second, and a history holds the last 10; each is asked for every 10 s, as bursts are."""
    world = World()

    def history(request: CephRequest) -> bytes:
        begun = range(max(0, round(world.at_s) - 10), round(world.at_s))
        return json.dumps({"size": 200, "duration": 600, "ops": [op_entry(second) for second in begun]}).encode()

    def op_entry(second: int) -> dict[str, Any]:
        time = datetime.datetime.fromtimestamp(EPOCH_NS // S + second, tz=datetime.UTC).isoformat() + ".5"
        time = time.replace("+00:00.5", ".500000+0000")
        text = f"osd_op(client.1.0:{second} 2.1 2:42:::a:head [read 0~1] snapc 0=[] ondisk+read e1)"
        data = {"events": [{"event": "initiated", "time": time}]}
        return {"description": text, "initiated_at": time, "age": 1.0, "type_data": data}

    session = FakeCephSession({"dump_historic_ops": history, "osd df": world.map}, clock=world.clock)
    host = FakeHost(ceph=session, clock=world.clock)
    keeper = keeper_of(host, refresh_s=1e9)
    with SegmentSink(run, keeper) as sink:
        Recorder(host, session, keeper, [Job(op_history.SOURCE)], sink).run(200)
    assert len(run.segments()) == 4
    ops = run.table(Op).select(["osd", "started_ns"]).to_pylist()
    assert sorted((op["osd"], (op["started_ns"] - EPOCH_NS) // S) for op in ops) == [
        (osd, second) for osd in world.osds for second in range(190)
    ]
    assert sum(map(len, answers_of(run, "op_history"))) == 20 * len(world.osds)
    for segment in run.segments().values():
        again = parse_segment(raw_of(segment), {"op_history": op_history.SOURCE})[Op]
        assert segment.table(Op).select(again.column_names).equals(again)


def test_a_segment_parsed_again_gives_the_same(run: RunDirectory) -> None:
    world = World(down=lambda osd, at_s: osd == 1 and 30 < at_s < 60, garbled=lambda osd, at_s: at_s == 70)
    sources = [Counters(), Readings(), Status()]
    record(world, run, 150, sources)
    for segment in run.segments().values():
        again = parse_segment(raw_of(segment), {source.name: source for source in sources})
        assert {record.TABLE for record, table in again.items() if table.num_rows} == set(segment.facts.rows)
        for kind, table in again.items():
            assert segment.table(kind).select(table.column_names).equals(table)


def test_a_daemon_that_answers_again_later_has_lost_no_growth(run: RunDirectory) -> None:
    # It does not answer over the end of a segment, but it was not restarted.
    world = World(down=lambda osd, at_s: osd == 1 and 35 <= at_s < 105)
    record(world, run, 150)
    rows = run.table(PerfCounter).filter(pc.field("daemon") == "osd.1")
    assert pc.sum(rows["delta"]).as_py() == 14_900
    assert pc.max(rows["duration_ns"]).as_py() == 71 * S


def test_a_daemon_that_is_gone_is_not_carried_for_ever(run: RunDirectory) -> None:
    world = World(down=lambda osd, at_s: osd == 1 and at_s >= 30)
    record(world, run, 5000, [Counters()])
    lengths = [
        sum(answer.label == "perf_dump-osd.1" and answer.exit_code == 0 for answer in a)
        for a in answers_of(run, "counters")
    ]
    assert lengths[0] == 30
    assert set(lengths[1:60]) == {1}
    assert set(lengths[63:]) == {0}


def test_a_whole_outage_is_bridged(run: RunDirectory) -> None:
    world = World(lost=lambda at_s: 30 <= at_s < 8000)
    record(world, run, 8100)
    rows = run.table(PerfCounter).filter(pc.field("daemon") == "osd.2")
    assert pc.sum(rows["delta"]).as_py() == 809_900
    assert pc.max(rows["duration_ns"]).as_py() > 7970 * S
    # Segments of the outage hold the failures only.
    assert answers_of(run, "counters")[5] == []


def test_many_bytes_end_a_segment_early(run: RunDirectory) -> None:
    record(World(), run, 100, [Counters()], limit_bytes=300)
    assert len(run.segments()) > 10
    for answers in answers_of(run, "counters"):
        assert sum(answer.size_bytes for answer in answers) <= 300 + 3 * 22
    assert pc.sum(run.table(PerfCounter)["delta"]).as_py() == 3 * 9900


def test_a_segment_has_one_scope(run: RunDirectory) -> None:
    world = World(down=lambda osd, at_s: osd == 1 and 30 <= at_s < 60)
    record(world, run, 150, refresh_s=300.0)
    asked = []
    for answers in answers_of(run, RECORDING):
        (scope,) = [json.loads(answer.stdout) for answer in answers if answer.label == "scope"]
        asked.append(scope["asked_osds"])
    # As long as osd.1 is down the map is read again: at 30, 40, 60 s.
    assert asked == [[0, 1, 2], [0, 2], [0, 2], [0, 1, 2], [0, 1, 2]]


def test_an_answer_that_is_not_understood_costs_its_collection_only(run: RunDirectory) -> None:
    world = World(garbled=lambda osd, at_s: osd == 1 and at_s in (10, 70))
    record(world, run, 100)
    costs = run.table(Collection).filter(pc.field("source") == "counters").to_pylist()
    bad = [cost for cost in costs if not cost["success"]]
    assert [(cost["at_ns"] - EPOCH_NS) // S for cost in bad] == [10, 70]
    assert all("did not answer with JSON" in cost["problem"] and cost["failure_count"] == 3 for cost in bad)
    # The raw answers are kept, and the interval over the hole holds what the daemons counted.
    assert sum(answer.stdout == b"{broken" for answers in answers_of(run, "counters") for answer in answers) == 2
    assert pc.sum(run.table(PerfCounter)["delta"]).as_py() == 3 * 9900
    assert pc.max(run.table(PerfCounter)["duration_ns"]).as_py() == 2 * S


def test_a_parser_that_understands_nothing(run: RunDirectory) -> None:
    class Broken(Counters):
        def parse(self, answers: Any, scope: Any) -> Any:
            if len(answers) > 3:
                raise ParseError("two do not go together")
            return {}

    record(World(), run, 3, [Broken()])
    assert run.table(Collection)["problem"].to_pylist() == ["two do not go together"] * 3
    host = World().host()
    answer = RawAnswer("perf_dump-osd.0", (), (), 0, b"{", b"", 1, 1)
    tables, problems = parse_collections(Counters(), [[answer], []], keeper_of(host).scope)
    assert tables[PerfCounter].num_rows == 0
    assert list(problems) == [0]


def test_damaged_segments_are_refused(run: RunDirectory) -> None:
    record(World(), run, 3, [Counters()])
    raw = raw_of(*run.segments().values())
    sources = {"counters": Counters()}
    with pytest.raises(ParseError, match="context of a segment cannot be read"):
        parse_segment({**raw, RECORDING: raw[RECORDING][1:]}, sources)
    with pytest.raises(ParseError, match="8 answers"):
        parse_segment({**raw, "counters": raw["counters"][1:]}, sources)
    # A source that is not known any more has no tables; its costs stay.
    assert set(parse_segment(raw, {})) == {Collection}


def test_a_full_disk_ends_the_recording_and_keeps_what_was_written(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = World().host()
    keeper = keeper_of(host)
    sink = SegmentSink(run, keeper)
    recorder = Recorder(host, host.ceph, keeper, [Job(Counters())], sink)
    recorder.run(110)
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StoreError, match="No space left"):
        recorder.run(110)
    with pytest.raises(StoreError, match="No space left"):
        sink.close()
    assert len(run.segments()) == 2
    # Room was made before it ended: nothing is lost.
    monkeypatch.undo()
    sink.close()
    assert len(run.segments()) == 4
    assert run.table(PerfCounter).num_rows == 3 * 161


def test_the_run_is_tidied_now_and_then(run: RunDirectory) -> None:
    tidied: list[int] = []
    record(World(), run, 1000, tidy=lambda now_ns: tidied.append((now_ns - EPOCH_NS) // S), tidy_s=300)
    assert tidied == [340, 640, 940]


def test_one_thread_writes_and_the_others_go_on(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, go_on, begin = threading.Event(), threading.Event(), run.begin_segment

    def slow(name: str) -> Any:
        writing.set()
        assert go_on.wait(10)
        return begin(name)

    monkeypatch.setattr(run, "begin_segment", slow)
    sink = SegmentSink(run, keeper_of(World().host()))
    source = Readings()

    def take(second: int) -> None:
        at_ns = EPOCH_NS + second * S
        answer = RawAnswer("proc", (), (), 0, b"", b"", at_ns, at_ns, files=(("/proc/stat", b"%d" % second),))
        cost = Collection(at_ns, "readings", 0, 1, 0, 1, success=True, problem=None)
        sink.take(source, Collected(cost, (answer,)))

    take(0)
    take(60)
    writer = threading.Thread(target=sink.tend)
    writer.start()
    assert writing.wait(10)
    take(61)
    sink.tend()
    # Two segments wait: now whoever comes waits too, so that memory is bounded.
    take(120)
    take(180)
    waiting = threading.Thread(target=sink.tend)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    go_on.set()
    waiting.join(10)
    writer.join(10)
    sink.close()
    assert len(run.segments()) == 4
    assert pc.sum(run.table(ProcessSample)["duration_ns"]).as_py() == 180 * S
