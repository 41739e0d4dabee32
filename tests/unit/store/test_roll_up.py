"""Roll-ups equal what the segments give from which they were made, also when the program is killed on the way."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.store.killing import leftovers, no_space, run_until

from bathyscope.errors import StoreError
from bathyscope.records import (
    RECORDS_BY_TABLE,
    ClusterStatus,
    Collection,
    DeviceSample,
    ImageUsage,
    Op,
    PerfCounter,
    ProcessSample,
    RawAnswer,
    Record,
    build_table,
    column,
    from_table,
)
from bathyscope.store import RunDirectory, Workspace, duck
from bathyscope.store.roll_up import Retention, can_be_rolled_up, roll_up

SECOND_NS = 10**9
START_S = 1_790_035_200  # midnight
NOW_OR_NEVER = Retention(raw_s=0, recorded_s=0, minute_s=math.inf, event_s=math.inf)
ALL_THE_WAY = Retention(raw_s=0, recorded_s=0, minute_s=0, event_s=math.inf)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with Workspace(tmp_path).create_run(kind="collect", started_ns=1) as made:
        yield made


def name_of(second: float) -> str:
    moment = datetime.datetime.fromtimestamp(second, tz=datetime.UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z-5s"


def counter(at_s: float, duration_s: float, delta: float, daemon: str = "osd.0", value: float | None = None) -> Any:
    return PerfCounter(
        round(at_s * SECOND_NS), round(duration_s * SECOND_NS), daemon, "osd", "op", "counter", delta, None, value
    )


def device(  # noqa: PLR0917 - as many as the record has columns of interest
    at_s: float, duration_s: float, count: int, busy: float, name: str, limit: float | None
) -> Any:
    return DeviceSample(
        round(at_s * SECOND_NS), round(duration_s * SECOND_NS), "h", name, "osd.0", "hdd", count, count, count * 512, 0,
        busy, limit, None,
    )  # fmt: skip


def collection(at_s: float) -> Any:
    return Collection(round(at_s * SECOND_NS), "proc", 1000, 1, 0, 10, True, None)


def op(at_s: float) -> Any:
    columns = {"osd": 1, "client": "c", "op": "read", "duration_ns": 5, "complete_sample": True, "complete_since_ns": 0}
    return build_table(Op, {**columns, "started_ns": [round(at_s * SECOND_NS)]})


ANSWER = RawAnswer("a", (), (), 0, b"x", b"", 1, 2)


def write(run: RunDirectory, start_s: float, rows: list[Record], ops: int = 0) -> None:
    with run.begin_segment(name_of(start_s)) as writer:
        for kind in {type(row) for row in rows}:
            writer.table(kind, [row for row in rows if type(row) is kind])
        for number in range(ops):
            writer.table(Op, op(start_s + number))
        writer.raw("proc", [ANSWER])
        writer.commit()


def record_hours(run: RunDirectory, hours: float, period_s: int = 20, segment_s: int = 300) -> None:
    """Write a recording: two daemons, two devices, five ops a segment."""
    start = START_S
    while start < START_S + hours * 3600:
        rows: list[Record] = []
        for at in range(start + period_s, start + segment_s + 1, period_s):
            rows += [counter(at, period_s, at % 97, f"osd.{n}", float(at)) for n in range(2)]
            rows += [device(at, period_s, at % 53, (at % 11) / 10, f"sd{n}", 0.5 if n else None) for n in "01"]
            rows += [collection(at)]
        write(run, start, rows, ops=5)
        start += segment_s


def figures(run: RunDirectory) -> dict[str, Any]:
    """Return what no roll-up may change."""
    sql = """
        SELECT (SELECT sum(delta) FROM perf_counter) AS delta, (SELECT sum(duration_ns) FROM perf_counter) AS time,
               (SELECT sum(read_count) FROM device_sample) AS reads, (SELECT count(*) FROM op) AS ops,
               (SELECT sum(busy_ratio * duration_ns) FROM device_sample) AS busy,
               (SELECT count(*) FROM collection) AS collections
    """
    (row,) = duck.query([run], sql).to_pylist()
    row["busy"] = round(row["busy"] / 1e9, 6)
    return row


def test_which_records_can_be_rolled_up() -> None:
    assert [r for r in (PerfCounter, DeviceSample, ProcessSample) if not can_be_rolled_up(r)] == []
    assert [r for r in (Collection, ClusterStatus, Op, ImageUsage) if can_be_rolled_up(r)] == []


def test_from_seconds_to_minutes_to_hours(run: RunDirectory) -> None:
    record_hours(run, 3)
    before = figures(run)
    assert run.table(PerfCounter).num_rows == 3 * 180 * 2
    now_ns = (START_S + 2 * 3600) * SECOND_NS
    assert roll_up(run, now_ns, dataclasses.replace(NOW_OR_NEVER, raw_s=math.inf)) == []
    files = run.files()["perf_counter"]
    # Two hours have ended; the third is kept as it was recorded.
    assert len(roll_up(run, now_ns, NOW_OR_NEVER)) >= 2
    # Files that a reader has listed stay for one more period.
    assert sum(pa.parquet.read_metadata(file).num_rows for file in files) == 3 * 180 * 2
    resolutions = [segment.facts.resolution_s for segment in run.segments().values()]
    assert resolutions.count(60) == 2
    assert resolutions.count(0) == 12
    assert figures(run) == before
    rows = run.table(PerfCounter)
    assert rows.num_rows == 2 * 60 * 2 + 180 * 2
    assert set(rows.column("duration_ns").to_pylist()) == {60 * SECOND_NS, 20 * SECOND_NS}
    # Each span is there once.
    mine = sorted((row.at_ns, row.duration_ns) for row in from_table(PerfCounter, rows) if row.daemon == "osd.0")
    assert all(later[0] - later[1] == earlier[0] for earlier, later in itertools.pairwise(mine))
    # A day later all are hours.
    assert roll_up(run, (START_S + 86400) * SECOND_NS, ALL_THE_WAY)
    assert [segment.facts.resolution_s for segment in run.segments().values()] == [3600]
    assert figures(run) == before
    rows = run.table(PerfCounter)
    assert rows.column("at_ns").to_pylist() == [(START_S + 3600 * (n // 2 + 1)) * SECOND_NS for n in range(6)]
    # The last value of each hour.
    assert rows.column("value").to_pylist() == [START_S + 3600.0 * (n // 2 + 1) for n in range(6)]
    # What was replaced goes with the next call, for a reader may still have been at it.
    assert len(list((run.path / "segments").iterdir())) > 1
    assert roll_up(run, (START_S + 86400) * SECOND_NS, ALL_THE_WAY) == []
    assert len(list((run.path / "segments").iterdir())) == 1
    run.compact()
    assert figures(run) == before
    assert not leftovers(run.path)


def test_a_row_ends_where_its_interval_ends_or_the_recording_does(run: RunDirectory) -> None:
    write(
        run,
        START_S,
        [counter(START_S + 70, 10, 1), counter(START_S + 80, 10, 1, "osd.1"), counter(START_S + 60, 10, 1)],
    )
    roll_up(run, (START_S + 3600) * SECOND_NS, NOW_OR_NEVER)
    ends = [(row.at_ns // SECOND_NS - START_S, row.daemon) for row in from_table(PerfCounter, run.table(PerfCounter))]
    assert sorted(ends) == [(60, "osd.0"), (80, "osd.0"), (80, "osd.1")]


def test_a_counter_that_was_quiet_for_a_while_has_the_whole_time_of_its_daemon(run: RunDirectory) -> None:
    quiet = dataclasses.replace(counter(START_S + 30, 10, 50), name="op_w")
    rows = [counter(START_S + at, 10, 1, daemon) for daemon in ("osd.0", "osd.1") for at in range(10, 121, 10)]
    # The other daemon was down for half a minute.
    write(run, START_S, [quiet, *(row for row in rows if row.daemon == "osd.0" or row.at_ns > (START_S + 30) * 10**9)])
    for keep, hours, interval_s in ((NOW_OR_NEVER, 4, 60), (ALL_THE_WAY, 24, 120)):
        roll_up(run, (START_S + hours * 3600) * SECOND_NS, keep)
        found = {
            (row.daemon, row.name): (row.duration_ns / SECOND_NS, row.delta)
            for row in from_table(PerfCounter, run.table(PerfCounter))
            if row.at_ns == (START_S + interval_s) * SECOND_NS
        }
        seen_s = {"osd.0": interval_s, "osd.1": interval_s - 30}
        assert found == {
            ("osd.0", "op_w"): (seen_s["osd.0"], 50),
            **{(daemon, "op"): (seconds, seconds / 10) for daemon, seconds in seen_s.items()},
        }


def test_retention(run: RunDirectory) -> None:
    record_hours(run, 2)
    keep = Retention(raw_s=3600, recorded_s=6 * 3600, minute_s=2 * 86400, hour_s=10 * 86400, event_s=86400)

    def after(hours: float) -> tuple[int, int, int, int]:
        roll_up(run, round((START_S + hours * 3600) * SECOND_NS), keep)
        segments = run.segments().values()
        raw = sum(bool(segment.raw_sources()) for segment in segments)
        return raw, run.table(PerfCounter).num_rows, run.table(Op).num_rows, run.table(Collection).num_rows

    assert after(0.5) == (24, 720, 120, 360)
    assert after(2.5) == (7, 720, 120, 360)
    assert after(3.5) == (0, 720, 120, 360)
    assert after(7) == (0, 480, 120, 360)
    assert after(8) == (0, 240, 120, 360)
    # An op's time is up after a day: by rows where segments are joined, else with the segment.
    assert after(24.5) == (0, 240, 120, 360)
    # Collections explain the samples, so they stay as long as those.
    assert after(26.1) == (0, 240, 0, 360)
    assert after(47) == (0, 240, 0, 360)
    assert after(73) == (0, 4, 0, 360)
    assert after(241) == (0, 4, 0, 360)
    assert after(243) == (0, 0, 0, 0)
    assert run.segments() == {}


def test_other_segments_are_left_alone(run: RunDirectory) -> None:
    for name in ("before", "step-00000", "20261399T999999.000Z-5s"):
        with run.begin_segment(name) as writer:
            writer.table(PerfCounter, [counter(START_S, 5, 1), counter(START_S + 5, 5, 1)])
            writer.raw("proc", [ANSWER])
            writer.commit()
    assert roll_up(run, (START_S + 10**9) * SECOND_NS, ALL_THE_WAY) == []
    assert run.table(PerfCounter).num_rows == 6
    assert run.segments()["before"].raw("proc") == [ANSWER]


def test_a_late_segment_of_an_hour_that_was_joined(run: RunDirectory) -> None:
    record_hours(run, 1)
    now_ns = (START_S + 3600) * SECOND_NS
    roll_up(run, now_ns, NOW_OR_NEVER)
    write(run, START_S + 1, [counter(START_S + 2, 1, 1000)])
    before = figures(run)
    assert roll_up(run, now_ns, NOW_OR_NEVER)
    assert figures(run) == before
    assert roll_up(run, (START_S + 86400) * SECOND_NS, ALL_THE_WAY)
    assert figures(run) == before
    assert len(run.segments()) == 1


def test_a_record_of_somebody_s_own(run: RunDirectory, request: pytest.FixtureRequest) -> None:
    """How a column is joined is said by the record alone."""
    request.addfinalizer(lambda: RECORDS_BY_TABLE.pop("heat_of_a_test", None))

    @dataclasses.dataclass(frozen=True)
    class Heat(Record):
        """One row per interval and place."""

        TABLE = "heat_of_a_test"
        TIME = "at_ns"

        at_ns: int = column("end", unit="ns")
        duration_ns: int = column("length", unit="ns", roll_up="sum")
        place: str | None = column("where")
        hits: int | None = column("hits", roll_up="sum")
        warmth: float | None = column("mean", roll_up="mean")
        peak: float = column("greatest", roll_up="max")
        state: str | None = column("latest", roll_up="last")

    rows = [
        Heat(START_S * SECOND_NS + 1, SECOND_NS, "a", 2**60, 1.0, 3.0, "cold"),
        Heat(START_S * SECOND_NS + 3, 3 * SECOND_NS, "a", 5, 2.0, 1.0, "hot"),
        Heat(START_S * SECOND_NS + 2, SECOND_NS, "a", None, None, 2.0, "warm"),
        Heat(START_S * SECOND_NS + 4, SECOND_NS, None, None, None, 2.0, None),
        Heat(START_S * SECOND_NS + 5, 0, "still", 1, 7.0, 2.0, None),
    ]
    write(run, START_S, list(rows))
    roll_up(run, (START_S + 7200) * SECOND_NS, NOW_OR_NEVER)
    end_ns = START_S * SECOND_NS + 5
    joined = {row.place: row for row in from_table(Heat, run.table(Heat))}
    assert joined["a"] == Heat(end_ns, 5 * SECOND_NS, "a", 2**60 + 5, 1.75, 3.0, "hot")
    assert joined[None] == Heat(end_ns, SECOND_NS, None, None, None, 2.0, None)
    assert joined["still"] == Heat(end_ns, 0, "still", 1, 7.0, 2.0, None)


def test_a_sum_that_no_integer_holds_is_an_error(run: RunDirectory) -> None:
    rows = [device(START_S + n, 1, 2**53, 0.1, "sda", None) for n in range(3)]
    write(run, START_S, [dataclasses.replace(row, write_bytes=2**62) for row in rows])
    with pytest.raises(StoreError, match="cannot roll up"):
        roll_up(run, (START_S + 7200) * SECOND_NS, NOW_OR_NEVER)
    assert run.table(DeviceSample).num_rows == 3
    assert not leftovers(run.path)


def test_damage_is_an_error_and_changes_nothing(run: RunDirectory) -> None:
    record_hours(run, 1)
    segment = list(run.segments().values())[3]
    good = (segment.path / "device_sample.parquet").read_bytes()
    (segment.path / "device_sample.parquet").write_bytes(b"PAR1")
    for _ in range(2):
        with pytest.raises(StoreError):
            roll_up(run, (START_S + 7200) * SECOND_NS, NOW_OR_NEVER)
        assert len(run.segments()) == 12
    next(iter(run.path.glob(f"segments/{segment.name}*/device_sample.parquet"))).write_bytes(good)


Key = tuple[Any, ...]


def expected(rows: list[Any], interval_s: int) -> dict[Key, dict[str, float]]:
    """Return the figures of each key and interval, added up in the plainest way."""
    found: dict[Key, list[Any]] = defaultdict(list)
    for row in rows:
        key = (row.device,) if isinstance(row, DeviceSample) else (row.daemon,)
        found[(-(-row.at_ns // (interval_s * SECOND_NS)), *key)].append(row)
    answer = {}
    for key, group in found.items():
        duration = sum(row.duration_ns for row in group)
        answer[key] = {"duration_ns": duration}
        if isinstance(group[0], DeviceSample):
            answer[key]["read_count"] = sum(row.read_count for row in group)
            weighted = math.fsum(row.busy_ratio * row.duration_ns for row in group)
            answer[key]["busy_ratio"] = weighted / duration
        else:
            answer[key]["delta"] = math.fsum(row.delta for row in group)
    return answer


def close(found: dict[Key, dict[str, float]], wanted: dict[Key, dict[str, float]]) -> None:
    assert found.keys() == wanted.keys()
    for key, figures_of_key in wanted.items():
        assert found[key] == pytest.approx(figures_of_key, rel=1e-12, abs=1e-12)
        for exact in ("duration_ns", "read_count"):
            assert found[key].get(exact) == figures_of_key.get(exact)


samples = st.lists(
    st.tuples(
        st.integers(0, 3 * 3600 * 1000),  # ms since the start
        st.integers(1, 30_000),  # length in ms
        st.integers(0, 2**40),
        st.floats(0, 1),
        st.sampled_from("abc"),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=15, deadline=None)
@given(samples)
def test_property_roll_ups_equal_the_raw_segments(given_samples: list[tuple[int, int, int, float, str]]) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        Workspace(directory).create_run(kind="collect", started_ns=1) as run,
    ):
        by_segment: dict[int, list[Record]] = defaultdict(list)
        for ms, length_ms, count, ratio, name in given_samples:
            at_s = START_S + ms / 1000
            by_segment[ms // 1_800_000] += [
                device(at_s, length_ms / 1000, count, ratio, name, ratio / 2),
                counter(at_s, length_ms / 1000, count + ratio, name),
            ]
        for number, rows in by_segment.items():
            write(run, START_S + number * 1800, rows)
        raw = {kind: from_table(kind, run.table(kind)) for kind in (DeviceSample, PerfCounter)}
        for keep, hours, interval_s in ((NOW_OR_NEVER, 4, 60), (ALL_THE_WAY, 24, 3600)):
            roll_up(run, (START_S + hours * 3600) * SECOND_NS, keep)
            for kind, rows in raw.items():
                # Rows of one interval that lie in two joined segments stay two rows; they add up.
                joined = from_table(kind, run.table(kind))
                close(expected(joined, interval_s), expected(rows, interval_s))
                if interval_s == 3600:
                    assert len(joined) == len(expected(rows, 3600))


@pytest.mark.parametrize("keep", [NOW_OR_NEVER, ALL_THE_WAY, Retention(raw_s=0, recorded_s=10**6, event_s=math.inf)])
def test_killed_before_each_rename(tmp_path: Path, keep: Retention) -> None:
    """A reader sees the same figures after every kill, and so does the roll-up that comes after it."""
    with Workspace(tmp_path).create_run(kind="collect", started_ns=1) as run:
        record_hours(run, 2, period_s=60, segment_s=1200)
        before = figures(run)
        run.compact()
        now_ns = (START_S + 86400) * SECOND_NS
        for _ in range(300):
            # Each start is killed a step later than it has got before, as long as there is something to do.
            for call in range(4):
                done = run_until(lambda: roll_up(run, now_ns, keep), call)
                reader = RunDirectory(run.path)
                assert figures(reader) == before
                if done:
                    break
            if done and roll_up(run, now_ns, keep) == []:
                break
        assert done
        assert figures(run) == before
        assert not leftovers(run.path)
        wanted = {NOW_OR_NEVER: {60}, ALL_THE_WAY: {3600}}.get(keep, {0})
        assert {segment.facts.resolution_s for segment in run.segments().values()} == wanted
        assert not any(segment.raw_sources() for segment in run.segments().values())


def test_a_full_disk_while_rolling_up(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    record_hours(run, 1)
    before = figures(run)
    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(StoreError, match="No space left"):
        roll_up(run, (START_S + 7200) * SECOND_NS, NOW_OR_NEVER)
    monkeypatch.undo()
    assert figures(run) == before
    assert len(run.segments()) == 12
    roll_up(run, (START_S + 7200) * SECOND_NS, NOW_OR_NEVER)
    assert figures(run) == before
    assert len(run.segments()) == 1
