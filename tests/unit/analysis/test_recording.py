"""A recording's gaps and absences are stated exactly, and its size does not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from bathyscope.analysis.recording import NOT_ASKED, build
from bathyscope.records import Collection, PerfCounter, build_table, schema_of
from bathyscope.records.recording_finding import DaemonAbsence, Gap

S = 1_000_000_000


def collections(*rows: tuple[float, str | None], good: bool = True, source: str = "s", asked: int = 1) -> pa.Table:
    """Return collections at these seconds; a problem makes a failed one."""
    return build_table(
        Collection,
        {
            "at_ns": [round(at * S) for at, _ in rows], "source": source, "duration_ns": S // 10,
            "request_count": [0 if (problem or "").startswith("missed") else asked for _, problem in rows],
            "failure_count": [asked if problem and not problem.startswith("missed") else 0 for _, problem in rows],
            "answer_bytes": [0 if problem else 100 for _, problem in rows],
            "success": [problem is None for _, problem in rows], "problem": [problem for _, problem in rows],
        },
    )  # fmt: skip


def counters(**intervals: list[tuple[float, float]]) -> pa.Table:
    """Return rows of the daemons for these (begin, end) in seconds; two counters each."""
    rows = [(daemon, begin, end) for daemon, spans in intervals.items() for begin, end in spans for _ in range(2)]
    return build_table(
        PerfCounter,
        {
            "at_ns": [round(end * S) for _, _, end in rows], "daemon": [daemon for daemon, _, _ in rows],
            "duration_ns": [round(end * S) - round(begin * S) for _, begin, end in rows], "section": "osd",
            "name": "op", "kind": "counter",
        },
    )  # fmt: skip


def each(start: int, end: int) -> list[tuple[float, float]]:
    return [(float(at), at + 1.0) for at in range(start, end)]


def gaps_of(table: pa.Table, end: int, **more: Any) -> tuple[Gap, ...]:
    (source,) = build({"collection": table}, 0, end * S, **more).sources
    return source.gaps


# --- cost


def test_what_a_source_gave_and_cost() -> None:
    rows = [(0, None), (1, None), (2, "x: no"), (3, "missed: slow"), (4, None)]
    finding = build({"collection": collections(*rows)}, 0, 5 * S, {"s": 1.0})
    (source,) = finding.sources
    assert (finding.NAME, finding.start_ns, finding.end_ns) == ("recording", 0, 5 * S)
    assert (source.source, source.period_ns) == ("s", S)
    assert (source.collection_count, source.failure_count, source.missed_count) == (4, 1, 1)
    assert (source.mean_cost_ns, source.max_cost_ns, source.answer_bytes) == (S / 10, S // 10, 300)
    assert source.wall_ratio == 0.4 / 5
    assert source.gaps == (Gap(S, 4 * S, "x: no"),)


def test_a_recording_that_goes_on_ends_with_its_last_collection() -> None:
    finding = build({"collection": collections((1, None), (2, None), (4, None))}, S, None, {"s": 1.0})
    assert finding.end_ns == 4 * S
    assert finding.sources[0].gaps == (Gap(2 * S, 4 * S, NOT_ASKED),)


def test_nothing_was_recorded() -> None:
    finding = build({}, 0, S)
    assert (finding.sources, finding.absences) == ((), ())
    assert build({"perf_counter": schema_of(PerfCounter).empty_table()}, 0, S).absences == ()


# --- gaps


def test_a_gap_goes_from_the_last_good_collection_to_the_next() -> None:
    good = [(at, None) for at in (*range(10), *range(50, 60))]
    bad = [(10, "lost"), (12, "lost"), (16, "other")]
    assert gaps_of(collections(*good, *bad), 60) == (Gap(9 * S, 50 * S, "lost"),)


def test_beginning_and_end_count() -> None:
    rows = collections(*[(at, None) for at in range(10, 20)])
    assert gaps_of(rows, 40) == (Gap(0, 10 * S, NOT_ASKED), Gap(19 * S, 40 * S, NOT_ASKED))
    assert gaps_of(collections((0, "lost"), (2, "lost"), (4, "lost")), 5) == (Gap(0, 5 * S, "lost"),)


def test_a_little_late_is_no_gap() -> None:
    assert gaps_of(collections((0, None), (1.4, None), (2, None), (3, None)), 4, periods_s={"s": 1.0}) == ()


def test_a_daemon_of_many_that_fails_is_no_gap_of_the_source() -> None:
    table = collections(*[(at, None) for at in range(10)], asked=3)
    partly = table.set_column(
        table.column_names.index("failure_count"), table.schema.field("failure_count"), [[1] * 10]
    )
    assert gaps_of(partly, 10) == ()


def test_every_other_collection_missed_is_one_gap() -> None:
    rows = [(at, None if at % 2 == 0 else "missed: slow") for at in range(11)]
    assert gaps_of(collections(*rows), 11, periods_s={"s": 1.0}) == (Gap(0, 10 * S, "missed: slow", 4),)


def test_a_source_that_was_slowed_down_says_so() -> None:
    table = collections(*[(at, None) for at in (0, 1, 2, 4, 6, 8, 9)])
    notes = pa.array([None, None, None, "slowed", "slowed", "slowed", None], pa.string())
    table = table.set_column(table.column_names.index("problem"), table.schema.field("problem"), notes)
    assert gaps_of(table, 10, periods_s={"s": 1.0}) == (Gap(2 * S, 8 * S, "slowed", 2),)


def test_what_is_asked_when_it_is_needed_has_no_gaps() -> None:
    assert gaps_of(collections((0, None), (300, None), (310, None)), 400, periods_s={"other": 1.0}) == ()


def test_sources_apart() -> None:
    table = pa.concat_tables([
        collections(*[(at, None) for at in range(10)], source="b"),
        collections(*[(at, None) for at in range(0, 10, 2)], source="a"),
    ])  # fmt: skip
    sources = build({"collection": table}, 0, 10 * S).sources
    assert [(source.source, source.period_ns, source.gaps) for source in sources] == [("a", 2 * S, ()), ("b", S, ())]


# --- daemons


def absences(perf_counter: pa.Table, end: int = 100) -> tuple[DaemonAbsence, ...]:
    return build({"perf_counter": perf_counter}, 0, end * S).absences


def test_a_restarted_daemon_has_a_hole() -> None:
    table = counters(a=each(0, 100), b=[*each(0, 40), *each(61, 100)], c=each(0, 100))
    assert absences(table) == (DaemonAbsence("b", 40 * S, 61 * S, returned=True),)


def test_a_restart_between_two_collections_costs_one_interval() -> None:
    # Answers come a few ms apart.
    other = [(at + 0.003, at + 1.003) for at in range(100)]
    assert absences(counters(a=other, b=[*each(0, 40), *each(41, 100)])) == (
        DaemonAbsence("b", 40 * S, 41 * S, returned=True),
    )


def test_a_daemon_that_did_not_answer_for_a_while_was_not_absent() -> None:
    assert absences(counters(a=each(0, 100), b=[*each(0, 40), (40, 61), *each(61, 100)])) == ()


def test_a_hole_of_all_is_not_the_daemons() -> None:
    some = [(at + 0.003, at + 1.003) for at in (*range(40), *range(61, 100))]
    assert absences(counters(a=[*each(0, 40), *each(61, 100)], b=some)) == ()


def test_a_restart_during_an_outage() -> None:
    bridged = [(at + 0.003, at + 1.003) for at in (*range(40), *range(61, 100))] + [(40.003, 61.003)]
    assert absences(counters(a=bridged, b=[*each(0, 40), *each(61, 100)])) == (
        DaemonAbsence("b", 40 * S, 61 * S, returned=True),
    )


def test_a_daemon_that_came_late_and_one_that_never_returned() -> None:
    assert absences(counters(a=each(0, 100), b=each(0, 70), c=each(20, 100))) == (
        DaemonAbsence("c", 0, 20 * S, returned=True),
        DaemonAbsence("b", 70 * S, 100 * S, returned=False),
    )


def test_a_thousand_osds() -> None:
    osds, intervals = 1000, 600
    at = np.tile(np.arange(1, intervals + 1) * S, osds) + np.repeat(np.arange(osds) * 1000, intervals)
    daemon = pa.array([f"osd.{i}" for i in range(osds)]).take(pa.array(np.repeat(np.arange(osds), intervals)))
    table = build_table(
        PerfCounter,
        {"at_ns": at, "daemon": daemon, "duration_ns": S, "section": "osd", "name": "op", "kind": "counter"},
    )
    keep = np.ones(len(at), dtype=bool)
    keep[500 * intervals + 100 : 500 * intervals + 130] = False
    finding = build({"perf_counter": table.filter(pa.array(keep))}, 0, 601 * S)
    assert [(a.daemon, a.end_ns - a.start_ns) for a in finding.absences] == [("osd.500", 30 * S)]
