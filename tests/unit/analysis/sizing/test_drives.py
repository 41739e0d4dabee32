"""Drives that can be bought: the cheapest that hold the cache, bear its writes, and meet its peak demand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bathyscope.analysis.sizing.demand import peak_demand, peak_hour
from bathyscope.analysis.sizing.drives import MOST_DRIVES, Demand, cheapest
from bathyscope.analysis.sizing.wear import life_words, option_bytes
from bathyscope.records.size_finding import Advice
from bathyscope.spec.prices import Drive, load_prices
from bathyscope.units import parse_bytes

from .test_sizing import DRIVE, GIB, SEEKS, _curve, _found, _row

GB, DAY = 10**9, 86_400


def drives(**changes: dict[str, Any]) -> dict[str, Drive]:
    return {name: Drive(**(DRIVE | one)) for name, one in changes.items()}


SHELF = drives(
    small={"capacity_gb": 100, "total_tb_written": 182.5, "price": 30},
    large={"capacity_gb": 1000, "total_tb_written": 1825, "price": 90},
    tough={"capacity_gb": 100, "total_tb_written": 1825, "price": 80},
)
"""One drive write a day over five years, one of 1,000 GB, and one of ten drive writes a day."""


@pytest.mark.parametrize(
    ("flash_gb", "written_gb", "life", "bought"),
    [
        (50, None, None, ("small", 1)),
        (150, None, None, ("small", 2)),
        (350, None, None, ("large", 1)),
        (1500, None, None, ("large", 2)),
        (50, 90, None, ("small", 1)),
        # 200 GB a day: two of the small bear it for 60, one of ten drive writes a day for 80.
        (50, 200, None, ("small", 2)),
        (50, 500, None, ("tough", 1)),
        (50, 500, 1.0, ("small", 1)),
        (50, 500, 0.0, ("small", 1)),
        # Ten drives of 100 GB would hold it; the large one bears it for less.
        (900, 1000, None, ("large", 1)),
    ],
)
def test_the_cheapest_that_will_do(
    flash_gb: int, written_gb: float | None, life: float | None, bought: tuple[str, int]
) -> None:
    found = cheapest(SHELF, flash_gb * GB, None if written_gb is None else written_gb * GB, None, life)
    assert found is not None
    assert (found.drive, found.count) == bought
    if written_gb is not None and found.life_years is not None and life != 0:
        assert found.life_years >= (5.0 if life is None else life)
        assert found.share <= 1


def test_the_peak_demand_asks_for_a_faster_drive_or_more_of_them() -> None:
    shelf = drives(slow={"read_iops": 1000, "price": 10}, fast={"read_iops": 100_000, "price": 50})
    found = [cheapest(shelf, GIB, None, Demand(iops, 0, 0, 0), None) for iops in (900, 1500, 50_000, 5e6)]
    assert [one and (one.drive, one.count) for one in found] == [("slow", 1), ("slow", 2), ("fast", 1), None]
    # Reads and writes share a drive: half of each speed is all of it.
    assert Demand(50_000, 50_000, 0, 0).share_of(shelf["fast"]) == pytest.approx(1.0)
    assert Demand(0, 0, 250e6, 250e6).share_of(shelf["fast"]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("written", "years"), [(0.5 * 100 * GB, 10.0), (0.0, math.inf), (None, None)], ids=["half", "none", "unknown"]
)
def test_life(written: float | None, years: float | None) -> None:
    found = cheapest(SHELF, GB, written, None, None)
    assert found is not None
    assert found.life_years == (years and pytest.approx(years))


def test_without_a_promise_the_life_is_not_known() -> None:
    found = cheapest(drives(one={}), GB, 1e15, None, None)
    assert found is not None
    assert (found.life_years, found.endurance_share, found.count) == (None, None, 1)


def test_more_drives_than_a_server_holds_are_not_advised() -> None:
    assert cheapest(drives(one={}), 100 * GIB * MOST_DRIVES, None, None, None) is not None
    assert cheapest(drives(one={}), 101 * GIB * MOST_DRIVES, None, None, None) is None


def _written(rows_gib: list[float], **asked: Any) -> Advice:
    """Advice on one size of 2 GiB that writes so much in each of four windows of 6 h, from the first one on full."""
    rows = [_row(size_bytes=2 * GIB, read_hit_ratio=0.8)]
    rows += [
        _row(
            size_bytes=2 * GIB, read_hit_ratio=0.8, window=str(i), duration_s=21_600.0, evicted_lines=1.0,
            flash_write_bytes=gib * GIB,
        )
        for i, gib in enumerate(rows_gib)
    ]  # fmt: skip
    return _found(rows, **asked).advice


def test_a_cache_of_heavy_writes_fits_a_drive_that_anyone_can_buy() -> None:
    """52 drive writes a day of a drive of the cache's size are one of a drive of 100 GiB."""
    advice = _written([26.0] * 4, drives={"drive": {"drive_writes_per_day": 1.05}})
    assert advice.verdict == "worth it"
    # 78 GiB in the 18 hours that are warm are 104 GiB a day.
    assert advice.purchase is not None
    assert (advice.purchase.count, advice.purchase.life_years) == (1, pytest.approx(5 * 105 / 104))
    assert "the flash would live 5.0 years".replace(".0", "") in advice.reasons
    assert "2.00 GiB are written once, to fill the cache" in advice.reasons


