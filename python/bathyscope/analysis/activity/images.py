"""What is known of images, by their ids and by their names."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

IMAGES = (
    "SELECT pool, namespace, arg_max(image, at_ns) AS image, image_id, arg_max(size_bytes, at_ns) AS size_bytes "
    "FROM image GROUP BY pool, namespace, image_id"
)
"""The SELECT whose answer `Images` is made from."""


class Images:
    """What is known of images, by their ids and by their names."""

    def __init__(self, images: pa.Table) -> None:
        rows = images.to_pylist()
        self._by_id = {(row["pool"], row["image_id"]): row for row in rows}
        self._by_name = {(row["pool"], row["namespace"], row["image"]): row for row in rows}

    def name(self, row: Mapping[str, str | None]) -> str:
        """Return pool/image or pool/namespace/image of a row of image_io."""
        image = self._by_id.get((row["pool"], row["image_id"]), {})
        by_id = f"(id {row['image_id']})" if row["image_id"] else "all further images"
        name = row["image"] or image.get("image") or by_id
        return "/".join(part for part in (row["pool"], row["namespace"], name) if part)

    def key(self, row: Mapping[str, str | None]) -> tuple[str, str, str]:
        """Return (pool, namespace, image) of a row of image_io; the id where the name is not known."""
        image = self._by_id.get((row["pool"], row["image_id"]), {})
        return str(row["pool"]), row["namespace"] or "", row["image"] or image.get("image") or str(row["image_id"])

    def size_bytes(self, row: Mapping[str, str | None]) -> int | None:
        """Return the provisioned size of a row's image."""
        image = self._by_id.get((row["pool"], row["image_id"]))
        image = image or self._by_name.get((row["pool"], row["namespace"], row["image"]))
        return None if image is None else int(image["size_bytes"])

    def image_id(self, row: Mapping[str, str | None]) -> str | None:
        """Return the id of a row's image, None where it is not known."""
        image = self._by_name.get((row["pool"], row["namespace"], row["image"]), {})
        return row["image_id"] or image.get("image_id")
