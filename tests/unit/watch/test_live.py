"""The last seconds as tables: differences are taken between looks, old rows go, faults are told."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from bathyscope.analysis.activity import VIEWS
from bathyscope.analysis.activity.shape import Question
from bathyscope.errors import ParseError
from bathyscope.recording.collect import as_collected
from bathyscope.records import OsdLatency, PerfCounter, Placement, RawAnswer, Record, Tables, to_table
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope
from bathyscope.watch.live import SECTIONS, LiveSink

S = 1_000_000_000


class Keeper:
    scope = Scope(target=Target(name="t"))


class Steps:
    """A source whose answers are numbers; a row is the step between two of them."""

    name = "steps"
    records: tuple[type[Record], ...] = (OsdLatency,)
    period_s = timeout_s = 1.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Any]:
        raise AssertionError

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        if any(answer.stdout == b"bad" for answer in answers):
            raise ParseError("no number")
        rows = [
            OsdLatency(later.ended_ns, 0, float(later.stdout) - float(earlier.stdout), 0.0)
            for earlier, later in itertools.pairwise(answers)
        ]
        return {OsdLatency: to_table(OsdLatency, rows)}


class Map(Steps):
    name = "map"
    differences = False

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        rows = [Placement(int(answer.stdout), "h", "", None, None, None, None, None, None) for answer in answers]
        return {Placement: to_table(Placement, rows)}


class Rare(Steps):
    name = "rare"
    differences = False


def take(sink: LiveSink, source: Any, at_s: int, text: bytes) -> None:
    answer = RawAnswer("x", ("ceph",), (), 0, text, b"", at_s * S, at_s * S)
    sink.take(source, as_collected(source.name, [answer]))
    sink.tend()


def steps_of(sink: LiveSink) -> list[float]:
    table = sink.tables().get("osd_latency")
    return [] if table is None else list(table["commit_latency_ms"].to_pylist())


def test_a_row_is_the_step_since_the_look_before_and_goes_when_it_is_old() -> None:
    sink, source = LiveSink(Keeper(), kept_s=30.0), Steps()  # type: ignore[arg-type]
    for at_s, text in ((10, b"1"), (20, b"3"), (30, b"6"), (55, b"10")):
        take(sink, source, at_s, text)
    assert steps_of(sink) == [3.0, 4.0]


def test_an_answer_that_is_not_understood_is_a_problem_until_the_next_good_one() -> None:
    sink, source = LiveSink(Keeper(), 120.0), Steps()  # type: ignore[arg-type]
    take(sink, source, 10, b"1")
    take(sink, source, 20, b"bad")
    assert sink.problems() == ["steps: no number"]
    take(sink, source, 30, b"5")
    take(sink, source, 40, b"7")
    assert sink.problems() == []
    assert steps_of(sink)[-1] == 2.0


def test_what_has_no_time_is_there_once_as_it_was_last() -> None:
    sink, source = LiveSink(Keeper(), 120.0), Map()  # type: ignore[arg-type]
    take(sink, source, 10, b"1")
    take(sink, source, 500, b"2")
    assert sink.tables()["placement"]["osd"].to_pylist() == [2]


def test_what_a_source_that_is_asked_rarely_says_is_wrong_stays_until_it_is_asked_again() -> None:
    sink = LiveSink(Keeper(), kept_s=30.0)  # type: ignore[arg-type]
    steps, rare = Steps(), Rare()
    take(sink, rare, 10, b"bad")
    for at_s in range(20, 320, 20):
        take(sink, steps, at_s, b"1")
    assert len(sink.problems()) == 1
    assert [row["source"] for row in sink.tables()["collection"].to_pylist()].count("steps") <= 3
    take(sink, rare, 320, b"1")
    assert sink.problems() == []


def test_of_the_counters_those_are_kept_that_views_read() -> None:
    class Counters(Steps):
        name = "perf_counters"
        differences = False

        def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
            asked = scope.counter_sections or ()
            rows = [PerfCounter(10 * S, S, "osd.0", name, "x", "counter", 1.0, None, None) for name in asked]
            return {PerfCounter: to_table(PerfCounter, rows)}

    sink = LiveSink(Keeper(), 120.0)  # type: ignore[arg-type]
    take(sink, Counters(), 10, b"")
    assert sink.tables()["perf_counter"]["section"].to_pylist() == list(SECTIONS)
    question = Question("", "t", 0, S)
    asked = {
        section
        for view in VIEWS.values()
        if not view.of_image
        for sql in view.queries(question).values()
        if "perf_counter" in sql
        for section in re.findall(r"section = '(\w+)'|'(\w+)\.\w+'", sql)
    }
    assert {name for pair in asked for name in pair if name} <= set(SECTIONS)
