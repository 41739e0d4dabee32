"""Perf counters of 16.2, 18.2 and 20.2 around a known load, and differences over many looks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable

import pytest

from bathyscope.host import CephRequest
from bathyscope.records import Op, PerfCounter, RawAnswer, from_table
from bathyscope.sources import op_history, perf_counters
from bathyscope.sources.perf_counters import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]
SCOPE = Scope(target=Target(name="t"))
SECOND = 10**9


def parse(answers: Iterable[RawAnswer], scope: Scope = SCOPE) -> list[PerfCounter]:
    return from_table(PerfCounter, SOURCE.parse(list(answers), scope)[PerfCounter])


def rows_of(recorded: Recorded, version: str, *, with_schema: bool = True) -> dict[tuple[str, str], PerfCounter]:
    schema = recorded(f"perf_dump/{version}/schema")[0].json() if with_schema else {}
    scope = SCOPE.model_copy(update={"counter_kinds": perf_counters.kinds(schema)})
    rows = parse(recorded(f"perf_dump/{version}/before") + recorded(f"perf_dump/{version}/after"), scope)
    return {(row.section, row.name): row for row in rows}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_counters_agree_with_the_op_history(recorded: Recorded, version: str) -> None:
    rows = rows_of(recorded, version)
    history = op_history.SOURCE.parse(recorded(f"op_history/{version}/three-replicas"), SCOPE)[Op]
    reads = [op for op in from_table(Op, history) if op.osd == 0 and op.op == "read" and op.length_bytes]
    assert rows["osd", "op_r_out_bytes"].delta == sum(op.length_bytes or 0 for op in reads) > 0
    assert rows["osd", "op_r"].kind == "counter"


@pytest.mark.parametrize("version", VERSIONS)
def test_averages_have_a_sum_and_a_count_and_gauges_a_level(recorded: Recorded, version: str) -> None:
    rows = rows_of(recorded, version)
    latency = rows["osd", "op_latency"]
    assert latency.kind == "average"
    assert latency.count is not None
    assert 0 < latency.delta / latency.count < 5
    assert rows["osd", "stat_bytes"].kind == "gauge"
    assert rows["osd", "stat_bytes"].value > 1 << 30
    assert rows["osd", "stat_bytes"].delta is None
    assert rows["AsyncMessenger::Worker-0", "msgr_running_total_time"].kind == "counter"
    before, after = recorded(f"perf_dump/{version}/before")[0], recorded(f"perf_dump/{version}/after")[0]
    assert {row.at_ns for row in rows.values()} == {after.ended_ns}
    assert {row.duration_ns for row in rows.values()} == {after.ended_ns - before.ended_ns}
    assert {row.daemon for row in rows.values()} == {"osd.0"}


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_schema_hardly_a_kind_differs(recorded: Recorded, version: str) -> None:
    known, guessed = rows_of(recorded, version), rows_of(recorded, version, with_schema=False)
    differing = [key for key in known if key in guessed and known[key].kind != guessed[key].kind]
    assert len(differing) <= 3, differing


def test_a_restarted_or_missing_daemon_has_no_rows_and_is_named(recorded: Recorded) -> None:
    before, after = recorded("perf_dump/16.2.15/before"), recorded("perf_dump/16.2.15/after")
    later = [dataclasses.replace(before[0], ended_ns=after[0].ended_ns + SECOND)]
    assert perf_counters.restarted(before + after) == []
    assert parse(after + later) == []
    assert perf_counters.restarted(after + later) == ["osd.0"]
    gone = [dataclasses.replace(after[0], exit_code=-107)]
    assert parse(before + gone) == []
    assert perf_counters.restarted(before + gone) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_open_connections_are_a_level_whatever_the_schema_says(recorded: Recorded, version: str) -> None:
    rows = [row for (_, name), row in rows_of(recorded, version).items() if name == "msgr_active_connections"]
    assert rows
    assert all(row.kind == "gauge" and row.value > 0 for row in rows)


def test_a_section_that_is_new_counts_from_zero(recorded: Recorded) -> None:
    before, after = recorded("perf_dump/16.2.15/before"), recorded("perf_dump/16.2.15/after")
    value = json.loads(before[0].stdout)
    del value["bluestore"]
    lacking = [dataclasses.replace(before[0], stdout=json.dumps(value).encode())]
    rows = {(r.section, r.name): r for r in parse(lacking + after)}
    total = json.loads(after[0].stdout)["bluestore"]["kv_sync_lat"]["avgcount"]
    assert rows["bluestore", "kv_sync_lat"].count == total


def look(at_s: float, osd: int, ops: int, *, pgs: int = 3, exit_code: int = 0) -> RawAnswer:
    """One answer of an OSD that has served `ops` in `ops` / 100 seconds, and received as many messages."""
    value = {
        "AsyncMessenger::Worker-0": {"msgr_recv_messages": ops},
        "osd": {"op": ops, "op_latency": {"avgcount": ops, "sum": ops / 128, "avgtime": 1}, "numpg": pgs, "op_r": 0},
    }
    at_ns = round(at_s * SECOND)
    return RawAnswer(f"perf_dump-osd.{osd}", (), (), exit_code, json.dumps(value).encode(), b"", at_ns, at_ns)


def test_each_pair_of_looks_is_an_interval_and_intervals_add_up() -> None:
    answers = [look(at, osd, ops + osd) for at, ops in ((1, 10), (2, 30), (4.5, 31), (5, 31)) for osd in (0, 1)]
    rows = parse(answers)
    ops = [row for row in rows if row.name == "op" and row.daemon == "osd.1"]
    assert [(row.at_ns, row.duration_ns, row.delta) for row in ops] == [
        (2 * SECOND, SECOND, 20),
        (4_500_000_000, 2_500_000_000, 1),
    ]
    latency = [row for row in rows if row.name == "op_latency" and row.daemon == "osd.0"]
    assert [(row.kind, row.delta, row.count, row.value) for row in latency] == [
        ("average", 20 / 128, 20, None),
        ("average", 1 / 128, 1, None),
    ]
    gauges = [row for row in rows if row.name == "numpg" and row.daemon == "osd.0"]
    assert [(row.at_ns, row.delta, row.value) for row in gauges] == [
        (2 * SECOND, None, 3),
        (4_500_000_000, None, 3),
        (5 * SECOND, None, 3),
    ]
    assert not [row for row in rows if row.name == "op_r"]


def test_a_gauge_that_becomes_zero_has_a_row_that_says_so() -> None:
    rows = parse([look(at, 0, 1, pgs=pgs) for at, pgs in ((1, 3), (2, 0), (3, 0), (4, 2))])
    assert [(row.at_ns // SECOND, row.value) for row in rows if row.name == "numpg"] == [(2, 0), (4, 2)]


def test_a_restart_is_seen_though_the_messenger_counts_more_than_before() -> None:
    def look(second: int, messages: int, flushes: int) -> RawAnswer:
        dump = {
            "AsyncMessenger::Worker-0": {"msgr_recv_messages": messages},
            "bluestore": {"kv_flush_lat": {"avgcount": flushes, "sum": 1.0}},
            "osd": {"op": 0},
        }
        at_ns = second * SECOND
        return RawAnswer("perf_dump-osd.0", (), (), 0, json.dumps(dump).encode(), b"", at_ns, at_ns)

    answers = [look(1, 44, 41), look(2, 60, 22), look(3, 70, 25)]
    assert perf_counters.restarted(answers) == ["osd.0"]
    assert {row.at_ns for row in parse(answers)} == {3 * SECOND}


def test_a_restart_costs_one_interval() -> None:
    answers = [look(1, 0, 100), look(2, 0, 150), look(3, 0, 7), look(4, 0, 9)]
    rows = [row for row in parse(answers) if row.name == "op"]
    assert [(row.at_ns // SECOND, row.delta) for row in rows] == [(2, 50), (4, 2)]
    assert not [row for row in parse(answers) if row.at_ns == 3 * SECOND]
    assert perf_counters.restarted(answers) == ["osd.0"]


def test_an_osd_that_is_silent_for_a_while_has_one_longer_interval_and_one_that_stays_silent_none() -> None:
    answers = [
        *(look(1, 0, 10), look(1, 1, 10)),
        *(look(2, 0, 20, exit_code=-110), look(2, 1, 20)),
        *(look(3, 0, 30), look(3, 1, 30, exit_code=-110)),
    ]
    rows = [(r.daemon, r.at_ns // SECOND, r.duration_ns // SECOND, r.delta) for r in parse(answers) if r.name == "op"]
    assert rows == [("osd.0", 3, 2, 20), ("osd.1", 2, 1, 10)]


def test_one_look_or_none_has_no_rows_and_one_given_twice_makes_none() -> None:
    assert parse([]) == []
    assert parse([look(1, 0, 5)]) == []
    assert [row.delta for row in parse([look(1, 0, 5), look(1, 0, 5), look(2, 0, 6)]) if row.name == "op"] == [1]


def test_a_thousand_osds_are_rows_of_one_table(recorded: Recorded) -> None:
    before, after = recorded("perf_dump/20.2.4/before")[0], recorded("perf_dump/20.2.4/after")[0]
    one = len(parse([before, after]))
    answers = [dataclasses.replace(a, label=f"perf_dump-osd.{osd}") for a in (before, after) for osd in range(1000)]
    table = SOURCE.parse(answers, SCOPE)[PerfCounter]
    assert table.num_rows == 1000 * one
    assert set(table.column("daemon").unique().to_pylist()) == {f"osd.{osd}" for osd in range(1000)}


def test_requests_name_their_daemons() -> None:
    requests = SOURCE.plan(SCOPE.model_copy(update={"asked_osds": (0, 7)}))
    assert [(r.label, r.daemon) for r in requests if isinstance(r, CephRequest)] == [
        ("perf_dump-osd.0", "osd.0"),
        ("perf_dump-osd.7", "osd.7"),
    ]
    assert list(SOURCE.plan(SCOPE)) == []


def test_of_a_scope_with_sections_only_their_counters_make_rows(recorded: Recorded) -> None:
    answers = recorded("perf_dump/18.2.7/before") + recorded("perf_dump/18.2.7/after")
    chosen = parse(answers, SCOPE.model_copy(update={"counter_sections": ("osd", "filestore")}))
    assert chosen == [row for row in parse(answers) if row.section == "osd"]
    assert chosen


def test_what_rests_makes_no_row_but_a_gauge_that_is_not_zero(recorded: Recorded) -> None:
    before, after = recorded("perf_dump/18.2.7/before")[0], recorded("perf_dump/18.2.7/after")[0]
    rows = parse([before, dataclasses.replace(before, started_ns=after.started_ns, ended_ns=after.ended_ns)])
    assert {row.kind for row in rows} == {"gauge"}
    assert all(row.value for row in rows)
