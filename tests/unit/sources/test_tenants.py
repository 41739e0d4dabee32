"""Whom the cluster is shared with: every pool's I/O and the operations in flight, recorded and made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pytest

from bathyscope.host import CephRequest
from bathyscope.records import PoolIo, PoolWait, RawAnswer, from_table
from bathyscope.sources.tenants import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]
SECOND = 10**9
OWN = Scope(target=Target(name="t"), own_pools=("bathy-own",), pools={"bathy-own": 7})


def parse(answers: Sequence[RawAnswer], scope: Scope = OWN) -> tuple[list[PoolIo], list[PoolWait]]:
    tables = SOURCE.parse(answers, scope)
    return from_table(PoolIo, tables[PoolIo]), from_table(PoolWait, tables[PoolWait])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_tenant_of_50_iops_beside_a_load(recorded: Recorded, version: str) -> None:
    io, waits = parse(recorded(f"tenants/{version}/beside-a-load"))
    assert {row.pool: row.own for row in io if row.pool in ("volumes", "bathy-own")} == {
        "volumes": False, "bathy-own": True,
    }  # fmt: skip
    tenant = [row for row in io if row.pool == "volumes"]
    seconds = sum(row.duration_ns for row in tenant) / 1e9
    reads, writes = sum(row.read_count for row in tenant), sum(row.write_count for row in tenant)
    # Two looks 8 s apart at counters that are reported every second: the estimator does better, see test_tenants.
    assert (reads + writes) / seconds == pytest.approx(50, rel=0.3)
    assert reads == pytest.approx(writes, rel=0.2)
    assert sum(row.write_bytes for row in tenant) == 4096 * writes
    # A read of an object that does not exist, or of a part of it, brings less.
    assert 0 < sum(row.read_bytes for row in tenant) <= 4096 * reads
    own = [row for row in waits if row.pool == "bathy-own"]
    assert len(own) == 3
    assert {row.osd_count for row in own} == {3}
    assert sum(row.op_count for row in own) > 0
    assert all(0 <= row.wait_ns_max <= row.wait_ns_sum for row in waits)
    assert max(row.wait_ns_max for row in waits) < 10 * SECOND


def df(at_s: float, pools: Mapping[str, tuple[int, int, int, int]], *, code: int = 0) -> RawAnswer:
    names = {"bathy-own": 7, "volumes": 2, "new": 9}
    stats = [
        {"name": name, "id": names[name], "stats": dict(zip(("rd", "rd_bytes", "wr", "wr_bytes"), values, strict=True))}
        for name, values in pools.items()
    ]
    at_ns = round(at_s * SECOND)
    return RawAnswer("df", (), (), code, json.dumps({"pools": stats}).encode(), b"", at_ns - 1, at_ns)


def in_flight(osd: int, *ops: tuple[str, float], code: int = 0) -> RawAnswer:
    listed = [{"description": description, "age": age} for description, age in ops]
    return RawAnswer(f"ops_in_flight-osd.{osd}", (), (), code, json.dumps({"ops": listed}).encode(), b"", 0, 1)


def op(pool: int) -> str:
    return f"osd_op(client.4157.0:22968 {pool}.2 {pool}:422bb82f:::rbd_data.1.b:head [write 0~4096] ondisk+write e22)"


def test_counters_grow_between_looks_and_quiet_pools_have_no_rows() -> None:
    io, _ = parse([
        df(1, {"volumes": (10, 4096, 5, 512), "bathy-own": (0, 0, 0, 0), "new": (3, 3, 3, 3)}),
        df(3, {"volumes": (20, 8192, 5, 512), "bathy-own": (0, 0, 0, 0), "new": (3, 3, 3, 3)}),
        df(4, {"volumes": (20, 8192, 6, 1024), "bathy-own": (0, 0, 0, 0), "new": (3, 3, 3, 3)}),
    ])  # fmt: skip
    assert [(row.pool, row.at_ns, row.duration_ns, row.read_count, row.write_count) for row in io] == [
        ("volumes", 3 * SECOND, 2 * SECOND, 10, 0),
        ("volumes", 4 * SECOND, SECOND, 0, 1),
        ("bathy-own", 3 * SECOND, 2 * SECOND, 0, 0),
        ("bathy-own", 4 * SECOND, SECOND, 0, 0),
    ]
    assert (io[0].read_bytes, io[1].write_bytes) == (4096, 512)


def test_a_manager_that_begins_anew_is_no_io() -> None:
    """After a failover the sums are 0 and come back OSD by OSD; only what is beyond the greatest sum is new."""
    courses = [(100, 0), (110, 0), (0, 0), (60, 0), (115, 0)]
    io, _ = parse([df(at, {"volumes": (reads, 0, writes, 0)}) for at, (reads, writes) in enumerate(courses)])
    assert [row.read_count for row in io] == [10, 0, 0, 5]


def test_a_look_that_failed_is_a_longer_interval_and_a_new_pool_begins_with_its_first_look() -> None:
    io, _ = parse([
        df(1, {"volumes": (0, 0, 0, 0)}),
        df(2, {}, code=-110),
        df(3, {"volumes": (9, 0, 0, 0), "new": (50, 0, 0, 0)}),
        df(4, {"volumes": (9, 0, 0, 0), "new": (51, 0, 0, 0)}),
    ])  # fmt: skip
    assert [(row.pool, row.duration_ns, row.read_count) for row in io] == [
        ("volumes", 2 * SECOND, 9), ("volumes", SECOND, 0), ("new", SECOND, 1),
    ]  # fmt: skip


def test_operations_in_flight_by_pool_over_all_osds() -> None:
    replica = "osd_repop(client.4157.0:22968 2.2 e22/20 2:422bb82f:::rbd_data.1.b:head v 22'1)"
    _, waits = parse([
        df(1, {"volumes": (0, 0, 0, 0), "bathy-own": (0, 0, 0, 0)}),
        in_flight(0, (op(2), 0.25), (op(7), 0.5), (replica, 9.0)),
        in_flight(1, (op(2), 0.05)),
        in_flight(2, code=-22),
        df(2, {"volumes": (0, 0, 0, 0), "bathy-own": (0, 0, 0, 0)}),
        in_flight(0),
        df(3, {"volumes": (0, 0, 0, 0), "bathy-own": (0, 0, 0, 0)}),
        in_flight(0, code=-13),
    ])  # fmt: skip
    seen = {(row.at_ns // SECOND, row.pool): (row.osd_count, row.op_count, row.wait_ns_sum) for row in waits}
    # A pool of ours has a row as soon as one OSD answers: so it is known that somebody looked.
    assert seen == {
        (1, "volumes"): (2, 2, 300_000_000),
        (1, "bathy-own"): (2, 1, 500_000_000),
        (2, "bathy-own"): (1, 0, 0),
    }
    assert max(row.wait_ns_max for row in waits if row.pool == "volumes") == 250_000_000


def test_an_age_below_zero_is_none() -> None:
    """An operation that began after the OSD had read its clock: 16.2 prints 4294967295.99."""
    _, waits = parse([df(1, {"volumes": (0, 0, 0, 0)}), in_flight(0, (op(2), 4294967295.999))])
    assert [(row.op_count, row.wait_ns_sum) for row in waits if row.pool == "volumes"] == [(1, 0)]


def test_a_large_cluster_is_asked_little() -> None:
    requests = SOURCE.plan(OWN.model_copy(update={"asked_osds": tuple(range(1000))}))
    assert len(requests) == 1 + 32
    assert all(isinstance(request, CephRequest) for request in requests)
    assert SOURCE.plan(Scope(target=Target(name="d", kind="disk"))) == []


def test_operations_of_a_pool_that_was_deleted_are_no_tenants() -> None:
    """A run whose own pool is deleted under it says so, and does not take what is left for somebody else's."""
    _, waits = parse([df(1, {"volumes": (0, 0, 0, 0)}), in_flight(0, (op(60), 0.962), (op(2), 0.25))])
    assert [row.pool for row in waits] == ["volumes"]
