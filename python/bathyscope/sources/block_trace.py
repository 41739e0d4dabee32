"""Block traces for sizing: trace files, or the `op` rows of a run, fed to a pass of the compiled core.

A trace is fed twice: once to profile it, once to simulate caches of the sizes that the profile suggests. Neither
pass holds it in memory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope import _core, mrc
from bathyscope.errors import ParseError, UsageError

By = Literal["all", "image", "osd", "pool", "node"]
Progress = Callable[[int, int], None]
Pass = _core.ProfilePass | _core.EnginePass

UNKNOWN = 2**32 - 1
OBJECT_BYTES = 4 << 20
BUCKETS_PER_OCTAVE = 64
# RBD data objects: rbd_data.[pool.]image.number (Ceph, doc/dev/rbd-layering.rst).
_RBD_DATA = re.compile(r"^rbd_data\.(?:[0-9]+\.)?([^.]+)\.([0-9a-f]{16})$")

_Columns = tuple[
    npt.NDArray[np.uint64],
    npt.NDArray[np.uint64],
    npt.NDArray[np.uint32],
    npt.NDArray[np.uint8],
    npt.NDArray[np.uint32],
    npt.NDArray[np.uint32],
]
"""Time, offset, length, op, volume and group of requests."""

OP_COLUMNS = ("started_ns", "osd", "pool_id", "object_name", "op", "offset_bytes", "length_bytes", "duration_ns")
"""Columns of `op` rows that an `OpTrace` reads."""


class BlockTrace(Protocol):
    """A trace that can be fed to several passes. `extent` is what `progress` counts up to in its second argument."""

    sources: tuple[str, ...]
    by: By
    extent: int

    def new_profile_pass(self, line_bytes: Sequence[int], *, max_lines: int | None, salt: int) -> _core.ProfilePass:
        """Return an empty first pass for this trace's groups."""

    def new_engine_pass(self) -> _core.EnginePass:
        """Return an empty second pass for this trace's groups."""

    def feed(self, into: Pass, *, threads: int, progress: Progress | None) -> None:
        """Stream the trace through `into`. Raises ParseError at a bad record."""

    def report(self, first: _core.ProfilePass) -> TraceReport:
        """Return what the first pass found beside the profiles."""

    def group_name(self, number: int, name: str | None) -> str:
        """Return the name of a group for people."""


@dataclasses.dataclass(frozen=True, slots=True)
class TraceReport:
    """What a first pass found: events, records that could not be read, times, read latencies as a histogram.

    `out_of_order` counts events that are earlier than the one before them in the same file. `latency_ns` and
    `latency_counts` are (n,), empty when the trace has no latencies. `request_bytes_p99` is the length that 99 % of the
    requests do not exceed, to 1.6 %. `overlapping_files` are the first ten that begin before others given earlier end.
    """

    events: int
    skipped: int
    time_ns_range: tuple[int, int] | None
    latency_ns: npt.NDArray[np.float64]
    latency_counts: npt.NDArray[np.float64]
    first_errors: tuple[str, ...] = ()
    request_bytes_p99: float = 0.0
    out_of_order: int = 0
    overlapping_files: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last event; 0 when the trace has no time."""
        return (self.time_ns_range[1] - self.time_ns_range[0]) / 1e9 if self.time_ns_range else 0.0


class TraceFiles:
    """Trace files of one workload, in the order of time. `node_names` and `node_of_osd` serve `by="node"`."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        by: By = "all",
        trace_format: str | None = None,
        skip_bad_records: bool = False,
        nodes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        for path in paths:
            if not path.exists():
                raise UsageError(
                    f"there is no trace {path}", hint="give a trace file, or a run of this workspace by its id"
                )
            if not path.is_file():
                raise UsageError(f"{path} is not a file")
        if len({path.resolve() for path in paths}) < len(paths):
            raise UsageError("a trace is given twice", hint="each file is read once, in the order given")
        if trace_format is not None and trace_format not in mrc.trace_formats():
            raise UsageError(
                f"there is no trace format '{trace_format}'", hint="there are: " + " ".join(mrc.trace_formats())
            )
        self.paths = [str(path) for path in paths]
        self.sources: tuple[str, ...] = tuple(self.paths)
        self.by: By = by
        self.extent = sum(path.stat().st_size for path in paths)
        self._format = trace_format
        self._skip = skip_bad_records
        self._nodes = Nodes(nodes) if by == "node" else None

    def new_profile_pass(self, line_bytes: Sequence[int], *, max_lines: int | None, salt: int) -> _core.ProfilePass:
        """Return an empty first pass for this trace's groups."""
        return _core.ProfilePass(
            list(line_bytes), group_by=self.by, node_of_osd=self._node_of_osd(), max_lines=max_lines, salt=salt
        )

    def new_engine_pass(self) -> _core.EnginePass:
        """Return an empty second pass for this trace's groups."""
        return _core.EnginePass(group_by=self.by, node_of_osd=self._node_of_osd())

    def feed(self, into: Pass, *, threads: int, progress: Progress | None) -> None:
        """Stream the files. Raises ParseError at a bad record (unless skipped) and at what is no trace."""
        try:
            into.read_traces(
                self.paths, format=self._format, threads=threads, skip_bad_records=self._skip, progress=progress
            )
        except (ValueError, OSError) as error:
            hint = "--format names the format, --skip-bad-records goes on after bad records"
            raise ParseError(str(error), hint=hint) from error

    def report(self, first: _core.ProfilePass) -> TraceReport:
        """Return counts, times and read latencies."""
        report, latencies = first.report(), first.read_latencies()
        return TraceReport(
            report["events"],
            report["records_bad"],
            report["time_ns_range"],
            latencies["latency_ns"],
            latencies["count"],
            tuple(report["first_errors"]),
            request_bytes_p99=report["request_bytes_p99"],
            out_of_order=report["events_out_of_order"],
            overlapping_files=tuple(report["overlapping_files"]),
        )

    def group_name(self, number: int, name: str | None) -> str:
        """Return the name of a group for people."""
        return _group_name(self.by, number, name, self._nodes)

    def _node_of_osd(self) -> list[int] | None:
        return None if self._nodes is None else self._nodes.node_of_osd


