"""The parts of a client's latency add up to it, and say where it is spent."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bathyscope.analysis.account.parts import latency_parts
from bathyscope.records import PerfCounter, to_table

OSDS = frozenset({0, 1})


def perf(osds: int = 2, prefix: str = "", **means: tuple[int, float]) -> pa.Table:
    """Return counters, the same of each OSD: section__name → (samples, mean milliseconds)."""
    rows = []
    for osd in range(osds):
        for key, (count, mean_ms) in means.items():
            section, name = key.split("__")
            full = prefix + name if section == "bluestore" else name
            rows.append(
                PerfCounter(10**9, 10**9, f"osd.{osd}", section, full, "average", count * mean_ms / 1e3, count, None)
            )
    return to_table(PerfCounter, rows)


READS = {
    "osd__op_r_latency": (100, 3.0),
    "osd__op_r_process_latency": (100, 2.5),
    # A read's preparation holds the read itself.
    "osd__op_r_prepare_latency": (100, 2.6),
    "bluestore__read_lat": (100, 2.0),
}
WRITES = {
    "osd__op_w_latency": (100, 20.0),
    "osd__op_w_process_latency": (100, 19.0),
    "osd__op_w_prepare_latency": (100, 1.0),
    "osd__subop_w_latency": (200, 12.0),
    "bluestore__commit_lat": (300, 12.0),
    "bluestore__state_kv_queued_lat": (300, 4.0),
    "bluestore__state_kv_commiting_lat": (300, 6.0),
}


def shares(table: pa.Table, latency_ms: float, *directions: str, ios: float = 200) -> dict[str, float]:
    parts = latency_parts(table, OSDS, latency_ms * 1e6, directions=directions, ios=ios)
    assert sum(part.share.value or 0 for part in parts) == pytest.approx(1 if parts else 0)
    assert sum(part.latency_ns.value or 0 for part in parts) == pytest.approx(latency_ms * 1e6 if parts else 0)
    return {part.place: round(part.share.value or 0, 4) for part in parts}


@pytest.mark.parametrize("prefix", ["", "bluestore_"])
def test_reads(prefix: str) -> None:
    found = shares(perf(prefix=prefix, **READS), 4.0, "read")
    assert found == {"outside": 0.25, "queue": 0.125, "prepare": 0.125, "store": 0.5}


def test_writes_wait_for_the_later_of_own_commit_and_replicas() -> None:
    found = shares(perf(**WRITES), 25.0, "write")
    assert found == {
        "outside": 0.2,
        "queue": 0.04,
        "prepare": 0.04,
        "store": 0.08,
        "kv_sync": 0.4,
        "replica_wait": 0.24,
    }


def test_an_own_commit_that_outlasts_the_replicas_leaves_no_wait_for_them() -> None:
    late = {**WRITES, "bluestore__commit_lat": (300, 30.0), "bluestore__state_kv_queued_lat": (300, 20.0)}
    found = shares(perf(**late), 20.0, "write")
    assert "replica_wait" not in found
    assert found["kv_sync"] == pytest.approx(0.9 * 26 / 30, abs=1e-3)


def test_reads_and_writes_together_count_by_their_operations() -> None:
    found = shares(perf(**READS, **WRITES), 11.5, "read", "write", ios=400)
    assert found["queue"] == pytest.approx(0.75 / 11.5, abs=1e-4)
    assert "outside" not in found


def test_counters_that_hold_the_ramp_are_scaled_to_the_client() -> None:
    assert shares(perf(**READS), 2.0, "read")["store"] == pytest.approx(2 / 3, abs=1e-4)


def test_nothing_is_said_without_an_answer_or_where_librbd_joins_the_ios() -> None:
    assert shares(perf(osds=1, **READS), 4.0, "read") == {}
    assert shares(perf(**READS), 4.0, "read", ios=1000) == {}
    # Most of the operations are others'.
    assert shares(perf(**{name: (1000, mean) for name, (_, mean) in READS.items()}), 4.0, "read", ios=200) == {}
    assert latency_parts(perf(**READS), OSDS, None, directions=["read"], ios=200) == ()
    assert latency_parts(perf(**READS), None, 1e6, directions=["read"], ios=200) == ()


def test_another_object_store_is_only_inside() -> None:
    table = perf(**{name: mean for name, mean in READS.items() if name.startswith("osd")})
    assert shares(table, 4.0, "read") == {"outside": 0.25, "queue": 0.125, "inside": 0.625}
