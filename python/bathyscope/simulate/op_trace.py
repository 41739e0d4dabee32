"""The operations of a run as a block trace: `op` rows become places in the images that they belong to."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope import _core
from bathyscope.rbd_names import NUMBER_DIGITS, image_id_of
from bathyscope.records.size import TraceSummary
from bathyscope.simulate.trace import UNKNOWN, BlockTrace, CorePass, Progress
from bathyscope.spec.size import MOST_OBJECT_BYTES, By
from bathyscope.spec.step import DEFAULT_OBJECT_BYTES

BUCKETS_PER_OCTAVE = 64
OTHER_OBJECTS = "(other objects)"
_NO_DIGIT = 16
_DIGIT_OF = np.full(256, _NO_DIGIT, np.uint8)
_DIGIT_OF[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)

OP_COLUMNS = ("started_ns", "osd", "pool_id", "object_name", "op", "offset_bytes", "length_bytes", "duration_ns")
"""Columns of `op` rows that an `OpTrace` reads."""
OPTIONAL_COLUMNS = ("complete_sample", "result")
"""Columns that it reads where they are."""


Ordered = Callable[[Iterable[pa.RecordBatch], pa.Schema, str], Iterable[pa.RecordBatch]]
"""Keeps batches of a schema, puts them in order by a column, and can be iterated over again and again."""

_REQUESTS = pa.schema(
    [
        ("time_ns", pa.uint64()),
        ("object", pa.uint64()),
        ("start_bytes", pa.uint64()),
        ("length_bytes", pa.uint32()),
        ("op", pa.uint8()),
        ("volume", pa.uint32()),
        ("group", pa.uint32()),
    ]
)


@dataclasses.dataclass(frozen=True, slots=True)
class KnownImages:
    """What a recording says of images, by their ids, and of pools, by their numbers: sizes of objects, and names."""

    object_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pools: Mapping[int, str] = dataclasses.field(default_factory=dict)


class OpTrace(BlockTrace):
    """`op` rows as a trace: `OP_COLUMNS` and `OPTIONAL_COLUMNS` if there, in `batches()` of any order, read once.

    An op becomes its place in its image: image id from the object's name, object number × object size + offset.
    Objects that are not RBD data get a place by the hash of their name. Ops that move no data are left out.
    `object_bytes` was given and must hold every op. Without it an image's objects are as `known` says; of other images
    they are of `least_object_bytes` or, where an op reaches further, of the next power of two.
    """

    def __init__(
        self,
        batches: Callable[[], Iterable[pa.RecordBatch]],
        ordered: Ordered,
        *,
        source: str,
        rows: int,
        object_bytes: int | None = None,
        least_object_bytes: int = DEFAULT_OBJECT_BYTES,
        by: By = "all",
        nodes: Mapping[str, Sequence[int]] | None = None,
        known: KnownImages | None = None,
    ) -> None:
        super().__init__(by, rows, nodes, object_bytes=object_bytes, least_object_bytes=least_object_bytes)
        # The groups are given with the rows; any grouping of the core but "all" keeps them apart.
        self.core_by = "all" if by == "all" else "osd"
        self._source = source
        self._known = known or KnownImages()
        # A size that was given holds for all.
        self._sizes = {} if object_bytes else self._known.object_bytes
        self._batches = batches
        self._ordered = ordered
        self._requests: Iterable[pa.RecordBatch] | None = None
        self._images: dict[str, int] = {}
        self._latencies = np.zeros(64 * BUCKETS_PER_OCTAVE, np.int64)
        self._time: tuple[int, int] | None = None
        self._events = self._skipped = self._incomplete = self._object_end_bytes = 0

    def feed(self, into: CorePass, *, threads: int, progress: Progress | None) -> None:
        """Stream the requests; the first time, take them from the rows."""
        if self._requests is None:
            self._requests = self._ordered(self._taken(progress), _REQUESTS, "time_ns")
            self.fit_objects(self._object_end_bytes)
        rows = 0
        sizes = np.array([self._sizes.get(image, self.object_bytes) for image in self._images], np.uint64)
        # An image of more objects than fit in 2^60 bytes would not fit any cluster; the name is hostile or not RBD's.
        most = np.uint64(1 << 60) // sizes - np.uint64(1)
        for batch in self._requests:
            time_ns, number, start, *others = (batch.column(name).to_numpy() for name in _REQUESTS.names)
            volume = batch.column("volume").to_numpy()
            offset_bytes = (number & most[volume]) * sizes[volume] + start
            into.add_requests(time_ns, offset_bytes, *others, threads=threads)
            rows += batch.num_rows
            if progress is not None:
                progress(rows, self.extent * rows // max(1, self._events))

    def _taken(self, progress: Progress | None) -> Iterator[pa.RecordBatch]:
        """Yield the usable rows as requests, and count the others."""
        rows = 0
        for batch in self._batches():
            rows += batch.num_rows
            if "complete_sample" in batch.schema.names:
                self._incomplete += batch.num_rows - (pc.sum(batch.column("complete_sample")).as_py() or 0)
            requests = self._requested(batch)
            if requests.num_rows:
                self._events += requests.num_rows
                times_ns = requests.column("time_ns").to_numpy()
                first, last = int(times_ns.min()), int(times_ns.max())
                low, high = self._time or (first, last)
                self._time = (min(low, first), max(high, last))
                yield requests
            if progress is not None:
                progress(self._events, rows)

    def _requested(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        op = batch.column("op").cast(pa.string())
        is_read, is_write = (_where(pc.equal(op, pa.scalar(name))) for name in ("read", "write"))
        start, length = _integers(batch, "offset_bytes"), _integers(batch, "length_bytes")
        named = _where(batch.column("object_name").is_valid())
        moved = is_read | is_write
        if "result" in batch.schema.names:
            # What failed has moved nothing.
            moved &= ~_where(pc.less(batch.column("result"), pa.scalar(0, pa.int64())))
        sound = (start >= 0) & (start < MOST_OBJECT_BYTES) & (length > 0) & (length <= _core.MOST_REQUEST_BYTES)
        usable = moved & named & sound
        self._skipped += int(np.count_nonzero(moved & ~usable))
        self._latencies += _latency_buckets(_integers(batch, "duration_ns")[is_read])
        kept = batch.filter(pa.array(usable))
        volume, number, of_images = self._places(kept.column("object_name"))
        start, length = start[usable], length[usable]
        sized = np.array([image in self._sizes for image in self._images], np.bool_)
        guessed = of_images & ~sized[volume]
        self._object_end_bytes = max(self._object_end_bytes, int(np.max((start + length)[guessed], initial=0)))
        columns = (
            np.maximum(_integers(kept, "started_ns"), 0).astype(np.uint64),
            number,
            start.astype(np.uint64),
            length.astype(np.uint32),
            is_write[usable].astype(np.uint8),
            volume,
            self._groups(kept, volume),
        )
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=_REQUESTS)

    def _groups(self, batch: pa.RecordBatch, volume: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        if self.by == "all":
            return np.zeros(batch.num_rows, np.uint32)
        if self.by == "image":
            return volume
        number = _integers(batch, "pool_id" if self.by == "pool" else "osd")
        number = np.where((number < 0) | (number > UNKNOWN), UNKNOWN, number)
        if self._nodes is not None:
            table = np.asarray([*self._nodes.node_of_osd, UNKNOWN], np.uint32)
            nodes: npt.NDArray[np.uint32] = table[np.minimum(number, len(table) - 1)]
            return nodes
        return number.astype(np.uint32)

    def _places(
        self, names: pa.Array[Any]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Return image number and object number of each, and whether it is an object of an image."""
        name = names.cast(pa.binary())
        # All objects of an image begin alike; the last 16 characters are their number.
        start = pc.binary_slice(name, 0, -NUMBER_DIGITS).dictionary_encode()
        images = np.asarray([self._image(text or b"") for text in start.dictionary.to_pylist()], np.int64)
        volume = images[start.indices.to_numpy(zero_copy_only=False)] if len(images) else np.zeros(0, np.int64)
        number, are_numbers = _hexadecimal(pc.binary_slice(name, -NUMBER_DIGITS, None))
        of_images = (volume >= 0) & are_numbers
        if not np.all(of_images):
            volume[~of_images] = self._images.setdefault(OTHER_OBJECTS, len(self._images))
            number[~of_images] = [_hash(text or b"") for text in name.filter(pa.array(~of_images)).to_pylist()]
        return volume.astype(np.uint32), number, of_images

    def _image(self, start: bytes) -> int:
        """Return the number of the image whose objects begin so, -1 for other objects."""
        image_id = image_id_of(start[:-1]) if start.endswith(b".") else None
        return -1 if image_id is None else self._images.setdefault(image_id, len(self._images))

    def summary(self, first: _core.ProfilePass) -> TraceSummary:
        """Return what `feed` counted."""
        held = np.flatnonzero(self._latencies)
        return TraceSummary(
            sources=(self._source,),
            events=self._events,
            skipped=self._skipped,
            time_ns_range=self._time,
            latency_ns=tuple(np.exp2(held / BUCKETS_PER_OCTAVE).tolist()),
            latency_counts=tuple(self._latencies[held].astype(np.float64).tolist()),
            request_bytes_p99=first.report()["request_bytes_p99"],
            incomplete_ops=self._incomplete,
            **self.object_summary(),
        )

    def group_name(self, number: int, name: str | None) -> str:
        """Return the name of a group for people."""
        if self.by == "image" and number != UNKNOWN:
            image_id = list(self._images)[number]
            name = self._known.names.get(image_id, image_id)
        if self.by == "pool":
            name = self._known.pools.get(number, name)
        return super().group_name(number, name)


