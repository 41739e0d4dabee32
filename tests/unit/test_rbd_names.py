"""What the name of an object says of its image."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bathyscope.rbd_names import image_columns

NUMBER = f"{26:016x}"


@pytest.mark.parametrize(
    ("name", "image_id", "pool_id"),
    [
        (f"rbd_data.10ab.{NUMBER}", "10ab", None),
        (f"rbd_data.7.10ab.{NUMBER}", "10ab", 7),
        (f"rbd_data.{'9' * 30}.10ab.{NUMBER}", "", None),
        (f"rbd_data.7.8.10ab.{NUMBER}", "", None),
        (f"rbd_data.10ab_{NUMBER}", "", None),
        (f"rbd_data.ä.{NUMBER}", "ä", None),
        (f"rbd_data.10ab{'ä' * 9}", "", None),
        ("rbd_data.10ab", "", None),
        (f"rbd_header.10ab.{NUMBER}", "", None),
        ("", "", None),
        (None, "", None),
    ],
)
def test_the_image_of_an_object_is_read_from_its_name(name: str | None, image_id: str, pool_id: int | None) -> None:
    # Beside another object: names are looked at start by start.
    columns = image_columns(pa.array([f"rbd_data.ff.{NUMBER}", name, f"rbd_data.ff.{NUMBER}"], pa.string()))
    assert columns["image_id"].to_pylist() == ["ff", image_id, "ff"]
    assert columns["image_pool_id"].to_pylist() == [None, pool_id, None]
