"""Start `bathyd` and its peers over files that are alike, and fill its cache."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.daemons import IN_MEMORY, end_at_sigterm, fio, program, serving


@dataclasses.dataclass(frozen=True)
class Bathyd:
    """A bathyd that serves one file."""

    file: Path
    pid: int
    socket: Path

    def engine(self) -> Any:
        """Return the counters of the cache."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(b'{"query":"status"}\n')
            return json.loads(connection.makefile().readline())["answer"]["cache"]["engine"]

    def reads_missed(self) -> int:
        """Return how many reads so far the cache could not serve alone."""
        reads = self.engine()["reads"]
        return int(reads["requests"] - reads["requests_hit"])


@contextlib.contextmanager
def place(where: Path = IN_MEMORY) -> Iterator[Path]:
    """Give a directory that is removed at the end of the block."""
    end_at_sigterm()
    with tempfile.TemporaryDirectory(prefix="bathy-benchmark-", dir=where) as made:
        yield Path(made)


def sparse(path: Path, size_bytes: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


@contextlib.contextmanager
def bathyd(
    directory: Path,
    mode: str,
    *,
    ssd_bytes: int,
    ssd: Path | None = None,
    device: str | None = None,
    size_bytes: int = 0,
    fetch: int | str = "adaptive",
    admits_all: bool = False,
    binary: Path | None = None,
    **config: Any,
) -> Iterator[Bathyd]:
    """Serve `block`: a new file of `size_bytes`, or a device. Without `ssd` the cache is a new file beside it.

    `binary` is another build of the daemon than the newest one.
    """
    binary = binary or program("bathyd")
    source = directory / "source"
    source.mkdir()
    (directory / "state").mkdir()
    file = source / "block"
    if device is None:
        sparse(file, size_bytes)
    else:
        file.symlink_to(device)
    config |= {
        "socket": str(directory / "socket"),
        "state": str(directory / "state"),
        "cache": {"ssd": str(ssd or sparse(directory / "ssd", ssd_bytes)), "fetch": fetch}
        | ({"admission": {}} if admits_all else {}),
        "sources": [{"dir": str(source), "mode": mode}],
    }
    (directory / "config.json").write_text(json.dumps(config))
    subprocess.run([binary, "create", directory / "config.json"], check=True, capture_output=True)
    with serving([binary, directory / "config.json"], source) as pid:
        yield Bathyd(file, pid, directory / "socket")


@contextlib.contextmanager
def bindfs(directory: Path, size_bytes: int) -> Iterator[tuple[Path, int]]:
    """Serve a new file with bindfs, with as many threads as it likes; give the file's path and the process id."""
    below, above = directory / "below", directory / "above"
    below.mkdir()
    above.mkdir()
    sparse(below / "block", size_bytes)
    with serving(["bindfs", "-f", "--multithreaded", below, above], above) as pid:
        yield above / "block", pid


def write_and_read(path: Path, size_bytes: int) -> None:
    """Write a file once and read it twice: bathyd has all of it then, if there is room."""
    fio(path, "--rw=write", "--bs=1M", f"--size={size_bytes}")
    fio(path, "--rw=read", "--bs=64k", f"--size={size_bytes}", "--loops=2")
