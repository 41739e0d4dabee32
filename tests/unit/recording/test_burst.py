"""Bursts of op histories: a few OSDs at a time are enlarged, asked once and restored, whatever comes between."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.bench.conftest import RUN, FakeCluster
from tests.unit.sources.test_op_history import entry

from bathyscope.bench import session
from bathyscope.errors import BathyscopeError, UnreachableError, UsageError
from bathyscope.host.fake import FakeHost
from bathyscope.recording import options
from bathyscope.recording.burst import OPS_MAX, OSDS_MAX, Burst
from bathyscope.recording.journal import Journal, journal_directory
from bathyscope.recording.sinks import MemorySink
from bathyscope.records import Op, from_table
from bathyscope.sources import op_history
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")
SCOPE = Scope(target=TARGET)
READ = "osd_op(client.1.0:{} 2.1 2:42:::a:head [read 0~1] snapc 0=[] ondisk+read e1)"


@dataclasses.dataclass
class Histories(FakeCluster):
    """OSDs that did `ops` operations; a history holds as many of them as its size allows."""

    ops: int = 50
    enlarged_max: int = 0

    def do_config_set(self, daemon: str, words: Any) -> Any:
        answer = super().do_config_set(daemon, words)
        self.enlarged_max = max(self.enlarged_max, sum(bool(values) for values in self.overrides.values()))
        return answer

    def do_dump_historic_ops(self, daemon: str, words: Any) -> Any:
        size, duration_s = (int(self.do_config_get(daemon, {"var": name})[name]) for name in op_history.OPTIONS)
        ops = [entry(READ.format(number), number) for number in range(self.ops)]
        return {"size": size, "duration": duration_s, "ops": ops[:size]}


class Bed:
    """A cluster, a host, and a journal in a directory of its own."""

    def __init__(self, directory: Path, **cluster: Any) -> None:
        self.cluster = Histories(**cluster)
        self.host = FakeHost(ceph=self.cluster.session())
        self.journal = Journal.create(directory, RUN, "/x", TARGET, self.host, fsid="f-s-i-d")
        self.sink = MemorySink()
        self.burst = Burst(self.host, self.cluster.session(), self.journal, self.sink)

    def take(self, osds: Any, seconds: int, ops: int = OPS_MAX) -> list[str]:
        def wait(passed_s: float) -> bool:
            self.host.sleep(passed_s)
            return True

        return self.burst.take(SCOPE, osds, seconds, ops, wait=wait)

    def rows(self) -> list[Op]:
        return from_table(Op, op_history.SOURCE.parse(self.sink.answers("op_history"), SCOPE)[Op])


def test_every_op_of_the_seconds_is_there_and_the_options_are_what_they_were(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "journal", osds=3, overrides={"osd.1": {"osd_op_history_size": "77"}})
    before, began_ns = bed.cluster.state(), bed.host.now_ns()
    assert bed.take([0, 1, 2], seconds=5) == []
    assert bed.host.now_ns() - began_ns == 5 * 10**9
    assert bed.cluster.state() == before
    assert Journal.load(bed.journal.path).pending() == []
    assert {answer.json()["size"] for answer in bed.sink.answers("op_history")} == {OPS_MAX}
    assert {answer.json()["duration"] for answer in bed.sink.answers("op_history")} == {5}
    assert len(bed.rows()) == 150
    assert all(row.complete_sample for row in bed.rows())


def test_what_a_run_of_another_machine_has_enlarged_is_not_taken_for_what_was_there(tmp_path: Path) -> None:
    """Its journal lies elsewhere: restoring what it has set would leave that for good."""
    theirs = {"osd_op_history_size": "5000", "osd_op_history_duration": "5"}
    bed = Bed(tmp_path / "journal", osds=3, overrides={"osd.2": theirs})
    before = bed.cluster.state()
    # The others of its burst are recorded all the same.
    (problem,) = bed.take([0, 1, 2], seconds=5)
    assert "osd.2 keeps 5000 operations of 5 s" in problem
    assert {row.osd for row in bed.rows()} == {0, 1}
    assert (bed.cluster.state(), bed.journal.pending()) == (before, [])
    enlarged = options.enlarge_history(bed.cluster.session(), bed.journal, [2], 1000, 5)
    assert "ceph tell osd.2 config unset osd_op_history_duration" in str(enlarged[2].hint)
    # Nobody waits where there is nothing to record.
    began_ns = bed.host.monotonic_ns()
    assert bed.take([2], seconds=5) == [problem]
    assert bed.host.monotonic_ns() == began_ns
    assert (bed.cluster.state(), bed.journal.pending()) == (before, [])
    # What an operator has set for good is kept, and put back.
    bed.cluster.overrides["osd.2"] = {"osd_op_history_size": "5000", "osd_op_history_duration": "600"}
    before = bed.cluster.state()
    assert bed.take([0, 1, 2], seconds=5) == []
    assert bed.cluster.state() == before


def test_an_osd_that_did_more_than_fits_gives_a_tail_sample(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "journal")
    bed.take([0], seconds=1, ops=30)
    assert len(bed.rows()) == 30
    assert not any(row.complete_sample for row in bed.rows())


def test_what_cannot_be_restored_is_said_and_stays_in_the_journal(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "journal")
    bed.cluster.denied = {"config unset"}
    problems = bed.take([0], seconds=1)
    assert len(problems) == 2
    assert all(problem.startswith("osd.0: ") for problem in problems)
    assert len(Journal.load(bed.journal.path).pending()) == 2


@pytest.mark.parametrize(
    ("seconds", "ops", "osds"),
    [(0, 100, 1), (31, 100, 1), (5, 0, 1), (5, OPS_MAX + 1, 1), (5, 100, OSDS_MAX + 1)],
)
def test_beyond_the_limits_nothing_is_changed(tmp_path: Path, seconds: int, ops: int, osds: int) -> None:
    bed = Bed(tmp_path / "journal", osds=20)
    with pytest.raises(UsageError, match="a burst takes 1 to 30 s"):
        bed.take(range(osds), seconds=seconds, ops=ops)
    assert bed.cluster.log == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_kill_at_any_command_is_made_good_at_once_or_by_the_next_start(
    tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    bed = Bed(journal_directory(), overrides={"osd.1": {"osd_op_history_size": "77"}})
    before = bed.cluster.state()
    dies_at, after_effect = data.draw(st.integers(0, 40)), data.draw(st.booleans())
    # What is killed sends nothing any more; what is interrupted, or loses one answer, goes on to restore.
    killed, error = data.draw(
        st.sampled_from([(True, KeyboardInterrupt), (False, KeyboardInterrupt), (False, UnreachableError)])
    )
    answer, count = bed.cluster.answer, 0

    def dying(request: Any) -> Any:
        nonlocal count
        count += 1
        dies = count >= dies_at if killed else count == dies_at
        if dies and not (after_effect and count == dies_at):
            raise error("dies")
        found = answer(request)
        if dies:
            raise error("dies")
        return found

    bed.cluster.answer = dying  # type: ignore[method-assign]
    with contextlib.suppress(KeyboardInterrupt, BathyscopeError):
        bed.take([0, 1, 2], seconds=1)
    bed.cluster.answer = answer  # type: ignore[method-assign]
    bed.journal.give_up()
    problems: list[str] = []
    session.tidy(bed.host, bed.cluster.session(), note=problems.append)
    assert bed.cluster.state() == before
    assert not any("could not" in problem for problem in problems)
