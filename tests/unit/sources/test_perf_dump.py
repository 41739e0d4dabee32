"""Perf counters of 16.2 and 20.2 around a known load."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bathyscope.errors import ParseError
from bathyscope.records import PerfCounter, to_table
from bathyscope.sources import op_history, perf_dump
from bathyscope.sources.base import RawAnswer

Recorded = Callable[[str], list[RawAnswer]]
Mutate = Callable[[bytes, st.DataObject], bytes]
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]


def rows_of(recorded: Recorded, version: str, *, with_schema: bool = True) -> dict[tuple[str, str], PerfCounter]:
    before, after = recorded(f"perf_dump/{version}/before"), recorded(f"perf_dump/{version}/after")
    schema = perf_dump.parse_schema(recorded(f"perf_dump/{version}/schema")) if with_schema else None
    return {(row.section, row.name): row for row in perf_dump.parse("r", 2, before, after, schema)}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_counters_agree_with_the_op_history(recorded: Recorded, version: str) -> None:
    rows = rows_of(recorded, version)
    history = op_history.parse("r", 0, recorded(f"op_history/{version}/three-replicas"), 0, 2**62, size_limit=10**6)
    reads = [op for op in history if op.osd == 0 and op.op == "read" and op.length_bytes]
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
    assert rows["osd", "stat_bytes"].delta > 1 << 30
    assert rows["AsyncMessenger::Worker-0", "msgr_running_total_time"].kind == "counter"
    assert to_table(PerfCounter, rows.values()).num_rows == len(rows)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_schema_hardly_a_kind_differs(recorded: Recorded, version: str) -> None:
    known, guessed = rows_of(recorded, version), rows_of(recorded, version, with_schema=False)
    differing = [key for key in known if key in guessed and known[key].kind != guessed[key].kind]
    assert len(differing) <= 3, differing


def test_a_restarted_or_missing_daemon_has_no_rows_and_is_named(recorded: Recorded) -> None:
    before, after = recorded("perf_dump/16.2.15/before"), recorded("perf_dump/16.2.15/after")
    assert perf_dump.restarted(before, after) == []
    assert perf_dump.parse("r", 0, after, before) == []
    assert perf_dump.restarted(after, before) == ["osd.0"]
    gone = [dataclasses.replace(after[0], exit_code=-107)]
    assert perf_dump.parse("r", 0, before, gone) == []
    assert perf_dump.restarted(before, gone) == ["osd.0"]


@pytest.mark.parametrize("version", VERSIONS)
def test_open_connections_are_a_level_whatever_the_schema_says(recorded: Recorded, version: str) -> None:
    rows = [row for (_, name), row in rows_of(recorded, version).items() if name == "msgr_active_connections"]
    assert rows
    assert all(row.kind == "gauge" and row.delta > 0 for row in rows)


def test_a_section_that_is_new_counts_from_zero(recorded: Recorded) -> None:
    before, after = recorded("perf_dump/16.2.15/before"), recorded("perf_dump/16.2.15/after")
    value = json.loads(before[0].stdout)
    del value["bluestore"]
    lacking = [dataclasses.replace(before[0], stdout=json.dumps(value).encode())]
    rows = {(r.section, r.name): r for r in perf_dump.parse("r", 0, lacking, after)}
    total = json.loads(after[0].stdout)["bluestore"]["kv_sync_lat"]["avgcount"]
    assert rows["bluestore", "kv_sync_lat"].count == total


def test_requests_name_their_daemons() -> None:
    assert [(r.label, r.daemon) for r in perf_dump.plan([0, 7])] == [
        ("perf_dump-osd.0", "osd.0"),
        ("perf_dump-osd.7", "osd.7"),
    ]
    assert len(perf_dump.plan_schema([3, 4, 5])) == 1


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_broken_dumps_are_parse_errors_and_nothing_else(
    recorded: Recorded, mutate: Mutate, data: st.DataObject
) -> None:
    before, after = recorded("perf_dump/16.2.15/before"), recorded("perf_dump/16.2.15/after")
    pretty = json.dumps(json.loads(after[0].stdout), indent=1).encode()
    broken = [dataclasses.replace(after[0], stdout=mutate(pretty, data))]
    try:
        to_table(PerfCounter, perf_dump.parse("r", 0, before, broken))
        perf_dump.restarted(before, broken)
    except ParseError:
        return
