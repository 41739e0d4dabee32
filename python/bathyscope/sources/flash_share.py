"""Which part of a cache is flash, and which is memory: s3-fifo keeps its small queue in memory, others keep nothing.

The share is that of the simulated policy (`S3FifoOptions::small_ratio` of the crate bathy-policy); a test counts what
the engine writes to flash and fails when the two differ.
"""

from __future__ import annotations

SMALL_QUEUE_SHARE = {"s3-fifo": 0.1}
"""Share of the lines that a policy keeps in memory, for those that keep any."""


def flash_lines(policy: str, size_lines: int) -> int:
    """Return how many of `size_lines` are on flash. A cache of a single line is not divided."""
    share = SMALL_QUEUE_SHARE.get(policy)
    if share is None or size_lines < 2:
        return size_lines
    return size_lines - max(1, int(size_lines * share))


def largest_size_lines(policy: str, flash: int) -> int:
    """Return the lines of the largest cache that needs at most `flash` lines of flash, at least 1."""
    share = SMALL_QUEUE_SHARE.get(policy, 0.0)
    # Two more than the quotient: the small queue is rounded down, and it has at least one line.
    size = int(flash / (1.0 - share)) + 2
    while size > 1 and flash_lines(policy, size) > flash:
        size -= 1
    return max(1, size)
