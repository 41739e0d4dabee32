"""The flash and the memory of a cache: counted in the engine, and kept apart in everything that follows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope import _core
from bathyscope.simulate.grid import flash_lines, largest_size_lines
from bathyscope.simulate.trace import TraceFiles

from .curves import curve_points, whole
from .test_curve_points import TRACES
from .traces import LINE


def lines_on_flash(policy: str, size_lines: int, memory_bytes: int | None = None) -> int:
    """What the engine writes to flash while as many lines as it holds are read for the first time.

    A policy with a queue in memory fills that queue first and sends the rest to flash.
    """
    engines = _core.EnginePass()
    number = engines.add_engine(policy, LINE, np.asarray([size_lines], np.uint64), memory_bytes=memory_bytes)
    offsets = np.arange(size_lines, dtype=np.uint64) * np.uint64(LINE)
    engines.add_requests(
        np.zeros(size_lines, np.uint64),
        offsets,
        np.full(size_lines, LINE, np.uint32),
        np.zeros(size_lines, np.uint8),
        np.zeros(size_lines, np.uint32),
        np.zeros(size_lines, np.uint32),
    )
    return round(float(engines.results(number)["flash_write_bytes"][0])) // LINE


@pytest.mark.parametrize("size_lines", [1, 2, 63, 64, 65, 127, 128, 129, 1000, 12_345])
@pytest.mark.parametrize("policy", ["s3-fifo", "lru", "clock2q+", "2q", "arc"])
def test_the_share_is_that_of_the_engine(policy: str, size_lines: int) -> None:
    assert lines_on_flash(policy, size_lines) == flash_lines(policy, size_lines, LINE)


def test_every_policy_that_keeps_lines_in_memory_is_known() -> None:
    for policy in _core.policy_names():
        assert lines_on_flash(policy, 1000) == flash_lines(policy, 1000, LINE)
    assert flash_lines("s3-fifo", 1000, LINE) == 1000 - 15


@pytest.mark.parametrize("memory_bytes", [1 << 20, 1 << 21, 1 << 40])
def test_a_cache_that_may_take_less_memory_has_less_in_it(memory_bytes: int) -> None:
    stage = min(memory_bytes // 4 // LINE, 12_345 // 64)
    for policy, expected in (("s3-fifo", 12_345 - stage), ("lru", 12_345)):
        assert flash_lines(policy, 12_345, LINE, memory_bytes) == expected
        assert lines_on_flash(policy, 12_345, memory_bytes) == expected
        size = largest_size_lines(policy, expected, LINE, memory_bytes)
        assert (
            flash_lines(policy, size, LINE, memory_bytes)
            <= expected
            < flash_lines(policy, size + 1, LINE, memory_bytes)
        )


def test_what_is_in_memory_is_bounded() -> None:
    for line_bytes in (4096, 65_536):
        lines = 400 * 2**30 // line_bytes
        assert (lines - flash_lines("s3-fifo", lines, line_bytes)) * line_bytes == 2**30


def test_shares_of_a_cache_have_shares_of_what_it_has_in_memory() -> None:
    cache, line_bytes = 2**40 // 65_536, 65_536
    stage = cache - flash_lines("s3-fifo", cache, line_bytes)
    assert stage * line_bytes == 2**30
    eighths = [cache // 8 - flash_lines("s3-fifo", cache // 8, line_bytes, None, cache) for _ in range(8)]
    assert sum(eighths) == stage
    assert cache // 8 == flash_lines("lru", cache // 8, line_bytes, None, cache)


@given(st.sampled_from(["s3-fifo", "lru"]), st.integers(1, 1 << 40))
def test_the_largest_size_for_some_flash_uses_it_up(policy: str, flash: int) -> None:
    size = largest_size_lines(policy, flash, LINE)
    assert flash_lines(policy, size, LINE) <= flash
    assert flash_lines(policy, size + 1, LINE) > flash or size == 1


def test_points_tell_flash_from_memory_and_a_budget_is_flash() -> None:
    budget = 1_000_000
    policies = ("s3-fifo", "lru")
    trace = TraceFiles([TRACES / "multi3.lirs"])
    rows, _ = curve_points(trace, line_bytes=(LINE,), policies=policies, budget_bytes=budget)
    for policy in policies:
        points = whole(rows, policy=policy)
        assert all(p.flash_bytes == flash_lines(policy, p.size_bytes // LINE, LINE) * LINE for p in points)
        fitting = max(p.flash_bytes for p in points if p.flash_bytes <= budget)
        assert budget - fitting < LINE
    assert {p.flash_bytes == p.size_bytes for p in whole(rows, policy="lru")} == {True}