def _integers(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    """Return a column with -1 for what is not known."""
    filled = batch.column(name).cast(pa.int64()).fill_null(-1)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def _hexadecimal(texts: Any) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return the numbers that texts of `NUMBER_DIGITS` digits are, and which texts are such."""
    are_long = _where(pc.equal(pc.binary_length(texts), pa.scalar(NUMBER_DIGITS)))
    number, are_numbers = np.zeros(len(texts), np.uint64), are_long.copy()
    fixed = texts.filter(pa.array(are_long)).cast(pa.binary(NUMBER_DIGITS))
    content = fixed.buffers()[1]
    if content is None or not len(fixed):
        return number, are_numbers
    digits = _DIGIT_OF[np.frombuffer(memoryview(content), np.uint8)[: len(fixed) * NUMBER_DIGITS]].reshape(
        -1, NUMBER_DIGITS
    )
    are_numbers[are_long] = np.all(digits != _NO_DIGIT, axis=1)
    of_long = np.zeros(len(fixed), np.uint64)
    for digit in range(NUMBER_DIGITS):
        of_long = of_long << np.uint64(4) | digits[:, digit]
    number[are_long] = of_long
    return number, are_numbers


def _hash(name: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(name, digest_size=4).digest(), "big")


def _where(mask: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)  # noqa: FBT003 - Arrow's own


def _latency_buckets(latency_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of latencies by size, in buckets of a 64th of a power of two: a value is known to 0.6 %."""
    bucket = np.rint(np.log2(latency_ns[latency_ns > 0]) * BUCKETS_PER_OCTAVE).astype(np.int64)
    return np.bincount(bucket, minlength=64 * BUCKETS_PER_OCTAVE)[: 64 * BUCKETS_PER_OCTAVE]
