"""Load generators: one file for the command line and one for the answer of each program that makes a load."""

from __future__ import annotations

from typing import Any

from bathyscope.host import ProcessRequest
from bathyscope.load import fio, fio_command, rados_bench
from bathyscope.load.base import LoadTables, Place
from bathyscope.records import RawAnswer, Result

__all__ = ["LoadTables", "Place", "bytes_written", "output_paths"]


def bytes_written(answer: RawAnswer) -> int:
    """Return the bytes that one load process wrote. Raises ToolError when it failed without a figure, ParseError."""
    generator: Any = rados_bench if "rados" in answer.argv else fio
    generator.check(answer)
    rows = generator.parse(answer, step_index=0, client="fill").tables[Result].to_pylist()
    return sum(int(row["io_bytes"]) for row in rows if row["direction"] == "write")


def output_paths(request: ProcessRequest) -> tuple[str, ...]:
    """Return the paths, as this machine sees them, of the files that a load process writes beside its output."""
    paths = rados_bench.output_paths(request) if request.argv[0] == "rados" else fio_command.log_paths(request)
    return tuple(f"{request.root or ''}{path}" for path in paths)
