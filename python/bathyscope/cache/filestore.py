"""Names of Ceph objects in the paths of a FileStore OSD: current/PG_head/DIR_…/NAME_KEY_SNAP_HASH_NAMESPACE_POOL.

Written from what Ceph's LFNIndex does. Names of 255 bytes and more are hashed; their objects' names are in an extended
attribute, which is not read.
"""

from __future__ import annotations

import dataclasses
import re

_PATH = re.compile(r"current/([0-9]+)\.[0-9a-f]+(?:s[0-9]+)?_head/(?:DIR_[0-9A-F]/)*([^/]+)")
_ESCAPES = {"\\": "\\", "s": "/", "u": "_", "n": "\0"}
# Only at the beginning: a name must not look like a directory of the index, or be hidden.
_FIRST_ESCAPES = {"d": "DIR_", ".": "."}
_FIELDS = (6, 8)


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectFile:
    """The object that a file is. `snapshot` is head, snapdir, or the id of a clone as hexadecimal digits."""

    pool: int
    namespace: str
    name: str
    snapshot: str


def object_of(path: str) -> ObjectFile | None:
    """Return the object of a path below an OSD's directory; None for what is no object, or has a hashed name."""
    match = _PATH.fullmatch(path)
    fields = [] if match is None else match[2].split("_")
    # A hashed name ends with _long; erasure-coded pools add a generation and a shard.
    if match is None or len(fields) not in _FIELDS:
        return None
    first = fields[0]
    start = ""
    if first[:1] == "\\" and first[1:2] in _FIRST_ESCAPES:
        start, first = _FIRST_ESCAPES[first[1]], first[2:]
    name, namespace = _plain(first), _plain(fields[4])
    if name is None or namespace is None or re.fullmatch("[0-9A-F]{8}", fields[3]) is None:
        return None
    # A placement group's own object has no name.
    return ObjectFile(int(match[1]), namespace, start + name, fields[2]) if start + name else None


def _plain(text: str) -> str | None:
    """Return text without its escapes; None for an escape that there is not."""
    pieces = re.split(r"\\(.?)", text)
    # Every second piece is the letter after a backslash.
    plain = [_ESCAPES.get(piece) if index % 2 else piece for index, piece in enumerate(pieces)]
    return None if None in plain else "".join(str(piece) for piece in plain)
