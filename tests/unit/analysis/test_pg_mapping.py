"""The placement group of an object is the one that `ceph osd map` names, by recorded answers and by known hashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bathyscope.analysis.pg_mapping import numbered, seeds
from bathyscope.records import RawAnswer

Recorded = Callable[[str], list[RawAnswer]]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "pg_map"
ALL = 1 << 31


def seed_of(name: str, namespace: str = "", count: int = ALL) -> int:
    return int(seeds(np.frombuffer(name.encode(), dtype=np.uint8)[None, :], namespace, count)[0])


def test_the_group_of_each_object_is_the_one_that_the_monitors_named(recorded: Recorded) -> None:
    """Replicated and erasure-coded pools of 12 and of 32 groups, two with a namespace, 500 names."""
    place = "16.2.15/five-places"
    (brief,) = recorded(f"pg_map/{place}")
    counts: dict[str, int] = {}
    for group in brief.json()["pg_stats"]:
        pool = group["pgid"].partition(".")[0]
        counts[pool] = counts.get(pool, 0) + 1
    said = json.loads((FIXTURES / place / "osd_map.json").read_text())
    places: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for answer in said:
        namespace, slash, _ = answer["objname"].rpartition("/")
        assert bool(namespace) == bool(slash)
        places.setdefault((answer["pgid"].partition(".")[0], namespace), []).append(answer)
    assert sorted((counts[pool], namespace) for pool, namespace in places) == [
        (12, ""), (12, "größe"), (12, "tenant"), (32, ""), (32, ""),
    ]  # fmt: skip
    for (pool, namespace), answers in places.items():
        for answer in answers:
            seed = seed_of(answer["objname"].removeprefix(f"{namespace}/"), namespace, counts[pool])
            assert f"{pool}.{seed:x}" == answer["pgid"]
    assert len(said) == 500


def test_a_hash_is_the_one_that_ceph_documents() -> None:
    # What `ceph osd map` prints of the object foo in its manual: pg 0.7fc1f406.
    assert seed_of("foo") == 0x7FC1F406


def test_the_objects_of_an_image_are_numbered_in_sixteen_digits() -> None:
    numbers = np.array([0, 31, 0xFEDCBA98765])
    names = numbered("rbd_data.10ab.", numbers)
    assert [bytes(name).decode() for name in names] == [f"rbd_data.10ab.{number:016x}" for number in numbers]
    assert seeds(names, "ns", 100).tolist() == [seed_of(bytes(name).decode(), "ns", 100) for name in names]
    assert seeds(names[:0], "", 8).tolist() == []


@pytest.mark.parametrize("count", [1, 2, 3, 12, 31, 32, 33])
def test_when_a_pool_gets_more_groups_an_object_stays_or_moves_to_a_new_one(count: int) -> None:
    names = numbered("rbd_data.10ab.", np.arange(500))
    before, after = seeds(names, "", count), seeds(names, "", count + 1)
    assert set(before.tolist()) <= set(range(count))
    moved = before != after
    assert set(after[moved].tolist()) <= {count}
    assert count > 31 or set(before.tolist()) == set(range(count))
