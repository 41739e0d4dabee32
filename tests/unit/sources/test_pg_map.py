"""Which OSDs hold each placement group, by a recorded answer and by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bathyscope.errors import ParseError
from bathyscope.records import PgPlacement, RawAnswer, from_table
from bathyscope.sources.pg_map import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
SCOPE = Scope(target=Target(name="t"), pools={"rbd": 1})


def groups(*answers: RawAnswer) -> list[PgPlacement]:
    return from_table(PgPlacement, SOURCE.parse(answers, SCOPE)[PgPlacement])


def answer(*listed: object) -> RawAnswer:
    return RawAnswer("pg_map", (), (), 0, json.dumps({"pg_ready": True, "pg_stats": listed}).encode(), b"", 1, 7)


def test_each_group_of_each_pool_has_a_row(recorded: Recorded) -> None:
    rows = groups(*recorded("pg_map/16.2.15/five-places"))
    by_pool: dict[str, set[int]] = {}
    for row in rows:
        by_pool.setdefault(row.pool, set()).add(row.seed)
        assert row.acting.split()[0] == str(row.osd)
        assert sorted(row.acting.split()) == ["0", "1", "2"]
    # A pool without a name in the scope has its number.
    assert by_pool["rbd"] == set(range(32))
    assert sorted(map(len, by_pool.values())) == [1, 12, 12, 32, 32]


def test_a_place_that_nobody_has_is_left_out_and_a_group_may_have_no_osd_at_all() -> None:
    none = 2147483647
    rows = groups(
        answer(
            {"pgid": "1.1f", "state": "active+undersized", "acting": [none, 4, 2], "acting_primary": 4},
            {"pgid": "1.0", "state": "stale", "acting": [], "acting_primary": -1},
        )
    )
    assert [(row.pool, row.pool_id, row.seed, row.osd, row.acting) for row in rows] == [
        ("rbd", 1, 31, 4, "4 2"),
        ("rbd", 1, 0, None, ""),
    ]
    assert rows[0].at_ns == 7


def test_what_is_no_map_is_refused() -> None:
    with pytest.raises(ParseError):
        groups(answer({"pgid": "1.x", "acting": [1], "acting_primary": 1}))
    assert groups(RawAnswer("pg_map", (), (), -1, b"", b"", 1, 2)) == []
    assert SOURCE.plan(Scope(target=Target(name="d", kind="disk"))) == []
