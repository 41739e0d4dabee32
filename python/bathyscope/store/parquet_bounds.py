"""The one way to Parquet files: opened once, bounded by the headers of their pages, and read from what was opened.

Where a name leads can change from one moment to the next. So what is read is no name, but the descriptor that was
looked at: Arrow and DuckDB get its own name in /proc.

Runs may come from elsewhere, and a file of some kilobytes can stand for gigabytes: a page of zeros, a value that is
repeated a billion times, a long text that each row refers to. The footer may claim anything about that, so the header
of each page is read as well, by which Arrow and DuckDB decode: they make a buffer of the size that it gives, and as
many values, before anything of it is decoded. The result is an upper bound; it takes a millisecond for a table of a
segment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bathyscope import files
from bathyscope.errors import StoreError
from bathyscope.store.errors import store_errors

# What files that are read together may become. A million rows of a cluster in which nothing happens, all alike, become
# 700 times as large (1,400 by this bound, which takes all columns for full), others 5 to 50 times.
DECODED_BYTES = 256 << 20
DECODED_RATIO = 2000
# A footer takes 120 bytes for each column of each row group, and Arrow 250 times that of what a hostile one holds.
_FOOTER_BYTES = 1 << 20
_FOOTER_SHARE = 8
_FOOTER_RATIO = 250
_PAGES = 1_000_000
_PAGE_HEADER_BYTES = (512, 16 << 20)
_VALUE_BYTES = {"INT96": 16, "BYTE_ARRAY": 16}
_NUMBER_BYTES = 8
_DICTIONARY_PAGE = 2
# Of data pages: the field of a page's header that describes it, and in that the field of its encoding.
_DATA_PAGES = {0: (5, 2), 3: (8, 4)}
_DICTIONARY_ENCODINGS = (2, 8)
_DELTA_BYTE_ARRAY = 7


def must_fit(paths: Iterable[Path], *, columns: int = 0) -> None:
    """Raise StoreError unless the tables in `paths`, read together, become no more than such files may.

    `columns`: so many does a reader make of each file at least. Also raised for files that cannot be read.
    """
    budget = _Budget(columns)
    for path in paths:
        with store_errors("read", path), contextlib.ExitStack() as stack:
            budget.take(path, _descriptor(path, stack))


@contextlib.contextmanager
def opened(paths: Iterable[Path], *, columns: int = 0) -> Iterator[list[str]]:
    """Open tables that `must_fit`, and give the names by which they are read until the end of the block.

    Raises what `must_fit` raises.
    """
    budget, names, listed = _Budget(columns), [], list(paths)
    if len(listed) > _FEW_FILES:
        _make_room_for(len(listed))
    with contextlib.ExitStack() as stack:
        for path in listed:
            with store_errors("read", path):
                descriptor = _descriptor(path, stack)
                budget.take(path, descriptor)
            names.append(f"/proc/self/fd/{descriptor}")
        yield names


@contextlib.contextmanager
def parquet_file(path: Path, **options: Any) -> Iterator[pq.ParquetFile]:
    """Open one table, as `opened` does. Raises StoreError, and inside the block what Arrow raises."""
    with opened([path]) as (name,), pa.OSFile(name, "rb") as content, pq.ParquetFile(content, **options) as file:
        yield file


def _make_room_for(count: int) -> None:
    """Let this process have so many more files open, as far as it may: a query over many runs has thousands."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len([*Path("/proc/self/fd").iterdir()]) + count + _SPARE_DESCRIPTORS
    if soft < min(wanted, hard):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def _descriptor(path: Path, stack: contextlib.ExitStack) -> int:
    descriptor = files.open_plain(path)
    stack.callback(os.close, descriptor)
    return descriptor


