"""Single operations as rows: where the time of each went, and which OSD it waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bathyscope.analysis.activity import timed
from bathyscope.records.blocks import Column

_STAGES = {
    "queue": "queue_ns",
    "prepare": "prepare_ns",
    "store": "store_ns",
    "replicas": "replica_wait_ns",
    "reply": "reply_ns",
}

COLUMNS = (
    Column("took_ns", "took", "ns", "from receipt to done in the primary OSD"),
    Column("op", "op", help="read or write"),
    Column("osd", "OSD", help="primary OSD"),
    Column(
        "longest_stage", "most of it", help="the stage that took longest; of a wait for replicas the one that came last"
    ),
    Column("stages", "stages", "parts", "share of each stage: queue, prepare, store, replicas, reply", rank=1),
    Column("queue_ns", "queue", "ns", "received to taken up by a worker", rank=3),
    Column("prepare_ns", "prepare", "ns", "taken up to started or sent to replicas", rank=4),
    Column("store_ns", "store", "ns", "in the primary's own store", rank=2),
    Column("replicas_ns", "replicas", "ns", "waited for replicas beyond that", rank=2),
    Column("last_replica", "last replica", help="replica that came last, after the primary's own store", rank=3),
    Column("reply_ns", "reply", "ns", "the rest", rank=4),
)
"""The columns of `cells`."""

_BURSTS = (
    "Operations are those of bursts: some seconds of a few OSDs at a time. One that was under way when its burst ended "
    "is not among them."
)

ARE_BURSTS = "SELECT count(*) AS count FROM collection WHERE source = 'op_history' AND failure_count < request_count"
"""The SELECT for whether operations are those of bursts."""

NOTHING = (
    "No operations were recorded: a deep recording has a sample of them (`bathy collect --depth deep`), imported OSD "
    "logs have those that were logged (`bathy import osd-log`)."
)


def unseen(rows: Sequence[Any], *, is_of_bursts: bool, tail_count: int) -> list[str]:
    """Return what operations do not show."""
    remarks = ([_BURSTS] if is_of_bursts else []) if rows else [NOTHING]
    return remarks + [timed.TAIL.format(count=tail_count)] * bool(tail_count)


def cells(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of COLUMNS for a row of Op."""
    peer = row["slowest_peer"]
    queue_ns, prepare_ns, store_ns, replicas_ns, reply_ns = (row[name] for name in _STAGES.values())
    return (
        row["duration_ns"], row["op"], f"osd.{row['osd']}", longest(row)[0], _parts(row),
        queue_ns, prepare_ns, store_ns, replicas_ns, None if peer is None else f"osd.{peer}", reply_ns,
    )  # fmt: skip


def _parts(row: Mapping[str, Any]) -> tuple[tuple[str, float], ...] | None:
    known = [(stage, row[name] or 0) for stage, name in _STAGES.items()]
    whole = sum(took_ns for _, took_ns in known)
    return tuple((stage, took_ns / whole) for stage, took_ns in known) if whole > 0 else None


def longest(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the stage that took longest, in words, and who is to blame for it; "" for what is not known."""
    known = {stage: row[name] for stage, name in _STAGES.items() if row[name] is not None}
    primary = f"osd.{row['osd']}"
    if not known:
        return "", primary
    stage = max(known, key=lambda name: known[name])
    if stage == "replicas":
        peer = row["slowest_peer"]
        return ("replicas", "") if peer is None else (f"replica osd.{peer}", f"osd.{peer}")
    return stage, primary
