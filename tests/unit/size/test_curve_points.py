"""Both passes against curves that are known, or counted here by the definition of a cache."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bathyscope import _core
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.records import CurvePoint, Op, schema_of
from bathyscope.records.size import TraceSummary
from bathyscope.simulate.grid import size_grid
from bathyscope.simulate.op_trace import KnownImages, OpTrace
from bathyscope.simulate.trace import CorePass, TraceFiles
from bathyscope.spec.size import By, CurveKey
from bathyscope.store.ordered_rows import OrderedRows

from .curves import curve_points, whole
from .traces import LINE, Row, loop_and_scan, lru_hits, write_csv

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"


def test_the_lru_curve_is_the_definition_on_a_real_trace() -> None:
    path = TRACES / "multi3.lirs"
    keys = [int(word) for word in path.read_text().split() if word.isdecimal()]
    rows, report = curve_points(TraceFiles([path]), line_bytes=(LINE,), policies=("lru",), threads=2)
    assert report.events == len(keys)
    points = whole(rows)
    assert len(points) > 8
    for point in points:
        hits = lru_hits(keys, point.size_bytes // LINE)
        assert point.read_hit_ratio == pytest.approx(hits / len(keys), abs=1e-12)
        assert point.read_hit_ratio == point.read_hit_ratio_low == point.read_hit_ratio_high
        assert (point.method, point.sampled_lines) == ("simulation", None)
    assert points[0].working_set_bytes == len(set(keys)) * LINE
    assert points[-1].read_hit_ratio == pytest.approx(1 - len(set(keys)) / len(keys))


def test_a_mixed_trace_by_image_has_the_known_answer(tmp_path: Path) -> None:
    trace = TraceFiles([write_csv(tmp_path / "mixed.csv", loop_and_scan())], by="image")
    rows, report = curve_points(trace, line_bytes=(LINE,), policies=("lru",))
    assert {(r.group_kind, r.group_name) for r in rows} == {("all", "all"), ("image", "loop"), ("image", "scan")}
    for point in whole(rows, group_name="loop"):
        # A loop hits nothing in an LRU cache that is smaller, and all but the first round in one that is not.
        expected = 0.98 if point.size_bytes >= 100 * LINE else 0.0
        assert point.read_hit_ratio == pytest.approx(expected), point.size_bytes
        assert point.fetch_amplification == pytest.approx(1.0 - expected)
    assert {p.read_hit_ratio for p in whole(rows, group_name="scan")} == {0.0}
    assert {p.cold_read_ratio for p in whole(rows, group_name="scan")} == {1.0}
    assert whole(rows, group_name="all")[-1].read_hit_ratio == pytest.approx(0.49)
    assert report.duration_s == pytest.approx(9.999)


def test_windows_add_up_to_the_whole(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "mixed.csv", loop_and_scan())
    rows, _ = curve_points(TraceFiles([path]), line_bytes=(LINE, 65_536), window_s=2.0)
    for point in whole(rows):
        same = (point.line_bytes, point.size_bytes)
        parts = [r for r in rows if r.window != "all" and (r.line_bytes, r.size_bytes) == same]
        assert [r.window for r in parts] == ["0", "1", "2", "3", "4"]
        assert sum(r.read_requests for r in parts) == point.read_requests
        hits = sum(r.read_requests * r.read_hit_ratio for r in parts)
        assert hits == pytest.approx(point.read_requests * point.read_hit_ratio)
        assert sum(r.flash_write_bytes for r in parts) == pytest.approx(point.flash_write_bytes)
        assert parts[-1].duration_s == pytest.approx(1.999)


def skewed(path: Path, count: int = 60_000) -> Path:
    """Requests of one to eight lines over 2,000 regions of 1 MiB, some much more read than others."""
    rng = random.Random(7)
    rows: list[Row] = []
    for step in range(count):
        region = min(rng.randrange(2000), rng.randrange(2000))
        offset = (region << 20) + rng.randrange(16) * 8 * LINE
        rows.append((step * 1000, "write" if rng.random() < 0.2 else "read", offset, LINE << rng.randrange(4), "v"))
    return write_csv(path, rows)


def test_a_sample_agrees_with_the_full_simulation_within_its_band(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bathyscope.simulate.sampling.LEAST_REGIONS", 100)
    trace = TraceFiles([skewed(tmp_path / "skewed.csv")])
    inside = points = 0
    for salt in range(3):
        rows, _ = curve_points(trace, line_bytes=(LINE,), samples=4096, salt=salt)
        estimates = whole(rows)
        sizes = {CurveKey("all", "all", LINE, "s3-fifo"): [p.size_bytes for p in estimates]}
        exact, _ = curve_points(trace, line_bytes=(LINE,), exact=True, further=sizes)
        truth = {p.size_bytes: p for p in whole(exact)}
        for point in estimates:
            known = truth[point.size_bytes]
            assert (point.method, known.method) == ("minisim", "simulation")
            assert abs(point.read_hit_ratio - known.read_hit_ratio) < 0.06
            assert point.flash_write_bytes == pytest.approx(known.flash_write_bytes, rel=0.15)
            assert point.read_requests == known.read_requests
            assert (point.sampled_lines or 0) > 1000
            points += 1
            inside += point.read_hit_ratio_low <= known.read_hit_ratio <= point.read_hit_ratio_high
    assert points >= 30
    assert inside >= 0.8 * points


def test_the_band_is_that_of_an_error_known_from_eight_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = TraceFiles([skewed(tmp_path / "skewed.csv")])
    monkeypatch.setattr("bathyscope.simulate.sampling.LEAST_REGIONS", 100)
    second = _core.EnginePass()
    monkeypatch.setattr("bathyscope.simulate.passes._core.EnginePass", lambda **_: second)
    rows, _ = curve_points(trace, line_bytes=(LINE,), samples=4096)
    stderr = second.results(0)["read_hit_stderr"]
    points = whole(rows)
    assert (points[0].method, len(points)) == ("minisim", len(stderr))
    judged = 0
    for point, error in zip(points, stderr, strict=True):
        if point.read_hit_ratio_low > 0 and point.read_hit_ratio_high < 1 and error > 0:
            # The 97.5th percentile of Student's t with 7 degrees of freedom, from tables.
            assert point.read_hit_ratio_high - point.read_hit_ratio == pytest.approx(2.3646 * error, rel=1e-4)
            judged += 1
    assert judged > 3


def test_bypass_is_judged_on_the_whole_stream_also_of_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bathyscope.simulate.sampling.LEAST_REGIONS", 100)
    # Each row of the disk is read twice in a row, beside random reads elsewhere; runs reach over several regions.
    rng = random.Random(5)
    rows: list[Row] = []
    for step in range(16_000):
        place = (step // 2000) * 1000 + step % 1000
        rows.append((2 * step, "read", place * 16 * LINE, 16 * LINE, "v"))
        rows.append((2 * step + 1, "read", (1 << 40) + (rng.randrange(500) << 20), LINE, "v"))
    trace = TraceFiles([write_csv(tmp_path / "rows.csv", rows)])

    def points(cutoff: int | None, **changes: object) -> list[CurvePoint]:
        admission = "all" if cutoff is None else f"bypass:{cutoff}"
        return whole(curve_points(trace, line_bytes=(LINE,), policies=("lru",), admission=admission, **changes)[0])

    sampled, known = points(1 << 20, samples=8192), points(1 << 20, exact=True)[-1]
    assert sampled[-1].method == "minisim"
    assert abs(sampled[-1].read_hit_ratio - known.read_hit_ratio) < 0.03
    assert known.read_hit_ratio < points(None, exact=True)[-1].read_hit_ratio - 0.2
    assert sampled[-1].flash_write_bytes < 0.3 * 8000 * 16 * LINE


def test_beyond_the_largest_groups_the_rest_shares_a_cache(tmp_path: Path) -> None:
    rows: list[Row] = [
        (1, "read", line * LINE, LINE, f"image-{image}")
        for image in range(40)
        for _ in range(2)
        for line in range(40 - image)
    ]
    found, _ = curve_points(TraceFiles([write_csv(tmp_path / "many.csv", rows)], by="image"), line_bytes=(LINE,))
    names = {r.group_name for r in found if r.group_kind == "image"}
    assert len(names) == 33
    assert "(8 others)" in names
    groups = {name: whole(found, group_name=name)[-1] for name in names}
    assert sum(g.read_requests for g in groups.values()) == len(rows)
    # Each of the last eight has 1 to 8 lines, read twice; a cache for all of them hits every second read.
    assert groups["(8 others)"].read_requests == 2 * sum(range(1, 9))
    assert groups["(8 others)"].read_hit_ratio == pytest.approx(0.5)


def ops(rows: list[Row], object_bytes: int = 4 << 20) -> pa.Table:
    """Rows as operations on the objects of RBD images."""
    columns: dict[str, list[object]] = {name: [] for name in schema_of(Op).names}
    for place, (time_us, op, offset, length, volume) in enumerate(rows):
        known: dict[str, object] = {
            "step_index": 0, "osd": place % 3, "client": "client.1", "pool_id": 2, "op": op,
            "object_name": f"rbd_data.{volume}.{offset // object_bytes:016x}", "offset_bytes": offset % object_bytes,
            "length_bytes": length, "started_ns": time_us * 1000, "duration_ns": 5_000_000,
            "complete_sample": True, "complete_since_ns": 0,
        }  # fmt: skip
        for name, values in columns.items():
            values.append(known.get(name))
    return pa.table(columns, schema=schema_of(Op))


def test_operations_of_a_run_give_the_same_curves_as_the_trace_of_them(tmp_path: Path) -> None:
    rows = loop_and_scan(20)
    sizes = (LINE, 65_536)
    table = ops(rows).take(np.random.default_rng(1).permutation(len(rows)))
    trace = OpTrace(lambda: table.to_batches(999), OrderedRows, source="run", rows=len(rows), by="image")
    by_ops, report = curve_points(trace, line_bytes=sizes)
    by_file, _ = curve_points(TraceFiles([write_csv(tmp_path / "t.csv", rows)], by="image"), line_bytes=sizes)
    key = ("group_name", "line_bytes", "size_bytes", "window")

    def figures(points: list[CurvePoint]) -> dict[tuple[object, ...], tuple[float, ...]]:
        return {
            tuple(getattr(p, name) for name in key): (p.read_hit_ratio, p.flash_write_bytes, p.cold_read_ratio)
            for p in points
        }

    assert figures(by_ops) == figures(by_file)
    assert report.events == len(rows)
    assert list(report.latency_ns) == [pytest.approx(5e6, rel=0.006)]
    assert list(report.latency_counts) == [len(rows)]


def test_a_recording_s_images_have_their_own_sizes_of_objects_and_their_names() -> None:
    """Two images with objects of 1 and of 8 MiB: only with their own sizes they give what the trace gives."""
    rows: list[Row] = [
        (time_us, "read", place * LINE, LINE, volume)
        for time_us, (volume, place) in enumerate(
            (volume, place) for _ in range(3) for volume in ("10ab", "10cd") for place in range(0, 4096, 3)
        )
    ]
    small, large = ([row for row in rows if row[4] == volume] for volume in ("10ab", "10cd"))
    table = pa.concat_tables([ops(small, 1 << 20), ops(large, 8 << 20)])
    known = KnownImages({"10ab": 1 << 20, "10cd": 8 << 20}, {"10ab": "rbd/small"}, {2: "fast"})

    def figures(trace: OpTrace) -> tuple[dict[tuple[object, ...], float], TraceSummary]:
        found, report = curve_points(trace, line_bytes=(65_536,))
        return {(p.group_name, p.size_bytes, p.window): p.working_set_bytes for p in found}, report

    def trace(by: By, **more: Any) -> OpTrace:
        return OpTrace(table.to_batches, OrderedRows, source="run", rows=table.num_rows, by=by, **more)

    found, report = figures(trace("image", known=known))
    assert {group for group, *_ in found} == {"all", "rbd/small", "10cd"}
    # 16 MiB of each image are touched, in lines without a gap.
    assert {size for (group, *_), size in found.items() if group == "rbd/small"} == {16 << 20}
    # Nothing is guessed, so there is nothing to say.
    assert report.object_bytes is None
    assert {group for group, *_ in figures(trace("pool", known=known))[0]} == {"all", "fast"}
    # A size that is given holds for all; without one the smallest that holds every operation is taken for the unknown.
    assert figures(trace("image", known=known, object_bytes=32 << 20))[1].object_bytes == 32 << 20
    only = KnownImages({"10ab": 1 << 20})
    assert figures(trace("image", known=only))[1].object_bytes == 8 << 20


def test_operations_that_failed_moved_nothing() -> None:
    table = ops(loop_and_scan(3))
    rows = [{**row, "result": -2 if place % 5 == 0 else 0} for place, row in enumerate(table.to_pylist())]
    failed = pa.Table.from_pylist(rows, schema=table.schema)
    trace = OpTrace(failed.to_batches, OrderedRows, source="run", rows=len(rows))
    _, report = curve_points(trace, line_bytes=(LINE,))
    assert (report.events, report.skipped) == (len(rows) - len(rows[::5]), 0)


def test_operations_that_cannot_be_placed_are_counted_and_left_out() -> None:
    table = ops(loop_and_scan(3))
    broken = table.to_pylist()
    broken[0]["object_name"] = None
    broken[1]["length_bytes"] = 0
    broken[2]["offset_bytes"] = -5
    broken[3]["object_name"] = "rbd_data.x.ffffffffffffffff"
    broken[4]["object_name"] = "\x1b[31m" * 40
    broken[5]["op"] = "other"
    broken[6]["pool_id"] = None
    table = pa.Table.from_pylist(broken, schema=table.schema)
    for by in ("all", "image", "osd", "pool", "node"):
        nodes = {"a": [0], "b": [2]} if by == "node" else None
        trace = OpTrace(
            table.to_batches,
            OrderedRows,
            source="run",
            rows=len(broken),
            by=by,
            nodes=nodes,  # type: ignore[arg-type]
        )
        rows, report = curve_points(trace, line_bytes=(LINE,))
        assert (report.events, report.skipped) == (len(broken) - 4, 3)
        groups = {r.group_name for r in rows} - {"all"}
        if by == "node":
            assert groups == {"a", "b", "(unknown)"}
        if by == "pool":
            assert groups == {"pool 2", "(unknown)"}


def test_runs_of_writes_alone_can_go_past(tmp_path: Path) -> None:
    lines = 64
    rows = [(place * 1000, op, place * LINE, LINE, op) for op in ("read", "write") for place in range(lines)]
    trace = TraceFiles([write_csv(tmp_path / "t.csv", rows)])

    def written_lines(admission: str) -> float:
        points = curve_points(trace, line_bytes=(LINE,), policies=("lru",), admission=admission)[0]
        return whole(points)[3].flash_write_bytes / LINE

    kept = 16
    past = [written_lines(f"{name}:{kept * LINE}") for name in ("write-bypass", "bypass")]
    assert [written_lines("all"), *past] == [2 * lines, lines + kept, 2 * kept]


def test_admission_and_write_mode_reach_the_engine(tmp_path: Path) -> None:
    trace = TraceFiles([write_csv(tmp_path / "t.csv", [(t, "write" if w else "read", o, n, v) for t, w, o, n, v in (
        (row[0], place % 3 == 0, *row[2:]) for place, row in enumerate(loop_and_scan(10))
    )])])  # fmt: skip

    def written(**changes: object) -> float:
        return whole(curve_points(trace, line_bytes=(LINE,), policies=("lru",), **changes)[0])[3].flash_write_bytes

    everything = written()
    assert written(on_write="update") < everything
    assert written(on_write="invalidate") < everything
    assert written(admission="2-hit") < everything
    assert written(admission="bypass:64K") < everything
    assert written(admission="budget:1M") < everything


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fetch_bytes": 8192, "line_bytes": (4096,)}, "--fetch must be a power of two from 512 to 4K"),
        ({"fetch_bytes": 512, "line_bytes": (65_536,)}, "--fetch must be a power of two from 1K to 64K"),
        ({"line_bytes": (4096.5,)}, "--line"),
        ({"line_bytes": (-4096,)}, "--line"),
        ({"line_bytes": 4096}, "--line"),
        ({"policies": "lru"}, "--policy"),
        ({"fetch_bytes": -1}, "--fetch"),
        ({"on_write": "back"}, "--on-write"),
        ({"exact": 1}, "--exact"),
        ({"samples": 0}, "--samples"),
        ({"samples": 1.5}, "--samples"),
        ({"threads": 0}, "--threads"),
        ({"threads": -2}, "--threads"),
        ({"salt": -1}, "salt"),
        ({"salt": 1 << 64}, "salt"),
        ({"window_s": 0}, "--windows"),
        ({"window_s": -1.0}, "--windows"),
        ({"window_s": float("nan")}, "--windows"),
        ({"window_s": 1e30}, "--windows"),
        ({"budget_bytes": 0}, "--budget must be greater than 0 .got 0."),
        ({"budget_bytes": 1 << 80}, "--budget must be at most 1.00 EiB"),
        ({"admission": {"n_hit": 1}}, "--admission"),
        ({"admission": {"n_hit": 256}}, "--admission"),
        ({"admission": {"stream_cutoff_bytes": -1}}, "--admission"),
        ({"admission": {"write_budget_bytes_per_day": 1 << 70}}, "--admission"),
    ],
)
def test_what_cannot_be_simulated_is_said(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        curve_points(TraceFiles([TRACES / "multi3.lirs"]), **changes)


def test_a_trace_without_reads_and_writes_is_an_error(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "trims.csv", [(1, "trim", 0, LINE, "a")])
    with pytest.raises(AnalysisError, match="no reads and writes"):
        curve_points(TraceFiles([path]))


def test_more_lines_than_can_be_simulated_are_an_error_with_a_hint() -> None:
    class Endless(TraceFiles):
        def feed(self, into: CorePass, *, threads: int, progress: Callable[[int, int], None] | None) -> None:
            super().feed(into, threads=threads, progress=progress)
            if isinstance(into, _core.EnginePass):
                raise OverflowError("the trace has more distinct lines than the 2^32")

    with pytest.raises(AnalysisError, match="2\\^32") as raised:
        curve_points(Endless([TRACES / "multi3.lirs"]), line_bytes=(LINE,))
    assert "--exact" in str(raised.value.hint)


def test_further_sizes_are_simulated_where_they_are_asked_for() -> None:
    trace = TraceFiles([TRACES / "multi3.lirs"])
    further = {CurveKey("all", "all", LINE, "s3-fifo"): [777 * LINE, 778 * LINE]}
    rows, _ = curve_points(trace, line_bytes=(LINE,), further=further)
    assert {777 * LINE, 778 * LINE} <= {p.size_bytes for p in whole(rows)}


def test_a_trial_is_the_curve_with_that_admission_at_that_size() -> None:
    trace = TraceFiles([TRACES / "multi3.lirs"])
    key, size = CurveKey("all", "all", LINE, "s3-fifo"), 777 * LINE
    rows, _ = curve_points(trace, line_bytes=(LINE,), tried=(key, size, "2-hit"))
    (tried,) = [row for row in rows if row.admission != "all"]
    assert (tried.admission, tried.size_bytes, tried.window) == ("2-hit", size, "all")
    alone, _ = curve_points(trace, line_bytes=(LINE,), admission="2-hit", further={key: [size]})
    assert tried in alone


@given(
    st.floats(1, 1e14),
    st.floats(0.001, 1),
    st.sampled_from([512, 4096, 65_536]),
    st.sampled_from([65_536, 1 << 20]),
    st.none() | st.integers(1, 1 << 40),
)
@example(610839793209.0, 1.0, 512, 65_536, 549_755_813_889)  # not a whole number of lines, and 2^30 of them
@example(1e12, 1.0, 512, 65_536, 900_000_000_000)  # more than 2^30 lines, within the working set
def test_a_grid_increases_and_ends_where_everything_fits(
    working_set: float, share: float, line: int, unit: int, budget: int | None
) -> None:
    lines = max(1.0, working_set * share / line)
    grid = size_grid(max(working_set, lines * line), lines, line, unit, budget)
    assert (np.diff(grid.astype(np.int64)) > 0).all()
    assert grid[0] >= 1
    assert grid[-1] >= lines - 1e-6 * lines
    if budget is not None and line <= budget < lines * line:
        assert budget // line in grid


def test_files_that_overlap_in_time_are_told_and_those_that_follow_are_not(tmp_path: Path) -> None:
    early = write_csv(tmp_path / "early.csv", [(time, "read", 0, LINE, "a") for time in range(1000)])
    late = write_csv(tmp_path / "late.csv", [(time, "read", 0, LINE, "a") for time in range(1000, 2000)])
    _, found = curve_points(TraceFiles([early, late]), line_bytes=(LINE,))
    assert found.overlapping_files == ()
    _, found = curve_points(TraceFiles([late, early]), line_bytes=(LINE,))
    assert found.overlapping_files == (str(early),)


def test_a_file_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "once.csv", [(1, "read", 0, LINE, "a")])
    (tmp_path / "again.csv").symlink_to(path)
    for other in (path, tmp_path / "again.csv", tmp_path / "." / "once.csv"):
        with pytest.raises(UsageError, match="twice"):
            TraceFiles([path, other])
