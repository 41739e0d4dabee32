"""Samples are joined with windows: cut in proportion, taken whole, or by their moment."""

from __future__ import annotations

import dataclasses
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cut import cut
from tests.unit.analysis.builders import SECOND_NS, START_NS, Load, RunBuilder

from bathyscope.analysis.columns import floats, total
from bathyscope.analysis.window import counted_s, of_time
from bathyscope.records import (
    CacheSample,
    ClusterStatus,
    DeviceSample,
    Op,
    PerfCounter,
    Step,
    from_table,
    schema_of,
    to_table,
)
from bathyscope.window.tables import in_windows, of_steps

DEVICE = DeviceSample(START_NS, SECOND_NS, "h", "sda", "osd.0", "hdd", 10, 20, 4096, 8192, 0.5, None, None)


def device(end_s: float, length_s: float, reads: int) -> DeviceSample:
    return dataclasses.replace(
        DEVICE, at_ns=START_NS + round(end_s * SECOND_NS), duration_ns=round(length_s * SECOND_NS), read_count=reads
    )


def test_an_interval_at_the_edge_counts_in_proportion() -> None:
    rows = to_table(DeviceSample, [device(1, 1, 100), device(2, 1, 200), device(3, 1, 300)])
    found = cut(DeviceSample, rows, START_NS + SECOND_NS // 2, START_NS + 2 * SECOND_NS + SECOND_NS // 4)
    assert floats(found, "read_count").tolist() == [50.0, 200.0, 75.0]
    assert floats(found, "duration_ns").tolist() == [0.5e9, 1e9, 0.25e9]
    assert floats(found, "busy_ratio").tolist() == [0.5, 0.5, 0.5]


def test_a_gap_stays_a_gap() -> None:
    rows = to_table(DeviceSample, [device(1, 1, 100), device(9, 1, 300)])
    assert cut(DeviceSample, rows, START_NS + 2 * SECOND_NS, START_NS + 8 * SECOND_NS).num_rows == 0


@given(
    st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 10**6)), min_size=1, max_size=40),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True),
)
def test_windows_that_share_out_a_time_share_out_what_was_counted(
    intervals: list[tuple[int, int]], marks: list[int]
) -> None:
    """Whatever the lengths of the intervals: adjoining windows together hold exactly what all of them counted."""
    rows, at = [], 0
    for length_ms, count in intervals:
        at += length_ms
        rows.append(device(at / 1000, length_ms / 1000, count))
    table = to_table(DeviceSample, rows)
    end = at / 1000
    edges = [0.0, *sorted(mark / 10**6 * end for mark in marks), end]
    marks_ns = [START_NS + round(edge * SECOND_NS) for edge in edges]
    parts = [
        own["device_sample"]
        for own in in_windows({"device_sample": table}, list(itertools.starmap(of_time, itertools.pairwise(marks_ns))))
        if own
    ]
    assert sum(total(part, "read_count") for part in parts) == pytest.approx(total(table, "read_count"), rel=1e-9)
    assert sum(total(part, "duration_ns") for part in parts) == pytest.approx(end * SECOND_NS, rel=1e-9)


def run_of(*loads: Load) -> tuple[dict[str, pa.Table], list[Step]]:
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    for load in loads:
        builder.add_step(load)
    tables = builder.tables()
    return tables, from_table(Step, tables["step"])


def test_perf_counters_are_taken_whole_with_their_own_length() -> None:
    tables, steps = run_of(Load(), Load())
    first, second = (of_steps(tables)[step.step_index]["perf_counter"] for step in steps)
    assert first.num_rows == second.num_rows == tables["perf_counter"].num_rows // 2
    assert total(first, "delta") == sum(row.delta or 0 for row in from_table(PerfCounter, first))
    assert counted_s(first) == 12.0


def test_a_daemon_that_was_read_twice_spans_both_intervals() -> None:
    row = PerfCounter(START_NS, SECOND_NS, "osd.0", "osd", "op", "counter", 1.0, None, None)
    later = dataclasses.replace(row, at_ns=START_NS + SECOND_NS)
    assert counted_s(to_table(PerfCounter, [row, dataclasses.replace(row, name="op_w"), later])) == 2.0
    assert counted_s(to_table(PerfCounter, [])) is None


def test_ops_are_those_of_the_steps_last_seconds() -> None:
    tables, (step,) = run_of(Load(op_rows=10))
    ops = from_table(Op, tables["op"])
    early = dataclasses.replace(ops[0], started_ns=step.measured_end_ns - 3 * SECOND_NS)
    late = dataclasses.replace(ops[0], started_ns=step.measured_end_ns + 1)
    tables["op"] = to_table(Op, [*ops, early, late])
    assert of_steps(tables)[step.step_index]["op"].num_rows == 10


def test_a_history_that_does_not_reach_back_is_no_complete_sample() -> None:
    tables, (step,) = run_of(Load(op_rows=10))
    ops = from_table(Op, tables["op"])
    ops[0] = dataclasses.replace(ops[0], complete_since_ns=step.measured_end_ns - SECOND_NS)
    tables["op"] = to_table(Op, ops)
    complete = of_steps(tables)[step.step_index]["op"].column("complete_sample").to_pylist()
    assert (complete.count(False), complete.count(True)) == (1, 9)


def look(at_ns: int) -> ClusterStatus:
    return ClusterStatus(at_ns, "HEALTH_OK", 0, 8, 8, 0, 0, None, None)


def test_looks_are_those_of_the_window_and_the_next_ones_around_it() -> None:
    tables, (step,) = run_of(Load(layer="disk"))
    half = SECOND_NS // 2
    moments = {
        "too old": step.started_ns - 3 * half, "before": step.started_ns - half, "inside": step.started_ns + half,
        "after": step.ended_ns + half, "another step's": step.ended_ns + SECOND_NS,
    }  # fmt: skip
    tables["cluster_status"] = to_table(ClusterStatus, [look(at) for at in moments.values()])
    found = of_steps(tables)[step.step_index]["cluster_status"].column("at_ns").to_pylist()
    assert found == [moments[name] for name in ("before", "inside", "after")]


def test_samples_of_a_cache_are_in_the_windows_of_steps() -> None:
    tables, (step,) = run_of(Load(layer="disk"))
    fields = dict.fromkeys(schema_of(CacheSample).names, 0)
    texts = dict.fromkeys(("host", "cache", "source", "directory"), "a")
    row = fields | texts | {"at_ns": step.measured_start_ns + SECOND_NS, "duration_ns": 2 * SECOND_NS, "read_count": 50}
    tables["cache_sample"] = pa.Table.from_pylist([row], schema=schema_of(CacheSample))
    (sample,) = of_steps(tables)[step.step_index]["cache_sample"].to_pylist()
    assert (sample["read_count"], sample["duration_ns"]) == (25.0, SECOND_NS)


def test_rows_of_the_load_generator_go_by_their_step() -> None:
    tables, steps = run_of(Load(layer="disk"), Load(layer="disk", op="randwrite"))
    for step in steps:
        own = of_steps(tables)[step.step_index]
        assert set(own["result"].column("step_index").to_pylist()) == {step.step_index}
