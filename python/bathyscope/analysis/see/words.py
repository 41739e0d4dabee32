"""Columns and sentences that several views share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bathyscope.records.activity_finding import ActivityColumn
from bathyscope.units import format_percent, format_rate

# Who does half of all and three times as much as the next one stands out; without others nobody does.
_STANDS_OUT_RATIO = 0.5
_AHEAD = 3.0

# The columns of counts that tables of activity share, and the sources of those of images.
COUNTED = (
    *("read_count", "write_count", "read_bytes", "write_bytes"),
    *("read_latency_ns_sum", "write_latency_ns_sum"),
)
IMAGE_SOURCES = ("image_counters", "mgr_counters")

COUNTS = (
    ActivityColumn("reads", "count", "reads that were done"),
    ActivityColumn("writes", "count", "writes that were done"),
    ActivityColumn("IOPS", "1/s", "reads and writes a second over the time shown"),
    ActivityColumn("share", "ratio", "share of all reads and writes shown", rank=1),
    ActivityColumn("read", "bytes", "bytes read", rank=2),
    ActivityColumn("written", "bytes", "bytes written", rank=2),
)
LATENCIES = (
    ActivityColumn("read latency", "ns", "mean time of a read in the primary OSD", rank=1),
    ActivityColumn("write latency", "ns", "mean time of a write in the primary OSD", rank=1),
)


def counts(row: Mapping[str, Any], total: int, seconds: float) -> tuple[float | None, ...]:
    """Return the values of COUNTS for a row of COUNTED, of `total` operations in all."""
    ops = row["read_count"] + row["write_count"]
    share = ops / total if total else None
    return row["read_count"], row["write_count"], ops / seconds, share, row["read_bytes"], row["write_bytes"]


def latencies(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the values of LATENCIES for a row of COUNTED; None where nothing was counted or nothing is known."""
    return _mean(row["read_latency_ns_sum"], row["read_count"]), _mean(row["write_latency_ns_sum"], row["write_count"])


def _mean(total: float | None, count: int) -> float | None:
    return total / count if total is not None and count else None


def standing_out(what: str, names: Sequence[str], ops: Sequence[float], seconds: float) -> str:
    """Return the sentence about who does most of the I/O, or that nobody stands out.

    `what` is the kind of thing in the singular: image, client.
    """
    total = float(np.sum(ops)) if len(ops) else 0.0
    if total == 0:
        return f"No {what} did any I/O."
    order = np.argsort(ops)[::-1]
    first = order[0]
    share = ops[first] / total
    of_all = f"{format_rate(ops[first] / seconds)} of {format_rate(total / seconds)} IOPS"
    if len(ops) == 1:
        return f"One {what} did all of the I/O: {names[first]}, {format_rate(total / seconds)} IOPS."
    if share >= _STANDS_OUT_RATIO and ops[first] >= _AHEAD * ops[order[1]]:
        return f"{names[first]} does {format_percent(share)} of the I/O: {of_all}."
    return f"No {what} stands out: of {len(ops)} the busiest, {names[first]}, does {format_percent(share)} ({of_all})."
