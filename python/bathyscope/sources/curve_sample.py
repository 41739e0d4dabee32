"""How much of a trace a curve simulates: all of a small one, of a large one a sample of bounded size, in whole regions.

The length of a region, and the error that it leaves: `bathyscope.mrc.regions`. A sample of `MOST_SAMPLES` lines takes
15 MB for ten sizes, 26 MB with 64 sub-blocks.
"""

from __future__ import annotations

import math

from bathyscope.mrc.regions import MOST_SAMPLES

LEAST_SAMPLES = 32_768
"""Lines that a sample holds at least."""

LEAST_REGIONS = 4096
"""Regions that a sample should hold, as far as `MOST_SAMPLES` lets it."""

MINIATURE_LINES = 500
"""Lines of the smallest miniature cache: smaller ones err by several points."""

FULL_ACCESSES = 100_000_000
"""Line accesses of all sizes up to which a curve is simulated in full: ten to thirty seconds."""

SIZE_BYTES = 3_200_000
"""Memory of one size of a curve up to which it is simulated in full: 32 MB for ten sizes."""


def full_lines(line_bytes: int, fetch_bytes: int | None, policy: str) -> int:
    """Return the distinct lines up to which a curve may be simulated in full."""
    sub_blocks = line_bytes // (fetch_bytes or line_bytes)
    # Measured, for ten sizes: see the example engine_memory of the crate bathy-mrc.
    per_line = 20.0 if policy in {"lirs", "clock2q+", "w-tinylfu"} else 11.6
    return int(SIZE_BYTES / (per_line + 0.15 * (sub_blocks - 1)))


def sample_lines(region: int, line_bytes: int, samples: int | None) -> int:
    """Return the lines that a sample shall hold; `samples` are asked for."""
    regions = LEAST_REGIONS * max(1, region // line_bytes)
    return max(min(max(LEAST_SAMPLES, regions), MOST_SAMPLES), samples or 0)


def smallest_size_lines(distinct_lines: float, samples: int | None) -> int:
    """Return the smallest cache, in lines, whose miniature is not too small in the largest sample."""
    return math.ceil(MINIATURE_LINES * distinct_lines / max(MOST_SAMPLES, samples or 0))
