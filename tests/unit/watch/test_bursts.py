"""Bursts of a deep recording: whose turn it is, how long, how often; what is restored whatever comes between."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bench.conftest import FakeCluster
from tests.unit.recording.test_burst import Histories

from bathyscope.bench import session
from bathyscope.errors import DeniedError, UnreachableError
from bathyscope.host import mgr_install
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.host.mgr_install import source_version
from bathyscope.recording.burst import OPS_MAX, OSDS_MAX
from bathyscope.recording.journal import Journal, journal_directory
from bathyscope.recording.recorder import Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.sinks import MemorySink
from bathyscope.records import Op, PgIo, from_table, to_table
from bathyscope.sources import SOURCES
from bathyscope.spec import Target
from bathyscope.spec.collect import CollectSpec
from bathyscope.spec.scope import Scope, ScopeOsd
from bathyscope.store import RunDirectory, Workspace
from bathyscope.watch.bursts import EVERY_S, LONG_OPS, SECONDS, SHARE, Bursts, Turns, rates_of, seconds_for
from bathyscope.watch.clock import Clock
from bathyscope.watch.jobs import allowed_jobs

S = 1_000_000_000
TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")
OTHER = "20260101-000000-abcdef"


class Recording:
    """Stands for the recorder: time passes while somebody waits for its end. `at` happens at its second."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.began_ns = host.monotonic_ns()
        self.at: dict[float, Any] = {}

    @property
    def passed_s(self) -> float:
        return (self.host.monotonic_ns() - self.began_ns) / 1e9

    def wait(self, timeout_s: float) -> bool:
        self.host.sleep(timeout_s)
        for second in [second for second in self.at if second <= self.passed_s]:
            self.at.pop(second)()
        return False


class Keeper:
    def __init__(self, osds: int) -> None:
        self.scope = Scope(
            target=TARGET, fsid="f-s-i-d", asked_osds=tuple(range(osds)),
            osds=tuple(ScopeOsd(osd=osd, up=True) for osd in range(osds)),
        )  # fmt: skip


class Bed:
    """A cluster with one run that records it."""

    def __init__(self, run: RunDirectory, osds: int = 3, *, is_long: bool = False, **cluster: Any) -> None:
        self.cluster = Histories(osds=osds, **cluster)
        self.host = FakeHost(ceph=self.cluster.session())
        self.sink = MemorySink()
        self.said: list[str] = []
        self.run = run
        self.recording = Recording(self.host)
        self.bursts = Bursts(
            self.host, self.cluster.session(), cast("ScopeKeeper", Keeper(osds)), run, self.sink,
            is_long=is_long, note=self.said.append,
        )  # fmt: skip

    def record(self, duration_s: float) -> None:
        """Record so long."""
        self.bursts.record(Clock(self.host, cast("Recorder", self.recording), duration_s, lambda _: None))

    @property
    def asked(self) -> list[list[int]]:
        """The OSDs of each burst that gave answers."""
        return [
            [int(answer.label.rpartition(".")[2]) for answer in collected.answers]
            for collected in self.sink.collected("op_history")
        ]

    @property
    def journal(self) -> Path:
        return journal_directory() / f"{self.run.id}.jsonl"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDirectory]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Workspace(tmp_path).create_run(kind="collect", started_ns=S, target={"name": "c"}) as run:
        yield run


@given(
    osds=st.integers(1, 40), rounds=st.integers(1, 30),
    rates=st.dictionaries(st.integers(0, 39), st.floats(0, 1000), max_size=40),
)  # fmt: skip
def test_every_osd_has_a_turn_before_one_has_two_more_than_another(
    osds: int, rounds: int, rates: dict[int, float]
) -> None:
    turns, counts = Turns(), dict.fromkeys(range(osds), 0)
    for _ in range(rounds):
        chosen = turns.next(range(osds), rates)
        assert len(chosen) == len(set(chosen)) == min(osds, OSDS_MAX)
        for osd in chosen:
            counts[osd] += 1
        assert max(counts.values()) - min(counts.values()) <= 1


def test_the_busiest_come_first_and_one_that_is_down_has_no_turn() -> None:
    turns = Turns()
    rates = {osd: float(osd) for osd in range(20)}
    assert turns.next(range(20), rates) == list(range(19, 11, -1))
    # What is known may change meanwhile.
    assert turns.next([osd for osd in range(20) if osd != 10], {**rates, 3: 99.0}) == [3, 11, 9, 8, 7, 6, 5, 4]


def test_a_burst_is_so_short_that_a_busy_osd_s_operations_fit() -> None:
    assert seconds_for([0, 1], {}, OPS_MAX) == SECONDS
    assert seconds_for([0, 1], {0: 100.0, 2: 1e6}, OPS_MAX) == SECONDS
    # 600 writes a second are 1,800 entries where every OSD is a replica of all.
    assert seconds_for([0, 1], {0: 100.0, 1: 600.0}, OPS_MAX) == 2
    assert seconds_for([0], {0: 1e6}, OPS_MAX) == 1


