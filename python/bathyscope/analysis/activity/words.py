"""Columns and sentences that several views share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bathyscope.analysis.activity.shape import Question, literal, seconds_of
from bathyscope.records.blocks import Column
from bathyscope.units import format_percent, format_rate, format_seconds

# Who does three times as much as the next one stands out, from a tenth of all on; two or three of whom each is that far
# ahead of the others, when they do half of all together.
_AHEAD = 3.0
_ONE_RATIO = 0.1
_SEVERAL_RATIO = 0.5
_SEVERAL_MOST = 3

# The columns of counts that tables of activity share, and the sources of those of images.
COUNTED = (
    *("read_count", "write_count", "read_bytes", "write_bytes"),
    *("read_latency_ns_sum", "write_latency_ns_sum"),
)
IMAGE_SOURCES = ("image_counters", "mgr_counters")
OSD_LOST = "cluster_status"
"""The source that says when OSDs went down."""
# What one OSD or some placement groups lost: the others went on.
_IN_PART = (OSD_LOST, "pg_stats")
# The manager's own image statistics, after the first question.
_BEGIN_NS = 10_000_000_000
_BEGINS = "OSDs begin some 10 s after they are asked to count"

COUNTS = (
    Column("reads", "reads", "count", "reads that were done", live=4),
    Column("writes", "writes", "count", "writes that were done", live=4),
    Column("iops", "IOPS", "1/s", "reads and writes a second over the time shown", live=2),
    Column("share_ratio", "share", "ratio", "share of all reads and writes shown", rank=1, live=2),
    Column("read_bytes", "read", "bytes", "bytes read", rank=2, live=4),
    Column("written_bytes", "written", "bytes", "bytes written", rank=2, live=4),
    Column("read_iops", "read IOPS", "1/s", "reads a second", rank=3, live=0),
    Column("write_iops", "write IOPS", "1/s", "writes a second", rank=3, live=0),
    Column("read_bandwidth_bytes_per_s", "read bandwidth", "bytes/s", "bytes read a second", rank=3, live=2),
    Column("write_bandwidth_bytes_per_s", "write bandwidth", "bytes/s", "bytes written a second", rank=3, live=2),
)
LATENCIES = (
    Column("read_latency_ns", "read latency", "ns", "mean time of a read in the primary OSD", rank=1),
    Column("write_latency_ns", "write latency", "ns", "mean time of a write in the primary OSD", rank=1),
)
TREND = Column(
    "trend_per_s", "trend", "trend", "IOPS of the last equal parts of the time, the latest last", rank=3, live=1
)


def counts(row: Mapping[str, Any], total: int, seconds: float) -> tuple[float | None, ...]:
    """Return the values of COUNTS for a row of COUNTED, of `total` operations in all.

    `seconds` is infinite where the length of the time is not known; then rates are not.
    """
    ops = row["read_count"] + row["write_count"]
    share = ops / total if total else None
    reads, writes, read_bytes, write_bytes = (
        row["read_count"],
        row["write_count"],
        row["read_bytes"],
        row["write_bytes"],
    )
    if math.isinf(seconds):
        return reads, writes, None, share, read_bytes, write_bytes, None, None, None, None
    rates = reads / seconds, writes / seconds, read_bytes / seconds, write_bytes / seconds
    return reads, writes, ops / seconds, share, read_bytes, write_bytes, *rates


def latencies(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the values of LATENCIES for a row of COUNTED; None where nothing was counted or nothing is known."""
    return _mean(row["read_latency_ns_sum"], row["read_count"]), _mean(row["write_latency_ns_sum"], row["write_count"])


def _mean(total: float | None, count: int) -> float | None:
    return total / count if total is not None and count else None


