"""Which cache sizes are simulated, and which part of each is flash.

Policies with a stage keep their small queue in DRAM, others keep nothing there; the core says how much. A test counts
what the engine writes to flash and fails when the share is another.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from bathyscope import _core

FRACTIONS = (1 / 128, 1 / 64, 1 / 32, 1 / 16, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Sizes of the grid, of the working set."""


def flash_lines(
    policy: str, size_lines: int, line_bytes: int, memory_bytes: int | None = None, cache_lines: int | None = None
) -> int:
    """Return how many of `size_lines` are on flash; without `memory_bytes` of a cache that takes what bathyd may.

    With `cache_lines` these are a share of a cache of so many.
    """
    return size_lines - _core.stage_lines(policy, size_lines, line_bytes, memory_bytes, cache_lines)


def largest_size_lines(policy: str, flash: int, line_bytes: int, memory_bytes: int | None = None) -> int:
    """Return the lines of the largest cache that needs at most `flash` lines of flash, at least 1."""
    # The stage is no more than that of twice the flash, and never shrinks as a cache grows.
    stage = _core.stage_lines(policy, 2 * flash + 2, line_bytes, memory_bytes)
    smaller, larger = flash, flash + stage + 1
    while larger - smaller > 1:
        middle = (smaller + larger) // 2
        fits = flash_lines(policy, middle, line_bytes, memory_bytes) <= flash
        smaller, larger = (middle, larger) if fits else (smaller, middle)
    return max(1, smaller)


def size_grid(
    working_set_bytes: float,
    distinct_lines: float,
    line_bytes: int,
    unit_bytes: int,
    budget_size_bytes: int | None = None,
) -> npt.NDArray[np.uint64]:
    """Return the sizes to simulate, in lines, shape (n,), increasing.

    `working_set_bytes` is that of the largest lines, so that the curves of all line sizes share their sizes; a curve
    ends at the first size that holds its own `distinct_lines`. Sizes are rounded up to multiples of `unit_bytes`, the
    largest line, and to six bits below their highest, so that they read well. `budget_size_bytes`, the size that a
    budget allows, is rounded down.
    """
    lines = max(1, math.ceil(distinct_lines))
    sizes = {_rounded(fraction * working_set_bytes, unit_bytes) // line_bytes for fraction in FRACTIONS}
    enough = next((size for size in sorted(sizes) if size >= lines), lines)
    kept = {size for size in sizes if size <= enough} | {enough}
    # Beyond the working set nothing changes, but a budget there is a size that was asked for, within what can be made.
    budget_lines = 0 if budget_size_bytes is None else budget_size_bytes // line_bytes
    if 1 <= budget_lines <= max(enough, _core.MAX_CACHE_LINES):
        kept.add(budget_lines)
    return np.asarray(sorted(kept), np.uint64)


def size_for_flash(
    policy: str, flash_bytes: int, line_bytes: int, largest_line_bytes: int, memory_bytes: int | None = None
) -> int:
    """Return the size in bytes that needs at most so much flash: one for all line sizes unless that wastes some."""
    unit = largest_line_bytes if flash_bytes >= 256 * largest_line_bytes else line_bytes
    return largest_size_lines(policy, flash_bytes // unit, unit, memory_bytes) * unit


def _rounded(size_bytes: float, unit_bytes: int) -> int:
    """Round up to a multiple of a 64th of the power of two below, and of `unit_bytes`."""
    whole = max(1, math.ceil(size_bytes))
    step = max(unit_bytes, (1 << (whole.bit_length() - 1)) // 64)
    return -(-whole // step) * step