def test_how_busy_osds_are_is_read_from_the_recording(run: RunDirectory) -> None:
    assert rates_of(run) == {}
    rows = [
        PgIo(at_s * S, 10 * S, f"2.{osd}", "rbd", osd, str(osd), 30 * osd, 10 * osd, 0, 0)
        for at_s in (100, 110)
        for osd in (1, 2)
    ]
    for name, kept in (("20260101T000000.000Z", rows), ("20260101T000100.000Z", [])):
        with run.begin_segment(name) as writer:
            writer.table(PgIo, to_table(PgIo, kept))
            writer.commit()
    assert rates_of(run) == {1: 4.0, 2: 8.0}


def test_all_osds_of_a_large_cluster_have_their_turn_a_few_at_a_time(run: RunDirectory) -> None:
    bed = Bed(run, osds=20, overrides={"osd.3": {"osd_op_history_size": "77"}})
    before = bed.cluster.state()
    bed.record(60)
    assert [len(osds) for osds in bed.asked] == [8, 8, 8]
    assert {osd for osds in bed.asked for osd in osds} == set(range(20))
    assert bed.cluster.enlarged_max <= OSDS_MAX + 1
    assert bed.cluster.state() == before
    bed.bursts.close()
    assert not bed.journal.exists()
    assert bed.said == []
    starts_ns = [collected.cost.at_ns for collected in bed.sink.collected("op_history")]
    assert [(at_ns - starts_ns[0]) / S for at_ns in starts_ns] == [0, EVERY_S, 2 * EVERY_S]


def test_bursts_that_take_long_are_less_often(run: RunDirectory) -> None:
    bed = Bed(run)
    dump = bed.cluster.do_dump_historic_ops

    def slow(daemon: str, words: Any) -> Any:
        bed.host.sleep(10)
        return dump(daemon, words)

    bed.cluster.do_dump_historic_ops = slow  # type: ignore[method-assign]
    bed.record(400)
    took_s = SECONDS + 3 * 10
    assert len(bed.asked) == math.ceil(400 * SHARE / took_s)


def test_a_long_recording_keeps_fewer_operations(run: RunDirectory) -> None:
    bed = Bed(run, is_long=True)
    bed.record(90)
    assert len(bed.asked) == 2
    sizes = {answer.json()["size"] for answer in bed.sink.answers("op_history")}
    assert sizes == {LONG_OPS}


@pytest.mark.parametrize(("duration_s", "burst_s"), [(1, 1), (3.7, 3), (5, 5)])
def test_a_recording_that_is_shorter_than_a_burst_has_a_shorter_one(
    run: RunDirectory, duration_s: float, burst_s: int
) -> None:
    bed = Bed(run)
    bed.record(duration_s)
    assert {answer.json()["duration"] for answer in bed.sink.answers("op_history")} == {burst_s}
    assert len(bed.asked) == 1
    assert bed.recording.passed_s == pytest.approx(duration_s)


def test_an_osd_that_goes_down_in_a_burst_costs_its_own_operations(run: RunDirectory) -> None:
    bed = Bed(run)

    def down() -> None:
        bed.cluster.down.add("osd.1")
        # Its override goes with its process.
        bed.cluster.overrides.pop("osd.1")

    bed.recording.at[2] = down
    bed.record(10)
    answers = bed.sink.answers("op_history")
    rows = from_table(Op, SOURCES["op_history"].parse(answers, Keeper(3).scope)[Op])
    assert {row.osd for row in rows} == {0, 2}
    assert not any(bed.cluster.overrides.values())
    bed.bursts.close()
    assert not bed.journal.exists()


def test_an_interruption_in_a_burst_restores(run: RunDirectory) -> None:
    bed = Bed(run, overrides={"osd.1": {"osd_op_history_size": "77"}})
    before = bed.cluster.state()

    def interrupt() -> None:
        assert bed.cluster.state() != before
        raise KeyboardInterrupt

    bed.recording.at[2] = interrupt
    with pytest.raises(KeyboardInterrupt):
        bed.record(60)
    assert bed.cluster.state() == before
    bed.bursts.close()
    assert not bed.journal.exists()


def test_an_interruption_ends_the_recording_also_when_the_cluster_is_lost(run: RunDirectory) -> None:
    bed = Bed(run)
    before = bed.cluster.state()

    def interrupt() -> None:
        bed.cluster.lost = True
        raise KeyboardInterrupt

    bed.recording.at[2] = interrupt
    with pytest.raises(KeyboardInterrupt):
        bed.record(60)
    bed.cluster.lost = False
    bed.bursts.close()
    assert bed.cluster.state() == before


