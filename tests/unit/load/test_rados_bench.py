"""rados bench of 16.2 and 20.2."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bathyscope.errors import ParseError, ToolError
from bathyscope.load import bytes_written, rados_bench
from bathyscope.records import Interval, RawAnswer, Result, from_table

Recorded = Callable[[str], list[RawAnswer]]
Mutate = Callable[[bytes, st.DataObject], bytes]


def parse(answer: RawAnswer) -> tuple[Result, list[Interval]]:
    found = rados_bench.parse(answer, step_index=0, client="rados_bench#0")
    assert (found.measured_start_ns, found.measured_end_ns) == (answer.started_ns, answer.ended_ns)
    (result,) = from_table(Result, found.tables[Result])
    return result, from_table(Interval, found.tables[Interval])


@pytest.mark.parametrize("version", ["16.2.15", "18.2.7", "20.2.4"])
@pytest.mark.parametrize(("mode", "direction"), [("write", "write"), ("rand", "read"), ("seq", "read")])
def test_totals_are_computed_from_counts(recorded: Recorded, version: str, mode: str, direction: str) -> None:
    answer = recorded(f"rados_bench/{version}/{mode}")[0]
    result, _ = parse(answer)
    assert result.direction == direction
    # 8 MiB of 64 KiB writes, then read back once; random reads go on for the whole second.
    assert result.io_count == 128 if mode != "rand" else result.io_count > 128
    assert result.io_bytes == result.io_count * 65536
    own = json.loads(answer.files[0][1])
    assert result.iops == pytest.approx(float(own["average_iops"]), abs=1.0)
    assert result.bandwidth_bytes_per_s == pytest.approx(float(own["bandwidth"]) * 2**20, rel=1e-3)
    assert (result.latency_ns_stddev is None) == (direction == "read")
    assert bytes_written(answer) == (result.io_bytes if direction == "write" else 0)


def test_seconds_are_differences_of_the_running_count(recorded: Recorded) -> None:
    answer = recorded("rados_bench/16.2.15/write")[0]
    datas = [{"sec": str(s), "finished": str(n)} for s, n in ((0, 0), (1, 100), (2, 250), (4, 450))]
    value = {**json.loads(answer.files[0][1]), "datas": datas}
    changed = dataclasses.replace(answer, files=(("x.json", json.dumps(value).encode()),))
    _, rows = parse(changed)
    assert [row.iops for row in rows] == [100, 150, 100]
    assert [row.offset_ns for row in rows] == [10**9, 2 * 10**9, 4 * 10**9]


def test_a_key_with_its_colon_is_read(recorded: Recorded) -> None:
    answer = recorded("rados_bench/16.2.15/write")[0]
    text = answer.files[0][1].replace(b'"max_latency"', b'"max_latency:"')
    result, _ = parse(dataclasses.replace(answer, files=(("x", text),)))
    assert result.latency_ns_max is not None


def test_an_interrupted_or_failed_bench_is_told(recorded: Recorded) -> None:
    answer = recorded("rados_bench/16.2.15/write")[0]
    with pytest.raises(ParseError, match="interrupted"):
        parse(dataclasses.replace(answer, files=(("x", b""),)))
    with pytest.raises(ToolError, match="no such pool"):
        rados_bench.check(dataclasses.replace(answer, exit_code=2, stderr=b"error: no such pool\n"))


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_broken_output_is_a_parse_error_and_nothing_else(
    recorded: Recorded, mutate: Mutate, data: st.DataObject
) -> None:
    answer = recorded("rados_bench/16.2.15/rand")[0]
    pretty = json.dumps(json.loads(answer.files[0][1]), indent=1).encode()
    broken = dataclasses.replace(answer, files=(("x", mutate(pretty, data)),))
    with contextlib.suppress(ParseError):
        parse(broken)
