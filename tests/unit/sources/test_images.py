"""What images are, by recorded answers and what `rbd info` said of the same images, and by values made by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bathyscope.host import CephRequest
from bathyscope.records import Image, RawAnswer, from_table
from bathyscope.sources.images import SOURCE, caveats
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "images"
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]
SCOPE = Scope(target=Target(name="t"), pools={"rbd": 2, "ec": 3, "other": 4}, rbd_pools=("rbd", "ec"))


def images(answers: list[RawAnswer], scope: Scope = SCOPE) -> list[Image]:
    return from_table(Image, SOURCE.parse(answers, scope)[Image])


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


def section(version: int, content: bytes) -> bytes:
    return struct.pack("<BBI", version, 1, len(content)) + content


def header(**more: bytes) -> dict[str, str]:
    values = {"size": struct.pack("<Q", 1 << 30), "order": b"\x16", **more}
    return {key: value.hex() for key, value in values.items()}


def answer(*listed: list[Any], pool: str = "rbd", left: int = 0, code: int = 0) -> RawAnswer:
    content = json.dumps({"images": listed, "left": left}).encode()
    return RawAnswer(f"images-{pool}", (), (), code, content, b"", 1, 2)


def listed(name: str, number: str, values: dict[str, str], namespace: str = "") -> list[Any]:
    return [namespace, "rbd_directory", number, text(name).hex(), values]


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_images_are_what_rbd_info_says(recorded: Recorded, version: str) -> None:
    expected = json.loads((FIXTURES / version / "pools" / "expected.json").read_text())
    found = images(recorded(f"images/{version}/pools"), SCOPE.model_copy(update={"pools": expected["pools"]}))
    rows = {f"{image.pool}/{image.namespace}/{image.image}": image for image in found}
    assert set(rows) == set(expected["images"])
    for name, info in expected["images"].items():
        row, parent = rows[name], info.get("parent")
        assert row.image_id == info["id"]
        assert (row.size_bytes, row.object_size_bytes) == (info["size"], info["object_size"])
        assert row.stripe_unit_bytes == info.get("stripe_unit", info["object_size"])
        assert row.stripe_count == info.get("stripe_count", 1)
        assert row.data_pool == info.get("data_pool")
        parts = [parent["pool"], parent["pool_namespace"], parent["image"]] if parent else []
        # What `rbd info` marks as being in the trash has that in its name here.
        in_trash = " (trash)" if parent and parent["trash"] else ""
        assert row.parent == ("/".join(filter(None, parts)) + in_trash if parts else None)
    assert any(name.endswith(" (trash)") for name in rows)
    assert {image.namespace for image in found} == {"", "tenant"}
    assert any(image.data_pool for image in found)
    assert any(image.parent for image in found)


def test_one_command_for_each_pool() -> None:
    requests = SOURCE.plan(SCOPE)
    assert [request.label for request in requests] == ["images-rbd", "images-ec"]
    assert all(isinstance(request, CephRequest) and request.daemon.startswith("pool.") for request in requests)
    assert SOURCE.plan(Scope(target=Target(name="d", kind="disk"))) == []


def test_parents_of_every_encoding() -> None:
    since_nautilus = section(2, struct.pack("<q", 4) + text("ns") + text("aa") + struct.pack("<QBQ", 5, 1, 1 << 20))
    before = section(1, struct.pack("<q", 2) + text("bb") + struct.pack("<QQ", 5, 1 << 20))
    detached = section(2, struct.pack("<q", 2) + text("") + text("bb") + struct.pack("<QB", 5, 0))
    none = section(1, struct.pack("<q", -1) + text("") + struct.pack("<QQ", 0, 0))
    unknown = section(2, struct.pack("<q", 9) + text("") + text("cc") + struct.pack("<QBQ", 5, 1, 1))
    values = [since_nautilus, before, detached, none, unknown]
    found = images([
        answer(*(listed(f"clone{n}", f"c{n}", header(parent=value)) for n, value in enumerate(values)),
               listed("base", "bb", header())),
        answer(listed("golden", "aa", header(), "ns"), pool="other"),
    ])  # fmt: skip
    assert [image.parent for image in found[:5]] == ["other/ns/golden", "rbd/base", None, None, "9/cc"]


def test_an_image_in_the_trash_is_named_so_and_one_on_the_way_there_once() -> None:
    moment = struct.pack("<II", 0, 0)
    entry = section(2, b"\0" + text("old") + moment + moment + b"\0").hex()
    in_trash = ["", "rbd_trash", "dd", entry, header()]
    found = images([answer(listed("moving", "ee", header()), in_trash, ["", "rbd_trash", "ee", entry, header()])])
    assert [(image.image_id, image.image) for image in found] == [("ee", "moving"), ("dd", "old (trash)")]


def test_a_header_that_somebody_spoiled_costs_only_its_row() -> None:
    spoiled = [
        *(
            {},
            header(order=b""),
            header(order=b"\xff"),
            header(size=b"\xff" * 8),
            header(size=b"\0"),
            header(parent=b"\2"),
        ),
        header(data_pool_id=b"\1"),
    ]
    found = images(
        [answer(*(listed("x", f"{n}", values) for n, values in enumerate(spoiled)), listed("y", "z", header()))]
    )
    assert [image.image for image in found] == ["y"]
    assert (
        images([answer(["", "rbd_directory", "id", "ffffffff", header()], listed("y", "z", header()))])[0].image == "y"
    )


def test_what_was_left_out_is_told() -> None:
    reasons = "reading them took longer than 15 s, or they have larger entries than librbd writes"
    assert caveats([answer(left=7), answer(pool="ec", left=3), answer(), answer(pool="ec", code=-1)]) == [
        f"3 images of the pool ec were not looked at: there are more than 50000, {reasons}"
    ]
    assert images([answer(code=-13)]) == []