def uncounted(question: Question, *sources: str) -> str:
    """Return the SELECT of the spans in which one of `sources` could not count, or an OSD that went down lost some."""
    listed = ", ".join(map(literal, (*sources, OSD_LOST)))
    spans = (
        "SELECT at_ns - duration_ns AS start_ns, at_ns AS end_ns, reason, source "
        f"FROM uncounted WHERE source IN ({listed})"
    )
    if "image_counters" in sources and not question.of_ops:
        # Where others had asked before, the first rows begin at once.
        spans += (
            f" UNION ALL SELECT first_ns, least(first_ns + {_BEGIN_NS}, begins_ns), '{_BEGINS}', 'image_counters' FROM "
            "(SELECT min(at_ns + duration_ns) AS first_ns FROM collection WHERE source = 'image_counters'), "
            f"(SELECT coalesce(min(at_ns - duration_ns), {question.end_ns}) AS begins_ns FROM image_io)"
        )
    return (
        f"SELECT greatest(start_ns, {question.start_ns}) AS start_ns, "
        f"least(end_ns, {question.end_ns}) AS end_ns, reason, source "
        f"FROM ({spans}) WHERE end_ns > start_ns AND end_ns > {question.start_ns} AND start_ns < {question.end_ns} "
        "ORDER BY start_ns"
    )


def not_counted(spans: pa.Table, question: Question) -> tuple[tuple[str, ...], float]:
    """Return what `uncounted` answered as remarks, and how many seconds nothing was counted in.

    That in which just a part was not counted is not among these.
    """
    remarks: dict[str, None] = {}
    total_ns = until_ns = 0
    for span in spans.to_pylist():
        begins, ends = ((span[name] - question.start_ns) / 1e9 for name in ("start_ns", "end_ns"))
        is_part = span["source"] in _IN_PART
        if not is_part:
            total_ns += max(0, span["end_ns"] - max(span["start_ns"], until_ns))
            until_ns = max(until_ns, span["end_ns"])
        what = "Not all is counted" if is_part else "Not counted"
        remarks[f"{what} from {format_seconds(begins)} to {format_seconds(ends)}: {span['reason']}."] = None
    return tuple(remarks), total_ns / 1e9


def counted(tables: Mapping[str, pa.Table], question: Question) -> tuple[tuple[str, ...], float]:
    """Return what is said of "uncounted", and the seconds of "seen" without it; infinite for none."""
    remarks, uncounted_s = not_counted(tables["uncounted"], question)
    return remarks, max(0.0, seconds_of(tables["seen"]) - uncounted_s) or math.inf


def standing_out(what: str, names: Sequence[str], ops: Sequence[float], seconds: float) -> str:
    """Return the sentence about who does most of the I/O, or that nobody stands out.

    `what` is the kind of thing in the singular: image, client.
    """
    total = float(np.sum(ops)) if len(ops) else 0.0
    if total == 0:
        if math.isinf(seconds):
            return f"The I/O of no {what} was counted: no source answered in this time."
        return f"No {what} did any I/O."
    if len(ops) == 1:
        return f"One {what} did all of the I/O: {names[0]}, {_rate(total, seconds)}."
    order = np.argsort(ops)[::-1]
    for count in range(1, min(_SEVERAL_MOST + 1, len(ops))):
        together = float(sum(ops[index] for index in order[:count]))
        wanted = _ONE_RATIO if count == 1 else _SEVERAL_RATIO
        if ops[order[count - 1]] >= _AHEAD * ops[order[count]] and together >= wanted * total:
            *others, last = (names[index] for index in order[:count])
            who = f"{', '.join(others)} and {last}" if others else last
            of_all = _rate(together, seconds, total)
            return f"{who} {'does' if count == 1 else 'do'} {format_percent(together / total)} of the I/O: {of_all}."
    first = order[0]
    of_all = _rate(ops[first], seconds, total)
    share = format_percent(ops[first] / total)
    return f"No {what} stands out: of {len(ops)} the busiest, {names[first]}, does {share} ({of_all})."


def _rate(ops: float, seconds: float, of_ops: float | None = None) -> str:
    """Return a rate in words, or how many operations it were where the length of the time is not known."""
    if math.isinf(seconds):
        return f"{ops:,.0f} operations" if of_ops is None else f"{ops:,.0f} of {of_ops:,.0f} operations"
    part = "" if of_ops is None else f" of {format_rate(of_ops / seconds)}"
    return f"{format_rate(ops / seconds)}{part} IOPS"