def test_what_no_drives_bear_wears_out_and_says_what_would_help() -> None:
    advice = _written([26_000.0] * 4, drives={"drive": {"drive_writes_per_day": 1.0}})
    assert (advice.verdict, advice.size_bytes, advice.purchase) == ("wears out", None, None)
    assert "would write 102 TiB to flash a day, which 24 of no drive in the price file bear" in advice.sentence
    assert "--admission 2-hit or budget:SIZE writes less" in advice.reasons
    assert _written([26_000.0] * 4, drives={"drive": {"drive_writes_per_day": 1.0}}, min_life_years=0.0).verdict == (
        "worth it"
    )


def test_of_two_configurations_the_one_that_needs_less_money_is_taken() -> None:
    """Both spare the disks alike; one writes so much that it needs two drives."""
    rows = []
    for line, gib in ((4096, 60.0), (65_536, 1.0)):
        common: dict[str, Any] = {"line_bytes": line, "fetch_bytes": line, "read_hit_ratio": 0.8, "size_bytes": 2 * GIB}
        rows += [_row(**common), *(
            _row(**common, window=str(i), duration_s=21_600.0, evicted_lines=1.0, flash_write_bytes=gib * GIB)
            for i in range(4)
        )]  # fmt: skip
    advice = _found(rows, drives={"drive": {"drive_writes_per_day": 1.0}}).advice
    assert (advice.line_bytes, advice.purchase and advice.purchase.count) == (65_536, 1)


def test_a_dearer_drive_is_bought_where_it_spares_the_disks_much() -> None:
    shelf = {"small": {"capacity_gb": 2 * GIB / 1e9, "price": 30}, "large": {"capacity_gb": 5 * GIB / 1e9, "price": 45}}
    much = _found(_curve([0.2, 0.3, 0.6, 0.9, 0.95]), drives=shelf)
    little = _found(_curve([0.6, 0.9, 0.91, 0.92, 0.93]), drives=shelf)
    assert [f.advice.purchase and f.advice.purchase.drive for f in (much, little)] == ["large", "small"]


def test_the_packaged_file_names_its_sources() -> None:
    prices = load_prices(None)
    assert prices.packaged
    assert min(drive.capacity_gb for drive in prices.drives.values()) == 240
    assert all(drive.source and drive.endurance_bytes for drive in prices.drives.values())
    assert all(backing.source for backing in prices.backing.values())
    assert "estimates" in prices.note


def test_the_busiest_minute_and_hour() -> None:
    """Two hours of 60 reads a minute, half of which hit; one minute has 600 reads, and the second hour 120."""
    reads = [60] * 60 + [120] * 59 + [600]
    rows = [
        _row(
            window=f"peak {i}", duration_s=60.0, read_requests=count, read_bytes=count * 4096, write_requests=0,
            write_bytes=0, read_hit_ratio=0.5, read_byte_hit_ratio=0.5, fetch_amplification=0.5,
            flash_write_bytes=count * 2048.0,
        )
        for i, count in enumerate(reads)
    ]  # fmt: skip
    demand, hour = peak_demand(rows, 4096), peak_hour(rows, 7200.0, SEEKS)
    assert demand == Demand(5.0, 5.0, 600 * 2048 / 60, 600 * 2048 / 60)
    assert hour is not None
    assert hour.seconds == 3600
    total = 59 * 120 + 600
    assert (hour.reads_per_s, hour.reads_left_per_s) == (pytest.approx(total / 3600), pytest.approx(total / 7200))
    assert hour.disks_without == pytest.approx(total * 0.010 / 3600, rel=0.01)
    assert hour.disks_left == pytest.approx(total * 0.005 / 3600, rel=0.01)
    # Minutes without requests have no row; they are minutes all the same.
    sparse = peak_hour([rows[0], rows[119]], 7200.0, SEEKS)
    assert sparse is not None
    assert sparse.reads_per_s == pytest.approx(600 / 3600)


@pytest.mark.parametrize(
    ("years", "words"),
    [
        (5.0, "5 years"),
        (1.0, "1 year"),
        (2.45, "2.5 years"),
        (0.4, "146 days"),
        (0.001, "less than a day"),
        (math.inf, "50 years and more"),
    ],
)
def test_lives_in_words(years: float, words: str) -> None:
    assert life_words(years) == words


@pytest.mark.parametrize("size", [10_240, 999_999, 1 << 30, 53 << 30, 9 << 40, 3 << 50])
def test_an_option_is_read_back_as_no_more_than_was_meant(size: int) -> None:
    assert 0.9 * size <= parse_bytes(option_bytes(size)) <= size


def test_a_budget_of_hardly_anything_is_not_proposed() -> None:
    assert (option_bytes(5000), option_bytes(1023)) == ("4K", "")
