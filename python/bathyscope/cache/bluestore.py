"""Where objects lie on the block device of a BlueStore OSD, and what a cache has of them.

Since Ceph 20 an OSD says which extents of its device an object has (`bluestore onode metadata`), those that it shares
with snapshots among them. Which objects to ask for is known from the operations of a recording. Objects of
erasure-coded pools and of namespaces are not found: an OSD has them by other names, and a recorded operation has no
namespace. Nor are snapshots: what is read of them is recorded as read of the object.
"""

from __future__ import annotations

import dataclasses
import errno
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bathyscope.cache.snapshots import source_name
from bathyscope.errors import ClusterError
from bathyscope.fields import as_dict, as_int, as_list, parsing
from bathyscope.host import CephRequest, CephSession, answer_json

Extents = tuple[tuple[int, int], ...]
"""(offset, length) in bytes, in the order of offsets, none twice."""

# The file of an OSD's directory that is its block device.
BLOCK = "block"
_ONODE = re.compile(r"0x[0-9a-f]+ #.* nid [0-9]+ size 0x")
_BLOB = re.compile(r"Blob\((0x[0-9a-f]+) disk=\[([^\]]*)\]")
_USED_BLOB = re.compile(r"0x[0-9a-f]+~[0-9a-f]+: 0x[0-9a-f]+~[0-9a-f]+ Blob\((0x[0-9a-f]+)\)")
_EXTENT = re.compile(r"0x([0-9a-f]{1,16})~([0-9a-f]{1,16})")
# What a blob has no room for on the device.
_NOWHERE = re.compile(r"!~[0-9a-f]+")
_COMMAND = "bluestore onode metadata"
# In the words of several releases.
_UNKNOWN_COMMAND = re.compile(r"(unknown|unrecognized|no valid|invalid) command")
# Questions that are sent side by side.
_OBJECTS_AT_ONCE = 50
# A question to bathyd has 16 KiB at most.
_RANGES_AT_ONCE = 300
_TIMEOUT_S = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedObject:
    """An object, and what clients did with it while they were recorded."""

    pool_id: int
    pg: str | None
    name: str
    image_id: str | None
    read_count: int
    read_bytes: int
    write_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedObject:
    """A recorded object of a source, the bytes of the block device that it has, and how many of them are cached."""

    source: str
    recorded: RecordedObject
    allocated_bytes: int
    cached_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class BlockDevice:
    """The block device of a BlueStore OSD in a source: its directory, and how bathyd calls the open file."""

    cache: str
    source: str
    directory: str
    handle: str


def block_devices(answers: Mapping[str, dict[str, Any]]) -> list[BlockDevice]:
    """Return the block devices that are open, of what the daemon of each cache said of its files. Raises ParseError."""
    devices = []
    for cache, answer in answers.items():
        with parsing(f"the files of the cache '{cache}'"):
            for entry in as_list(answer["sources"]):
                devices += [
                    BlockDevice(cache, source_name(entry), str(entry["dir"]), str(file["handle"]))
                    for file in map(as_dict, as_list(entry.get("files") or []))
                    if str(file.get("path") or "").lstrip("/") == BLOCK and file.get("is_in_use")
                ]
    return devices


def plain_name(recorded: str) -> bytes:
    """Return the name of an object, which operations are recorded with as OSDs print it: %25 for a percent sign."""
    return re.sub(rb"%([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), recorded.encode())


def onode_name(pool_id: int, recorded: str, name_hash: int) -> str:
    """Return what an OSD calls the head of an object, by its name as recorded and the hash of its plain name."""
    # The bits of the hash, the last one first: so objects of a placement group that is split lie together.
    key = int(f"{name_hash:032b}"[::-1], 2)
    return f"#{pool_id}:{key:08x}:::{recorded}:head#"


def extents_of(answer: str) -> Extents:
    """Return the extents of the device that an onode has. Raises ParseError."""
    with parsing(f"the answer to '{_COMMAND}'"):
        lines = answer.split("\n")
        if _ONODE.match(lines[0]) is None:
            raise ValueError("it does not begin with an onode")
        used, blobs = set(), {}
        for line in lines[1:]:
            # From here on there are names that clients chose.
            if line.startswith("attr "):
                break
            if (match := _USED_BLOB.match(line)) is not None:
                used.add(match[1])
            elif (match := _BLOB.match(line)) is not None:
                blobs[match[1]] = match[2]
        if unknown := used - blobs.keys():
            raise ValueError(f"it does not say where the blob {min(unknown)} lies")
        return tuple(sorted({extent for items in blobs.values() for extent in _extents(items)}))


def _extents(items: str) -> Iterator[tuple[int, int]]:
    for item in items.split(","):
        extent = _EXTENT.fullmatch(item)
        if extent is not None:
            yield int(extent[1], 16), int(extent[2], 16)
        elif item and _NOWHERE.fullmatch(item) is None:
            raise ValueError(f"'{item}' is not an extent")


def places(session: CephSession, osd: int, names: Sequence[str], show: Callable[[str], None]) -> Mapping[str, Extents]:
    """Ask an OSD where objects lie, by what it calls them; those that it does not have are left out.

    Raises ClusterError when it cannot say so, DeniedError, UnreachableError, ParseError.
    """
    extents: dict[str, Extents] = {}
    for start in range(0, len(names), _OBJECTS_AT_ONCE):
        show(f"osd.{osd}: asking where {len(names):,} objects lie, {start:,} are known")
        batch = names[start : start + _OBJECTS_AT_ONCE]
        for name, completed in zip(batch, session.commands([_request(osd, name) for name in batch]), strict=True):
            said = completed.stderr.decode("utf-8", "replace")
            if completed.exit_code == 0:
                extents[name] = extents_of(completed.stdout.decode("utf-8", "replace"))
            elif completed.exit_code == -errno.EINVAL and _UNKNOWN_COMMAND.search(said):
                raise ClusterError(
                    f"osd.{osd} cannot say where objects lie", hint="OSDs of Ceph 20 and later can (`ceph versions`)"
                )
            elif completed.exit_code != -errno.ENOENT:
                answer_json(completed, session.client)
    return extents


def _request(osd: int, name: str) -> CephRequest:
    words = (("prefix", _COMMAND), ("object_name", name))
    return CephRequest(_COMMAND, f"osd.{osd}", words, _TIMEOUT_S)


def cached_bytes(
    ask: Callable[..., Mapping[str, Any]], source: str, handle: str, objects: Sequence[Extents]
) -> list[int]:
    """Return how many bytes of the extents of each object are cached. `ask` asks bathyd.

    Raises CacheError, ParseError.
    """
    ranges = [(number, extent) for number, extents in enumerate(objects) for extent in extents]
    sums = [0] * len(objects)
    for start in range(0, len(ranges), _RANGES_AT_ONCE):
        batch = ranges[start : start + _RANGES_AT_ONCE]
        answer = ask(query="cached", source=source, handle=handle, ranges=[extent for _, extent in batch])
        with parsing("the answer of a cache's daemon"):
            for (number, _), count in zip(batch, as_list(answer["cached_bytes"]), strict=True):
                sums[number] += as_int(count)
    return sums
