"""Filling a cache is done once: the wear is that of a warm cache, whatever the span of the trace."""

from __future__ import annotations

import pytest

from bathyscope.analysis.sizing.wear import DAY_S, Wear, wear_of
from bathyscope.records import CurvePoint

from .test_sizing import GIB, _row

HOUR = 3600.0


def windows(
    written_gib: list[float],
    cold: list[float],
    evicted: list[float] | None = None,
    overwritten_gib: list[float] | None = None,
    **changes: object,
) -> list[CurvePoint]:
    """Hours in which so much was written to a flash of 100 GiB, of whose 1,000 reads so many were first touches.

    What was not overwritten was fetched by misses.
    """
    none = [0.0] * len(cold)
    return [
        _row(
            window=str(hour), duration_s=HOUR, read_requests=1000, cold_read_ratio=share, write_requests=0,
            write_bytes=0, size_bytes=100 * GIB, working_set_bytes=100 * GIB, flash_write_bytes=gib * GIB,
            read_bytes=10 * GIB, fetch_amplification=(gib - (overwritten_gib or none)[hour]) / 10,
            evicted_lines=(evicted or none)[hour], **changes,
        )
        for hour, (gib, share) in enumerate(zip(written_gib, cold, strict=True))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "cold", "evicted", "overwritten", "expected"),
    [
        ([5, 0, 0, 0], [1, 0, 0, 0], None, None, Wear(5 * GIB, 0.0)),
        ([5, 1, 1, 1], [1, 0, 0, 0], None, [0, 1, 1, 1], Wear(5 * GIB, 24.0 * GIB)),
        # Data that is touched before it is filled: its first write was of a part, or it was admitted the second time.
        ([0, 5, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], None, None, Wear(5 * GIB, 0.0)),
        ([0, 5, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], None, [0, 0, 1, 1, 1, 1], Wear(5 * GIB, pytest.approx(24.0 * GIB))),
        # The last of the filling is no wear either.
        ([0, 97, 3, 0, 0, 0], [1, 0, 0, 0, 0, 0], None, None, Wear(100 * GIB, 0.0)),
        # A cache that evicts is full, however much is touched for the first time.
        ([5, 5, 5, 5], [1, 1, 1, 1], [0, 9, 9, 9], None, Wear(10 * GIB, 120.0 * GIB)),
        # Steadily new data in a cache that is not full: nothing is known of the time after that.
        ([5, 5, 5, 5], [1, 1, 1, 1], None, None, Wear(20 * GIB, None)),
        ([5, 5, 5, 5], [1, 1, 1, 1], [0, 0, 0, 9], None, Wear(20 * GIB, None)),
        # No more is filled than there is room, whatever was overwritten before the cache was warm.
        ([150, 1, 1, 1], [1, 0, 0, 0], None, [90, 1, 1, 1], Wear(100 * GIB, pytest.approx(24.0 * GIB))),
        ([], [], None, None, None),
    ],
    ids=[
        "filled once", "warm and written", "filled later", "filled later and written", "nearly filled", "full",
        "not full", "full at the end", "overwritten", "no windows",
    ],
)  # fmt: skip
def test_wear(
    written: list[float],
    cold: list[float],
    evicted: list[float] | None,
    overwritten: list[float] | None,
    expected: Wear | None,
) -> None:
    rows = windows(written, cold, evicted, overwritten)
    assert wear_of(rows, len(written) * HOUR) == expected


def test_where_writes_invalidate_fetching_again_is_wear() -> None:
    rows = windows([5, 1, 1, 1], [1, 0, 0, 0])
    assert wear_of(rows, 4 * HOUR, invalidates=True) == Wear(5 * GIB, 24.0 * GIB)
    # Told that nothing is invalidated, all of it is the filling of a cache that is never full.
    assert wear_of(rows, 4 * HOUR) == Wear(8 * GIB, None)


def test_a_budget_bounds_the_wear_of_a_cache_that_is_never_warm() -> None:
    rows = windows([1, 1, 1, 1], [1, 0, 0, 0], write_budget_bytes_per_day=24.0 * GIB)
    assert wear_of(rows, 4 * HOUR) == Wear(4 * GIB, 24.0 * GIB)


def test_idle_time_is_part_of_a_day() -> None:
    # Hours 2 and 3 of four have no request and no row: a GiB in three hours is eight a day.
    assert wear_of(windows([5, 1], [1, 0], None, [0, 1]), 4 * HOUR) == Wear(5 * GIB, pytest.approx(8 * GIB))


def test_a_short_trace_does_not_extrapolate_what_a_budget_saved_up() -> None:
    rows = [
        _row(window=str(i), duration_s=HOUR, evicted_lines=1.0, flash_write_bytes=1.0 * GIB,
             write_budget_bytes_per_day=2.0 * GIB)
        for i in range(3)
    ]  # fmt: skip
    assert wear_of(rows, 3 * HOUR) == Wear(GIB, 2.0 * GIB)
    assert wear_of(rows, 0.0) is None
    assert DAY_S == 24 * HOUR
