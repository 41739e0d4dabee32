"""How much of a trace a curve simulates: all of a small one, of a large one a sample of bounded size, in whole regions.

A request hits only when all of its lines do. A sample of single lines does not show that: on a virtual disk whose
requests are up to 68 KiB long (the 99th percentile) it overestimates the share of read requests that hit by 5.7 points,
however many lines it holds. So a sample for requests holds whole regions, aligned and several times as long as the
requests. Each region is one independent draw: smaller regions mean more draws for the same number of lines. Measured
with S3-FIFO at 13 sizes and 10 salts, the mean absolute error of the share of read requests that hit, in points, by the
number of sampled lines of 4 KiB: on a virtual disk of 269,210 lines whose requests are up to 68 KiB long (the 99th
percentile), and on one of 275,171 lines that is read and written line by line (trace w106):

               up to 68 KiB              one line each
    region    134,500  67,300  33,700   131,000  67,500  32,900
    64 KiB        3.6     3.8     3.4       0.6     0.6     0.9
    128 KiB       1.7     2.0     2.0
    256 KiB       0.4     0.5     0.8       0.6     1.1     1.1
    512 KiB       0.4     0.9     1.2
    1 MiB         0.5     1.1     1.8       0.7     0.9     1.7

(Raw estimates; where hot lines lie scattered, as in the second, the adjusted one errs by a sixth of these.)

So a region is the power of two from three times the length that 99 % of the requests do not exceed. Stack distances of
LRU, on the first of these at 100 sizes and 10 salts: 0.3 points with regions of 256 KiB and 131,072 lines, 0.7 with
32,768. A sample of `MOST_SAMPLES` lines takes 15 MB for ten sizes, 26 MB with 64 sub-blocks.
"""

from __future__ import annotations

import math

from bathyscope import _core

REGION_BYTES = (1 << 16, 1 << 22)
"""The smallest and the largest region."""

MOST_SAMPLES = 131_072
"""Lines that a sample of regions holds, unless more were asked for."""

LEAST_SAMPLES = 32_768
"""Lines that a sample holds at least."""

LEAST_REGIONS = 4096
"""Regions that a sample should hold, as far as `MOST_SAMPLES` lets it."""

FULL_ACCESSES = 100_000_000
"""Line accesses of all sizes up to which a curve is simulated in full: ten to thirty seconds."""

SIZE_BYTES = 3_200_000
"""Memory of one size of a curve up to which it is simulated in full: 32 MB for ten sizes."""


def region_bytes(request_bytes_p99: float, line_bytes: int = 0) -> int:
    """Return the length of the regions that are sampled whole, at least four lines."""
    least, most = REGION_BYTES
    fitting: int = 1 << math.ceil(math.log2(max(1.0, 3 * request_bytes_p99)))
    return max(min(max(least, fitting), most), 4 * line_bytes)


def full_lines(line_bytes: int, unit_bytes: int, policy: str) -> int:
    """Return the distinct lines up to which a curve may be simulated in full."""
    sub_blocks = line_bytes // unit_bytes
    # Measured, for ten sizes: see the example engine_memory of the crate bathy-mrc.
    per_line = 20.0 if policy in {"lirs", "clock2q+", "w-tinylfu"} else 11.6
    return int(SIZE_BYTES / (per_line + 0.15 * (sub_blocks - 1)))


def sample_lines(region: int, line_bytes: int, samples: int | None) -> int:
    """Return the lines that a sample shall hold; `samples` are asked for."""
    regions = LEAST_REGIONS * max(1, region // line_bytes)
    return max(min(max(LEAST_SAMPLES, regions), MOST_SAMPLES), samples or 0)


def smallest_size_lines(distinct_lines: float, samples: int | None) -> int:
    """Return the smallest cache, in lines, whose miniature is not too small in the largest sample."""
    return math.ceil(_core.MIN_MINIATURE_LINES * distinct_lines / max(MOST_SAMPLES, samples or 0))
