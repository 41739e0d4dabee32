"""Stage shares equal those that were put into the operations, and the slow peer is named."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.analysis.builders import Load, RunBuilder

from bathyscope.analysis.stages import STAGES, stages
from bathyscope.records import Op, from_table, to_table


def ops_of(load: Load) -> list[Op]:
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    builder.add_step(load)
    return from_table(Op, builder.tables()["op"])


def test_shares_are_recovered() -> None:
    given = (0.1, 0.05, 0.35, 0.45, 0.05)
    found = stages(to_table(Op, ops_of(Load(op="randwrite", stage_shares=given))))
    assert [s.stage for s in found.shares] == list(STAGES)
    assert [s.share for s in found.shares] == pytest.approx(given, abs=1e-3)
    assert sum(s.share for s in found.shares) == pytest.approx(1)
    assert (found.sample_count, found.complete) == (200, True)
    assert all(s.latency_ns_p50 <= s.latency_ns_p99 for s in found.shares)


def test_a_long_op_counts_as_long_as_it_lasts() -> None:
    times = {"queue_ns": 0, "prepare_ns": 0, "store_ns": 100, "replica_wait_ns": 0, "reply_ns": 0}
    short = [dataclasses.replace(op, **times) for op in ops_of(Load())[:9]]
    long = dataclasses.replace(short[0], queue_ns=900, store_ns=0)
    found = stages(to_table(Op, [*short, long]))
    assert found.share("queue") == pytest.approx(0.5)
    assert found.share("store") == pytest.approx(0.5)
    assert found.shares[0].latency_ns_p50 == 0


def test_reads_and_writes_are_kept_apart() -> None:
    reads, writes = ops_of(Load(op_rows=10)), ops_of(Load(op="randwrite", op_rows=20))
    table = to_table(Op, reads + writes + [dataclasses.replace(reads[0], op="other")])
    assert stages(table, writes=False).sample_count == 10
    assert stages(table, reads=False).sample_count == 20
    assert stages(table).sample_count == 30


def test_the_slow_peer_comes_first() -> None:
    writes = ops_of(Load(op="randwrite", op_rows=90))
    slow = [
        dataclasses.replace(op, replica_wait_ns=20 * (op.replica_wait_ns or 0)) if op.slowest_peer == 2 else op
        for op in writes
    ]
    peers = stages(to_table(Op, slow)).slowest_peers
    assert peers[0].osd == 2
    assert peers[0].wait_share > 0.8
    assert sum(p.wait_share for p in peers) == pytest.approx(1)
    assert sum(p.wait_count for p in peers) == 90


def test_missing_times_and_empty_tables() -> None:
    unknown = {f"{stage}_ns": None for stage in STAGES}
    blank = [dataclasses.replace(op, **unknown) for op in ops_of(Load())[:3]]
    assert stages(to_table(Op, blank)).shares == ()
    assert stages(to_table(Op, [])).sample_count == 0
    assert not stages(to_table(Op, [])).complete
    mixed = [*ops_of(Load())[:4], *blank]
    assert stages(to_table(Op, mixed)).sample_count == 4


def test_one_incomplete_history_makes_the_sample_incomplete() -> None:
    rows = ops_of(Load())[:4]
    assert not stages(to_table(Op, [*rows[:3], dataclasses.replace(rows[3], complete_sample=False)])).complete
