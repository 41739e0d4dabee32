"""nbdkit with its cache filter, and the little of the NBD protocol that one client needs to ask it.

The protocol is that of https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md: fixed newstyle negotiation
with NBD_OPT_EXPORT_NAME, then simple replies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_GREETING = b"NBDMAGICIHAVEOPT"
_FIXED_NEWSTYLE_NO_ZEROES = 3
_OPTION_EXPORT_NAME = 1
_REQUEST, _REPLY = 0x25609513, 0x67446698
_READ, _WRITE = 0, 1


class Client:
    """One request at a time."""

    def __init__(self, path: Path) -> None:
        """Connect to a server's Unix socket."""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.stream = self.socket.makefile("rwb")
        if self.stream.read(len(_GREETING)) != _GREETING:
            raise RuntimeError(f"{path} is not the socket of an NBD server")
        self.stream.read(2)
        self.stream.write(struct.pack(">I", _FIXED_NEWSTYLE_NO_ZEROES))
        self.stream.write(b"IHAVEOPT" + struct.pack(">II", _OPTION_EXPORT_NAME, 0))
        self.stream.flush()
        self.size_bytes, _flags = struct.unpack(">QH", self.stream.read(10))

    def _request(self, kind: int, offset: int, length: int, data: bytes = b"") -> None:
        self.stream.write(struct.pack(">IHHQQI", _REQUEST, 0, kind, 0, offset, length) + data)
        self.stream.flush()
        magic, error, _cookie = struct.unpack(">IIQ", self.stream.read(16))
        if magic != _REPLY or error:
            raise OSError(error, f"the NBD server refused {length} bytes at {offset}")

    def read(self, offset: int, length: int) -> bytes:
        self._request(_READ, offset, length)
        return self.stream.read(length)

    def write(self, offset: int, data: bytes) -> None:
        self._request(_WRITE, offset, len(data), data)

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


@dataclasses.dataclass(frozen=True)
class CachedDisk:
    """A disk of zeroes in the memory of nbdkit, below its cache filter, and what is seen of both from the outside."""

    client: Client
    pid: int
    log: Path

    def source_log_bytes(self) -> int:
        """Return the length of the log of what reaches the disk; it grows before the request ends."""
        return self.log.stat().st_size

    def source_reads(self) -> tuple[int, int]:
        """Return how many reads reached the disk, and their bytes."""
        with self.log.open() as lines:
            begun = [line for line in lines if " Read id=" in line and " count=" in line]
        counts = [line.split(" count=")[1].split()[0] for line in begun]
        return len(counts), sum(int(count, 16) for count in counts)

    def ssd_write_bytes(self) -> int:
        """Return what it wrote to the file of its cache: all that it writes but the log. Sockets do not count there.

        The end of a request is logged after its answer, so what is not at rest is looked at again.
        """
        found, before = self._written_bytes(), (-1, -1)
        while found != before:
            time.sleep(0.01)
            found, before = self._written_bytes(), found
        return found[0] - found[1]

    def _written_bytes(self) -> tuple[int, int]:
        fields = dict(line.split(": ") for line in Path(f"/proc/{self.pid}/io").read_text().splitlines())
        return int(fields["wchar"]), self.source_log_bytes()


@contextlib.contextmanager
def cached_disk(directory: Path, size_bytes: int, cache_bytes: int, block_bytes: int) -> Iterator[CachedDisk]:
    """Serve a disk through nbdkit's cache filter, whose temporary file lies in `directory`."""
    log, path = directory / "log", directory / "nbd"
    command = [
        "nbdkit", "--foreground", "--unix", path, "--filter=cache", "--filter=log", "memory", str(size_bytes),
        "cache=writethrough", "cache-on-read=true", f"cache-max-size={cache_bytes}",
        f"cache-min-block-size={block_bytes}", f"logfile={log}",
    ]  # fmt: skip
    process = subprocess.Popen(
        [str(it) for it in command], env={"TMPDIR": str(directory), "PATH": "/usr/bin:/usr/sbin"}
    )
    try:
        while not path.exists():
            if process.poll() is not None:
                raise RuntimeError("nbdkit did not start")
            time.sleep(0.01)
        client = Client(path)
        try:
            yield CachedDisk(client, process.pid, log)
        finally:
            client.close()
    finally:
        process.terminate()
        process.wait(timeout=30)
