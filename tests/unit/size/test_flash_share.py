"""The flash and the memory of a cache: counted in the engine, and kept apart in everything that follows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope import _core
from bathyscope.sources.block_trace import TraceFiles
from bathyscope.sources.curve_points import curve_points
from bathyscope.sources.curve_request import CurveRequest
from bathyscope.sources.flash_share import SMALL_QUEUE_SHARE, flash_lines, largest_size_lines

from .test_curve_points import TRACES, whole
from .traces import LINE


def lines_on_flash(policy: str, size_lines: int) -> int:
    """What the engine writes to flash while as many lines as it holds are read for the first time.

    A policy with a queue in memory fills that queue first and sends the rest to flash.
    """
    engines = _core.EnginePass()
    number = engines.add_engine(policy, LINE, np.asarray([size_lines], np.uint64))
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


@pytest.mark.parametrize("size_lines", [2, 9, 10, 11, 19, 20, 21, 100, 999, 1000, 12_345])
@pytest.mark.parametrize("policy", ["s3-fifo", "lru", "clock2q+", "2q", "arc"])
def test_the_share_is_that_of_the_engine(policy: str, size_lines: int) -> None:
    assert lines_on_flash(policy, size_lines) == flash_lines(policy, size_lines)


def test_every_policy_that_keeps_lines_in_memory_is_known() -> None:
    staged = {policy for policy in _core.policy_names() if lines_on_flash(policy, 1000) < 1000}
    assert staged == set(SMALL_QUEUE_SHARE)


@given(st.sampled_from(["s3-fifo", "lru"]), st.integers(1, 1 << 40))
def test_the_largest_size_for_some_flash_uses_it_up(policy: str, flash: int) -> None:
    size = largest_size_lines(policy, flash)
    assert flash_lines(policy, size) <= flash
    assert flash_lines(policy, size + 1) > flash or size == 1


def test_points_tell_flash_from_memory_and_a_budget_is_flash() -> None:
    budget = 1_000_000
    request = CurveRequest(line_bytes=(LINE,), policies=("s3-fifo", "lru"), extra_flash_bytes=(budget,))
    rows, _ = curve_points(TraceFiles([TRACES / "multi3.lirs"]), request)
    for policy in request.policies:
        points = whole(rows, policy=policy)
        assert all(p.flash_bytes == flash_lines(policy, p.size_bytes // LINE) * LINE for p in points)
        fitting = max(p.flash_bytes for p in points if p.flash_bytes <= budget)
        assert budget - fitting < LINE
    assert {p.flash_bytes == p.size_bytes for p in whole(rows, policy="lru")} == {True}