def test_a_cluster_that_is_lost_in_a_burst_is_restored_when_it_is_back(run: RunDirectory) -> None:
    bed = Bed(run)
    before = bed.cluster.state()
    bed.recording.at[2] = lambda: setattr(bed.cluster, "lost", True)
    bed.recording.at[70] = lambda: setattr(bed.cluster, "lost", False)
    bed.record(100)
    assert bed.cluster.state() == before
    assert len(bed.asked) >= 1
    # It is said once, and stands in the run as what was missed.
    assert bed.said == ["bursts of op histories: the connection to the cluster was lost"]
    missed = [cost for cost in bed.sink.costs if not cost.success]
    # The first was begun, could not be asked and not be restored; three more could not begin.
    assert len(missed) == 2 + 3
    assert {cost.source for cost in missed} == {"op_history"}
    bed.bursts.close()
    assert not bed.journal.exists()


def test_what_cannot_be_restored_is_restored_by_the_next_start(run: RunDirectory) -> None:
    bed = Bed(run)
    before = bed.cluster.state()
    bed.recording.at[2] = lambda: setattr(bed.cluster, "lost", True)
    bed.record(10)
    bed.bursts.close()
    assert "bathy bench cleanup" in bed.said[-1]
    assert bed.cluster.state() != before
    bed.cluster.lost = False
    session.tidy(bed.host, bed.cluster.session(), note=bed.said.append)
    assert bed.cluster.state() == before
    assert not bed.journal.exists()


def test_what_another_run_has_enlarged_is_left_alone(run: RunDirectory) -> None:
    bed = Bed(run, overrides={"osd.1": {"osd_op_history_size": "1000"}})
    before = bed.cluster.state()
    other = Journal.create(journal_directory(), OTHER, "/x", TARGET, bed.host, fsid="f-s-i-d")
    other.will_change("osd_option", daemon="osd.1", option="osd_op_history_size", value=None)
    bed.record(50)
    # It alone has no turn, which stands in the run.
    assert [osds for osds in bed.asked if osds] == [[0, 2], [0, 2], [0, 2]]
    missed = [cost.problem for cost in bed.sink.costs if not cost.success]
    assert missed == 3 * [f"run {OTHER} has enlarged the op history of osd.1"]
    assert bed.cluster.state() == before
    assert bed.said == [f"bursts of op histories: run {OTHER} has enlarged the op history of osd.1"]
    # Put back by the other run, which ends meanwhile.
    other.undone(*other.pending())
    del bed.cluster.overrides["osd.1"]
    bed.record(10)
    assert bed.asked[-1] == [0, 1, 2]
    assert len([cost for cost in bed.sink.costs if not cost.success]) == 3
    assert not any(bed.cluster.overrides.values())


def test_an_unreachable_cluster_is_no_reason_to_end(run: RunDirectory) -> None:
    bed = Bed(run)
    bed.cluster.lost = True
    bed.record(60)
    assert bed.asked == []
    assert isinstance(bed.cluster.answer(cast("Any", _Request())), UnreachableError)


class _Request:
    daemon, command = "mon", (("prefix", "fsid"),)


def test_a_key_that_may_not_change_options_is_refused_what_needs_it() -> None:
    cluster = FakeCluster(denied={"osd."})
    deep = CollectSpec(depth="deep")
    with pytest.raises(DeniedError, match="may not use `ceph tell") as caught:
        allowed_jobs(cluster.session(), deep, Keeper(3).scope, lambda _: None)
    assert "bathy caps collect --tell" in str(caught.value.hint)
    said: list[str] = []
    allowed_jobs(cluster.session(), CollectSpec(depth="normal"), Keeper(3).scope, said.append)
    assert "no latencies of OSDs" in said[0]


@pytest.mark.parametrize(("apart", "advice"), [(-1, "`bathy mgr install` replaces it"), (1, "upgrade bathyscope")])
def test_a_module_of_another_version_is_said_once_at_the_start(
    monkeypatch: pytest.MonkeyPatch, apart: int, advice: str
) -> None:
    version = source_version()
    session = FakeCephSession({"osd dump": {"osds": []}})
    said: list[str] = []

    def jobs_of(*modules: str) -> None:
        known = {"mgr_modules": modules, "mgr_module_version": version if modules else None}
        scope = Keeper(1).scope.model_copy(update=known)
        allowed_jobs(session, CollectSpec(depth="light", image_statistics=True), scope, said.append)

    monkeypatch.setattr(mgr_install, "SAFE_VERSION", 1)
    jobs_of("bathyscope")
    version += apart
    jobs_of()
    assert said == []
    jobs_of("bathyscope")
    (words,) = said
    assert f"bathyscope has version {version}, this program's is version {source_version()}" in words
    assert advice in words
