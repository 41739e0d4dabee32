"""Names of the objects that hold an image's data: rbd_data.IMAGE.NUMBER, and rbd_data.POOL.IMAGE.NUMBER where the data
has a pool of its own (POOL is the pool of the image's header). The number has 16 hexadecimal digits.

A recording has many millions of names and few images. So what a name says of its image is read once, when the operation
becomes a row (`image_columns`), from the start of the name, without its number: the pattern looks at each start once.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NUMBER_DIGITS = 16

_OF_START = re.compile(rb"^rbd_data\.(?:([0-9]{1,18})\.)?([^.]+)$")

NUMBER_SQL = f"TRY_CAST('0x' || right(object_name, {NUMBER_DIGITS}) AS BIGINT)"
"""The number of an image's object; null for what is no number."""


def image_columns(object_names: pa.Array[Any]) -> dict[str, pa.Array[Any]]:
    """Return the columns `image_id` and `image_pool_id` of operations on these objects."""
    names, end = pc.fill_null(object_names.cast(pa.binary()), pa.scalar(b"")), -NUMBER_DIGITS
    has_dot = pc.equal(pc.binary_slice(names, end - 1, end), pa.scalar(b"."))
    starts = pc.if_else(has_dot, pc.binary_slice(names, 0, end - 1), b"").dictionary_encode()
    matches = [_OF_START.fullmatch(start) for start in starts.dictionary.to_pylist()]
    ids = pa.array(["" if match is None else match[2].decode(errors="replace") for match in matches], pa.string())
    pools = pa.array([None if match is None or not match[1] else int(match[1]) for match in matches], pa.int64())
    return {"image_id": ids.take(starts.indices), "image_pool_id": pools.take(starts.indices)}


def image_id_of(start: bytes) -> str | None:
    """Return the id of the image whose objects begin with `start`; None for other objects."""
    match = _OF_START.fullmatch(start)
    return None if match is None else match[2].decode(errors="replace")
