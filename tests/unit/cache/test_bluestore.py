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
from bathyscope.cache.placement import placed_objects
from bathyscope.errors import ClusterError, DeniedError, ParseError, UnreachableError
from bathyscope.host import CephRequest, CephSession, Completed

from .daemons import ops

RECORDED = Path(__file__).parents[2] / "fixtures/bluestore/20.2.4"
POOL = 1


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def called(name: str) -> str:
    return bluestore.onode_name(POOL, name, name_hash(bluestore.plain_name(name)))


def test_objects_are_called_as_an_osd_calls_them() -> None:
    """Operations have the names as OSDs print them, and so does the list; the hash is that of the plain name."""
    lines = [line for line in recorded("list").splitlines() if ":::" in line and line.endswith(":head#")]
    names = [line.split(":")[4] for line in lines]
    assert {"a%3ab%25c%2fd", "%c3%a4 %c3%b6", "sp ace", "#x!", "back\\slash"} <= set(names)
    assert [called(name) for name in names] == lines
    assert bluestore.plain_name("%c3%a4%25%3a").decode() == "ä%:"
    assert bluestore.plain_name("%zz%2").decode() == "%zz%2"


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
        (recorded("whole").replace("0x9d87000~1000", "somewhere"), "'somewhere' is not an extent"),
        # What clients name is not read as blobs.
        (
            recorded("whole").replace("Blob(0x56167520ce80 disk=[", "attr Blob(0x56167520ce80 disk=["),
            "0x56167520ce80",
        ),
    ],
)
def test_an_answer_that_is_not_understood_is_an_error(answer: str, says: str) -> None:
    with pytest.raises(ParseError, match=says):
        bluestore.extents_of(answer)


def test_names_that_look_like_blobs_are_none() -> None:
    whole = recorded("whole")
    blob = "Blob(0x1 disk=[0x0~40000000])"
    hostile = whole.replace(":whole:", f":x {blob}:") + f"attr _user.x\n{blob}\n"
    assert bluestore.extents_of(hostile) == bluestore.extents_of(whole)


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
        (
            -errno.EINVAL,
            "unknown command prefix bluestore onode metadata",
            ClusterError,
            "cannot say where objects lie",
        ),
        (-errno.EINVAL, "no valid command found; 10 closest matches:", ClusterError, "cannot say where objects lie"),
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


DATA = "rbd_data.10193ecceed2.000000000000000"


def test_recorded_objects_are_shown_the_busiest_first() -> None:
    first = bluestore.RecordedObject(1, "1.0", f"{DATA}1", "10193ecceed2", 5, 20480, 1)
    busier = bluestore.RecordedObject(1, "1.0", f"{DATA}2", "10193ecceed2", 9, 36864, 0)
    placed = [
        bluestore.PlacedObject("osd.3", first, 4 << 20, 1 << 20),
        bluestore.PlacedObject("osd.4", busier, 0, 0),
    ]
    finding = placed_objects(placed, caches=["fast"], run_id="r", span_ns=(1, 2), remarks=["so"])
    (table,) = finding.tables
    assert [(row[0][-1], row[3], row[4], row[-1]) for row in table.rows] == [
        ("2", "osd.4", 9, None),
        ("1", "osd.3", 5, 0.25),
    ]
    assert finding.sentence == "Objects with the most operations: 2; 1.00 MiB of their 4.00 MiB are cached."
    nothing = placed_objects([], caches=["fast"], run_id="r", span_ns=(1, 2), remarks=[])
    assert (nothing.sentence, nothing.tables[0].rows) == ("No objects are known.", ())


def test_a_block_device_that_is_open_is_found() -> None:
    entries = [{"path": "fsid", "handle": "0b", "is_in_use": True, "reads": ops(1)},
               {"path": "block", "handle": "0a", "is_in_use": True, "reads": ops(9)}]  # fmt: skip
    closed = {"path": "block", "handle": "0c", "is_in_use": False}
    sources = [{"name": "osd.3", "dir": "/d", "files": entries}, {"name": "osd.4", "dir": "/e", "files": [closed]}]
    found = bluestore.block_devices({"fast": {"sources": sources}})
    assert found == [bluestore.BlockDevice("fast", "osd.3", "/d", "0a")]
