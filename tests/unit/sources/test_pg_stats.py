"""Statistics of placement groups → what each did between two looks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bathyscope.errors import ParseError
from bathyscope.records import PgIo, RawAnswer, Uncounted, from_table
from bathyscope.sources.pg_stats import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

S = 1_000_000_000
SCOPE = Scope(target=Target(name="t"), pools={"rbd": 2})
NO_OSD = 0x7FFFFFFF
Recorded = Callable[[str], list[RawAnswer]]


def group(pg: str, counters: Sequence[int], acting: Sequence[int] = (1, 0, 2), state: str = "active+clean") -> Any:
    names = ("num_read", "num_write", "num_read_kb", "num_write_kb")
    return {
        "pgid": pg,
        "state": state,
        "acting": list(acting),
        "acting_primary": next((osd for osd in acting if osd != NO_OSD), -1),
        "stat_sum": {**dict(zip(names, counters, strict=True)), "num_objects": 3},
    }


def look(at_s: int, *groups: Any, indent: int | None = None, bare: bool = False) -> RawAnswer:
    value = list(groups) if bare else {"pg_ready": True, "pg_stats": list(groups)}
    text = json.dumps(value, indent=indent, separators=None if indent else (",", ":")).encode()
    return RawAnswer("pg_dump", ("ceph",), (), 0, text, b"", (at_s - 1) * S, at_s * S)


def parsed(answers: Sequence[RawAnswer], scope: Scope = SCOPE) -> list[PgIo]:
    return from_table(PgIo, SOURCE.parse(answers, scope)[PgIo])


def parse(*answers: RawAnswer) -> list[PgIo]:
    return parsed(answers)


@pytest.mark.parametrize(("indent", "bare"), [(None, False), (2, False), (None, True)])
def test_a_group_has_a_row_for_what_it_did_between_two_looks(indent: int | None, bare: bool) -> None:
    first = look(10, group("2.0", (5, 7, 20, 28)), group("2.1f", (1, 1, 4, 4)), indent=indent, bare=bare)
    second = look(20, group("2.0", (8, 7, 32, 28)), group("2.1f", (1, 1, 4, 4)), indent=indent, bare=bare)
    (row,) = parse(first, second)
    assert row == PgIo(20 * S, 10 * S, "2.0", "rbd", 1, "1 0 2", 3, 0, 12 * 1024, 0)


@pytest.mark.parametrize("version", ["16.2.15", "18.2.7", "20.2.4"])
def test_recorded_answers_hold_what_was_done(recorded: Recorded, version: str) -> None:
    """211 writes of 4 KiB on one image, on two releases 101 on another; headers and maps are written, too."""
    answers = recorded(f"pg_stats/{version}/two-images")
    pools = {"vms": int(next(iter({row.pool for row in parsed(answers)})))}
    rows = parsed(answers, Scope(target=Target(name="t"), pools=pools))
    written = 211 if version == "16.2.15" else 312
    # An object that is new is noted in its image's map: at most two writes for each of 16 objects.
    assert written <= sum(row.write_count for row in rows) <= written + 100
    assert written * 4096 <= sum(row.write_bytes for row in rows) <= (written + 100) * 4096
    assert {row.pool for row in rows} == {"vms"}
    assert {row.osd for row in rows} <= {0, 1, 2}
    assert all(sorted(row.acting.split()) == ["0", "1", "2"] for row in rows)


def test_a_pool_without_a_name_is_its_number_and_holes_of_an_acting_set_are_left_out() -> None:
    acting = (NO_OSD, 4, 3)
    (row,) = parse(look(1, group("9.a", (0, 0, 0, 0), acting)), look(2, group("9.a", (0, 1, 0, 4), acting)))
    assert (row.pool, row.osd, row.acting) == ("9", 4, "4 3")


def test_a_group_that_the_manager_does_not_know_for_a_while_has_one_longer_interval() -> None:
    unknown = group("2.0", (0, 0, 0, 0), state="unknown")
    (row,) = parse(look(10, group("2.0", (5, 0, 20, 0))), look(20, unknown), look(30, group("2.0", (9, 0, 36, 0))))
    assert (row.read_count, row.at_ns, row.duration_ns) == (4, 30 * S, 20 * S)


def test_a_split_counts_nothing_twice_and_loses_nothing() -> None:
    # Between the looks 2.0 counted six more and was split: its counters and its child's are halves of what they were.
    rows = parse(
        look(10, group("2.0", (100, 0, 400, 0))),
        look(20, group("2.0", (53, 0, 212, 0)), group("2.8", (53, 0, 212, 0))),
        look(30, group("2.0", (56, 0, 224, 0)), group("2.8", (60, 0, 240, 0))),
    )
    assert [(row.pg, row.read_count, row.read_bytes) for row in rows] == [
        ("2.0", 6, 24 * 1024),
        ("2.0", 3, 12 * 1024),
        ("2.8", 7, 28 * 1024),
    ]


def test_two_splits_between_two_looks_and_the_groups_of_a_new_pool() -> None:
    rows = parse(
        look(10, group("2.1", (100, 0, 400, 0))),
        look(20, *(group(pg, (30, 0, 120, 0)) for pg in ("2.1", "2.3", "2.5", "2.7")), group("9.0", (5, 0, 20, 0))),
    )
    assert [(row.pg, row.read_count) for row in rows] == [("2.1", 20)]


def test_a_group_that_was_unknown_is_no_child_of_a_split() -> None:
    rows = parse(
        look(10, group("2.1", (5, 0, 20, 0)), group("2.5", (0, 0, 0, 0), state="unknown")),
        look(20, group("2.1", (6, 0, 24, 0)), group("2.5", (10**9, 0, 4 * 10**9, 0))),
        look(30, group("2.1", (6, 0, 24, 0)), group("2.5", (10**9 + 2, 0, 4 * 10**9 + 8, 0))),
    )
    assert [(row.pg, row.read_count) for row in rows] == [("2.1", 1), ("2.5", 2)]


def test_a_child_that_is_unknown_at_first_is_waited_for() -> None:
    """Its parent's counters are smaller by its share, which nobody has taken away."""
    answers = [
        look(10, group("2.1", (0, 1000, 0, 4000))),
        look(20, group("2.1", (0, 505, 0, 2020)), group("2.5", (0, 0, 0, 0), state="unknown")),
        look(30, group("2.1", (0, 510, 0, 2040)), group("2.5", (0, 500, 0, 2000))),
    ]
    found = SOURCE.parse(answers, SCOPE)
    (row,) = from_table(PgIo, found[PgIo])
    assert (row.pg, row.write_count, row.at_ns, row.duration_ns) == ("2.1", 10, 30 * S, 20 * S)
    assert found[Uncounted].num_rows == 0