class _Budget:
    """What is left for tables that are read together."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._decoded_bytes = self._size_bytes = 0

    def take(self, path: Path, descriptor: int) -> None:
        """Raise StoreError unless one more fits; what `_File.bound` raises."""
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if identity not in _known:
            if len(_known) >= _KNOWN_FILES:
                _known.clear()
            _known[identity] = _File(descriptor, path, status.st_size).bound()
        bound = _known[identity]
        self._size_bytes += status.st_size
        self._decoded_bytes += bound.pages_bytes + bound.rows * _NUMBER_BYTES * max(self._columns - bound.columns, 0)
        budget_bytes = max(DECODED_BYTES, DECODED_RATIO * self._size_bytes)
        if self._decoded_bytes > budget_bytes:
            raise StoreError(
                f"cannot read {path}: it and what is read with it would take {self._decoded_bytes >> 20:,} MiB of "
                f"memory, and may take {budget_bytes >> 20:,} MiB",
                hint=_HOSTILE,
            )


@dataclasses.dataclass(frozen=True, slots=True)
class _Bound:
    rows: int
    columns: int
    pages_bytes: int


# Each table of a run is asked for several times.
_known: dict[tuple[int, ...], _Bound] = {}
_KNOWN_FILES = 100_000
_FEW_FILES = 32
# For what reads them, and all else.
_SPARE_DESCRIPTORS = 512


class _File:
    """One Parquet file."""

    def __init__(self, descriptor: int, path: Path, size_bytes: int) -> None:
        self._descriptor = descriptor
        self._path = path
        self._size_bytes = size_bytes
        self._pages = 0

    def bound(self) -> _Bound:
        """Return what it becomes at most. Raises StoreError, OSError, pa.ArrowException."""
        metadata = self._metadata()
        pages_bytes = metadata.serialized_size * _FOOTER_RATIO
        rows = 0
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            rows += group.num_rows
            for number in range(group.num_columns):
                pages_bytes += self._chunk(group.column(number), metadata.schema.column(number), group.num_rows)
        if rows != metadata.num_rows:
            raise self._damaged(f"it has {metadata.num_rows} rows and its row groups {rows}")
        return _Bound(rows, metadata.num_columns, pages_bytes)

    def _metadata(self) -> pq.FileMetaData:
        tail = os.pread(self._descriptor, 8, max(self._size_bytes - 8, 0))
        length = int.from_bytes(tail[:4], "little")
        if len(tail) == 8 and tail[4:] == b"PAR1" and length > max(_FOOTER_BYTES, self._size_bytes // _FOOTER_SHARE):
            raise self._damaged(f"its footer has {length} bytes")
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            return pq.read_metadata(file)

    def _chunk(self, chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema, rows: int) -> int:
        """Return what the pages of a column in a row group become at most."""
        values = chunk.num_values
        if chunk.file_path or values < rows or (values != rows and not column.max_repetition_level):
            raise self._damaged(f"the column {column.path} does not have the rows of its row group")
        at, first = chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset
        if not 4 <= first <= at:
            raise self._damaged(f"the column {column.path} begins nowhere")
        at, decoded_bytes, longest_bytes = first, 0, 0
        while values > 0:
            page, at = self._page_header(at)
            kind, page_bytes, kept_bytes = page[1], page[2], page[3]
            self._pages += 1
            if kept_bytes < 0 or page_bytes < 0 or at + kept_bytes > self._size_bytes or self._pages > _PAGES:
                raise self._damaged(f"a page of the column {column.path} has an impossible size")
            decoded_bytes += max(kept_bytes, page_bytes)
            if kind == _DICTIONARY_PAGE and column.physical_type == "BYTE_ARRAY":
                longest_bytes = max(longest_bytes, self._longest(chunk, at, page, decoded_bytes))
            elif kind in _DATA_PAGES:
                part, encoding_field = _DATA_PAGES[kind]
                count, encoding = page.get(part, {}).get(1, -1), page.get(part, {}).get(encoding_field)
                values -= count
                if count < 0 or values < 0 or encoding == _DELTA_BYTE_ARRAY:
                    raise self._damaged(f"a page of the column {column.path} is not of a kind that is read")
                decoded_bytes += count * _value_bytes(column, longest_bytes * (encoding in _DICTIONARY_ENCODINGS))
            at += kept_bytes
        return decoded_bytes

    def _page_header(self, at: int) -> tuple[dict[int, Any], int]:
        """Return the header of the page at an offset, and where its content begins."""
        for length in _PAGE_HEADER_BYTES:
            data = os.pread(self._descriptor, length, at)
            try:
                header, used = _struct(data, 0)
            except IndexError:
                # It is longer than what was read of it.
                continue
            except ValueError:
                break
            if used <= len(data) and {1, 2, 3} <= header.keys():
                return header, at + used
        raise self._damaged(f"there is no page at {at}")

    def _longest(self, chunk: pq.ColumnChunkMetaData, at: int, page: dict[int, Any], decoded_bytes: int) -> int:
        """Return the length of the longest text in a dictionary page, or of all its texts where there are few rows."""
        page_bytes: int = page[2]
        if chunk.num_values * page_bytes <= _FEW_BYTES or decoded_bytes > DECODED_BYTES:
            return page_bytes
        content = os.pread(self._descriptor, page[3], at)
        if chunk.compression != "UNCOMPRESSED":
            codec: Any = chunk.compression.lower()
            content = pa.Codec(codec).decompress(content, page_bytes, asbytes=True)
        longest = start = 0
        while start + 4 <= len(content):
            length = int.from_bytes(content[start : start + 4], "little")
            longest = max(longest, length)
            start += 4 + length
        return min(longest, page_bytes)

    def _damaged(self, why: str) -> StoreError:
        return StoreError(f"cannot read {self._path}: {why}", hint=_HOSTILE)


def _value_bytes(column: pq.ColumnSchema, text_bytes: int) -> int:
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(_NUMBER_BYTES, column.length or 0)
    return _VALUE_BYTES.get(column.physical_type, _NUMBER_BYTES) + text_bytes


# Thrift's compact protocol, as much of it as headers of pages use: numbers, bytes and structures.
_STOP, _TRUE, _FALSE, _BYTE, _I64, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 6, 7, 8, 12
_DEPTH = 4


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the numbers and structures in a structure by field, and where it ends.

    Raises IndexError when it ends after `data`, ValueError for what is no header of a page.
    """
    fields: dict[int, Any] = {}
    field = 0
    while (head := data[at]) & 15 != _STOP:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _number(data, at)
        kind = head & 15
        if _BYTE < kind <= _I64:
            fields[field], at = _number(data, at)
        elif kind == _BINARY:
            length, at = _varint(data, at)
            at += length
        elif kind == _STRUCT and depth < _DEPTH:
            fields[field], at = _struct(data, at, depth + 1)
        elif kind in (_BYTE, _DOUBLE):
            at += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(f"field {field} has the type {kind}")
    return fields, at + 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")


# So little that it is not looked at.
_FEW_BYTES = 1 << 20

_HOSTILE = "it is damaged, or made to use up memory; move it away, the other tables of the run stay readable"
