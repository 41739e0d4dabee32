"""Where objects lie on the device of a BlueStore OSD: names, extents, and what is cached of them."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope.analysis.pg_mapping import name_hash
from bathyscope.cache import bluestore
from bathyscope.cache.hottest import hottest
from bathyscope.cache.looks import Look
from bathyscope.errors import ClusterError, DeniedError, ParseError, UnreachableError
from bathyscope.host import CephRequest, CephSession, Completed

from .daemons import ops, source, status

RECORDED = Path(__file__).parents[2] / "fixtures/bluestore/20.2.4"
POOL = 1


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    "name",
    ["whole", "a:b%c/d", "ä ö", "sp ace", "#x!", "back\\slash", "dir.x", "rbd_directory", "rbd_header.10193ecceed2"],
)
def test_an_object_is_called_as_an_osd_calls_it(name: str) -> None:
    assert bluestore.onode_name(POOL, name, name_hash(name)) in recorded("list").splitlines()


def test_all_data_of_images_is_called_as_an_osd_calls_it() -> None:
    lines = [line for line in recorded("list").splitlines() if ":::rbd_data." in line and line.endswith(":head#")]
    names = [line.split(":")[4] for line in lines]
    assert len(names) > 30
    assert [bluestore.onode_name(POOL, name, name_hash(name)) for name in names] == lines


@pytest.mark.parametrize(
    ("name", "first", "count", "size"),
    [
        ("whole", (0x9D3E000, 0x10000), 6, 300_000 + 3_104),
        # Eight blobs of 8 KiB, each compressed to less than a unit of allocation.
        ("compressed", None, 8, 8 * 4096),
        ("spanning", None, 354, 1_449_984),
    ],
)
def test_the_extents_of_an_object(name: str, first: tuple[int, int] | None, count: int, size: int) -> None:
    extents = bluestore.extents_of(recorded(name))
    assert first is None or extents[0] == first
    assert (len(extents), sum(length for _, length in extents)) == (count, size)
    # No two overlap.
    assert all(at + length <= after for (at, length), (after, _) in itertools.pairwise(extents))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("", "does not begin with an onode"),
        ("[]", "does not begin with an onode"),
        # A blob that is used and not described.
        (recorded("whole").replace("Blob(0x56167520ce80 disk=", "Blob(0x1 disk="), "0x56167520ce80"),
        (recorded("whole").replace("0x9d87000~1000", "somewhere"), "'somewhere' is no extent"),
    ],
)
def test_an_answer_that_is_not_understood_is_an_error(answer: str, says: str) -> None:
    with pytest.raises(ParseError, match=says):
        bluestore.extents_of(answer)


@given(st.text("0123abf~!x,[]() \nBlobdisk=#nid size:"), st.integers(0, 2000))
def test_a_hostile_answer_is_an_error_or_has_extents(text: str, place: int) -> None:
    whole = recorded("whole")
    try:
        extents = bluestore.extents_of(whole[:place] + text + whole[place:])
    except ParseError:
        return
    assert all(0 <= at < 1 << 64 and 0 <= length < 1 << 64 for at, length in extents)


class Osd(CephSession):
    """Answers as an OSD does that has some objects: by exit code, or with an onode."""

    def __init__(self, answers: dict[str, int | str], said: str = "") -> None:
        self.answers, self.said = answers, said
        self.asked = 0

    def commands(self, requests: Sequence[CephRequest]) -> list[Completed]:
        self.asked += 1
        return [self._answer(request) for request in requests]

    def _answer(self, request: CephRequest) -> Completed:
        assert request.daemon == "osd.3"
        answer = self.answers.get(str(dict(request.command)["object_name"]), -errno.ENOENT)
        code, out = (answer, "") if isinstance(answer, int) else (0, answer)
        return Completed(request, code, out.encode(), self.said.encode(), 0, 0, timed_out=code == -errno.ETIMEDOUT)

    def close(self) -> None:
        pass


def test_objects_that_an_osd_does_not_have_are_left_out() -> None:
    said: list[str] = []
    osd = Osd({f"#{number}": recorded("whole") for number in range(0, 120, 2)})
    found = bluestore.places(osd, 3, [f"#{number}" for number in range(120)], said.append)
    assert list(found) == [f"#{number}" for number in range(0, 120, 2)]
    assert osd.asked == 3
    assert said[-1] == "osd.3: asking where 120 objects lie, 100 are known"


@pytest.mark.parametrize(
    ("code", "said", "error", "says"),
    [
        (-errno.EINVAL, "unknown command prefix bluestore onode metadata", ClusterError, "its Ceph is older than 20"),
        (-errno.EINVAL, "no valid command found; 10 closest matches:", ClusterError, "its Ceph is older than 20"),
        (-errno.EINVAL, "Cannot parse object", ClusterError, "failed: Cannot parse object"),
        (-errno.EACCES, "access denied", DeniedError, "osd"),
        (-errno.ETIMEDOUT, "", UnreachableError, "did not answer"),
    ],
)
def test_an_osd_that_cannot_say_so(code: int, said: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        bluestore.places(Osd({"#1": code}, said), 3, ["#1"], lambda _: None)


def test_what_is_cached_is_asked_for_in_parts_and_summed_by_object() -> None:
    asked: list[list[tuple[int, int]]] = []

    def ask(**question: Any) -> dict[str, Any]:
        assert (question["query"], question["source"], question["handle"]) == ("cached", "osd.3", "0a")
        asked.append(question["ranges"])
        return {"cached_bytes": [length // 2 for _, length in question["ranges"]]}

    objects = [tuple((at << 12, 4096) for at in range(250)), (), tuple((at << 12, 8192) for at in range(100))]
    assert bluestore.cached_bytes(ask, "osd.3", "0a", objects) == [250 * 2048, 0, 100 * 4096]
    assert [len(ranges) for ranges in asked] == [300, 50]
    assert bluestore.cached_bytes(ask, "osd.3", "0a", []) == []
    with pytest.raises(ParseError):
        bluestore.cached_bytes(lambda **_: {"cached_bytes": []}, "osd.3", "0a", objects)


def test_recorded_objects_are_shown_with_what_is_cached_of_them() -> None:
    entries = [{"path": "block", "handle": "0a", "is_in_use": True, "reads": ops(9)},
               {"path": "fsid", "handle": "0b", "is_in_use": True, "reads": ops(1)}]  # fmt: skip
    answers = {"fast": {"sources": [{"name": "osd.3", "dir": "/d", "files": entries}]}}
    looks = [Look("fast", 10**12, status(source("osd.3")))]
    assert bluestore.block_devices(looks, answers) == [bluestore.BlockDevice("fast", "osd.3", "/d", "0a")]
    data = "rbd_data.10193ecceed2.000000000000000"
    first = bluestore.RecordedObject(1, f"{data}1", "10193ecceed2", 5, 20480, 1)
    busier = bluestore.RecordedObject(1, f"{data}2", "10193ecceed2", 9, 36864, 0)
    placed = [
        bluestore.PlacedObject("osd.3", first, 4 << 20, 1 << 20),
        bluestore.PlacedObject("osd.3", busier, 0, 0),
    ]
    finding = hottest("objects", looks, answers, source=None, limit=20, placed=placed)
    (table,) = finding.tables
    assert [(row[0][-1], row[4], row[-1]) for row in table.rows] == [("2", 9, None), ("1", 5, 0.25)]
    assert finding.sentence == "Objects with the most requests: 2. On BlueStore OSDs 1.00 MiB of 4.00 MiB are cached."
    assert not any("not known" in remark for remark in finding.unseen)
