"""One image: its objects, its zones, its spread over nodes; and the slowest operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.activity.conftest import START_NS, Recording, S, rows_of

from bathyscope.analysis.activity.object_osds import osds_of_objects
from bathyscope.analysis.pg_mapping import numbered, seeds
from bathyscope.commands.analyze import finding_of_view
from bathyscope.errors import UsageError
from bathyscope.rbd_names import image_columns
from bathyscope.records import Image, Op, PgPlacement, Placement, ZoneIo, to_table

MIB = 1 << 20
ID = "10ab"


def op(number: int, kind: str = "read", *, osd: int = 0, at_s: float = 10, pool: str = "", **more: Any) -> Op:
    values: dict[str, Any] = {
        "queue_ns": 1, "prepare_ns": 1, "store_ns": 1, "replica_wait_ns": None, "reply_ns": 1, "slowest_peer": None,
        "complete_sample": True, "complete_since_ns": START_NS, "duration_ns": 1000, "client_address": "10.0.0.1",
        "object_name": f"rbd_data.{pool}{ID}.{number:016x}", "length_bytes": 4096, "offset_bytes": 0,
    }  # fmt: skip
    values |= more
    of_image = image_columns(pa.array([values["object_name"]], pa.string()))
    return Op(
        osd=osd, client="client.7", pool_id=2, pg="2.0", op=kind, started_ns=START_NS + round(at_s * S),
        **values, **{name: column[0].as_py() for name, column in of_image.items()},
    )  # fmt: skip


def image(size_bytes: int = 100 * MIB, object_bytes: int = 4 * MIB) -> Image:
    return Image(START_NS, "rbd", "", "disk", ID, size_bytes, object_bytes, object_bytes, 1, None, None)


def placed(*hosts: str) -> list[Placement]:
    return [Placement(osd, host, "ssd", None, None, None, None, None, None) for osd, host in enumerate(hosts)]


def test_objects_have_their_place_in_the_image_and_their_first_and_last_access(recording: Recording) -> None:
    recording.add(image(), *placed("a", "b"))
    recording.add(op(3, at_s=20), op(3, "write", at_s=10), op(3, at_s=30), op(24, osd=1, pool="7."))
    # Another image's, and another kind of object.
    recording.add(op(3, object_name=f"rbd_data.ff.{3:016x}"), op(3, object_name=f"rbd_header.{ID}"))
    found = recording.view("objects", image="rbd/disk")
    assert rows_of(found, "offset", "object", "OSD", "node", "reads", "writes", "read", "written") == [
        (12 * MIB, 3, "osd.0", "a", 2, 1, 8192, 4096),
        (96 * MIB, 24, "osd.1", "b", 1, 0, 4096, 0),
    ]
    assert rows_of(found, "first access", "last access")[0] == (START_NS + 10 * S, START_NS + 30 * S)
    assert found.sentence.startswith("The busiest of 2 objects of rbd/disk lies at 12.0 MiB and has 75 %")


def test_an_image_can_be_named_by_its_id(recording: Recording) -> None:
    recording.add(op(3))
    assert rows_of(recording.view("objects", image=ID), "object", "reads") == [(3, 1)]


def test_the_slowest_of_a_full_history_do_not_count(recording: Recording) -> None:
    recording.add(image(), op(1), op(1, complete_sample=False), op(1, complete_since_ns=START_NS + 60 * S))
    assert rows_of(recording.view("objects", image="rbd/disk"), "reads") == [(1,)]


def test_zones_cover_the_image_and_add_up_to_all_of_it(recording: Recording) -> None:
    recording.add(image(), *placed("a"))
    recording.add(*(op(number) for number in (0, 0, 1, 2, 24)), op(24, "write"))
    found = recording.view("zones", image="rbd/disk", zones=10)
    rows = rows_of(found, "offset", "end", "objects", "reads", "of reads", "writes")
    # 25 objects in zones of 3.
    assert len(rows) == 9
    assert rows[0] == (0, 12 * MIB, 3, 4, 0.8, 0)
    assert rows[-1] == (96 * MIB, 100 * MIB, 1, 1, 0.2, 1)
    assert sum(row[3] for row in rows) == 5
    assert "from 0 B to 12.0 MiB" in found.sentence


def test_zones_of_the_manager_module_count_where_single_objects_are_not_known(recording: Recording) -> None:
    counted = {"read_bytes": 0, "write_bytes": 0, "read_latency_ns_sum": 0, "write_latency_ns_sum": 0}
    recording.add(image(size_bytes=4 * MIB * 512))
    for first, reads in ((0, 10), (256, 30)):
        recording.add(ZoneIo(START_NS + 9 * S, 5 * S, "rbd", ID, 0, first, 16, reads, 0, **counted))
    found = recording.view("zones", image="rbd/disk", zones=2)
    assert rows_of(found, "reads", "of reads", "objects", "touched") == [(10, 0.25, None, None), (30, 0.75, None, None)]
    assert any("not known there" in remark for remark in found.unseen)


def test_zones_are_no_smaller_than_what_was_counted_together(recording: Recording) -> None:
    counted = {"read_bytes": 0, "write_bytes": 0, "read_latency_ns_sum": 0, "write_latency_ns_sum": 0}
    recording.add(image(size_bytes=4 * MIB * 1024))
    for first in range(0, 1024, 256):
        recording.add(ZoneIo(START_NS + 9 * S, 5 * S, "rbd", ID, 0, first, 256, 10, 0, **counted))
    found = recording.view("zones", image="rbd/disk", zones=100)
    assert rows_of(found, "reads") == [(10,), (10,), (10,), (10,)]


def test_what_the_module_counted_is_not_counted_again_by_single_operations(recording: Recording) -> None:
    counted = {"read_bytes": 0, "write_bytes": 0, "read_latency_ns_sum": 0, "write_latency_ns_sum": 0}
    recording.add(image(), op(3), op(3), ZoneIo(START_NS + 9 * S, 5 * S, "rbd", ID, 0, 3, 1, 7, 0, **counted))
    found = recording.view("objects", image="rbd/disk")
    assert rows_of(found, "object", "reads") == [(3, 7)]
    assert found.unseen == ()


def test_the_brief_has_shares_of_nodes_and_how_much_is_touched(recording: Recording) -> None:
    recording.add(image(), *placed("a", "b", "b"))
    recording.add(op(0), op(1, osd=1), op(2, osd=2), op(2, "write", osd=2))
    found = recording.view("image", image="rbd/disk")
    assert rows_of(found, "node", "objects", "of objects", "reads", "writes", "of writes") == [
        ("a", 1, 0.04, 1, 0, 0.0),
        ("b", 2, 0.08, 2, 1, 1.0),
    ]
    assert dict(found.facts)["Objects"] == "25, touched 3 (12 %)"


def test_the_images_of_an_imported_log_are_those_of_its_operations(recording: Recording) -> None:
    recording.run.update(context={"imported_from": ["ceph-osd.3.log"]})
    past = {"complete_since_ns": 0}
    recording.add(op(0, at_s=-900, **past), op(1, at_s=-890, **past))
    recording.add(op(1, "write", at_s=-880, client_address="10.0.0.9", **past))
    recording.add(op(7, at_s=-870, object_name=f"rbd_data.ff.{7:016x}", **past), op(3, result=-2, at_s=-860, **past))
    found = recording.view("devices")
    assert rows_of(found, "image", "reads", "writes", "clients") == [
        ("pool 2/(id 10ab)", 2, 1, "10.0.0.1, 10.0.0.9"),
        ("pool 2/(id ff)", 1, 0, "10.0.0.1"),
    ]
    assert (found.start_ns, found.end_ns) == (START_NS - 900 * S, START_NS - 860 * S + 1000)


def test_a_name_with_a_quote_is_a_name(recording: Recording) -> None:
    recording.add(op(3))
    with pytest.raises(UsageError, match="knows nothing of an image 'rbd/x' OR '1'='1'"):
        recording.view("objects", image="rbd/x' OR '1'='1")


@pytest.mark.parametrize(
    ("view", "shown_by"),
    [("image", "--image"), ("zones", "--image"), ("objects", "--image"), ("ops", "--depth deep")],
)
def test_where_nothing_looked_at_single_objects_no_zero_is_a_count(
    recording: Recording, view: str, shown_by: str
) -> None:
    recording.add(image())
    found = recording.view(view, image="rbd/disk")
    assert found.tables[0].rows == ()
    assert "touched" not in dict(found.facts).get("Objects", "")
    assert f"collect {shown_by}" in found.unseen[0]
    with pytest.raises(UsageError, match="knows nothing of an image 'rbd/disc'"):
        finding_of_view(recording.run, view, image="rbd/disc")


@pytest.mark.parametrize(("view", "name"), [("zones", None), ("devices", "rbd/disk"), ("nonsense", None)])
def test_a_view_that_cannot_be_is_refused(recording: Recording, view: str, name: str | None) -> None:
    with pytest.raises(UsageError):
        recording.view(view, image=name)


def test_the_slowest_operations_name_the_replica_they_waited_for(recording: Recording) -> None:
    slow = {"duration_ns": 9_000_000, "replica_wait_ns": 8_000_000, "slowest_peer": 2}
    recording.add(*(op(number, "write", **slow) for number in range(15)))
    recording.add(*(op(number, duration_ns=50_000 + number, store_ns=40_000) for number in range(90)))
    found = recording.view("slow")
    assert len(found.tables[0].rows) == 100
    assert rows_of(found, "took", "most of it")[0] == (9_000_000, "replica osd.2")
    assert "The slowest of 105 operations took 9.00 ms, most of it replica osd.2" in found.sentence
    assert found.sentence.startswith("osd.2 is behind 100 % of the 15 slowest operations.")


def test_an_osd_behind_most_of_the_slowest_operations_is_named_first(recording: Recording) -> None:
    recording.add(*(op(number, osd=1, duration_ns=9_000_000, store_ns=8_000_000) for number in range(30)))
    recording.add(*(op(number, osd=number % 2 * 2, duration_ns=60_000, store_ns=40_000) for number in range(60)))
    assert recording.view("slow").sentence.startswith("osd.1 is behind 100 % of the 30 slowest operations.")


def test_slow_operations_that_are_spread_as_the_load_is_name_nobody(recording: Recording) -> None:
    recording.add(*(op(number, osd=number % 3, duration_ns=9_000_000, store_ns=8_000_000) for number in range(30)))
    recording.add(*(op(number, osd=number % 3, duration_ns=60_000, store_ns=40_000) for number in range(300)))
    # One OSD that serves nearly everything is behind most of what is slow, and no slower for it.
    recording.add(*(op(number, osd=0, duration_ns=9_000_000, store_ns=8_000_000) for number in range(60)))
    recording.add(*(op(number, osd=0, duration_ns=60_000, store_ns=40_000) for number in range(600)))
    assert recording.view("slow").sentence.startswith("The slowest of 990 operations")


def test_objects_and_zones_of_a_striped_image_lie_where_librbd_puts_them(recording: Recording) -> None:
    """Units of 64 KiB go round four objects of 1 MiB; the image ends in the second unit of its last round."""
    unit = MIB // 16
    recording.add(Image(START_NS, "rbd", "", "disk", ID, 9 * MIB + unit + 1, MIB, unit, 4, None, None))
    recording.add(op(5), op(5), op(6), op(0, "write"), op(9))
    objects = recording.view("objects", image="rbd/disk")
    assert dict(rows_of(objects, "object", "offset")) == {
        5: 4 * MIB + unit,
        6: 4 * MIB + 2 * unit,
        0: 0,
        9: 8 * MIB + unit,
    }
    assert any("64.0 KiB of every 256 KiB" in remark for remark in objects.unseen)
    zones = finding_of_view(recording.run, "zones", image="rbd/disk", zones=10)
    assert rows_of(zones, "offset", "end", "reads", "writes") == [
        (0, 4 * MIB, 0, 1), (4 * MIB, 8 * MIB, 3, 0), (8 * MIB, 9 * MIB + unit + 1, 1, 0),
    ]  # fmt: skip
    # Of 1 MiB, one unit and a byte in the last round, all four objects have something.
    assert dict(finding_of_view(recording.run, "image", image="rbd/disk").facts)["Objects"].startswith("12, touched 4")


def groups(count: int, *acting: str, pool: str = "rbd", pool_id: int = 2, at_s: float = 1) -> list[PgPlacement]:
    """Return a look at a pool whose groups lie on `acting` in turn."""
    at_ns = START_NS + round(at_s * S)
    held = [acting[seed % len(acting)] for seed in range(count)]
    return [PgPlacement(at_ns, pool, pool_id, seed, int(each.split()[0]), each) for seed, each in enumerate(held)]


def seeds_of(prefix: str, count: int, pg_count: int, namespace: str = "") -> list[int]:
    return list(map(int, seeds(numbered(prefix, np.arange(count)), namespace, pg_count)))


def test_every_object_has_the_osds_of_its_group_also_without_io(recording: Recording) -> None:
    counted = {"read_bytes": 0, "write_bytes": 0, "read_latency_ns_sum": 0, "write_latency_ns_sum": 0}
    recording.add(image(12 * MIB), *placed("a", "b", "c"), *groups(6, "0 1", "1 2", "2 0"))
    (first, second, third) = (("0 1", "1 2", "2 0")[seed % 3] for seed in seeds_of(f"rbd_data.{ID}.", 3, 6))
    recording.add(ZoneIo(START_NS + 9 * S, 5 * S, "rbd", ID, int(second[0]), 1, 1, 7, 0, **counted))
    names = {text: " ".join(f"osd.{osd}" for osd in text.split()) for text in (first, second, third)}
    found = recording.view("objects", image="rbd/disk", every_object=True)
    assert rows_of(found, "object", "held by", "OSD", "node", "reads", "last access") == [
        (1, names[second], f"osd.{second[0]}", "abc"[int(second[0])], 7, START_NS + 9 * S),
        (0, names[first], f"osd.{first[0]}", "abc"[int(first[0])], 0, None),
        (2, names[third], f"osd.{third[0]}", "abc"[int(third[0])], 0, None),
    ]
    assert found.unseen == ()
    # Without being asked for, the others are left out.
    assert rows_of(finding_of_view(recording.run, "objects", image="rbd/disk"), "object") == [(1,)]


def test_of_a_sample_or_of_nothing_other_objects_are_not_known_to_be_idle(recording: Recording) -> None:
    recording.add(image(8 * MIB), *placed("a"), *groups(2, "0"), op(0))
    found = recording.view("objects", image="rbd/disk", every_object=True)
    assert rows_of(found, "object", "reads") == [(0, 1), (1, None)]


def test_an_object_that_was_served_elsewhere_has_moved(recording: Recording) -> None:
    recording.add(image(), *placed("a", "b"), *groups(2, "0"), op(0, osd=1))
    assert any("moved meanwhile" in remark for remark in recording.view("objects", image="rbd/disk").unseen)


def test_the_spread_of_all_objects_over_nodes_is_beside_that_of_those_with_io(recording: Recording) -> None:
    recording.add(image(), *placed("a", "b", "b"), *groups(8, "0 1", "1 2"), op(0, osd=0))
    found = recording.view("image", image="rbd/disk")
    assert [table.title for table in found.tables] == ["objects with I/O", "all objects"]
    even = sum(seed % 2 == 0 for seed in seeds_of(f"rbd_data.{ID}.", 25, 8))
    # Node b has a copy of each object, on one OSD or on two.
    assert found.tables[1].rows == (
        ("a", even, even / 25, even, even / 25),
        ("b", 25 - even, (25 - even) / 25, 25, 1.0),
    )
    assert any("written or not" in remark for remark in found.unseen)


def test_objects_of_a_data_pool_are_mapped_by_its_groups_and_names(recording: Recording) -> None:
    recording.add(*placed("a", "b", "c"), *groups(4, "2"), *groups(3, "0 1", pool="coded", pool_id=7))
    recording.add(Image(START_NS, "rbd", "ns", "disk", ID, 8 * MIB, 4 * MIB, 4 * MIB, 1, "coded", None))
    found = recording.view("objects", image="rbd/ns/disk", every_object=True)
    assert rows_of(found, "object", "held by") == [(0, "osd.0 osd.1"), (1, "osd.0 osd.1")]
    assert osds_of_objects(
        {
            "pool": "rbd",
            "data_pool": "coded",
            "namespace": "ns",
            "image_id": ID,
        },
        to_table(PgPlacement, [*groups(4, "2"), *groups(3, "0", pool="coded")]).sort_by(
            [("pool", "ascending"), ("seed", "ascending")]
        ),
        2,
    ).groups.tolist() == seeds_of(f"rbd_data.2.{ID}.", 2, 3, "ns")


def test_a_map_with_a_gap_is_no_map_and_the_last_one_in_the_time_counts(recording: Recording) -> None:
    recording.add(image(4 * MIB), *placed("a", "b"), *groups(2, "0"), *groups(3, "1", at_s=40)[1:])
    found = recording.view("objects", image="rbd/disk", every_object=True)
    assert rows_of(found, "object") == []
    assert any("no map of the placement groups" in remark for remark in found.unseen)
    early = finding_of_view(recording.run, "objects", image="rbd/disk", every_object=True, until="20s")
    assert rows_of(early, "object", "held by", "reads") == [(0, "osd.0", None)]
