"""Sizing: knee, split, latency mix, endurance, stability and advice on curves whose answers are known."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope.analysis.sizing import SizeQuestion, build
from bathyscope.analysis.sizing.endurance import Endurance
from bathyscope.analysis.sizing.knee import knee_index, upper_hull
from bathyscope.analysis.sizing.latency import LatencyDistribution, mixed_mean_ns, mixed_quantile_ns
from bathyscope.analysis.sizing.split import Demand, even_hits, split
from bathyscope.records import CurvePoint, to_table

GIB = 1 << 30


def _row(**changes: Any) -> CurvePoint:
    base: dict[str, Any] = {
        "group_kind": "all", "group_name": "all", "window": "all", "policy": "s3-fifo", "admission": "all",
        "method": "exact", "line_bytes": 65536, "fetch_bytes": 65536, "size_bytes": GIB, "read_requests": 100_000,
        "write_requests": 50_000, "read_bytes": 1 << 32, "write_bytes": 1 << 31, "working_set_bytes": 10 * GIB,
        "read_hit_ratio": 0.5, "read_hit_ratio_low": 0.49, "read_hit_ratio_high": 0.51, "read_byte_hit_ratio": 0.4,
        "write_hit_ratio": 0.3, "write_byte_hit_ratio": 0.2, "cold_write_ratio": 0.4,
        "cold_read_ratio": 0.1, "fetch_amplification": 1.2, "write_gap_ratio": 0.0,
        "flash_write_bytes": float(GIB), "duration_s": 86400.0, "sampled_lines": None,
        "write_budget_bytes_per_day": None,
    }  # fmt: skip
    hit = changes.get("read_hit_ratio", 0.5)
    base["flash_bytes"] = changes.get("size_bytes", GIB)
    base |= {"read_hit_ratio_low": hit, "read_hit_ratio_high": hit} | changes
    return CurvePoint(**base)


def _curve(hits: list[float], **changes: Any) -> list[CurvePoint]:
    return [_row(size_bytes=(i + 1) * GIB, read_hit_ratio=h, **changes) for i, h in enumerate(hits)]


def _question(**changes: Any) -> SizeQuestion:
    base: dict[str, Any] = {
        "sources": ("trace",), "events": 150_000, "skipped": 0, "duration_s": 86400.0, "by": "all",
        "hit": LatencyDistribution.constant(100_000.0, "assumed"),
        "miss": LatencyDistribution.from_samples(np.asarray([5e6] * 99 + [50e6]), "measured"),
    }  # fmt: skip
    return SizeQuestion(**(base | changes))


class TestKnee:
    def test_a_sharp_bend_is_found_exactly(self) -> None:
        sizes = np.arange(1.0, 101.0)
        hits = np.minimum(sizes / 20.0, 1.0) * 0.8
        assert knee_index(sizes, hits) == 19

    def test_a_straight_line_has_no_knee(self) -> None:
        sizes = np.arange(1.0, 101.0)
        assert knee_index(sizes, sizes / 100.0) is None

    def test_a_flat_curve_has_no_knee(self) -> None:
        assert knee_index(np.arange(1.0, 11.0), np.full(10, 0.01)) is None

    def test_a_cliff_is_its_knee(self) -> None:
        """A loop of 50 under LRU hits nothing until the cache holds it all."""
        sizes = np.arange(1.0, 101.0)
        assert knee_index(sizes, np.where(sizes >= 50, 0.9, 0.0)) == 49

    @given(st.lists(st.floats(0, 1), min_size=3, max_size=40))
    def test_the_hull_lies_on_or_above_the_curve(self, hits: list[float]) -> None:
        xs = np.arange(len(hits), dtype=float)
        ys = np.asarray(hits)
        hull = upper_hull(xs, ys)
        assert np.all(np.interp(xs, xs[hull], ys[hull]) >= ys - 1e-12)


class TestSplit:
    @given(
        st.lists(st.lists(st.integers(0, 20), min_size=4, max_size=4), min_size=2, max_size=3),
        st.integers(1, 12),
    )
    def test_the_greedy_split_of_concave_curves_is_the_best_of_all_splits(
        self, gains: list[list[int]], budget: int
    ) -> None:
        """Concave by construction (falling gains); every whole split is tried."""
        demands = [
            Demand(str(i), np.arange(1.0, 5.0), np.cumsum(sorted(g, reverse=True)).astype(float))
            for i, g in enumerate(gains)
        ]
        best = max(
            sum(d.hits_at(s) for d, s in zip(demands, sizes, strict=True))
            for sizes in itertools.product(range(5), repeat=len(demands))
            if sum(sizes) <= budget
        )
        got = split(demands, budget)
        assert sum(a.hits for a in got) == pytest.approx(best)
        assert sum(a.size_bytes for a in got) <= budget
        assert sum(a.hits for a in got) >= even_hits(demands, budget) - 1e-9

    def test_a_scan_gets_nothing(self) -> None:
        scan = Demand("scan", np.asarray([10.0, 20.0]), np.asarray([0.0, 0.0]))
        hot = Demand("hot", np.asarray([10.0, 20.0]), np.asarray([90.0, 99.0]))
        allocation = {a.name: a for a in split([scan, hot], 15)}
        assert allocation["scan"].size_bytes == 0
        assert allocation["hot"].size_bytes == 15
        assert allocation["hot"].marginal_hits_per_gib == pytest.approx(0.9 * GIB)


class TestLatency:
    def test_the_mean_is_the_weighted_mean(self) -> None:
        hit, miss = LatencyDistribution.constant(100.0, "a"), LatencyDistribution.constant(1100.0, "b")
        assert mixed_mean_ns(hit, miss, 0.75) == pytest.approx(350.0)

    def test_the_quantile_is_of_the_mix_not_a_mean_of_quantiles(self) -> None:
        hit = LatencyDistribution.from_samples(np.full(1000, 100.0), "a")
        miss = LatencyDistribution.from_samples(np.linspace(1000.0, 2000.0, 1001), "b")
        # At 98 % hits the p99 is the median of the misses; a mean of the p99s would be far off.
        assert mixed_quantile_ns(hit, miss, 0.98, 0.99) == pytest.approx(1500.0, rel=0.01)
        assert mixed_quantile_ns(hit, miss, 0.995, 0.99) == 100.0

    def test_against_samples(self) -> None:
        rng = np.random.default_rng(7)
        hits, misses = rng.exponential(1e5, 70_000), rng.exponential(5e6, 30_000)
        mix = mixed_quantile_ns(
            LatencyDistribution.from_samples(hits, "a"), LatencyDistribution.from_samples(misses, "b"), 0.7, 0.99
        )
        assert mix == pytest.approx(np.quantile(np.concatenate((hits, misses)), 0.99), rel=0.01)


class TestEndurance:
    def test_dwpd(self) -> None:
        """One drive write a day over five years, written at half that rate: ten years."""
        assert Endurance(drive_writes_per_day=1.0).life_years(1e12, 0.5e12) == pytest.approx(10.0)

    def test_tbw_goes_before_dwpd(self) -> None:
        years = Endurance(drive_writes_per_day=1.0, total_bytes_written=365e12).life_years(1e12, 1e12)
        assert years == pytest.approx(1.0)

    def test_nothing_promised_nothing_told(self) -> None:
        assert Endurance().life_years(1e12, 1e12) is None
        assert Endurance(drive_writes_per_day=1.0).life_years(1e12, None) is None


class TestAdvice:
    def test_a_good_curve_is_worth_its_knee(self) -> None:
        finding = build(to_table(CurvePoint, _curve([0.4, 0.8, 0.81, 0.82, 0.83])), _question())
        assert finding.advice.call == "worth it"
        assert finding.advice.size_bytes == 2 * GIB

    def test_the_smallest_size_that_meets_a_target_hit_ratio(self) -> None:
        finding = build(to_table(CurvePoint, _curve([0.4, 0.6, 0.7, 0.8])), _question(target_hit=0.65))
        assert finding.advice.size_bytes == 3 * GIB

    def test_the_least_flash_that_meets_the_target_without_wasting_disk_reads(self) -> None:
        """256K lines meet it with 1 GiB but read four bytes for each; 64K lines need 2 GiB, 4K lines 3 GiB."""
        rows = [
            *_curve([0.4, 0.6, 0.9], line_bytes=4096, fetch_amplification=0.8),
            *_curve([0.5, 0.9, 0.95], line_bytes=65536, fetch_amplification=1.1),
            *_curve([0.9, 0.95, 0.96], line_bytes=262144, fetch_amplification=4.0),
        ]
        advice = build(to_table(CurvePoint, rows), _question(target_hit=0.85)).advice
        assert (advice.line_bytes, advice.size_bytes) == (65536, 2 * GIB)

    def test_a_target_out_of_reach_says_so(self) -> None:
        finding = build(to_table(CurvePoint, _curve([0.4, 0.6, 0.7, 0.8])), _question(target_hit=0.95))
        assert finding.advice.call == "not worth it"
        assert "80.0%" in finding.advice.sentence

    def test_the_smallest_size_that_meets_a_target_latency(self) -> None:
        # mean miss = (99 × 5 + 50)/100 = 5.45 ms; at 0.8 hits: 0.8 × 0.1 + 0.2 × 5.45 = 1.17 ms
        finding = build(to_table(CurvePoint, _curve([0.4, 0.6, 0.7, 0.8])), _question(target_latency_ns=1.2e6))
        assert finding.advice.size_bytes == 4 * GIB
        assert finding.curves[0].points[3].latency_ns_mean == pytest.approx(1.17e6)

    @pytest.mark.parametrize(
        ("rows", "question", "word"),
        [
            (_curve([0.01, 0.02, 0.03]), {}, "first time"),
            (_curve([0.4, 0.8, 0.9], read_requests=100, write_requests=99_900), {}, "are reads"),
            (_curve([0.4, 0.8, 0.9]), {"miss": LatencyDistribution.constant(120_000.0, "nvme")}, "nearly as fast"),
        ],
        ids=["scan", "write-only", "fast backing"],
    )
    def test_not_worth_it(self, rows: list[CurvePoint], question: dict[str, Any], word: str) -> None:
        advice = build(to_table(CurvePoint, rows), _question(**question)).advice
        assert advice.call == "not worth it"
        assert word in advice.sentence

    def test_what_is_not_worth_it_is_said_of_the_curve_that_is_shown(self) -> None:
        rows = [*_curve([0.01, 0.02], line_bytes=4096), *_curve([0.02, 0.05], line_bytes=65_536)]
        advice = build(to_table(CurvePoint, rows), _question()).advice
        assert (advice.call, advice.line_bytes, advice.policy) == ("not worth it", 65_536, "s3-fifo")
        assert (advice.size_bytes, advice.flash_bytes) == (None, None)
        assert advice.reasons
        assert advice.further_reasons == ()

    def test_too_few_requests_cannot_tell(self) -> None:
        rows = _curve([0.4, 0.8], read_requests=10, write_requests=10)
        assert build(to_table(CurvePoint, rows), _question()).advice.call == "cannot tell"

    def test_no_curve_cannot_tell(self) -> None:
        assert build(to_table(CurvePoint, []), _question()).advice.call == "cannot tell"

    def test_a_constant_miss_gives_no_p99(self) -> None:
        finding = build(
            to_table(CurvePoint, _curve([0.4, 0.8])), _question(miss=LatencyDistribution.constant(5e6, "given"))
        )
        assert finding.curves[0].points[0].latency_ns_p99 is None
        assert finding.curves[0].points[0].latency_ns_mean is not None

    def test_a_trace_without_time_promises_no_life(self) -> None:
        rows = _curve([0.4, 0.8], duration_s=0.0)
        finding = build(
            to_table(CurvePoint, rows), _question(duration_s=0.0, endurance=Endurance(drive_writes_per_day=1.0))
        )
        assert finding.curves[0].points[0].life_years is None
        assert any(c.code == "no_time" for c in finding.caveats)

    def test_cost(self) -> None:
        finding = build(
            to_table(CurvePoint, _curve([0.4, 0.8, 0.81])),
            _question(price_per_gib=0.5, currency="EUR", price_source="offer"),
        )
        assert finding.curves[0].points[1].cost == pytest.approx(1.0)
        assert "1.00 EUR" in finding.cost_sentence


class TestFlashAndMemory:
    """A policy that keeps a tenth of its lines in memory buys nine tenths of the size as flash."""

    ROWS = tuple(
        _row(size_bytes=10 * i * GIB, flash_bytes=9 * i * GIB, read_hit_ratio=h) for i, h in ((1, 0.5), (2, 0.8))
    )

    def test_life_and_cost_are_of_the_flash(self) -> None:
        question = _question(price_per_gib=0.5, currency="EUR", endurance=Endurance(drive_writes_per_day=1.0))
        finding = build(to_table(CurvePoint, self.ROWS), question)
        point = finding.curves[0].points[0]
        assert (point.flash_bytes, point.memory_bytes) == (9 * GIB, GIB)
        # 1 GiB a day on 9 GiB of one drive write a day over five years.
        assert point.life_years == pytest.approx(45.0)
        assert point.cost == pytest.approx(4.5)
        assert "20.0 GiB (18.0 GiB of flash, 2.00 GiB of memory)" in finding.advice.sentence
        assert (finding.advice.size_bytes, finding.advice.flash_bytes) == (20 * GIB, 18 * GIB)
        assert finding.cost_sentence.startswith("18.0 GiB of flash cost 9.00 EUR")

    def test_a_budget_is_flash(self) -> None:
        advice = build(to_table(CurvePoint, self.ROWS), _question(budget_bytes=18 * GIB)).advice
        assert advice.flash_bytes == 18 * GIB

    def test_a_split_shares_flash_out_and_says_how_much_memory_goes_with_it(self) -> None:
        rows = [*self.ROWS] + [dataclasses.replace(r, group_kind="osd", group_name="osd.0") for r in self.ROWS]
        # Two sizes of the same flash: the larger has more memory, and it is the one that counts.
        tiny = [
            _row(size_bytes=s, flash_bytes=100, read_hit_ratio=h, group_kind="osd", group_name="osd.1")
            for s, h in ((110, 0.1), (120, 0.2))
        ]
        finding = build(to_table(CurvePoint, rows + tiny), _question(by="osd", budget_bytes=18 * GIB + 100))
        shares = {s.group_name: s for s in finding.splits[0].shares}
        assert (shares["osd.0"].flash_bytes, shares["osd.0"].memory_bytes) == (18 * GIB, 2 * GIB)
        assert (shares["osd.1"].flash_bytes, shares["osd.1"].read_hit_ratio) == (100, pytest.approx(0.2))


class TestStability:
    @staticmethod
    def _windows(ratios: list[float]) -> list[CurvePoint]:
        rows = _curve([0.4, 0.8, 0.81])
        for hour, ratio in enumerate(ratios):
            rows += _curve([ratio] * 3, window=str(hour))
        return rows

    def test_equal_hours_are_stable_and_the_cold_first_hour_is_left_out(self) -> None:
        finding = build(to_table(CurvePoint, self._windows([0.1, 0.8, 0.78, 0.82])), _question())
        assert "is stable" in finding.stability_sentence
        assert len(finding.stability) == 4

    def test_what_the_sentence_does_not_count_is_marked(self) -> None:
        """The first window is cold, the third holds too few reads to tell."""
        rows = _curve([0.4, 0.8, 0.81])
        for hour, (ratio, reads) in enumerate([(0.1, 5000), (0.8, 5000), (0.0, 99), (0.78, 100)]):
            rows += _curve([ratio] * 3, window=str(hour), read_requests=reads)
        finding = build(to_table(CurvePoint, rows), _question())
        assert [w.judged for w in finding.stability] == [False, True, False, True]
        assert "over 2 windows" in finding.stability_sentence
        assert "is stable" in finding.stability_sentence

    def test_an_hour_without_reads_has_no_ratio(self) -> None:
        rows = _curve([0.4, 0.8, 0.81])
        for hour, reads in enumerate([5000, 0, 5000, 5000]):
            rows += _curve([0.8 if reads else 0.0] * 3, window=str(hour), read_requests=reads)
        finding = build(to_table(CurvePoint, rows), _question())
        assert [w.read_hit_ratio for w in finding.stability] == [pytest.approx(0.8), None, *[pytest.approx(0.8)] * 2]
        assert "is stable" in finding.stability_sentence

    def test_changing_hours_are_not(self) -> None:
        finding = build(to_table(CurvePoint, self._windows([0.1, 0.8, 0.3])), _question())
        assert "not stable" in finding.stability_sentence
        assert any("over the trace" in reason for reason in finding.advice.reasons)

    def test_no_time_cannot_tell(self) -> None:
        finding = build(to_table(CurvePoint, self._windows([0.1, 0.8, 0.8])), _question(duration_s=0.0))
        assert "no time" in finding.stability_sentence

    def test_one_window_cannot_tell(self) -> None:
        assert "Cannot tell" in build(to_table(CurvePoint, self._windows([0.5])), _question()).stability_sentence


def test_the_split_over_groups_is_reported_with_what_an_even_split_would_bring() -> None:
    rows = _curve([0.5, 0.7, 0.8])
    rows += _curve([0.9, 0.95, 0.96], group_kind="osd", group_name="osd.0")
    rows += _curve([0.0, 0.0, 0.0], group_kind="osd", group_name="osd.1")
    finding = build(to_table(CurvePoint, rows), _question(by="osd", budget_bytes=2 * GIB))
    (found,) = finding.splits
    assert [(s.group_name, s.flash_bytes) for s in found.shares] == [("osd.0", 2 * GIB), ("osd.1", 0)]
    assert found.hits == pytest.approx(0.95 * 100_000)
    assert found.hits_even == pytest.approx(0.9 * 100_000)


def test_a_budget_too_small_to_hit_is_not_worth_it() -> None:
    rows = _curve([0.03, 0.2, 0.6, 0.65])
    small = build(to_table(CurvePoint, rows), _question(budget_bytes=GIB))
    assert small.advice.call == "not worth it"
    assert "3.0% of reads" in small.advice.sentence
    enough = build(to_table(CurvePoint, rows), _question(budget_bytes=3 * GIB))
    assert enough.advice.call == "worth it"


def test_a_budget_goes_to_the_line_size_with_most_hits_for_what_the_disks_read() -> None:
    few = _curve([0.2, 0.3, 0.35], line_bytes=4096, fetch_amplification=0.7)
    many = _curve([0.3, 0.6, 0.65], line_bytes=65_536, fetch_amplification=0.9)
    advice = build(to_table(CurvePoint, few + many), _question(budget_bytes=2 * GIB)).advice
    assert (advice.line_bytes, advice.flash_bytes) == (65_536, 2 * GIB)
    assert "uses the budget" in advice.sentence


def test_a_budget_below_every_size_says_what_the_smallest_needs() -> None:
    advice = build(to_table(CurvePoint, _curve([0.4, 0.8])), _question(budget_bytes=GIB - 1)).advice
    assert advice.sentence.startswith("Not within reach: the smallest size simulated needs 1.00 GiB of flash")


def test_without_reads_nothing_is_said_of_reads() -> None:
    rows = _curve([0.0, 0.0, 0.0], read_requests=0, read_bytes=0, cold_read_ratio=0.0)
    finding = build(to_table(CurvePoint, rows), _question())
    point = finding.curves[0].points[0]
    assert finding.advice.sentence.startswith("Not worth it: no request is a read;")
    assert (point.read_hit.value, point.read_byte_hit, point.backing_reads_left) == (None, None, None)
    assert (point.latency_ns_mean, point.latency_ns_p99) == (None, None)
    assert finding.curves[0].cold_read_ratio is None
    assert point.write_hit == 0.3
    rows = _curve([0.4, 0.8, 0.81], write_requests=0)
    assert build(to_table(CurvePoint, rows), _question()).curves[0].points[0].write_hit is None


def test_a_short_life_is_told_in_days() -> None:
    rows = _curve([0.3, 0.5, 0.6], flash_write_bytes=500.0 * GIB)
    advice = build(to_table(CurvePoint, rows), _question(endurance=Endurance(drive_writes_per_day=1.0))).advice
    # The knee is 1 GiB or 2 GiB; 1,825 drive writes at 500 GiB a day are 3.65 days for each GiB.
    assert any(reason in {"the flash would live 4 days", "the flash would live 7 days"} for reason in advice.reasons)


def test_a_short_trace_does_not_extrapolate_what_a_budget_saved_up() -> None:
    # Two hours in which the budget of a day was spent: twelve times as much a day, which it would never let pass.
    spent = {"flash_write_bytes": float(GIB), "duration_s": 7200.0}
    for budget, expected in ((None, 12.0 * GIB), (float(GIB), float(GIB)), (100.0 * GIB, 12.0 * GIB)):
        points = to_table(CurvePoint, [_row(**spent, write_budget_bytes_per_day=budget)])
        (curve,) = build(points, _question(duration_s=7200.0)).curves
        assert curve.points[0].flash_write_bytes_per_day == expected
