"""Which OSD stands out from its peers, by load and by latency; and that by chance none does."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.unit.activity.conftest import START_NS, Recording, S, rows_of

from bathyscope.records import PerfCounter, PgIo, Placement

SECTION_NAMES = {"write": ("bluestore", "commit_lat"), "read": ("osd", "op_r_latency")}


def place(osds: int, *, hosts: int = 3, affinity: dict[int, float] | None = None) -> list[Placement]:
    return [
        Placement(
            osd, f"node{osd % hosts}", "ssd", None, None, None, None, None, None,
            primary_affinity=(affinity or {}).get(osd, 1.0), reweight=1.0, crush_weight=1.0,
        )
        for osd in range(osds)
    ]  # fmt: skip


def latencies(osd: int, kind: str, means_ms: Sequence[float], samples: int = 100) -> list[PerfCounter]:
    section, name = SECTION_NAMES[kind]
    return [
        PerfCounter(
            START_NS + (20 * third + 15) * S, 10 * S, f"osd.{osd}", section, name, "average",
            mean / 1e3 * samples, samples, None,
        )
        for third, mean in enumerate(means_ms)
    ]  # fmt: skip


def operations(osd: int, count: int) -> list[PerfCounter]:
    return [PerfCounter(START_NS + 30 * S, 10 * S, f"osd.{osd}", "osd", "op_r", "counter", count, None, None)]


def groups(osds: int, each: int = 32) -> list[PgIo]:
    return [
        PgIo(START_NS + 30 * S, 10 * S, f"2.{osd * each + number:x}", "rbd", osd, str(osd), 1, 0, 4096, 0)
        for osd in range(osds)
        for number in range(each)
    ]


@pytest.mark.parametrize("kind", ["write", "read"])
def test_an_osd_that_is_slower_than_its_peers_all_the_time_is_named(recording: Recording, kind: str) -> None:
    recording.add(*place(4))
    for osd in range(4):
        recording.add(*latencies(osd, kind, (9, 8, 9) if osd == 2 else (1.0 + osd / 10, 1, 1)), *operations(osd, 500))
    found = recording.view("balance")
    assert found.sentence.startswith("osd.2 is slow: a ")
    assert "8.67 ms" in found.sentence
    ((ratio,),) = [
        row for row, (osd,) in zip(rows_of(found, "to peers"), rows_of(found, "OSD"), strict=True) if osd == "osd.2"
    ]
    assert ratio == pytest.approx(8.5, rel=0.1)


def test_one_bad_moment_is_no_slow_osd(recording: Recording) -> None:
    recording.add(*place(3))
    for osd in range(3):
        recording.add(*latencies(osd, "write", (30, 1, 1) if osd == 0 else (1, 1, 1)), *operations(osd, 500))
    found = recording.view("balance")
    assert found.sentence.startswith("No OSD stands out by its latency")


def test_what_could_not_be_compared_is_not_called_alike(recording: Recording) -> None:
    recording.add(*place(3), *operations(0, 9000), *operations(1, 9000), *operations(2, 9000), *groups(3))
    assert recording.view("balance").sentence == (
        "No OSD stands out by its load; their latencies could not be compared."
    )


def test_nothing_is_not_called_alike(recording: Recording) -> None:
    assert recording.view("balance").sentence.startswith("No OSD could be compared")


def test_a_node_of_which_all_osds_are_slow_is_named(recording: Recording) -> None:
    recording.add(*place(9))
    for osd in range(9):
        recording.add(*latencies(osd, "write", (9, 9, 9) if osd % 3 == 1 else (1, 1, 1)), *operations(osd, 500))
    assert recording.view("balance").sentence.startswith("Node node1 is slow: of its OSDs osd.")


def test_an_osd_that_is_no_primary_is_named_with_its_affinity(recording: Recording) -> None:
    recording.add(*place(3, affinity={1: 0.0}), *groups(3))
    recording.add(*operations(0, 5000), *operations(1, 0), *operations(2, 5200))
    found = recording.view("balance")
    assert found.sentence.startswith("The load is uneven: osd.1 serves 0")
    assert "primary affinity 0" in found.sentence


def test_of_equal_osds_none_is_named_in_many_draws(recording: Recording) -> None:
    """Latencies that vary by a third and shares that follow from 32 groups an OSD: none is an outlier."""
    chance = random.Random(7)
    recording.add(*place(12), *groups(12))
    for osd in range(12):
        recording.add(*latencies(osd, "write", [chance.uniform(0.8, 1.3) for _ in range(3)]))
        recording.add(*latencies(osd, "read", [chance.uniform(0.4, 0.7) for _ in range(3)]))
        recording.add(*operations(osd, round(sum(chance.expovariate(1 / 30) for _ in range(32)))))
    found = recording.view("balance")
    assert found.sentence.startswith("No OSD stands out"), found.sentence


def test_classes_are_not_compared_with_each_other(recording: Recording) -> None:
    for row in place(6):
        kind = "hdd" if row.osd >= 3 else "ssd"
        recording.add(Placement(row.osd, row.host, kind, None, None, None, None, None, None, crush_weight=1.0))
        recording.add(*latencies(row.osd, "write", (40, 40, 40) if kind == "hdd" else (1, 1, 1)))
        recording.add(*operations(row.osd, 100 if kind == "hdd" else 9000))
    assert recording.view("balance").sentence.startswith("No OSD stands out")


def test_a_hot_group_is_no_uneven_osd(recording: Recording) -> None:
    """All of one OSD's surplus is of a single placement group, which some OSD must have."""
    recording.add(*place(4), *groups(4))
    recording.add(PgIo(START_NS + 30 * S, 10 * S, "2.999", "rbd", 2, "2", 400, 0, 0, 0))
    for osd in range(4):
        recording.add(*operations(osd, 40_000 if osd == 2 else 3200))
    assert recording.view("balance").sentence.startswith("No OSD stands out by its load")


def test_a_share_that_many_groups_would_hardly_give_is_uneven(recording: Recording) -> None:
    recording.add(*place(4), *groups(4, each=64))
    for osd in range(4):
        recording.add(*operations(osd, 6400 if osd == 2 else 3200))
    assert recording.view("balance").sentence.startswith("The load is uneven: osd.2 serves 40 %")
