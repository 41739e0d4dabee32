"""Sizing: knee, split, latency mix, endurance, stability and advice on curves whose answers are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope.analysis.sizing import SizeQuestion, build
from bathyscope.analysis.sizing.knee import knee_index, upper_hull
from bathyscope.analysis.sizing.latency import LatencyDistribution, mixed_mean_ns, mixed_quantile_ns
from bathyscope.records import CurvePoint, to_table
from bathyscope.records.size import TraceSummary
from bathyscope.records.size_finding import SizeFinding
from bathyscope.spec.prices import Backing, Drive, Prices
from bathyscope.spec.size import SizeSpec

GIB = 1 << 30
# One drive of 100 GiB; with it, a disk whose transfers take no time: its time is that of its accesses.
DRIVE: dict[str, Any] = {
    "capacity_gb": 100 * GIB / 1e9,
    "read_iops": 1e5,
    "write_iops": 1e5,
    "read_mb_per_s": 500,
    "write_mb_per_s": 500,
    "read_latency_us": 100,
    "price": 100,
}
SEEKS = Backing(positioning_ms=10, transfer_mb_per_s=1e9)
HIT = LatencyDistribution.constant(100_000.0, "assumed")
MISS = LatencyDistribution.from_samples(np.asarray([5e6] * 99 + [50e6]), "measured")


def _row(**changes: Any) -> CurvePoint:
    base: dict[str, Any] = {
        "group_kind": "all", "group_name": "all", "window": "all", "policy": "s3-fifo", "admission": "all",
        "method": "simulation", "line_bytes": 65536, "fetch_bytes": 65536, "size_bytes": GIB, "read_requests": 100_000,
        "write_requests": 50_000, "read_bytes": 1 << 32, "write_bytes": 1 << 31, "working_set_bytes": 10 * GIB,
        "read_hit_ratio": 0.5, "read_hit_ratio_low": 0.49, "read_hit_ratio_high": 0.51, "read_byte_hit_ratio": 0.4,
        "write_hit_ratio": 0.3, "write_byte_hit_ratio": 0.2, "cold_write_ratio": 0.4,
        "cold_read_ratio": 0.1, "fetch_amplification": 1.2, "write_gap_ratio": 0.0,
        "flash_write_bytes": float(GIB), "evicted_lines": 0.0, "duration_s": 86400.0, "sampled_lines": None,
        "write_budget_bytes_per_day": None, "sample_region_bytes": None,
    }  # fmt: skip
    hit = changes.get("read_hit_ratio", 0.5)
    base["flash_bytes"] = changes.get("size_bytes", GIB)
    base |= {"read_hit_ratio_low": hit, "read_hit_ratio_high": hit} | changes
    return CurvePoint(**base)


def _curve(hits: list[float], **changes: Any) -> list[CurvePoint]:
    return [_row(size_bytes=(i + 1) * GIB, read_hit_ratio=h, **changes) for i, h in enumerate(hits)]


def _question(
    *,
    drives: dict[str, dict[str, Any]] | None = None,
    currency: str = "USD",
    duration_s: float = 86400.0,
    hit: LatencyDistribution | None = HIT,
    miss: LatencyDistribution | None = MISS,
    backing: Backing = SEEKS,
    **asked: Any,
) -> SizeQuestion:
    found = {name: Drive(**(DRIVE | changes)) for name, changes in (drives or {"drive": {}}).items()}
    spec = SizeSpec(prices=Prices(currency=currency, as_of="today", drives=found), **asked)
    trace = TraceSummary(("trace",), 150_000, time_ns_range=(0, round(duration_s * 1e9)))
    return SizeQuestion(spec, trace, hit, miss, backing)


SIZES = np.arange(1.0, 101.0)


class TestKnee:
    @pytest.mark.parametrize(
        ("hits", "knee"),
        [
            (np.minimum(SIZES / 20.0, 1.0) * 0.8, 19),
            (SIZES / 100.0, None),
            (np.full(100, 0.01), None),
            # A loop of 50 under LRU hits nothing until the cache holds it all.
            (np.where(SIZES >= 50, 0.9, 0.0), 49),
        ],
        ids=["a sharp bend", "a straight line", "flat", "a cliff"],
    )
    def test_a_bend_is_found_exactly(self, hits: np.ndarray, knee: int | None) -> None:
        assert knee_index(SIZES, hits) == knee

    @given(st.lists(st.floats(0, 1), min_size=3, max_size=40))
    def test_the_hull_lies_on_or_above_the_curve(self, hits: list[float]) -> None:
        xs = np.arange(len(hits), dtype=float)
        ys = np.asarray(hits)
        hull = upper_hull(xs, ys)
        assert np.all(np.interp(xs, xs[hull], ys[hull]) >= ys - 1e-12)


def _found(rows: Iterable[CurvePoint], **asked: Any) -> SizeFinding:
    return build(to_table(CurvePoint, list(rows)), _question(**asked))


class TestLatency:
    def test_the_mean_is_the_weighted_mean(self) -> None:
        hit, miss = LatencyDistribution.constant(100.0, "a"), LatencyDistribution.constant(1100.0, "b")
        assert mixed_mean_ns(hit, miss, 0.75) == pytest.approx(350.0)

    @pytest.mark.parametrize(("ratio", "samples"), [(0.7, (70_000, 30_000)), (0.98, (98_000, 2000))])
    def test_the_quantile_is_of_the_mix_not_a_mean_of_quantiles(self, ratio: float, samples: tuple[int, int]) -> None:
        rng = np.random.default_rng(7)
        hits, misses = rng.exponential(1e5, samples[0]), rng.exponential(5e6, samples[1])
        mix = mixed_quantile_ns(
            LatencyDistribution.from_samples(hits, "a"), LatencyDistribution.from_samples(misses, "b"), ratio, 0.99
        )
        assert mix == pytest.approx(np.quantile(np.concatenate((hits, misses)), 0.99), rel=0.01)


class TestAdvice:
    def test_what_one_drive_holds_is_taken_as_long_as_it_helps_the_disks(self) -> None:
        """The knee of 2 GiB hides that 4 GiB halve what is left; the fifth brings nothing."""
        advice = _found(_curve([0.4, 0.8, 0.85, 0.90, 0.90])).advice
        assert (advice.verdict, advice.size_bytes) == ("worth it", 4 * GIB)
        assert "on one drive (100.00 USD)" in advice.sentence

    def test_the_smallest_size_that_meets_a_target_hit_ratio(self) -> None:
        finding = _found(_curve([0.4, 0.6, 0.7, 0.8]), target_hit=0.65)
        assert finding.advice.size_bytes == 3 * GIB

    @pytest.mark.parametrize(("mb_per_s", "line", "gib"), [(1000, 262_144, 1), (20, 65_536, 2)])
    def test_a_byte_fetched_along_costs_its_transfer_and_no_more(self, mb_per_s: float, line: int, gib: int) -> None:
        """256K lines meet the target with 1 GiB but read four bytes for each; 64K lines need 2 GiB, 4K lines 3 GiB.

        Reads of 43 KB: at 20 MB/s a line four times as long as its reads keeps the disk busier than no cache does.
        """
        rows = [
            *_curve([0.4, 0.6, 0.9], line_bytes=4096, fetch_amplification=0.8),
            *_curve([0.5, 0.9, 0.95], line_bytes=65_536, fetch_amplification=1.1),
            *_curve([0.9, 0.95, 0.96], line_bytes=262_144, fetch_amplification=8.0),
        ]
        backing = Backing(positioning_ms=10, transfer_mb_per_s=mb_per_s)
        advice = _found(rows, target_hit=0.85, backing=backing).advice
        assert (advice.line_bytes, advice.size_bytes) == (line, gib * GIB)

    def test_a_target_out_of_reach_says_so(self) -> None:
        finding = _found(_curve([0.4, 0.6, 0.7, 0.8]), target_hit=0.95)
        assert finding.advice.verdict == "not worth it"
        assert "80.0%" in finding.advice.sentence

    def test_the_smallest_size_that_meets_a_target_latency(self) -> None:
        # mean miss = (99 × 5 + 50)/100 = 5.45 ms; at 0.8 hits: 0.8 × 0.1 + 0.2 × 5.45 = 1.17 ms
        finding = _found(_curve([0.4, 0.6, 0.7, 0.8]), target_latency_ns=1.2e6)
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
        advice = _found(rows, **question).advice
        assert advice.verdict == "not worth it"
        assert word in advice.sentence

    def test_what_is_not_worth_it_is_said_of_the_curve_that_is_shown(self) -> None:
        rows = [*_curve([0.01, 0.02], line_bytes=4096), *_curve([0.02, 0.05], line_bytes=65_536)]
        advice = _found(rows).advice
        assert (advice.verdict, advice.line_bytes, advice.policy) == ("not worth it", 65_536, "s3-fifo")
        assert (advice.size_bytes, advice.flash_bytes) == (None, None)
        assert advice.reasons
        assert advice.further_reasons == ()

    @pytest.mark.parametrize("rows", [_curve([0.4, 0.8], read_requests=10, write_requests=10), []])
    def test_too_few_requests_or_no_curve_cannot_tell(self, rows: list[CurvePoint]) -> None:
        assert _found(rows).advice.verdict == "inconclusive"

    def test_a_constant_miss_gives_no_p99(self) -> None:
        finding = _found(_curve([0.4, 0.8]), miss=LatencyDistribution.constant(5e6, "given"))
        assert finding.curves[0].points[0].latency_ns_p99 is None
        assert finding.curves[0].points[0].latency_ns_mean is not None

    def test_a_trace_without_time_promises_no_life(self) -> None:
        rows = _curve([0.4, 0.8], duration_s=0.0)
        finding = _found(rows, duration_s=0.0, drives={"drive": {"drive_writes_per_day": 1.0}})
        assert finding.curves[0].points[0].life_years is None
        assert any(c.code == "no_time" for c in finding.caveats)

    def test_cost(self) -> None:
        finding = _found(_curve([0.4, 0.8]), currency="EUR")
        assert finding.curves[0].points[1].cost == 100
        assert finding.cost_sentence == (
            "One drive costs 100.00 EUR (prices of today); 2.00 GiB of flash use 2.0% of its capacity."
        )

    def test_the_band_is_in_the_headline(self) -> None:
        rows = _curve([0.4, 0.8], read_hit_ratio_low=0.7, read_hit_ratio_high=0.9, sampled_lines=1000)
        assert "80.0% ±10.0 points of reads hit" in _found(rows).advice.sentence

    @pytest.mark.parametrize(("other", "is_named"), [(0.05, True), (0.5, False)])
    def test_one_image_that_has_nearly_all_hits_is_named(self, other: float, is_named: bool) -> None:
        rows = _curve([0.4, 0.8])
        rows += _curve([0.4, 0.8], group_kind="image", group_name="vm-1")
        rows += _curve([other], group_kind="image", group_name="vm-2")
        sentence = _found(rows, by="image").advice.sentence
        assert ("nearly all of them of image vm-1" in sentence) == is_named


class TestFlashAndMemory:
    """A policy that keeps a tenth of its lines in memory buys nine tenths of the size as flash."""

    ROWS = tuple(
        _row(size_bytes=10 * i * GIB, flash_bytes=9 * i * GIB, read_hit_ratio=h) for i, h in ((1, 0.5), (2, 0.8))
    )

    def test_drives_hold_the_flash(self) -> None:
        small = {"small": {"capacity_gb": 9 * GIB / 1e9}}
        finding = build(to_table(CurvePoint, self.ROWS), _question(drives=small))
        point = finding.curves[0].points[0]
        assert (point.flash_bytes, point.dram_bytes) == (9 * GIB, GIB)
        # Ten GiB with one of DRAM fit a drive of nine.
        assert [p.cost for p in finding.curves[0].points] == [100, 200]
        assert "20.0 GiB (18.0 GiB of flash, 2.00 GiB of DRAM)" in finding.advice.sentence
        assert (finding.advice.size_bytes, finding.advice.flash_bytes) == (20 * GIB, 18 * GIB)
        assert "18.0 GiB of flash use 100% of their capacity" in finding.cost_sentence

    def test_a_budget_is_flash(self) -> None:
        advice = _found(self.ROWS, budget_bytes=18 * GIB).advice
        assert advice.flash_bytes == 18 * GIB

    def test_a_split_shares_flash_out_and_says_how_much_memory_goes_with_it(self) -> None:
        rows = [*self.ROWS] + [dataclasses.replace(r, group_kind="osd", group_name="osd.0") for r in self.ROWS]
        # Two sizes of the same flash: the larger has more memory, and it is the one that counts.
        tiny = [
            _row(size_bytes=s, flash_bytes=100, read_hit_ratio=h, group_kind="osd", group_name="osd.1")
            for s, h in ((110, 0.1), (120, 0.2))
        ]
        finding = _found(rows + tiny, by="osd", budget_bytes=18 * GIB + 100)
        shares = {s.group_name: s for s in finding.splits[0].shares}
        assert (shares["osd.0"].flash_bytes, shares["osd.0"].dram_bytes) == (18 * GIB, 2 * GIB)
        assert (shares["osd.1"].flash_bytes, shares["osd.1"].read_hit_ratio) == (100, pytest.approx(0.2))


class TestStability:
    @staticmethod
    def _windows(ratios: list[float]) -> list[CurvePoint]:
        rows = _curve([0.4, 0.8, 0.81])
        for hour, ratio in enumerate(ratios):
            rows += _curve([ratio] * 3, window=str(hour))
        return rows

    def test_equal_hours_are_stable_and_the_cold_first_hour_is_left_out(self) -> None:
        finding = _found(self._windows([0.1, 0.8, 0.78, 0.82]))
        assert "is stable" in finding.stability_sentence
        assert len(finding.stability) == 4

    def test_what_the_sentence_does_not_count_is_marked(self) -> None:
        """The first window is cold, the third holds too few reads to tell."""
        rows = _curve([0.4, 0.8, 0.81])
        for hour, (ratio, reads) in enumerate([(0.1, 5000), (0.8, 5000), (0.0, 99), (0.78, 100)]):
            rows += _curve([ratio] * 3, window=str(hour), read_requests=reads)
        finding = _found(rows)
        assert [w.judged for w in finding.stability] == [False, True, False, True]
        assert "over 2 windows" in finding.stability_sentence
        assert "is stable" in finding.stability_sentence

    def test_an_hour_without_reads_has_no_ratio(self) -> None:
        rows = _curve([0.4, 0.8, 0.81])
        for hour, reads in enumerate([5000, 0, 5000, 5000]):
            rows += _curve([0.8 if reads else 0.0] * 3, window=str(hour), read_requests=reads)
        finding = _found(rows)
        assert [w.read_hit_ratio for w in finding.stability] == [pytest.approx(0.8), None, *[pytest.approx(0.8)] * 2]
        assert "is stable" in finding.stability_sentence

    def test_changing_hours_are_not(self) -> None:
        finding = _found(self._windows([0.1, 0.8, 0.3]))
        assert "not stable" in finding.stability_sentence
        assert any("over the trace" in reason for reason in finding.advice.reasons)

    def test_no_time_cannot_tell(self) -> None:
        finding = _found(self._windows([0.1, 0.8, 0.8]), duration_s=0.0)
        assert "no time" in finding.stability_sentence

    def test_one_window_cannot_tell(self) -> None:
        assert "not known" in _found(self._windows([0.5])).stability_sentence


def test_the_split_over_groups_is_reported_with_what_an_even_split_would_bring() -> None:
    rows = _curve([0.5, 0.7, 0.8])
    rows += _curve([0.9, 0.95, 0.96], group_kind="osd", group_name="osd.0")
    rows += _curve([0.0, 0.0, 0.0], group_kind="osd", group_name="osd.1")
    finding = _found(rows, by="osd", budget_bytes=2 * GIB)
    (found,) = finding.splits
    assert [(s.group_name, s.flash_bytes) for s in found.shares] == [("osd.0", 2 * GIB), ("osd.1", 0)]
    assert found.hits == pytest.approx(0.95 * 100_000)
    assert found.hits_even == pytest.approx(0.9 * 100_000)
    # The first of three GiB more would bring a hundredth of the reads of one of two equal groups.
    assert found.shares[0].marginal_hit_ratio_per_gib == pytest.approx(0.005)
    assert any("the best split brings" in reason for reason in finding.advice.reasons)


def test_a_split_that_is_no_better_than_an_even_one_is_no_reason() -> None:
    rows = _curve([0.5, 0.7, 0.8])
    for name in ("osd.0", "osd.1"):
        rows += _curve([0.5, 0.7, 0.8], group_kind="osd", group_name=name)
    finding = _found(rows, by="osd", budget_bytes=2 * GIB)
    assert finding.splits[0].hits == pytest.approx(finding.splits[0].hits_even)
    assert not any("best split" in reason for reason in finding.advice.reasons)


def test_a_budget_too_small_to_hit_is_not_worth_it() -> None:
    rows = _curve([0.03, 0.2, 0.6, 0.65])
    small = _found(rows, budget_bytes=GIB)
    assert small.advice.verdict == "not worth it"
    assert "3.0% of reads" in small.advice.sentence
    enough = _found(rows, budget_bytes=3 * GIB)
    assert enough.advice.verdict == "worth it"


def test_a_budget_goes_to_the_line_size_with_most_hits_for_what_the_disks_read() -> None:
    few = _curve([0.2, 0.3, 0.35], line_bytes=4096, fetch_amplification=0.7)
    many = _curve([0.3, 0.6, 0.65], line_bytes=65_536, fetch_amplification=0.9)
    advice = _found(few + many, budget_bytes=2 * GIB).advice
    assert (advice.line_bytes, advice.flash_bytes) == (65_536, 2 * GIB)
    assert "uses the budget" in advice.sentence
    assert "USD" not in advice.sentence


def test_a_budget_below_every_size_says_what_the_smallest_needs() -> None:
    advice = _found(_curve([0.4, 0.8]), budget_bytes=GIB - 1).advice
    assert advice.sentence.startswith("Not within reach: the smallest size simulated needs 1.00 GiB of flash")


def test_without_reads_nothing_is_said_of_reads() -> None:
    rows = _curve([0.0, 0.0, 0.0], read_requests=0, read_bytes=0, cold_read_ratio=0.0)
    finding = _found(rows)
    point = finding.curves[0].points[0]
    assert finding.advice.sentence.startswith("Not worth it: no request is a read;")
    assert (point.read_hit.value, point.read_byte_hit, point.backing_reads_left) == (None, None, None)
    assert (point.latency_ns_mean, point.latency_ns_p99) == (None, None)
    assert finding.curves[0].cold_read_ratio is None
    assert point.write_hit == 0.3
    rows = _curve([0.4, 0.8, 0.81], write_requests=0)
    assert _found(rows).curves[0].points[0].write_hit is None
