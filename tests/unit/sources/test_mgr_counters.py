"""What the manager's module counted between two looks: from recorded answers, and for every way in which keys go."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bathyscope.host import CephRequest
from bathyscope.records import ImageIo, OsdIo, RawAnswer, Uncounted, ZoneIo, from_table
from bathyscope.sources.mgr_counters import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

SCOPE = Scope(target=Target(name="t"), pools={"rbd": 2, "images": 4}, mgr_modules=("bathyscope",))
S = 1_000_000_000
ZERO_NS = 1_700_000_000 * S
IMAGE = ("client.7", "10.0.0.1", 2, "", -1, "a1")


def look(second: float, queries: dict[str, Any], *, instance: str = "i", registered: float = 0.0) -> RawAnswer:
    """Return the answer at a second: of each query the rows (key, made at second, writes)."""
    answered = {
        name: {
            "registered_age_s": second - registered,
            "rows": [
                [*key, second - made, writes, 0, 4096 * writes, 0, 1000 * writes, 0] for key, made, writes in rows
            ],
        }
        for name, rows in queries.items()
    }
    said = {"version": 1, "instance": instance, "clock_s": second, "at_age_s": 0.5, "queries": answered, "dropped": 0}
    at_ns = ZERO_NS + round(second * S)
    return RawAnswer("mgr_counters", (), (), 0, json.dumps(said).encode(), b"", at_ns - 1000, at_ns)


def images(*answers: RawAnswer) -> list[ImageIo]:
    return from_table(ImageIo, SOURCE.parse(answers, SCOPE)[ImageIo])


def writes(*answers: RawAnswer) -> list[int]:
    return [row.write_count for row in images(*answers)]


def test_it_is_asked_only_where_the_module_is() -> None:
    assert list(SOURCE.plan(Scope(target=Target(name="t")))) == []
    (request,) = SOURCE.plan(SCOPE)
    assert isinstance(request, CephRequest)
    assert (request.daemon, dict(request.command)["prefix"]) == ("mgr", "bathyscope counters")


def test_the_objects_of_chosen_images_are_asked_for_as_well() -> None:
    zoom, counters = SOURCE.plan(SCOPE.model_copy(update={"zoomed_images": ("10ab", "10cd")}))
    assert isinstance(zoom, CephRequest)
    words = dict(zoom.command)
    assert (words["prefix"], words["images"], words["digits"]) == ("bathyscope zoom", "10ab,10cd", 16)
    assert counters == SOURCE.plan(SCOPE)[0]


def test_a_row_is_the_difference_of_two_looks() -> None:
    first, second = (look(at, {"image_client": [(IMAGE, 1.0, count)]}) for at, count in ((10, 5), (15, 12)))
    assert images(first) == []
    (row,) = images(first, second)
    assert row == ImageIo(
        at_ns=ZERO_NS + 14_500_000_000, duration_ns=5 * S, pool="rbd", namespace="", image=None, image_id="a1",
        client="client.7", client_address="10.0.0.1", read_count=0, write_count=7, read_bytes=0,
        write_bytes=7 * 4096, read_latency_ns_sum=0, write_latency_ns_sum=7000,
    )  # fmt: skip
    assert images(first, second, second) == [row]


def test_a_key_that_is_new_or_made_anew_counts_whole() -> None:
    first = look(10, {"image_client": [(IMAGE, 1.0, 5)]})
    assert writes(look(10, {"image_client": []}), look(15, {"image_client": [(IMAGE, 12.0, 3)]})) == [3]
    assert writes(first, look(700, {"image_client": [(IMAGE, 699.0, 8)]})) == [8]
    assert writes(first, look(15, {"image_client": [(IMAGE, 1.0, 3)]})) == [3]
    assert writes(first, look(15, {"image_client": [(IMAGE, 1.004, 6)]})) == [1]
    assert writes(first, look(15, {"image_client": []}), look(20, {"image_client": [(IMAGE, 19.0, 4)]})) == [4]


def test_after_a_restart_of_the_module_everything_is_new_and_the_interval_begins_with_it() -> None:
    first = look(10, {"image_client": [(IMAGE, 1.0, 5)]})
    (row,) = images(first, look(20, {"image_client": [(IMAGE, 1.0, 50)]}, instance="j", registered=16.0))
    assert (row.write_count, row.duration_ns) == (50, 3_500_000_000)


def test_nothing_was_counted_before_the_queries_were_registered() -> None:
    first = look(10, {"image_client": []})
    assert images(first, look(20, {"image_client": []}, registered=20.0)) == []
    assert images(look(10, {}), look(20, {"osd_pool": []})) == []


def test_failed_and_other_answers_are_passed_over() -> None:
    first, second = (look(at, {"image_client": [(IMAGE, 1.0, count)]}) for at, count in ((10, 5), (20, 12)))
    failed = RawAnswer("mgr_counters", (), (), -22, b"", b"no valid command found", ZERO_NS, ZERO_NS)
    assert writes(first, failed, second) == [7]


def test_pools_are_those_of_the_images_and_have_names() -> None:
    keys = [("client.7", "fd00::1", 4, "ns", 2, "a1"), ("client.7", "", 9, "", -1, "b2"), ("other", "", -1, "", -1, "")]
    rows = images(look(10, {"image_client": []}), look(15, {"image_client": [(key, 12.0, 1) for key in keys]}))
    assert [(row.pool, row.namespace, row.image_id, row.client, row.client_address) for row in rows] == [
        ("rbd", "ns", "a1", "client.7", "fd00::1"),
        ("9", "", "b2", "client.7", None),
        ("(other)", "", None, None, None),
    ]


def test_osds_and_zones() -> None:
    zones = [((2, "a1", 0, "000000000000a"), 12.0, 1), ((2, "a1", 1, "00000000000000ff"), 12.0, 2)]
    tables = SOURCE.parse(
        [
            look(10, {"osd_pool": [], "zones": []}),
            look(15, {"osd_pool": [((3, 4), 12.0, 6), ((-1, -1), 12.0, 9)], "zones": zones}),
        ],
        SCOPE,
    )
    (osd,) = from_table(OsdIo, tables[OsdIo])
    assert (osd.osd, osd.pool, osd.write_count, osd.write_latency_ns_sum) == (3, "images", 6, 6000)
    found = [(row.osd, row.first_object, row.object_count) for row in from_table(ZoneIo, tables[ZoneIo])]
    assert found == [(0, 0xA000, 4096), (1, 0xFF, 1)]


def test_recorded_answers_hold_the_counts_of_their_loads(recorded: Callable[[str], list[RawAnswer]]) -> None:
    """See tests/fixtures/README.md: what the clients did is known exactly."""
    scope = SCOPE.model_copy(update={"pools": {"rbd": 2, "ec-2-1": 3}})
    tables = SOURCE.parse(recorded("mgr_counters/16.2.15/two-clients"), scope)
    rows = from_table(ImageIo, tables[ImageIo])
    assert [(row.client, row.pool, row.namespace, row.write_count, row.read_count) for row in rows] == [
        ("client.4131", "rbd", "tenant", 157, 307),
        ("client.4132", "rbd", "", 211, 101),
        ("client.4134", "rbd", "", 13, 0),
    ]
    assert all(row.client_address == "127.0.0.1" for row in rows)
    assert {round(row.duration_ns / S) for row in rows} == {9}
    assert [(row.write_bytes, row.read_bytes) for row in rows] == [
        (157 * 4096, 307 * 4096),
        (211 * 4096, 101 * 4096),
        (13, 0),
    ]
    osds = from_table(OsdIo, tables[OsdIo])
    assert sum(row.read_count for row in osds if row.pool == "ec-2-1") == 307
    # That of the probe before is not in it.
    assert [row.write_count for row in osds if (row.osd, row.pool) == (0, "rbd")] == [30 - 11]


def spans(*answers: RawAnswer) -> list[tuple[float, float]]:
    """Return (begin, end) of what could not be counted, in seconds."""
    rows = from_table(Uncounted, SOURCE.parse(answers, SCOPE)[Uncounted])
    return [((row.at_ns - row.duration_ns - ZERO_NS) / S, (row.at_ns - ZERO_NS) / S) for row in rows]


def test_what_could_not_be_counted_is_said() -> None:
    nothing: dict[str, Any] = {"image_client": []}
    # A module that was asked long ago, one that was asked a moment ago, another one, one that had not been asked.
    assert spans(look(100, nothing), look(105, nothing)) == []
    assert spans(look(10, nothing, registered=9), look(15, nothing, registered=9)) == [(9.0, 14.0)]
    assert spans(look(100, nothing), look(120, nothing, instance="j", registered=112)) == [(99.5, 117.0)]
    assert spans(look(100, nothing), look(400, nothing, registered=398)) == [(99.5, 403.0)]
