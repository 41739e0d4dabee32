"""One placement group or object that takes the load is found; a sample that is too small says nothing."""

from __future__ import annotations

import dataclasses

import pytest

from bathyscope.analysis.account.hot_spot import hot_spot, pgs_seen
from bathyscope.records import Op, to_table

ONE = Op(
    *(3, "client.4157", None, 2, "2.1f", "rbd_data.1.0", "read", 0, 4096, 10**9, 10**6),
    *(None, None, None, None, None, None, True, 0),
)


def ops(*changes: dict[str, object], count: int = 30) -> list[Op]:
    return [dataclasses.replace(ONE, **changes[i % len(changes)]) for i in range(count)]  # type: ignore[arg-type]


def test_one_object() -> None:
    found = hot_spot(to_table(Op, ops({})))
    assert found is not None
    assert (found.pg, found.osd, found.object_name, found.share, found.samples) == ("2.1f", 3, "rbd_data.1.0", 1.0, 30)


def test_many_objects_of_one_group() -> None:
    found = hot_spot(to_table(Op, ops({}, {"object_name": "rbd_data.1.7"}, {"object_name": "rbd_data.1.9"})))
    assert found is not None
    assert found.object_name is None


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([{}], 19),
        ([{}, {"pg": "2.3"}], 30),
        ([{"pg": None}], 30),
        # What is neither read nor written (a watch) is no load.
        ([{"op": "other"}], 30),
    ],
)
def test_nothing_is_hot(rows: list[dict[str, object]], count: int) -> None:
    assert hot_spot(to_table(Op, ops(*rows, count=count))) is None


def test_the_placement_groups_that_were_seen() -> None:
    seen = pgs_seen(to_table(Op, ops({}, {"pg": "2.3"}, {"pg": None}, {"op": "other", "pg": "2.9"})))
    assert (seen.value, seen.samples) == (2, 16)
    assert pgs_seen(to_table(Op, [])).value is None


def test_no_history() -> None:
    assert hot_spot(to_table(Op, [])) is None
