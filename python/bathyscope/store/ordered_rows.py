"""Rows that are too many for memory, put in order once and read often: a file in a temporary directory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope.store.errors import store_errors

_BATCH_ROWS = 1 << 16
_PART_ROWS = 1 << 18
_MOST_PARTS = 200
"""Parts of rows that are out of order: few enough to write side by side, each small enough to be sorted in memory."""


class OrderedRows:
    """Rows by the integer column `by`; equal ones stay as they came. Each iteration reads them again.

    Rows that come in order are written once. Others are dealt out to parts by their place in the order, and each part
    is sorted by itself.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, by: str) -> None:
        # It goes when this object does.
        self._directory = tempfile.TemporaryDirectory(prefix="bathyscope-")
        self._schema, self._by = schema, by
        directory = Path(self._directory.name)
        self._path = directory / "rows.arrow"
        with store_errors("keep rows in", directory):
            seen = _Seen(by)
            with _writer(self._path, schema) as writer:
                for batch in batches:
                    seen.look_at(batch)
                    _write(writer, batch)
            if not seen.in_order:
                came, self._path = self._path, directory / "ordered.arrow"
                self._sort(came, seen, directory)
                came.unlink()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return _batches(self._path)

    def _sort(self, came: Path, seen: _Seen, directory: Path) -> None:
        edges = seen.edges()
        parts = [directory / f"{number}.arrow" for number in range(len(edges) + 1)]
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(_writer(part, self._schema)) for part in parts]
            for batch in _batches(came):
                of_row = np.searchsorted(edges, self._values(batch), side="right")
                order = np.argsort(of_row, kind="stable")
                starts = np.flatnonzero(np.diff(of_row[order], prepend=-1))
                for rows in np.split(order, starts[1:]):
                    _write(writers[int(of_row[rows[0]])], batch.take(rows))
        with _writer(self._path, self._schema) as writer:
            for number, part in enumerate(parts):
                one_value = 0 < number < len(edges) and edges[number] - edges[number - 1] == 1
                for batch in _batches(part) if one_value else self._sorted(part):
                    _write(writer, batch)
                part.unlink()

    def _sorted(self, part: Path) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(list(_batches(part)), self._schema).combine_chunks()
        for batch in table.to_batches():
            yield batch.take(np.argsort(self._values(batch), kind="stable"))

    def _values(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return _values(batch, self._by)


class _Seen:
    """Whether rows came in order, and a sample of their values by which they are dealt out if not."""

    def __init__(self, by: str) -> None:
        self.in_order = True
        self._by = by
        self._last: int | None = None
        self._rows = 0
        self._sample: list[npt.NDArray[np.int64]] = []

    def look_at(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        values = _values(batch, self._by)
        before, self._last = self._last, int(values[-1])
        self.in_order &= (before is None or before <= int(values[0])) and bool(np.all(values[:-1] <= values[1:]))
        self._rows += len(values)
        self._sample.append(values[:: max(1, len(values) // 256)].copy())

    def edges(self) -> npt.NDArray[np.int64]:
        """Return where parts begin. A value that many rows may have is a part of its own, in order as it is."""
        parts = min(_MOST_PARTS // 2, -(-self._rows // _PART_ROWS))
        values = np.sort(np.concatenate(self._sample))
        edges = values[np.arange(1, parts) * len(values) // parts]
        return np.unique(np.concatenate([edges, edges + 1]))


def _values(batch: pa.RecordBatch, by: str) -> npt.NDArray[np.int64]:
    return np.asarray(batch.column(by).to_numpy(zero_copy_only=False), np.int64)


@contextlib.contextmanager
def _writer(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatchStreamWriter]:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        yield writer


def _write(writer: pa.RecordBatchStreamWriter, batch: pa.RecordBatch) -> None:
    for start in range(0, batch.num_rows, _BATCH_ROWS):
        writer.write_batch(batch.slice(start, _BATCH_ROWS))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
        yield from reader