def test_groups_that_are_merged_count_nothing_twice() -> None:
    rows = parse(
        look(10, group("2.1", (50, 0, 200, 0)), group("2.5", (40, 0, 160, 0))),
        look(20, group("2.1", (93, 0, 372, 0))),
        look(30, group("2.1", (94, 0, 376, 0))),
    )
    assert [(row.pg, row.read_count) for row in rows] == [("2.1", 3), ("2.1", 1)]


def test_counters_that_a_failed_osd_took_with_it_are_said_and_the_others_count() -> None:
    """The reads of a group that had stored none of them are fewer than before; its writes went on."""
    answers = [
        look(10, group("2.0", (50, 7, 200, 28)), group("2.1", (5, 5, 20, 20))),
        look(20, group("2.0", (43, 9, 172, 36), (0, 2)), group("2.1", (6, 5, 24, 20))),
    ]
    found = SOURCE.parse(answers, SCOPE)
    rows = from_table(PgIo, found[PgIo])
    assert [(row.pg, row.read_count, row.write_count, row.read_bytes, row.write_bytes) for row in rows] == [
        ("2.0", 0, 2, 0, 8 * 1024), ("2.1", 1, 0, 4 * 1024, 0),
    ]  # fmt: skip
    (said,) = from_table(Uncounted, found[Uncounted])
    assert (said.at_ns, said.duration_ns, said.source) == (20 * S, 10 * S, "pg_stats")
    assert said.reason.startswith("counters of a placement group are smaller")


def test_a_failed_look_is_left_out() -> None:
    refused = RawAnswer("pg_dump", ("ceph",), (), -13, b"", b"denied", 15 * S, 15 * S)
    (row,) = parse(look(10, group("2.0", (1, 0, 4, 0))), refused, look(20, group("2.0", (2, 0, 8, 0))))
    assert row.duration_ns == 10 * S


def test_a_cluster_without_groups_has_no_rows() -> None:
    assert parse(look(1), look(2)) == []
    assert parse(look(1, bare=True)) == []


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"nothing", b"7", b'{"pg_stats":[{"pgid":"2.0"', b'{"pg_stats":[{"pgid":"2.0","state":"active"}]}',
     b'{"pg_stats":[{"pgid":"2.0","state":"active","acting":[],"acting_primary":1,"stat_sum":{"num_read":"x"}}]}',
     b'[{"pgid":"2.0","state":"unknown"}'],
)  # fmt: skip
def test_what_is_no_list_of_groups_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse(RawAnswer("pg_dump", ("ceph",), (), 0, text, b"", 1, 2))


def test_a_disk_alone_is_not_asked() -> None:
    assert SOURCE.plan(Scope(target=Target(name="d", kind="disk"))) == []
    assert len(SOURCE.plan(SCOPE)) == 1
