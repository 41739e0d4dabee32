"""The account of a point: medians of its repeats, matched by what they are of."""

from __future__ import annotations

import dataclasses

import pytest

from bathyscope.analysis.account.merge import merged
from bathyscope.analysis.account.osd_shares import slow_osd
from bathyscope.records.account import Account, Ceiling, ForeignWork, LatencyPart, OsdShare
from bathyscope.records.figure import Figure


def account(iops: float, **reached: float) -> Account:
    ceilings = tuple(
        Ceiling(
            *("device", name, name, "localhost", Figure(1.0, "I/Os"), Figure(iops / use, "I/Os/s"), "its throttle"),
            Figure(iops / use, "1/s"),
            Figure(use, "ratio"),
        )
        for name, use in reached.items()
    )
    return Account(16, Figure(iops, "1/s"), Figure(16e9 / iops, "ns"), Figure(16.0, "I/Os"), ceilings)


def test_medians_with_intervals_the_nearest_first() -> None:
    found = merged([account(100, a=0.5, b=0.9), account(110, a=0.6, b=0.8), account(120, a=0.99, b=0.7)])
    assert found is not None
    assert (found.iops.value, found.iops.samples) == (110.0, 3)
    assert [(one.subject, one.reached.value) for one in found.ceilings] == [("b", 0.8), ("a", 0.6)]
    for one in found.ceilings:
        low, high = one.reached.low, one.reached.high
        assert low is not None
        assert high is not None
        assert 0 <= low <= (one.reached.value or 0) <= high <= 1


def test_one_repeat_has_no_interval() -> None:
    found = merged([account(100, a=0.5)])
    assert found is not None
    assert found.ceilings[0].reached == Figure(0.5, "ratio")


def test_what_few_of_the_repeats_have_is_left_out() -> None:
    tenant = ForeignWork("tenant", "other", "write", Figure(5.0, "1/s"), Figure(0.2, "ratio"), "the pool other did 5")
    with_tenant = Account(16, Figure(1.0, "1/s"), Figure(1.0, "ns"), Figure(16.0, "I/Os"), foreign=(tenant,))
    without = Account(16, Figure(1.0, "1/s"), Figure(1.0, "ns"), Figure(16.0, "I/Os"))
    few, half = merged([with_tenant, without, without]), merged([with_tenant, without])
    assert few is not None
    assert half is not None
    assert (few.foreign, len(half.foreign)) == ((), 1)


def test_nothing_to_merge() -> None:
    assert merged([]) is None


def test_unknown_figures_stay_unknown() -> None:
    found = merged([Account(1, Figure(1.0, "1/s"), Figure(None, "ns"), Figure(None, "I/Os"))] * 3)
    assert found is not None
    assert found.latency_ns.value is None
    assert found.iops.value == pytest.approx(1)


def of_tenant(iops: float, words: str = "the pool a did") -> Account:
    share = Figure(iops / 1000, "ratio")
    work = ForeignWork("tenant", "a", "write", Figure(iops, "1/s"), share, f"{words} {iops:.0f} writes a second")
    return dataclasses.replace(account(1000), foreign=(work,))


def test_foreign_work_is_said_with_the_range_of_its_figures() -> None:
    found = merged([of_tenant(100), of_tenant(300), of_tenant(200)])
    assert found is not None
    (work,) = found.foreign
    assert (work.rate.value, work.sentence) == (200.0, "the pool a did 100–300 writes a second")


def test_other_words_of_a_single_repeat_are_left_out() -> None:
    found = merged([of_tenant(900, "at least the pool a did"), of_tenant(300), of_tenant(200)])
    assert found is not None
    assert found.foreign[0].sentence == "the pool a did 200–300 writes a second"


def test_of_the_threads_of_all_osds_the_busiest_stays_whichever_it_is_in_each_repeat() -> None:
    def threads(**reached: float) -> Account:
        one = account(100, **reached)
        ceilings = tuple(dataclasses.replace(c, resource="kv_sync", binding=False) for c in one.ceilings)
        return dataclasses.replace(one, ceilings=ceilings)

    found = merged([threads(a=0.9, b=0.5, c=0.4), threads(a=0.4, b=0.9, c=0.5), threads(a=0.5, b=0.4, c=0.3)])
    assert found is not None
    assert [(one.subject, one.reached.value) for one in found.ceilings] == [("a", 0.5)]


def test_an_osd_that_stands_out_does_so_in_any_number_of_repeats() -> None:
    def repeat() -> Account:
        osds = tuple(
            OsdShare(osd, "", Figure(1 / 3, "ratio"), Figure(held, "ratio"), Figure(ms * 1e6, "ns", samples=40), 1 / 3)
            for osd, (held, ms) in enumerate(((0.96, 50.0), (0.02, 1.0), (0.02, 1.0)))
        )
        return dataclasses.replace(account(100), osds=osds)

    for count in (1, 3, 5, 12):
        found = merged([repeat()] * count)
        assert found is not None
        slow = slow_osd(found.osds)
        assert slow is not None
        assert slow.osds == (0,)


def test_parts_add_up_again() -> None:
    def parts(**shares: float) -> Account:
        found = tuple(LatencyPart(p, Figure(s, "ratio"), Figure(s * 16e7, "ns")) for p, s in shares.items())
        return dataclasses.replace(account(100), parts=found)

    found = merged([parts(outside=0.2, store=0.8), parts(outside=0.5, store=0.5), parts(outside=0.3, queue=0.7)])
    assert found is not None
    assert sum(part.share.value or 0 for part in found.parts) == pytest.approx(1)
    assert sum(part.latency_ns.value or 0 for part in found.parts) == pytest.approx(found.latency_ns.value or 0)
