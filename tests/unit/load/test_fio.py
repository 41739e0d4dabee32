"""fio's recorded output, of 3.33, 3.39 and 3.41, and what becomes of it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bathyscope.errors import ParseError, ToolError
from bathyscope.load import LoadTables, bytes_written, fio
from bathyscope.records import Histogram, Interval, RawAnswer, Record, Result, from_table, schema_of

Recorded = Callable[[str], list[RawAnswer]]
Mutate = Callable[[bytes, st.DataObject], bytes]
RECORDS: tuple[type[Record], ...] = (Result, Interval, Histogram)
VERSIONS = ["3.33", "3.39", "3.41"]


@dataclasses.dataclass(frozen=True)
class Rows:
    """The tables of a load as records."""

    results: tuple[Result, ...]
    intervals: tuple[Interval, ...]
    histograms: tuple[Histogram, ...]
    measured_start_ns: int
    measured_end_ns: int


def parse(answer: RawAnswer, **options: object) -> Rows:
    found = fio.parse(answer, step_index=3, client="fio#0", **options)  # type: ignore[arg-type]
    assert found.measured_start_ns is not None
    assert found.measured_end_ns is not None
    rows = [tuple(from_table(record, found.tables[record])) for record in RECORDS]
    return Rows(*rows, found.measured_start_ns, found.measured_end_ns)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_prime_number_of_ios_is_counted_exactly(recorded: Recorded, version: str) -> None:
    rows = parse(recorded(f"fio/{version}/rados-randread-4099")[0])
    (result,) = rows.results
    assert (result.io_count, result.io_bytes, result.error_count) == (4099, 4099 * 4096, 0)
    assert result.direction == "read"
    for kind in ("slat", "clat", "lat"):
        assert sum(row.count for row in rows.histograms if row.kind == kind) == 4099


@pytest.mark.parametrize("name", ["rbd-randread", "rbd-randwrite"])
@pytest.mark.parametrize("version", VERSIONS)
def test_after_a_ramp_bytes_are_those_of_the_counted_ios(recorded: Recorded, version: str, name: str) -> None:
    """fio adds the bytes of what was in flight when the ramp ended: here of a queue of four."""
    (result,) = parse(recorded(f"fio/{version}/{name}")[0]).results
    printed = json.loads(recorded(f"fio/{version}/{name}")[0].stdout)["jobs"][0][result.direction]
    assert (printed["total_ios"] + 3) * 4096 <= printed["io_bytes"] <= (printed["total_ios"] + 4) * 4096
    assert result.io_bytes == result.io_count * 4096
    assert result.bandwidth_bytes_per_s == pytest.approx(result.iops * 4096, rel=1e-3)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_mixed_load_of_211_ios_is_split_into_directions(recorded: Recorded, version: str) -> None:
    rows = parse(recorded(f"fio/{version}/rados-randrw-211")[0])
    assert {row.direction: row.io_count for row in rows.results} == {"read": 159, "write": 52}


@pytest.mark.parametrize("path", ["3.33/rbd-randread", "3.33/rbd-randwrite", "3.33/disk-randrw", "3.41/rbd-randread"])
def test_percentiles_from_the_buckets_equal_fios_own(recorded: Recorded, path: str) -> None:
    answer = recorded(f"fio/{path}")[0]
    rows = parse(answer)
    checked = 0
    for direction in ("read", "write"):
        for kind in ("slat", "clat", "lat"):
            buckets = sorted(
                (row.bucket_ns, row.count) for row in rows.histograms if (row.direction, row.kind) == (direction, kind)
            )
            total = sum(count for _, count in buckets)
            own = json.loads(answer.stdout)["jobs"][0][direction][f"{kind}_ns"].get("percentile", {})
            for name, value in own.items():
                running, found = 0, 0
                for bucket, count in buckets:
                    running += count
                    found = bucket
                    # fio takes the first bucket that reaches the rank.
                    if running >= float(name) / 100 * total:
                        break
                assert abs(found - value) <= max(1, value / 64)
                checked += 1
    assert checked >= 17 * 3


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["rbd-randread", "rbd-randwrite"])
def test_intervals_lie_on_the_measured_window(recorded: Recorded, version: str, name: str) -> None:
    answer = recorded(f"fio/{version}/{name}")[0]
    rows = parse(answer)
    (result,) = rows.results
    assert answer.started_ns < rows.measured_start_ns < rows.measured_end_ns <= answer.ended_ns
    # The ramp of 0.2 s is not in the window.
    assert rows.measured_start_ns - answer.started_ns > 200_000_000
    assert 8 <= len(rows.intervals) <= 11
    assert [row.offset_ns for row in rows.intervals] == sorted(row.offset_ns for row in rows.intervals)
    assert all(abs(row.duration_ns - 100_000_000) < 30_000_000 for row in rows.intervals)
    mean = sum(row.iops * row.duration_ns for row in rows.intervals) / sum(row.duration_ns for row in rows.intervals)
    assert mean == pytest.approx(result.iops, rel=0.15)
    assert all(row.bandwidth_bytes_per_s == pytest.approx(row.iops * 4096, rel=0.2) for row in rows.intervals)
    latencies = [row.latency_ns_mean for row in rows.intervals if row.latency_ns_mean is not None]
    assert len(latencies) >= len(rows.intervals) - 1
    assert sum(latencies) / len(latencies) == pytest.approx(result.latency_ns_mean, rel=0.3)


@pytest.mark.parametrize("version", ["3.39", "3.41"])
@pytest.mark.parametrize("name", ["rbd-randread", "rbd-randwrite"])
def test_the_window_begins_where_fio_says_it_does(recorded: Recorded, version: str, name: str) -> None:
    """A step whose queue is filled in its first milliseconds loses those I/Os when its window begins too late."""
    answer = recorded(f"fio/{version}/{name}")[0]
    (job,) = fio.read_output(answer).jobs
    # fio sets it anew when the ramp is over.
    assert abs(parse(answer).measured_start_ns // 1_000_000 - job["job_start"]) <= 2


def test_an_interval_without_io_is_a_zero_not_a_gap(recorded: Recorded) -> None:
    answer = recorded("fio/3.33/rbd-randread")[0]
    # Take two lines out of the middle of every log, as a stall of 200 ms would have left them.
    files = tuple((n, b"\n".join([*c.split(b"\n")[:4], *c.split(b"\n")[6:]])) for n, c in answer.files)
    whole, stalled = parse(answer).intervals, parse(dataclasses.replace(answer, files=files)).intervals
    assert len(stalled) == len(whole)
    assert [row.iops for row in stalled].count(0.0) == 2
    assert all(row.latency_ns_mean is None for row in stalled if row.iops == 0)


def test_lines_of_an_earlier_run_in_the_same_log_are_left_out(recorded: Recorded) -> None:
    answer = recorded("fio/3.33/rbd-randread")[0]
    files = tuple((name, b"1700000000123, 99999, 0, 0, 0\n" + content) for name, content in answer.files)
    assert parse(dataclasses.replace(answer, files=files)) == parse(answer)


def test_a_log_cut_off_in_the_middle_of_a_line_loses_that_line(recorded: Recorded) -> None:
    answer = recorded("fio/3.33/rbd-randread")[0]
    files = tuple((name, content[:-5]) for name, content in answer.files)
    assert len(parse(dataclasses.replace(answer, files=files)).intervals) == len(parse(answer).intervals) - 1


def test_the_job_threads_cpu_counts_only_where_it_does_the_work(recorded: Recorded) -> None:
    answer = recorded("fio/3.33/disk-randrw")[0]
    shared = parse(answer).results[0]
    assert shared.cpu_user_s is None
    assert shared.cpu_thread_s is not None
    own = parse(answer, own_cpu=True).results[0]
    assert own.cpu_user_s is not None
    assert own.cpu_system_s is not None
    assert 0 < own.cpu_user_s + own.cpu_system_s < 1.5
    assert shared.cpu_thread_s == own.cpu_user_s + own.cpu_system_s


@pytest.mark.parametrize("version", VERSIONS)
def test_the_row_of_all_clients_is_dropped_and_the_chatter_skipped(recorded: Recorded, version: str) -> None:
    answer = recorded(f"fio/{version}/client-all-clients")[0]
    assert b"All clients" in answer.stdout
    assert not answer.stdout.startswith(b"{")
    output = fio.read_output(answer)
    assert len(output.jobs) == 2
    rows = parse(answer)
    assert [row.client for row in rows.results] == ["fio#0.0", "fio#0.1"]
    clients = {row.client: row.io_count for row in rows.results}
    for client, count in clients.items():
        in_buckets = sum(row.count for row in rows.histograms if (row.client, row.kind) == (client, "lat"))
        # I/Os in flight at the end of the ramp are in fio's buckets but not in its count: up to the queue depth.
        assert abs(in_buckets - count) <= 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_remote_client_has_intervals(recorded: Recorded, version: str) -> None:
    for answer in recorded(f"fio/{version}/client-two-processes"):
        rows = parse(answer)
        assert len(rows.intervals) >= 8
        assert 0 < rows.intervals[0].offset_ns < 300_000_000


@pytest.mark.parametrize("version", VERSIONS)
def test_an_engine_error_inside_json_with_error_zero_is_an_error(recorded: Recorded, version: str) -> None:
    answer = recorded(f"fio/{version}/rbd-no-image")[0]
    assert json.loads(answer.stdout[answer.stdout.index(b"{") :])["jobs"][0]["error"] == 0
    assert answer.exit_code == 1
    with pytest.raises(ToolError, match="rbd_open failed"):
        fio.check(answer)
    (row,) = parse(answer, expected=["read"]).results
    assert (row.io_count, row.latency_ns_mean) == (0, None)
    assert row.error_count >= 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_crash_is_told_with_the_last_message(recorded: Recorded, version: str) -> None:
    with pytest.raises(ToolError, match=r"signal 11: .*rados_conf_read_file failed"):
        fio.check(recorded(f"fio/{version}/rados-no-conf")[0])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_interrupted_load_is_still_readable(recorded: Recorded, version: str) -> None:
    answer = recorded(f"fio/{version}/rbd-sigint")[0]
    assert "fio: terminating on signal 2" in fio.read_output(answer).messages
    assert parse(answer).results[0].io_count > 0


def test_a_file_that_is_not_there_is_not_made(recorded: Recorded) -> None:
    with pytest.raises(ToolError, match="without one I/O"):
        fio.check(recorded("fio/3.33/disk-absent")[0])


def test_no_json_is_a_parse_error_with_the_last_line(recorded: Recorded) -> None:
    answer = dataclasses.replace(recorded("fio/3.33/rbd-randread")[0], stdout=b"one\nfio: something is wrong\n")
    with pytest.raises(ParseError, match="something is wrong"):
        parse(answer)


def test_rows_fit_their_tables(recorded: Recorded) -> None:
    found = fio.parse(recorded("fio/3.41/rbd-randwrite")[0], step_index=3, client="fio#0")
    assert isinstance(found, LoadTables)
    assert {record: table.schema for record, table in found.tables.items()} == {r: schema_of(r) for r in RECORDS}
    assert found.tables[Result].num_rows == 1
    assert set(found.tables[Histogram].column("step_index").to_pylist()) == {3}


def test_what_was_written_is_counted(recorded: Recorded) -> None:
    assert bytes_written(recorded("fio/3.33/rados-randrw-211")[0]) == 52 * 4096
    assert bytes_written(recorded("fio/3.33/rbd-randread")[0]) == 0


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_broken_output_is_a_parse_error_and_nothing_else(
    recorded: Recorded, mutate: Mutate, data: st.DataObject
) -> None:
    answer = recorded("fio/3.33/rados-randrw-211")[0]
    broken = mutate(answer.stdout, data)
    files = tuple((name, mutate(content, data)) for name, content in answer.files)
    with contextlib.suppress(ParseError):
        parse(dataclasses.replace(answer, stdout=broken, files=files))
