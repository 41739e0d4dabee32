"""Who did the I/O, by images and by clients."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.unit.activity.conftest import START_NS, Recording, S, rows_of

from bathyscope.commands.analyze import finding_of_view
from bathyscope.records import Attachment, Collection, Image, ImageIo, Placement, Uncounted
from bathyscope.window.recording import question_of, view_of


def io(image: str | None, reads: int, writes: int, *, at_s: int = 30, **more: Any) -> ImageIo:
    values: dict[str, Any] = {"pool": "rbd", "namespace": "", "image_id": None, "client": None, "client_address": None}
    counted = {"read_bytes": reads * 4096, "write_bytes": writes * 8192}
    took = {"read_latency_ns_sum": reads * 1000, "write_latency_ns_sum": writes * 3000}
    return ImageIo(
        at_ns=START_NS + at_s * S, duration_ns=5 * S, image=image, read_count=reads, write_count=writes,
        **{**values, **counted, **took, **more},
    )  # fmt: skip


def test_an_image_s_intervals_are_added_up_and_its_means_are_of_sums(recording: Recording) -> None:
    recording.seen("mgr_counters", 10, 60)
    recording.add(io("a", 30, 10), io("a", 10, 0, at_s=40), io("b", 0, 50))
    found = recording.view("devices")
    assert rows_of(found, "image", "reads", "writes", "read", "written") == [
        ("rbd/a", 40, 10, 40 * 4096, 10 * 8192),
        ("rbd/b", 0, 50, 0, 50 * 8192),
    ]
    # 50 s were seen, not the 60 s of the run.
    assert rows_of(found, "IOPS", "share") == [(1.0, 0.5), (1.0, 0.5)]
    assert rows_of(found, "read latency", "write latency") == [(1000.0, 3000.0), (None, 3000.0)]
    assert found.sentence.startswith("No image stands out")
    assert any("bathy mgr install" in remark for remark in found.unseen)


def test_the_manager_s_own_statistics_begin_some_seconds_after_the_first_question(recording: Recording) -> None:
    """The first row begins 5 s after the first look: until then nothing was counted."""
    recording.seen("image_counters")
    recording.add(io("a", 55, 0, at_s=10))
    found = recording.view("devices")
    assert "Not counted from 0.0 s to 5.0 s: OSDs begin some 10 s after they are asked to count." in found.unseen
    assert rows_of(found, "IOPS") == [(1.0,)]


def test_one_noisy_image_is_named_first_and_equal_ones_are_not(recording: Recording) -> None:
    recording.seen("mgr_counters")
    recording.add(io("noisy", 900, 0), *(io(f"vm{number}", 20, 5) for number in range(10)))
    found = recording.view("devices")
    assert found.sentence == "rbd/noisy does 78 % of the I/O: 15 of 19.2 IOPS."


def test_an_image_far_ahead_of_many_is_named_though_it_does_less_than_half(recording: Recording) -> None:
    recording.seen("image_counters")
    recording.add(io("noisy", 700, 0), *(io(f"vm{number}", 90, 10) for number in range(24)))
    assert recording.view("devices").sentence.startswith("rbd/noisy does 23 % of the I/O")


def test_two_noisy_images_are_named_together(recording: Recording) -> None:
    recording.seen("image_counters")
    recording.add(io("x", 900, 0), io("y", 800, 0), *(io(f"vm{number}", 20, 5) for number in range(10)))
    assert recording.view("devices").sentence.startswith("rbd/x and rbd/y do 87 % of the I/O")


def test_of_equal_images_none_is_named_as_the_one(recording: Recording) -> None:
    recording.seen("image_counters")
    recording.add(*(io(f"vm{number}", 200 + number, 5) for number in range(10)))
    assert recording.view("devices").sentence.startswith("No image stands out: of 10 the busiest")


def test_ids_get_the_names_and_sizes_of_their_images(recording: Recording) -> None:
    recording.seen("mgr_counters")
    shape = {"object_size_bytes": 1 << 22, "stripe_unit_bytes": 1 << 22, "stripe_count": 1}
    recording.add(
        Image(START_NS, "rbd", "", "disk", "10ab", 1 << 30, data_pool=None, parent=None, **shape),
        Image(START_NS + 9 * S, "rbd", "", "disk", "10ab", 2 << 30, data_pool=None, parent=None, **shape),
        io(None, 5, 0, image_id="10ab", client="client.7", client_address="10.0.0.1"),
        io(None, 5, 0, image_id="10ab", client="client.8", client_address="10.0.0.2"),
        io(None, 1, 0, image_id="gone", client="client.8", client_address="10.0.0.2"),
    )
    found = recording.view("devices")
    assert rows_of(found, "image", "size", "reads", "clients") == [
        ("rbd/disk", 2 << 30, 10, "10.0.0.1, 10.0.0.2"),
        ("rbd/(id gone)", None, 1, "10.0.0.2"),
    ]


def test_clients_are_added_up_by_their_address(recording: Recording) -> None:
    recording.seen("mgr_counters")
    recording.add(
        io(None, 5, 0, image_id="a", client="client.7", client_address="10.0.0.1"),
        io(None, 90, 0, image_id="b", client="client.8", client_address="10.0.0.2"),
        io(None, 3, 4, image_id="b", client="client.9", client_address="10.0.0.1"),
    )
    found = recording.view("clients")
    assert rows_of(found, "client", "reads", "writes", "images", "instances") == [
        ("10.0.0.2", 90, 0, 1, 1),
        ("10.0.0.1", 8, 4, 2, 2),
    ]
    assert found.sentence.startswith("10.0.0.2 does 88 %")


@pytest.mark.parametrize(("view", "word"), [("devices", "bathy mgr install"), ("clients", "bathy mgr install")])
def test_nothing_recorded_says_what_would_show_it(recording: Recording, view: str, word: str) -> None:
    found = recording.view(view)
    assert found.tables[0].rows == ()
    assert any(word in remark for remark in found.unseen)


def test_a_part_of_the_time_holds_its_own_intervals_only(recording: Recording) -> None:
    recording.seen("image_counters")
    recording.add(io("a", 10, 0, at_s=10), io("a", 7, 0, at_s=50))
    found = recording.view("devices", since="30s")
    assert rows_of(found, "reads") == [(7,)]


@pytest.mark.parametrize("view", ["devices", "clients"])
def test_a_cluster_that_does_nothing_is_not_one_that_was_not_looked_at(recording: Recording, view: str) -> None:
    recording.seen("mgr_counters")
    found = recording.view(view)
    assert found.unseen == ()
    assert found.sentence.endswith("did any I/O.")


def test_what_nothing_looked_at_is_not_called_idle(recording: Recording) -> None:
    recording.view("devices")
    for view in ("devices", "clients", "osds", "nodes", "pools"):
        assert finding_of_view(recording.run, view).sentence.endswith(" was counted: no source answered in this time.")


DISK = {"pool": "rbd", "namespace": "", "image": "disk"}


def use(at_s: float, resolver: str = "libvirt", **about: Any) -> Attachment:
    values: dict[str, Any] = {"client_address": None, "host": "kvm1", "vm": "web", "resolver": resolver, **DISK}
    return Attachment(at_ns=START_NS + round(at_s * S), **{**values, **about})


def look(at_s: float, source: str = "libvirt", *, problem: str | None = None) -> Collection:
    failed = int(problem is not None)
    return Collection(START_NS + round(at_s * S), source, 0, 2, failed, 1, problem is None, problem)


def test_a_disk_that_a_later_complete_look_does_not_have_is_detached(recording: Recording) -> None:
    recording.seen("image_counters")
    recording.add(io("disk", 5, 0, at_s=10), use(0.1), look(0), look(20))
    assert rows_of(recording.view("devices"), "attached to") == [(None,)]
    assert rows_of(finding_of_view(recording.run, "devices", until="19s"), "attached to") == [("kvm1:web",)]


def test_a_look_that_failed_in_part_ends_nothing_and_is_named(recording: Recording) -> None:
    recording.seen("image_counters")
    problem = "libvirt-qemu+ssh://kvm1/system: no route to host"
    recording.add(io("disk", 5, 0), use(0.1), look(0), look(20, problem=problem))
    found = recording.view("devices")
    assert rows_of(found, "attached to") == [("kvm1:web",)]
    assert any(f"libvirt: {problem}" in remark for remark in found.unseen)


def test_an_image_that_nobody_has_open_any_more_has_no_client(recording: Recording) -> None:
    recording.seen("image_counters")
    watcher = {"resolver": "watcher", "host": None, "vm": None}
    place = Placement(0, "rack1", "ssd", None, None, None, None, None, None, machine="node7", addresses="10.0.0.7 ::7")
    recording.add(io("disk", 5, 0), io("other", 5, 0), place)
    recording.add(use(20, client_address="10.0.0.7", **watcher))
    recording.add(use(21, client_address="::7", **{**watcher, "image": "other"}))
    recording.ends_s = 120
    recording.add(look(20, "watchers"), look(80, "watchers"), use(80, client_address=None, **watcher))
    # The other image was not asked for again.
    assert rows_of(recording.view("devices"), "image", "attached to") == [("rbd/disk", None), ("rbd/other", "node7:-")]


def test_reads_of_a_parent_are_those_of_the_clones_that_their_clients_use(recording: Recording) -> None:
    recording.seen("mgr_counters")
    shape = {"size_bytes": 1 << 30, "object_size_bytes": 1 << 22, "stripe_unit_bytes": 1 << 22, "stripe_count": 1}
    for name, image_id in (("base", "b0"), ("one", "c1"), ("two", "c2"), ("unused", "c3")):
        parent = None if name == "base" else "rbd/base"
        recording.add(Image(START_NS, "rbd", "", name, image_id, data_pool=None, parent=parent, **shape))
    recording.add(
        io(None, 50, 0, image_id="b0", client="client.7"), io(None, 3, 1, image_id="c1", client="client.7"),
        io(None, 20, 0, image_id="b0", client="client.8"), io(None, 0, 9, image_id="c2", client="client.8"),
        io(None, 7, 0, image_id="b0", client="client.9"),
    )  # fmt: skip
    words = dict(rows_of(recording.view("devices"), "image", "for clones"))
    assert words["rbd/base"] == (
        "reads: 50 for its clone rbd/one, 20 for its clone rbd/two, "
        "7 its own or for a clone (rbd/one, rbd/two, rbd/unused)"
    )
    assert words["rbd/one"] is None


def test_what_could_not_be_counted_is_said_and_is_no_time_of_its_rates(recording: Recording) -> None:
    recording.seen("mgr_counters")
    recording.add(io(None, 40, 0, image_id="a", client="client.7", client_address="10.0.0.1"))
    recording.add(Uncounted(START_NS + 35 * S, 20 * S, "mgr_counters", "another manager took over"))
    found = recording.view("devices")
    assert "Not counted from 15 s to 35 s: another manager took over." in found.unseen
    assert rows_of(found, "IOPS") == [(1.0,)]
    assert finding_of_view(recording.run, "clients").unseen == found.unseen


@pytest.mark.parametrize("pool", ["rbd", "coded", "other"])
def test_images_are_found_by_the_pool_of_their_header_and_by_that_of_their_data(
    recording: Recording, pool: str
) -> None:
    recording.seen("mgr_counters")
    shape = {"size_bytes": 1 << 30, "object_size_bytes": 1 << 22, "stripe_unit_bytes": 1 << 22, "stripe_count": 1}
    for name, data_pool in (("a", "coded"), ("b", "coded"), ("c", None)):
        recording.add(Image(START_NS, "rbd", "", name, f"1{name}", data_pool=data_pool, parent=None, **shape))
    # The manager's own statistics name images, the module has their ids; another pool may have the same id.
    recording.add(
        io("a", 1, 0), io(None, 2, 0, image_id="1b"), io("c", 3, 0), io(None, 4, 0, image_id="1b", pool="other")
    )
    expected = {"rbd": ["rbd/a", "rbd/b", "rbd/c"], "coded": ["rbd/a", "rbd/b"], "other": ["other/(id 1b)"]}
    recording.view("devices")
    narrowed = dataclasses.replace(question_of(recording.run), pool=pool)
    found = view_of(recording.run, "devices", narrowed)
    assert sorted(name for (name,) in rows_of(found, "image")) == expected[pool]
    trends = [trend for (trend,) in rows_of(found, "trend")]
    assert all(trend is not None for trend in trends)
