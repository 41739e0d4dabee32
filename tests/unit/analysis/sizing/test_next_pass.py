"""What is simulated next: the grid, other configurations, sizes around what is wanted, and then no more."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from bathyscope.analysis.sizing import SizeQuestion, build, next_pass
from bathyscope.records import CurvePoint, to_table
from bathyscope.spec.size import GRID, CurveKey, Pass, PassName

from .test_sizing import GIB, _curve, _question, _row

ROWS = [*_curve([0.4, 0.6, 0.8]), *_curve([0.1, 0.2, 0.3], line_bytes=4096, fetch_bytes=4096)]
MIB = 1 << 20


def asked(rows: Iterable[CurvePoint], question: SizeQuestion, done: Pass | None = GRID) -> Pass | None:
    return next_pass(to_table(CurvePoint, list(rows)), question, done)


def loop(
    hit: Callable[[float], float], rows: list[CurvePoint], question: SizeQuestion
) -> tuple[list[CurvePoint], list[PassName]]:
    """Simulate what is asked for by a formula for the hit ratio, until nothing is."""
    rows, names, done = list(rows), [], GRID
    while (wanted := asked(rows, question, done)) is not None:
        for one in wanted.wanted:
            common: dict[str, Any] = {
                "line_bytes": one.curve.line_bytes, "policy": one.curve.policy, "admission": one.admission.name,
                "fetch_bytes": one.fetch_bytes or one.curve.line_bytes,
            }  # fmt: skip
            window = ["all", *["peak 0"] * (wanted.name == "peak")]
            rows += [
                _row(size_bytes=size, read_hit_ratio=hit(size / GIB), window=name, **common)
                for size, name in itertools.product(one.sizes_bytes, window)
            ]
        names.append(wanted.name)
        done = wanted
    return rows, names


def test_the_grid_comes_first() -> None:
    assert asked([], _question(target_hit=0.5), None) == GRID


@pytest.mark.parametrize("target", [{"target_hit": 0.7}, {"target_latency_ns": 1.705e6}])
def test_sizes_within_the_step_that_meets_the_target_follow(target: dict[str, float]) -> None:
    # 0.7 of hits at 0.1 ms and 0.3 of misses at 5.45 ms are 1.705 ms; 4K lines never meet it.
    wanted = asked(ROWS, _question(**target))
    assert wanted is not None
    assert wanted.name == "target"
    (one,) = wanted.wanted
    assert one.curve == CurveKey("all", "all", 65_536, "s3-fifo")
    assert all(2 * GIB < size < 3 * GIB and size % 65_536 == 0 for size in one.sizes_bytes)
    assert len(one.sizes_bytes) == 6


def test_the_search_ends_within_a_hundredth_of_the_smallest_size() -> None:
    question = _question(target_hit=0.7)
    rows, names = loop(lambda gib: min(0.8, gib * 0.3), _curve([0.3, 0.6, 0.8]), question)
    advice = build(to_table(CurvePoint, rows), question).advice
    assert advice.size_bytes == pytest.approx(0.7 / 0.3 * GIB, rel=0.011)
    assert names[-1] == "peak"
    assert names == sorted(names, key=["options", "target", "detail", "peak"].index)


def test_a_target_out_of_reach_asks_for_nothing() -> None:
    assert asked(ROWS, _question(target_hit=0.9)) is None


def test_neighbours_beyond_the_knee_differ_by_less_than_two_points() -> None:
    """80 MiB hit 61.9 %, the end of the curve 77.3 %: what lies between is simulated."""
    grid = [_row(size_bytes=size * MIB, read_hit_ratio=hit) for size, hit in ((40, 0.3), (80, 0.62), (320, 0.773))]
    question = _question()
    rows, _ = loop(lambda gib: 0.62 + 0.153 * min(1.0, max(0.0, (gib * 1024 - 80) / 60)), grid, question)
    (curve,) = build(to_table(CurvePoint, rows), question).curves
    assert curve.knee is not None
    assert curve.knee.size_bytes > 120 * MIB
    beyond = [p for p in curve.points if p.size_bytes >= curve.knee.size_bytes]
    rises = [(b.read_hit.value or 0) - (a.read_hit.value or 0) for a, b in itertools.pairwise(beyond)]
    assert max(rises) < 0.02


def test_other_configurations_are_tried_where_they_may_vary() -> None:
    wanted = asked(ROWS, _question(vary=("fetch", "policy", "admission")))
    assert wanted is not None
    assert wanted.name == "options"
    found = {(w.curve.line_bytes, w.fetch_bytes, w.curve.policy, w.admission.name) for w in wanted.wanted}
    assert {(65_536, 4096, "s3-fifo", "all"), (65_536, 65_536, "lru", "all")} <= found
    assert {one[3] for one in found if one[:3] == (65_536, 65_536, "s3-fifo")} >= {"2-hit", "write-bypass"}
    read_only = asked([dataclasses.replace(row, write_requests=0) for row in ROWS], _question(vary=("admission",)))
    assert read_only is not None
    assert "write-bypass" not in {w.admission.name for w in read_only.wanted}
    # Each differs from the best in one thing.
    assert all(sum(map(str.__ne__, map(str, one), ("65536", "65536", "s3-fifo", "all"))) <= 2 for one in found)
    assert asked(ROWS, _question(vary=("policy",), policies=("s3-fifo",))) is not None
    fixed = asked(ROWS, _question())
    assert fixed is None or fixed.name != "options"


def test_what_was_tried_is_advised_when_it_is_better_and_is_no_curve_of_its_own() -> None:
    better = _row(size_bytes=3 * GIB, read_hit_ratio=0.95, policy="lirs", admission="2-hit", fetch_bytes=4096)
    question = _question(vary=("fetch", "policy", "admission"))
    finding = build(to_table(CurvePoint, [*ROWS, better]), question)
    advice = finding.advice
    assert (advice.policy, advice.admission, advice.fetch_bytes) == ("lirs", "2-hit", 4096)
    assert "64K lines fetched by 4K (lirs, admission 2-hit)" in advice.sentence
    assert [c.policy for c in finding.curves] == ["s3-fifo", "s3-fifo"]
    assert [c.policy for c in finding.trials] == ["lirs"]
    # Its curve gets the sizes that the others have.
    wanted = asked([*ROWS, better], question, Pass("target", (), 9))
    assert wanted is not None
    assert {GIB, 2 * GIB} <= set(wanted.wanted[0].sizes_bytes)


def test_the_busiest_minute_is_looked_at_once_and_not_without_time() -> None:
    done = Pass("detail", (), 9)
    wanted = asked(ROWS, _question(), done)
    assert wanted is not None
    assert (wanted.name, wanted.wanted[0].sizes_bytes) == ("peak", (3 * GIB,))
    known = [dataclasses.replace(row, window="peak 0") for row in ROWS]
    assert asked([*ROWS, *known], _question(), wanted) is None
    assert asked(ROWS, _question(duration_s=0.0), done) is None