class Nodes:
    """Which OSDs stand on which node."""

    def __init__(self, osds_of_node: Mapping[str, Sequence[int]] | None) -> None:
        if not osds_of_node:
            raise UsageError(
                "--by node needs to know which OSDs stand on which node", hint="--nodes FILE, YAML: 'node-a: [0, 1]'"
            )
        self.names = list(osds_of_node)
        highest = max((osd for osds in osds_of_node.values() for osd in osds), default=-1)
        self.node_of_osd = [UNKNOWN] * (highest + 1)
        for number, (name, osds) in enumerate(osds_of_node.items()):
            for osd in osds:
                if self.node_of_osd[osd] != UNKNOWN:
                    raise UsageError(f"osd.{osd} stands on {self.names[self.node_of_osd[osd]]} and on {name}")
                self.node_of_osd[osd] = number


def _group_name(by: By, number: int, name: str | None, nodes: Nodes | None) -> str:
    if number == UNKNOWN:
        return "(unknown)"
    if name is not None:
        return name or "(no name)"
    if nodes is not None and number < len(nodes.names):
        return nodes.names[number]
    return f"osd.{number}" if by == "osd" else f"{by} {number}"


class OpTrace:
    """The `op` rows of runs as a trace. `batches()` starts over and gives `OP_COLUMNS` ordered by `started_ns`.

    An op becomes its place in its image: image id from the object's name, object number × 4 MiB + offset. Objects
    that are not RBD data get a place by the hash of their name. Ops that move no data are left out.
    """

    def __init__(
        self,
        batches: Callable[[], Iterable[pa.RecordBatch]],
        *,
        source: str,
        rows: int,
        by: By = "all",
        nodes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.sources: tuple[str, ...] = (source,)
        self.by: By = by
        self.extent = rows
        self._batches = batches
        self._nodes = Nodes(nodes) if by == "node" else None
        self._images: dict[str, int] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._latencies = np.zeros(0, np.int64)
        self._time: tuple[int, int] | None = None
        self._events = self._skipped = 0

    def new_profile_pass(self, line_bytes: Sequence[int], *, max_lines: int | None, salt: int) -> _core.ProfilePass:
        """Return an empty first pass for this trace's groups."""
        # The groups are given with the rows; any grouping but "all" keeps them apart.
        return _core.ProfilePass(list(line_bytes), group_by=self._core_by(), max_lines=max_lines, salt=salt)

    def new_engine_pass(self) -> _core.EnginePass:
        """Return an empty second pass for this trace's groups."""
        return _core.EnginePass(group_by=self._core_by())

    def _core_by(self) -> str:
        return "all" if self.by == "all" else "osd"

    def feed(self, into: Pass, *, threads: int, progress: Progress | None) -> None:
        """Stream the rows."""
        events = rows = skipped = 0
        latencies = np.zeros(64 * BUCKETS_PER_OCTAVE, np.int64)
        low, high = 2**63, 0
        for batch in self._batches():
            rows += batch.num_rows
            columns, unusable = self._columns(batch)
            skipped += unusable
            latencies += _latency_buckets(batch)
            time_ns = columns[0]
            events += len(time_ns)
            if len(time_ns):
                low, high = min(low, int(time_ns.min())), max(high, int(time_ns.max()))
                into.add_requests(*columns, threads=threads)
            if progress is not None:
                progress(events, rows)
        self._events, self._skipped = events, skipped
        self._time = (low, high) if events else None
        self._latencies = latencies

    def _columns(self, batch: pa.RecordBatch) -> tuple[_Columns, int]:
        """Return the columns of the usable rows, and how many rows would move data and are not usable."""
        op = np.asarray(batch.column("op").to_numpy(zero_copy_only=False), dtype=object)
        moved = (op == "read") | (op == "write")
        start, length = _integers(batch, "offset_bytes"), _integers(batch, "length_bytes")
        named = np.asarray(batch.column("object_name").is_valid().to_numpy(zero_copy_only=False), np.bool_)
        usable = moved & named & (start >= 0) & (start < OBJECT_BYTES << 10) & (length > 0) & (length < 1 << 32)
        unusable = int(np.count_nonzero(moved & ~usable))
        kept = batch.filter(pa.array(usable))
        names = kept.column("object_name").dictionary_encode()
        places = [self._place(str(name)) for name in names.dictionary.to_pylist()]
        where = np.asarray(places, np.uint64).reshape(-1, 2)[names.indices.to_numpy(zero_copy_only=False)]
        volume = where[:, 0].astype(np.uint32)
        return (
            np.maximum(_integers(kept, "started_ns"), 0).astype(np.uint64),
            where[:, 1] + start[usable].astype(np.uint64),
            length[usable].astype(np.uint32),
            (op[usable] == "write").astype(np.uint8),
            volume,
            self._groups(kept, volume),
        ), unusable

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

    def _place(self, object_name: str) -> tuple[int, int]:
        """Return (image number, offset of the object in the image)."""
        found = self._places.get(object_name)
        if found is None:
            match = _RBD_DATA.match(object_name)
            image = match[1] if match else "(other objects)"
            digest = hashlib.blake2b(object_name.encode(), digest_size=4).digest()
            number = int(match[2], 16) if match else int.from_bytes(digest, "big")
            # An image of more objects than this would not fit any cluster; the name is hostile or not RBD's.
            number %= 1 << 38
            found = (self._images.setdefault(image, len(self._images)), number * OBJECT_BYTES)
            self._places[object_name] = found
        return found

    def report(self, first: _core.ProfilePass) -> TraceReport:
        """Return counts, times and read latencies."""
        held = np.flatnonzero(self._latencies)
        values = np.exp2(held / BUCKETS_PER_OCTAVE)
        counts = self._latencies[held].astype(np.float64)
        length = first.report()["request_bytes_p99"]
        return TraceReport(self._events, self._skipped, self._time, values, counts, request_bytes_p99=length)

    def group_name(self, number: int, name: str | None) -> str:
        """Return the name of a group for people."""
        if self.by == "image" and number != UNKNOWN:
            name = list(self._images)[number]
        return _group_name(self.by, number, name, self._nodes)


def _integers(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    """Return a column with -1 for what is not known."""
    filled = batch.column(name).cast(pa.int64()).fill_null(-1)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def _latency_buckets(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the number of reads by latency, in buckets of a 64th of a power of two: a value is known to 0.6 %."""
    op = np.asarray(batch.column("op").to_numpy(zero_copy_only=False), dtype=object)
    latency_ns = _integers(batch, "duration_ns")
    latency_ns = latency_ns[(op == "read") & (latency_ns > 0)]
    bucket = np.rint(np.log2(latency_ns) * BUCKETS_PER_OCTAVE).astype(np.int64)
    return np.bincount(bucket, minlength=64 * BUCKETS_PER_OCTAVE)[: 64 * BUCKETS_PER_OCTAVE]


def batches_of(table: pa.Table, rows: int = 65_536) -> Callable[[], Iterator[pa.RecordBatch]]:
    """Return what an `OpTrace` starts over with, from a table in memory; it is sorted by time."""
    ordered = table.select(list(OP_COLUMNS)).sort_by("started_ns")
    return lambda: iter(ordered.to_batches(max_chunksize=rows))
