"""What a tool, a daemon or a file said, verbatim: the only thing that a parser may look at."""

from __future__ import annotations

import dataclasses
from typing import Any

from bathyscope.errors import ParseError
from bathyscope.fields import load_json


@dataclasses.dataclass(frozen=True, slots=True)
class RawAnswer:
    """One answer as it is kept in a run: what was asked, and every byte that came back.

    `exit_code` is the process's, negative for a signal, or the command's −errno. Times are nanoseconds since the Unix
    epoch. `files` are (path, content) of files that were read, or that a load generator wrote.
    """

    label: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    started_ns: int
    ended_ns: int
    files: tuple[tuple[str, bytes], ...] = ()

    def json(self) -> Any:
        """Return stdout as JSON. Raises ParseError with the label and the first bytes."""
        try:
            return load_json(self.stdout)
        except ValueError as error:
            start = self.stdout[:60].decode(errors="replace")
            raise ParseError(f"{self.label} did not answer with JSON: {error}; it begins: {start!r}") from error

    @property
    def size_bytes(self) -> int:
        """Bytes that came back."""
        return len(self.stdout) + len(self.stderr) + sum(len(content) for _, content in self.files)
