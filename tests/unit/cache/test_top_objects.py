"""Files and objects: FileStore's names are Ceph's, BlueStore's are not known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope.cache.curves import curve
from bathyscope.cache.filestore import ObjectFile, object_of
from bathyscope.cache.snapshots import Snapshot
from bathyscope.cache.top_objects import top_objects
from bathyscope.errors import ParseError

from .daemons import ops, source, status

DATA = "rbd\\udata.102b80a9e410.0000000000000001"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # Paths that a FileStore OSD of Ceph 16.2 made of the objects with these names.
        (
            f"current/4.0_head/{DATA}__head_7F7F0425__4",
            ObjectFile(4, "", "rbd_data.102b80a9e410.0000000000000001", "head"),
        ),
        ("current/3.1_head/plain__1_930F08C9__3", ObjectFile(3, "", "plain", "1")),
        ("current/3.1_head/a\\sb\\\\c__head_3E5CFFAF__3", ObjectFile(3, "", "a/b\\c", "head")),
        ("current/3.1_head/\\dx__head_13B5E743__3", ObjectFile(3, "", "DIR_x", "head")),
        ("current/3.1_head/ä ö__head_4D0CC273__3", ObjectFile(3, "", "ä ö", "head")),
        ("current/3.0_head/\\.hidden__head_156899A2__3", ObjectFile(3, "", ".hidden", "head")),
        ("current/3.0_head/a\\ub__head_56531242__3", ObjectFile(3, "", "a_b", "head")),
        ("current/3.0_head/\\\\lead__head_DB5642D4__3", ObjectFile(3, "", "\\lead", "head")),
        ("current/3.0_head/\\slead__head_AEE690E2__3", ObjectFile(3, "", "/lead", "head")),
        ("current/3.0_head/\\u__head_6EE9B872__3", ObjectFile(3, "", "_", "head")),
        ("current/3.0_head/in\\uns__head_C706C794_my\\uns_3", ObjectFile(3, "my_ns", "in_ns", "head")),
        ("current/3.0_head/keyed_k\\uey_head_AC958498__3", ObjectFile(3, "", "keyed", "head")),
        # As LFNIndex writes them: in a split directory, a shard of an erasure-coded pool.
        ("current/1.2f_head/DIR_F/DIR_2/plain__head_8B4F112F__1", ObjectFile(1, "", "plain", "head")),
        ("current/4.7s2_head/object__head_0000ABCD__4_ffffffffffffffff_2", ObjectFile(4, "", "object", "head")),
    ],
)
def test_the_object_of_a_file(path: str, expected: ObjectFile) -> None:
    assert object_of(path) == expected


@pytest.mark.parametrize(
    "path",
    ["", "block", "current/4.0_head/__head_00000000__4", "current/meta/osd\\usuperblock__0_23C2FCDE__none",
     "current/omap/000005.log", "current/commit_op_seq", "current/2.0_head/DIR_0", "current/2.0_TEMP/x",
     "current/2.0_head/aaaa_0123456789abcdef_0_long", "current/2.0_head/a\\x__head_00000000__2",
     "current/2.0_head/a__head_hash__2", "current/2.0_head/__head_00000000", "current/2.0_head/a\\"],
)  # fmt: skip
def test_what_is_no_object_has_none(path: str) -> None:
    assert object_of(path) is None


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text("ab_/\\.\0"))
def test_every_name_comes_back(name: str, namespace: str) -> None:
    """What LFNIndex escapes: backslash, slash, NUL and underscore; a leading DIR_ or dot."""

    def escaped(text: str) -> str:
        for plain, letter in (("\\", "\\"), ("/", "s"), ("\0", "n"), ("_", "u")):
            text = text.replace(plain, f"\\{letter}" if plain != "\\" else "\\\\")
        return text

    if name.startswith("DIR_"):
        first = "\\d" + escaped(name[4:])
    else:
        first = ("\\." + escaped(name[1:])) if name.startswith(".") else escaped(name)
    path = f"current/3.a_head/{first}__head_0123ABCD_{escaped(namespace)}_3"
    assert object_of(path) == ObjectFile(3, namespace, name, "head")


def answers(*found: dict[str, Any], name: str = "ceph0") -> tuple[list[Snapshot], dict[str, Any]]:
    entries = [{"reads": ops(), "writes": ops(), "cached_bytes": 0, **one} for one in found]
    sources = [{"name": name, "dir": "/d", "files": entries}]
    return [Snapshot("fast", 10**12, status(source(name)))], {"fast": {"sources": sources}}


def test_objects_are_named_with_their_image_and_the_rest_is_counted() -> None:
    finding = top_objects(
        "objects",
        *answers(
            {"path": "current/meta/osdmap", "reads": ops(1)},
            {"path": f"current/4.0_head/{DATA}__head_7F7F0425__4", "reads": ops(5, 4), "cached_bytes": 65536},
            {"path": "current/1.2_head/plain__head_00000002__1", "reads": ops(9)},
            {"path": None, "handle": "0a", "reads": ops(2)},
        ),
        source=None, limit=20,
    )  # fmt: skip
    (table,) = finding.tables
    assert [row[:3] for row in table.rows] == [
        ("plain", None, 1),
        ("rbd_data.102b80a9e410.0000000000000001", "102b80a9e410", 4),
    ]
    assert any(remark.startswith("2 of the busiest files are not shown") for remark in finding.unseen)


def test_a_block_device_says_that_its_objects_are_not_known() -> None:
    finding = top_objects(
        "objects", *answers({"path": "block", "is_device": True, "reads": ops(5)}), source=None, limit=20
    )
    assert finding.sentence == "No objects are known."
    assert finding.unseen[0].startswith("ceph0: BlueStore. Which objects lie where")


def test_files_are_ordered_over_all_sources_and_nameless_ones_keep_their_handle() -> None:
    snapshots, answer = answers({"path": "a", "reads": ops(1)}, {"path": None, "handle": "0a", "writes": ops(7)})
    finding = top_objects("files", snapshots, answer, source=None, limit=20)
    assert [row[0] for row in finding.tables[0].rows] == ["handle 0a", "a"]
    assert top_objects("files", snapshots, answer, source="other", limit=20).tables[0].rows == ()
    assert len(top_objects("files", snapshots, answer, source=None, limit=1).tables[0].rows) == 1


def test_a_curve_says_what_twice_the_size_gives_and_from_how_much_it_knows() -> None:
    points = [{"size_bytes": size << 30, "hit_ratio": hits, "size_ratio": size / 2}
              for size, hits in ((1, 0.25), (2, 0.5), (4, 0.75))]  # fmt: skip
    found = {"curve": {"requests": 1000, "sampled": 90, "points": points, "error_bound": 0.02}, "sources": []}
    finding = curve([Snapshot("fast", 10**12, status())], {"fast": found})
    assert finding.sentence == "fast: 50 % hits at the present size, 75 % at twice the size (4.00 GiB)."
    rows = [row[1:5] for row in finding.tables[0].rows]
    assert {row[6:] for row in finding.tables[0].rows} == {(1000, 90)}
    assert rows == [(None, 1 << 30, 0.25, 0.5), (None, 2 << 30, 0.5, 1.0), (None, 4 << 30, 0.75, 2.0)]
    assert any("90 sampled of 1,000 reads" in remark and "2.0 %" in remark for remark in finding.unseen)


def test_a_source_has_a_curve_of_its_own_and_may_be_asked_for_alone() -> None:
    points = [{"size_bytes": size << 20, "hit_ratio": hits, "size_ratio": ratio}
              for size, hits, ratio in ((23, None, 0.25), (95, 0.125, 1), (190, 0.25, 2))]  # fmt: skip
    of_source = {"name": "ceph0", "curve": {"requests": 10, "sampled": 9, "points": points, "error_bound": None}}
    unread = {"name": "ceph1", "curve": None, "reason": "nothing was read since the start"}
    answer = {"fast": {"curve": None, "reason": "none", "sources": [of_source, unread]}}
    snapshots = [Snapshot("fast", 10**12, status(source("ceph0"), source("ceph1")))]
    finding = curve(snapshots, answer, source="ceph0")
    assert finding.sentence == "fast, ceph0: 12 % hits at the present size, 25 % at twice the size (190 MiB)."
    assert [row[:5] for row in finding.tables[0].rows] == [
        ("fast", "ceph0", 23 << 20, None, 0.25),
        ("fast", "ceph0", 95 << 20, 0.125, 1),
        ("fast", "ceph0", 190 << 20, 0.25, 2),
    ]
    assert "9 sampled of 10 reads" in finding.unseen[0]
    assert not any("none" in remark or "ceph1" in remark for remark in finding.unseen)
    of_all = curve(snapshots, answer)
    assert of_all.tables[0].rows == finding.tables[0].rows
    assert of_all.sentence == "There are curves of sources alone."
    assert of_all.unseen[:2] == ("fast: no curve: none.", "fast, ceph1: no curve: nothing was read since the start.")


def test_a_curve_whose_sample_is_too_small_at_the_present_size_cannot_be_told() -> None:
    points = [{"size_bytes": ratio << 20, "hit_ratio": None, "size_ratio": ratio}
              for ratio in (1, 2)]  # fmt: skip
    found = {"curve": {"requests": 10, "sampled": 9, "points": points, "error_bound": None}, "sources": []}
    finding = curve([Snapshot("fast", 10**12, status())], {"fast": found})
    assert finding.sentence.startswith("fast: the hits at the present size are not known")
    points[0]["hit_ratio"] = 0.5
    assert (
        curve([Snapshot("fast", 10**12, status())], {"fast": found}).sentence == "fast: 50 % hits at the present size."
    )


def test_a_curve_that_is_not_there_says_why() -> None:
    finding = curve(
        [Snapshot("fast", 10**12, status())], {"fast": {"curve": None, "reason": "too few requests", "sources": []}}
    )
    assert finding.sentence == "There is no curve yet."
    assert any("too few requests" in remark for remark in finding.unseen)


def test_a_broken_curve_is_a_parse_error() -> None:
    with pytest.raises(ParseError):
        curve([Snapshot("fast", 10**12, status())], {"fast": {"curve": {"requests": 1, "points": [{}]}}})
