"""Names of the objects that hold an image's data: rbd_data.IMAGE.NUMBER, and rbd_data.POOL.IMAGE.NUMBER where the data
has a pool of its own (POOL is the pool of the image's header). The number has 16 hexadecimal digits.

A recording has many millions of names and few images. So the start of a name, without its number, is cut off by its
place, and the pattern looks at each start once.
"""

from __future__ import annotations

import re

NUMBER_DIGITS = 16

_START = r"^rbd_data\.(?:([0-9]+)\.)?([^.]+)$"
_OF_START = re.compile(_START.encode())

START_SQL = f"CASE WHEN starts_with(object_name, 'rbd_data.') THEN left(object_name, -{NUMBER_DIGITS + 1}) END"
"""What an `object_name` of an image begins with: all but the dot and the number; null for other objects."""

IMAGE_ID_SQL = f"nullif(regexp_extract(start, '{_START}', 2), '')"
"""The id of the image whose objects begin with `start`; null for none."""

POOL_ID_SQL = f"coalesce(nullif(regexp_extract(start, '{_START}', 1), ''), CAST(pool_id AS VARCHAR))"
"""The number, as text, of the pool of the image's header; of other objects that of their own pool."""

NUMBER_SQL = f"TRY_CAST('0x' || right(object_name, {NUMBER_DIGITS}) AS BIGINT)"
"""The number of an image's object; null for what is no number."""


def of_images_sql(ids: str) -> str:
    """Return the SQL condition for objects of the images whose ids the SQL list `ids` has."""
    return f"split_part({START_SQL}, '.', -1) IN {ids}"


def image_id_of(start: bytes) -> str | None:
    """Return the id of the image whose objects begin with `start`; None for other objects."""
    match = _OF_START.fullmatch(start)
    return None if match is None else match[2].decode(errors="replace")
