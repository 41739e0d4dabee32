"""The manager's image counters → what each image did between two looks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from bathyscope.errors import ParseError
from bathyscope.records import ImageIo, RawAnswer, Uncounted, from_table
from bathyscope.sources.image_counters import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

S = 1_000_000_000
SCOPE = Scope(target=Target(name="t"))
ORDERS = ("write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency")

Totals = tuple[int, int, int, int, int, int]
Recorded = Callable[[str], list[RawAnswer]]


def answer(at_s: float, order: str, images: Mapping[str, Totals], *, exit_code: int = 0) -> RawAnswer:
    pools = list(dict.fromkeys(name.rpartition("/")[0] for name in images))
    value = {
        "timestamp": at_s,
        "counter_descriptors": list(ORDERS),
        "pool_descriptors": {str(index): pool for index, pool in enumerate(pools)},
        "counters": [
            {f"{pools.index(name.rpartition('/')[0])}/{name.rpartition('/')[2]}": list(totals)}
            for name, totals in images.items()
        ],
    }
    text = json.dumps(value).encode() if exit_code == 0 else b""
    return RawAnswer(f"rbd_perf-{order}", ("ceph",), (), exit_code, text, b"", round(at_s * S), round(at_s * S))


def look(at_s: float, images: Mapping[str, Totals]) -> list[RawAnswer]:
    return [answer(at_s, order, images) for order in ORDERS]


def parse(*looks: list[RawAnswer]) -> list[ImageIo]:
    return from_table(ImageIo, SOURCE.parse([one for found in looks for one in found], SCOPE)[ImageIo])


def test_an_image_has_a_row_for_what_grew_between_two_looks() -> None:
    (row,) = parse(
        look(10, {"rbd/ns/a": (5, 1, 50, 10, 500, 100), "rbd/b": (1, 1, 1, 1, 1, 1)}),
        look(15, {"rbd/ns/a": (8, 1, 80, 10, 900, 100), "rbd/b": (1, 1, 1, 1, 1, 1)}),
    )
    assert (row.pool, row.namespace, row.image, row.image_id, row.client) == ("rbd", "ns", "a", None, None)
    assert (row.at_ns, row.duration_ns) == (15 * S, 5 * S)
    assert (row.write_count, row.read_count, row.write_bytes, row.read_bytes) == (3, 0, 30, 0)
    assert (row.write_latency_ns_sum, row.read_latency_ns_sum) == (400, 0)


def test_what_is_named_after_an_empty_first_answer_is_all_new() -> None:
    (row,) = parse(look(10, {}), look(15, {"rbd/a": (8, 0, 80, 0, 900, 0)}))
    assert row.write_count == 8


def test_of_more_images_than_an_answer_names_a_newcomer_s_total_is_not_taken_for_new() -> None:
    many: dict[str, Totals] = {f"rbd/i{number}": (9, 9, 9, 9, 9, 9) for number in range(64)}
    late: dict[str, Totals] = {"rbd/late": (7, 0, 7, 0, 7, 0)}
    assert parse(look(10, many), look(15, {**many, **late})) == []
    (row,) = parse(look(10, many), look(15, {**many, **late}), look(20, {"rbd/late": (9, 0, 9, 0, 9, 0)}))
    assert row.write_count == 2


def test_totals_that_begin_again_are_new() -> None:
    rows = parse(look(10, {"rbd/a": (50, 0, 1, 0, 1, 0)}), look(80, {"rbd/a": (3, 0, 1, 0, 1, 0)}))
    assert [row.write_count for row in rows] == [3]


def test_another_manager_begins_all_totals_again_and_one_image_does_not_make_another_manager() -> None:
    def totals(writes: int) -> Totals:
        return (writes, 0, writes * 4096, 0, writes * 1000, 0)

    def parsed(*looks: Mapping[str, int]) -> tuple[dict[str, int], int]:
        answers = [
            one
            for at, found in enumerate(looks)
            for one in look(10 + 5 * at, {name: totals(writes) for name, writes in found.items()})
        ]
        tables = SOURCE.parse(answers, SCOPE)
        counted: dict[str, int] = {}
        for row in from_table(ImageIo, tables[ImageIo]):
            counted[str(row.image)] = counted.get(str(row.image), 0) + row.write_count
        return counted, tables[Uncounted].num_rows

    # Of b the total of the new one is beyond that of the old one already.
    assert parsed({"a": 100, "b": 10, "c": 70}, {"a": 50, "b": 40, "c": 5}) == ({"a": 50, "b": 40, "c": 5}, 1)
    assert parsed({"a": 100, "b": 10, "c": 70}, {"a": 150, "b": 4, "c": 71}) == ({"a": 50, "b": 4, "c": 1}, 0)


def test_an_image_that_is_left_out_for_a_while_goes_on_from_its_last_total() -> None:
    rows = parse(
        look(10, {"rbd/a": (5, 0, 1, 0, 1, 0), "rbd/b": (1, 0, 1, 0, 1, 0)}),
        look(15, {"rbd/b": (2, 0, 2, 0, 2, 0)}),
        look(20, {"rbd/a": (9, 0, 5, 0, 5, 0), "rbd/b": (2, 0, 2, 0, 2, 0)}),
    )
    assert [(row.image, row.write_count, row.duration_ns) for row in rows] == [("b", 1, 5 * S), ("a", 4, 10 * S)]


def test_a_report_between_the_orders_of_a_look_counts_once() -> None:
    first = look(10, {"rbd/a": (5, 0, 1, 0, 1, 0)})
    second = look(15, {"rbd/a": (6, 0, 2, 0, 2, 0)})
    second[-1] = answer(15.5, ORDERS[-1], {"rbd/a": (7, 0, 3, 0, 3, 0)})
    (row,) = parse(first, second)
    assert row.write_count == 2


def test_a_refused_order_costs_only_itself() -> None:
    second = look(15, {"rbd/a": (6, 0, 2, 0, 2, 0)})
    second[0] = answer(15, ORDERS[0], {}, exit_code=-13)
    (row,) = parse(look(10, {"rbd/a": (5, 0, 1, 0, 1, 0)}), second)
    assert row.write_count == 1


@pytest.mark.parametrize(
    ("version", "counted"),
    [("16.2.15", {"a": 211}), ("18.2.7", {"a": 211, "b": 101}), ("20.2.4", {"a": 210, "b": 101})],
)
def test_recorded_answers_hold_what_was_done(recorded: Recorded, version: str, counted: dict[str, int]) -> None:
    """211 and 101 writes of 4 KiB; what the manager lost of them in 20.2.4 is lost (see the source)."""
    rows = from_table(ImageIo, SOURCE.parse(recorded(f"image_counters/{version}/two-images"), SCOPE)[ImageIo])
    assert {row.pool for row in rows} == {"vms"}
    found = {image: sum(row.write_count for row in rows if row.image == image) for image in counted}
    assert found == counted
    assert all((row.write_latency_ns_sum or 0) > 0 for row in rows if row.write_count)


@pytest.mark.parametrize("text", [b"{}", b"[]", b"x", b'{"counter_descriptors":["write_ops"]}'])
def test_what_is_no_report_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse([RawAnswer("rbd_perf-write_ops", ("ceph",), (), 0, text, b"", 1, 2)])


def test_a_disk_alone_is_not_asked() -> None:
    assert SOURCE.plan(Scope(target=Target(name="d", kind="disk"))) == []
    assert len(SOURCE.plan(SCOPE)) == len(ORDERS)
