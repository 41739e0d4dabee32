"""What a cache takes of memory for its size and line size, as the core plans it, and whether that fits a budget."""

from __future__ import annotations

import math

from bathyscope import _core
from bathyscope.errors import UsageError
from bathyscope.records.cache_plan_finding import CacheMemory
from bathyscope.units import format_bytes, format_size_short

_GIB = 1 << 30


def cache_memory(flash_bytes: int, line_bytes: int, budget_bytes: int | None = None, sources: int = 1) -> CacheMemory:
    """Return what a cache of so much flash takes; without a budget it may take what bathyd takes at most by default.

    It serves so many sources, each by the threads that it has by default.

    Raises UsageError when it takes more than the budget.
    """
    lines = flash_bytes // line_bytes
    sizes = _core.cache_memory(lines, line_bytes, budget_bytes, sources)
    memory = CacheMemory(
        sizes["index_bytes"], sizes["stage_bytes"], sizes["daemon_bytes"], sizes["budget_bytes"], sizes["files"]
    )
    if memory.all_bytes <= memory.budget_bytes:
        return memory
    needed = _short(math.ceil(sizes["needed_budget_bytes"] / _GIB * 10) / 10)
    fits = math.floor(sizes["lines_that_fit"] * line_bytes / _GIB * 10) / 10
    less = f"; or --flash {_short(fits)}, the most that fits" if fits else ""
    raise UsageError(
        f"--flash {format_bytes(flash_bytes)} in lines of {format_size_short(line_bytes)} needs "
        f"{format_bytes(memory.all_bytes)} of memory ({format_bytes(memory.index_bytes)} for the index of "
        f"{lines:,} lines, {format_bytes(memory.stage_bytes)} for lines in memory, "
        f"{format_bytes(memory.daemon_bytes)} for the daemon and its threads), and a cache may take "
        f"{format_bytes(memory.budget_bytes)}",
        hint=f"--memory {needed} plans with more, as `bathy cache create --memory` allows it{less}",
    )


def _short(gib: float) -> str:
    return f"{gib:.1f}G"
