"""Traces in memory, in any of the forms that are taken, as contiguous arrays; in place where the types allow it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope import _core
from bathyscope.errors import UsageError

NO_VOLUME = 2**32 - 1
MOST_VOLUMES = _core.MAX_VOLUMES
"""Volumes are 0 to one less: the core keeps 24 bits of a line's number for the volume, of which one value is none."""


class Requests(NamedTuple):
    """One contiguous chunk of requests: its columns in the order in which the core takes them."""

    offset_bytes: npt.NDArray[np.uint64]
    length_bytes: npt.NDArray[np.uint32]
    op: npt.NDArray[np.uint8] | None
    volume: npt.NDArray[np.uint32] | None


def chunks(trace: Any) -> Iterator[npt.NDArray[np.uint64] | Requests]:
    """Yield the contiguous pieces of a trace: line numbers or requests. Raises UsageError for what is no trace."""
    match trace:
        case Requests():
            yield trace
        case np.ndarray() | pa.Array() | pa.ChunkedArray():
            for chunk in trace.chunks if isinstance(trace, pa.ChunkedArray) else [trace]:
                yield _integers("line numbers", chunk, np.uint64)
        case pa.Table() | pa.RecordBatch():
            for batch in trace.to_batches() if isinstance(trace, pa.Table) else [trace]:
                yield _requests(dict(zip(batch.schema.names, batch.columns, strict=True)))
        case Mapping():
            yield _requests(trace)
        case _:
            raise UsageError(
                f"a {type(trace).__name__} is not a trace",
                hint="give an array of line numbers, or a table with offset_bytes and length_bytes",
            )


def one_key_array(trace: Any) -> npt.NDArray[np.uint64]:
    """Return a trace of line numbers in one piece. Raises UsageError for requests."""
    parts = list(chunks(trace))
    keys: list[npt.NDArray[np.uint64]] = []
    for chunk in parts:
        if isinstance(chunk, Requests):
            raise UsageError("this simulation takes line numbers", hint="give the line numbers, or use policy lru")
        keys.append(chunk)
    if len(keys) == 1:
        return keys[0]
    return np.concatenate(keys) if keys else np.empty(0, np.uint64)


def request_bytes_p99(trace: Any) -> float:
    """Return the length that 99 % of the requests do not exceed; 0 without requests."""
    lengths = [chunk.length_bytes for chunk in chunks(trace) if isinstance(chunk, Requests)]
    return float(np.quantile(np.concatenate(lengths), 0.99)) if any(map(len, lengths)) else 0.0


def _requests(columns: Mapping[str, Any]) -> Requests:
    for name in ("offset_bytes", "length_bytes"):
        if name not in columns:
            raise UsageError(f"the trace has no column {name}", hint="columns: offset_bytes length_bytes [op] [volume]")
    optional = {name: columns.get(name) for name in ("op", "volume")}
    return Requests(
        _integers("offset_bytes", columns["offset_bytes"], np.uint64),
        _integers("length_bytes", columns["length_bytes"], np.uint32),
        None if optional["op"] is None else _integers("op", optional["op"], np.uint8),
        None if optional["volume"] is None else _volumes(optional["volume"]),
    )


def _volumes(values: Any) -> npt.NDArray[np.uint32]:
    """Return the column of volumes. Raises UsageError for numbers whose lines would be those of other volumes."""
    volumes: npt.NDArray[np.uint32] = _integers("volume", values, np.uint32)
    if len(volumes) and int(np.max(volumes)) >= MOST_VOLUMES:
        largest = int(np.max(volumes, where=volumes != NO_VOLUME, initial=0))
        if largest >= MOST_VOLUMES:
            raise UsageError(
                f"volume has {largest}; it must be less than {MOST_VOLUMES}, or {NO_VOLUME} for none",
                hint="number the volumes from 0",
            )
    return volumes


def _integers(name: str, values: Any, wanted: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
    """A contiguous array of `wanted`; a view of the same memory where the width fits."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        if values.null_count:
            raise UsageError(f"{name} has nulls", hint="drop the rows, or fill them")
        if not pa.types.is_integer(values.type):
            raise UsageError(f"{name} is of type {values.type}, not integers")
        values = values.to_numpy(zero_copy_only=True)
    array: npt.NDArray[Any] = np.ascontiguousarray(values)
    if array.ndim != 1 or array.dtype.kind not in "ui":
        raise UsageError(f"{name} is not a one-dimensional array of integers")
    if array.dtype == np.dtype(wanted):
        return array
    if array.dtype.kind == "i" and len(array) and int(array.min()) < 0:
        raise UsageError(f"{name} has negative numbers")
    if array.dtype.itemsize == np.dtype(wanted).itemsize:
        return array.view(wanted)
    if len(array) and int(array.max()) > np.iinfo(wanted).max:
        raise UsageError(f"{name} has numbers above {np.iinfo(wanted).max}")
    return array.astype(wanted)
