"""What each OSD did comes from sums of perf counters, and one that stands out is found."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from bathyscope.analysis.account.ceilings import KnownOsd
from bathyscope.analysis.account.osd_shares import osd_shares, slow_node, slow_osd
from bathyscope.records import PerfCounter, to_table
from bathyscope.records.account import OsdShare
from bathyscope.records.figure import Figure

OSDS = frozenset({0, 1, 2})
HOSTS = {0: "node1", 1: "node2", 2: "node3"}


def perf(**means_ms: dict[int, tuple[int, float]]) -> pa.Table:
    """Return counters: name → OSD → (operations, mean milliseconds), in two intervals; every OSD says something."""
    rows = [
        PerfCounter(at_ns, 10**9, f"osd.{osd}", "osd", name, "average", count / 2 * mean / 1e3, count // 2, None)
        for name, by_osd in means_ms.items()
        for osd, (count, mean) in by_osd.items()
        for at_ns in (10**9, 2 * 10**9)
    ]
    rows += [PerfCounter(10**9, 10**9, f"osd.{osd}", "osd", "numpg", "gauge", None, None, 33.0) for osd in OSDS]
    return to_table(PerfCounter, rows)


def of_reads(table: pa.Table, osds: frozenset[int] | None = OSDS) -> tuple[OsdShare, ...]:
    known = None if osds is None else {osd: KnownOsd(HOSTS.get(osd, "")) for osd in osds}
    return osd_shares(table, known, reads=True, writes=False)


def of_writes(table: pa.Table) -> tuple[OsdShare, ...]:
    return osd_shares(table, {osd: KnownOsd(HOSTS[osd]) for osd in OSDS}, reads=False, writes=True)


def test_a_slow_disk_is_found_in_reads() -> None:
    shares = of_reads(perf(op_r_latency={0: (160, 118.0), 1: (200, 3.6), 2: (110, 3.8)}))
    assert [share.op_share.samples for share in shares] == [160, 200, 110]
    assert sum(share.op_share.value or 0 for share in shares) == pytest.approx(1)
    assert [share.expected_share for share in shares] == [pytest.approx(1 / 3)] * 3
    slow = slow_osd(shares)
    assert slow is not None
    assert (slow.name, slow.host, slow.osds) == ("osd.0", "node1", (0,))
    assert (slow.own_ns, slow.others_ns) == (pytest.approx(118e6), pytest.approx(3.7e6))
    assert slow.time_share == pytest.approx(0.943, abs=1e-3)


def test_an_osd_is_expected_to_do_what_its_weight_gives_it() -> None:
    reads = perf(op_r_latency=dict.fromkeys(OSDS, (100, 4.0)))
    for weights, expected in (
        ((2.0, 1.0, 1.0), (0.5, 0.25, 0.25)),
        # An OSD that is out gets nothing.
        ((1.0, 1.0, 0.0), (0.5, 0.5, 0.0)),
        ((1.0, 1.0, None), (1 / 3, 1 / 3, 1 / 3)),
        ((0.0, 0.0, 0.0), (1 / 3, 1 / 3, 1 / 3)),
    ):
        known = {osd: KnownOsd(HOSTS[osd], weight=weight) for osd, weight in enumerate(weights)}
        shares = osd_shares(reads, known, reads=True, writes=False)
        assert tuple(share.expected_share for share in shares) == pytest.approx(expected)


def test_a_machine_of_which_all_osds_are_slow_is_found() -> None:
    hosts = {0: "node1", 1: "node1", 2: "node2", 3: "node2", 4: "node3", 5: "node3"}

    def shares(*means_ms: float) -> tuple[OsdShare, ...]:
        table = perf(op_r_latency={osd: (100, mean) for osd, mean in enumerate(means_ms)})
        idle = [PerfCounter(10**9, 10**9, f"osd.{osd}", "osd", "numpg", "gauge", None, None, 1.0) for osd in hosts]
        table = pa.concat_tables([table, to_table(PerfCounter, idle)])
        return osd_shares(table, {osd: KnownOsd(host) for osd, host in hosts.items()}, reads=True, writes=False)

    slow = slow_node(shares(4.0, 4.2, 50.0, 44.0, 4.1, 4.3))
    assert slow is not None
    assert (slow.name, slow.osds) == ("node2", (2, 3))
    assert slow.own_ns == pytest.approx(47e6)
    assert slow.others_ns == pytest.approx(4.15e6)
    # One slow OSD makes no slow machine, and machines with one OSD each are told by the OSD.
    one = shares(4.0, 4.2, 50.0, 4.0, 4.1, 4.3)
    assert slow_node(one) is None
    found = slow_osd(one)
    assert found is not None
    assert found.osds == (2,)
    assert slow_node(of_reads(perf(op_r_latency={0: (160, 118.0), 1: (200, 3.6), 2: (110, 3.8)}))) is None


def test_writes_are_judged_by_what_an_osd_does_as_a_replica() -> None:
    shares = of_writes(
        perf(
            op_w_latency={0: (50, 800.0), 1: (84, 805.0), 2: (40, 810.0)},
            subop_w_latency={0: (124, 795.0), 1: (88, 30.4), 2: (134, 30.5)},
        )
    )
    assert [round(share.op_share.value or 0, 3) for share in shares] == [0.287, 0.483, 0.23]
    slow = slow_osd(shares)
    assert slow is not None
    assert slow.osds == (0,)


def test_without_replicas_the_primary_does_all_of_a_write() -> None:
    slow = slow_osd(of_writes(perf(op_w_latency={0: (50, 90.0), 1: (84, 5.0), 2: (40, 6.0)})))
    assert slow is not None
    assert slow.osds == (0,)


@pytest.mark.parametrize(
    "means",
    [
        {0: (160, 10.0), 1: (160, 4.0), 2: (160, 4.2)},
        {0: (4, 300.0), 1: (160, 4.0), 2: (160, 4.2)},
        {0: (160, 300.0)},
        {},
    ],
)
def test_nobody_stands_out(means: dict[int, tuple[int, float]]) -> None:
    """Not by less than the factor, not by a handful of operations, not where there is no other."""
    assert slow_osd(of_reads(perf(op_r_latency=means))) is None


def test_of_very_many_osds_the_slowest_holds_nobody_back() -> None:
    many = [
        OsdShare(osd, "", Figure(0.01, "ratio"), Figure(0.01, "ratio"), Figure(1e6, "ns", samples=50), 0.01)
        for osd in range(100)
    ]
    many[7] = dataclasses.replace(many[7], own_ns=Figure(4e6, "ns", samples=50), in_flight_share=Figure(0.04, "ratio"))
    assert slow_osd(many) is None


def test_sub_operations_of_another_pool_make_no_replicas() -> None:
    """The pool has one copy; a few sub-operations are the manager's own."""
    writes = {0: (500, 90.0), 1: (800, 5.0), 2: (400, 6.0)}
    slow = slow_osd(of_writes(perf(op_w_latency=writes, subop_w_latency={0: (12, 1.0), 1: (12, 1.0), 2: (12, 1.0)})))
    assert slow is not None
    assert slow.osds == (0,)


def test_an_osd_that_did_not_answer_makes_shares_unknown() -> None:
    table = perf(op_r_latency={0: (160, 118.0), 1: (200, 3.6)})
    assert of_reads(table, frozenset({0, 1, 7})) == ()
    assert of_reads(table, None) == ()


def test_hard_disks_and_flash_are_not_compared() -> None:
    known = {osd: KnownOsd(HOSTS[osd], rotational=osd == 0) for osd in OSDS}
    table = perf(op_r_latency={0: (160, 118.0), 1: (200, 3.6), 2: (110, 3.8)})
    shares = osd_shares(table, known, reads=True, writes=False)
    assert [share.own_ns.value for share in shares] == [118e6, None, None]
    assert slow_osd(shares) is None
    # Of those that hold most of the time one can stand out.
    table = perf(op_r_latency={0: (16, 0.1), 1: (200, 90.0), 2: (110, 3.8)})
    slow = slow_osd(osd_shares(table, known, reads=True, writes=False))
    assert slow is not None
    assert slow.osds == (1,)
