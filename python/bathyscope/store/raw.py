"""Raw answers on disk: every byte that was asked and answered, one file for each source of a segment.

The file is one zstd stream: a first line that names the format, then for each answer a line of JSON (what was asked,
when, the exit code, the lengths of what follows) and the bytes of stdout, stderr and the files, and at the end a line
with the number of answers and the CRC-32 of all before it. So a torn or changed file is always noticed.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bathyscope import files
from bathyscope.errors import ParseError
from bathyscope.fields import load_json
from bathyscope.records.raw import RawAnswer
from bathyscope.store.errors import store_errors

_FIRST_LINE = b"bathyscope raw answers 1\n"
_LINE_LIMIT_BYTES = 4 << 20
_LENGTH_LIMIT_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20
# What a file may unpack to. zstd makes 4 GB of 100 kB; real answers become 10 to 30 times as large, those of an idle
# machine, which are all alike, some hundred times.
_UNPACKED_BYTES = 256 << 20
_UNPACKED_RATIO = 500


def write_raw(path: Path, answers: Iterable[RawAnswer]) -> int:
    """Write raw answers to a new file and return their number. Raises StoreError.

    The file becomes part of a segment, which is what is moved into place as a whole.
    """
    import pyarrow as pa

    count = 0
    with store_errors("write", path), path.open("xb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        checksum = _put(stream, _FIRST_LINE, 0)
        for answer in answers:
            header = {
                "label": answer.label,
                "argv": answer.argv,
                "environment": answer.environment,
                "exit_code": answer.exit_code,
                "started_ns": answer.started_ns,
                "ended_ns": answer.ended_ns,
                "stdout": len(answer.stdout),
                "stderr": len(answer.stderr),
                "files": [(name, len(content)) for name, content in answer.files],
            }
            checksum = _put(stream, json.dumps(header).encode() + b"\n", checksum)
            for content in (answer.stdout, answer.stderr, *(content for _, content in answer.files)):
                checksum = _put(stream, content, checksum)
            count += 1
        _put(stream, json.dumps({"answers": count, "crc32": checksum}).encode() + b"\n", 0)
    return count


def read_raw(path: Path) -> list[RawAnswer]:
    """Return the raw answers of a file. Raises ParseError when it is damaged, StoreError when it cannot be read."""
    return list(scan_raw(path))


def scan_raw(path: Path) -> Iterator[RawAnswer]:
    """Yield the raw answers of a file, one held at a time. Whether it is whole is known at its end.

    Raises ParseError when it is damaged, or unpacks to more than any answers would; StoreError when it cannot be read.
    """
    import pyarrow as pa

    with store_errors("read", path), os.fdopen(files.open_plain(path), "rb") as file:
        budget_bytes = max(_UNPACKED_BYTES, _UNPACKED_RATIO * os.fstat(file.fileno()).st_size)
        try:
            # The stream of Arrow is what io.BufferedReader needs, though the stubs do not say so.
            compressed: Any = pa.CompressedInputStream(file, "zstd")
            yield from _answers(_Frames(io.BufferedReader(compressed, _CHUNK_BYTES), budget_bytes))
        except ParseError as error:
            raise ParseError(f"{path} is damaged: {error.message}", hint=_DAMAGED) from error
        except (OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ParseError(f"{path} is damaged: {error}", hint=_DAMAGED) from error


def _answers(frames: _Frames) -> Iterator[RawAnswer]:
    if frames.line() != _FIRST_LINE:
        raise ParseError("it has no header of a file of raw answers")
    count = 0
    while True:
        checksum = frames.checksum
        try:
            header = load_json(frames.line())
        except ValueError as error:
            raise ParseError(f"the header of answer {count} is not JSON") from error
        if not isinstance(header, dict):
            raise ParseError(f"the header of answer {count} is not an object")
        if "answers" in header:
            if header != {"answers": count, "crc32": checksum} or frames.more():
                raise ParseError("its content does not match its checksum")
            return
        try:
            yield RawAnswer(
                label=_is(str, header["label"]),
                argv=tuple(_is(str, word) for word in _is(list, header["argv"])),
                environment=tuple((_is(str, key), _is(str, value)) for key, value in _is(list, header["environment"])),
                exit_code=_is(int, header["exit_code"]),
                started_ns=_is(int, header["started_ns"]),
                ended_ns=_is(int, header["ended_ns"]),
                stdout=frames.content(header["stdout"]),
                stderr=frames.content(header["stderr"]),
                files=tuple((_is(str, name), frames.content(length)) for name, length in _is(list, header["files"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ParseError(f"the header of answer {count} is invalid: {error}") from error
        count += 1


class _Frames:
    """Lines and counted bytes of a stream, with the running CRC-32; what is missing is a ParseError."""

    def __init__(self, stream: io.BufferedReader, budget_bytes: int) -> None:
        self._stream = stream
        self._left_bytes = self._budget_bytes = budget_bytes
        self.checksum = 0

    def line(self) -> bytes:
        line = self._stream.readline(_LINE_LIMIT_BYTES)
        if not line.endswith(b"\n"):
            raise ParseError("it ends early")
        self._count(line)
        return line

    def _count(self, part: bytes) -> None:
        self.checksum = zlib.crc32(part, self.checksum)
        self._left_bytes -= len(part)
        if self._left_bytes < 0:
            raise ParseError(f"it unpacks to more than {self._budget_bytes >> 20} MiB")

    def content(self, length: Any) -> bytes:
        if _is(int, length) < 0 or length > _LENGTH_LIMIT_BYTES:
            raise ParseError(f"a part of it has an invalid length, {length} bytes")
        parts = []
        # Piece by piece: memory is bounded by the bytes in the file, not by the length in a header.
        while length:
            part = self._stream.read(min(length, _CHUNK_BYTES))
            if not part:
                raise ParseError("it ends early")
            self._count(part)
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def more(self) -> bool:
        return bool(self._stream.read(1))


def _put(stream: Any, content: bytes, checksum: int) -> int:
    stream.write(content)
    return zlib.crc32(content, checksum)


def _is(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


_DAMAGED = "the tables of the run do not depend on this file; only `bathy runs reparse` and `bathy runs raw` read it"
