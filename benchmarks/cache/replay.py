"""The same trace through `bathyd` and through nbdkit's cache filter, with caches of the same size.

    python -m benchmarks.cache.replay [FILE] [--size 64M ...]

FILE is a vSCSI trace (`cloudPhysicsIO.vscsi` of the libCacheSim repository); without it, the excerpt of the tests'
fixtures. Requests come one after the other, as fast as they are answered. Both write through. nbdkit fetches blocks
of 64 KiB unless told otherwise; bathyd's fetches adapt to the source, which is a file in memory here, of which it
fetches little. So both also run with blocks of 64 KiB and of 4 KiB. A hit is a read that needs nothing of the
source. Counted from the outside: of nbdkit, reads during which its log filter, below the cache filter, logs nothing,
what that logs, and what the process writes to its temporary file (/proc/PID/io); of bathyd, its own hits (which the
tests compare with the simulator), and what reaches its SSD, which is a simulated disk that counts. Aims, with
nbdkit's blocks of 64 KiB on both sides: our hit ratio at least its, our SSD writes at most its. Exits with 1 if one
is missed. Counts, not times: one run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import sys
from pathlib import Path

import numpy as np
from benchmarks.cache.bed import bathyd, place
from benchmarks.cache.nbd import cached_disk
from benchmarks.daemons import ROOT, simulated_disks
from benchmarks.mrc.common import VSCSI1

from bathyscope.units import parse_bytes

EXCERPT = ROOT / "tests" / "fixtures" / "traces" / "cloudphysics_excerpt.vscsi"
SECTOR_BYTES = 512
#: The default of nbdkit: what it fetches and writes at least.
NBDKIT_BLOCK_BYTES = 64 << 10
#: What bathyd fetches and writes at least.
UNIT_BYTES = 4 << 10
ADAPTIVE = "adaptive"
_READ, _WRITE = 0x28, 0x2A


@dataclasses.dataclass(frozen=True)
class Request:
    """One request of a trace."""

    is_read: bool
    offset_bytes: int
    length_bytes: int


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a cache did with a trace."""

    name: str
    reads: int
    reads_hit: int
    source_read_bytes: int
    ssd_write_bytes: int

    @property
    def hit_ratio(self) -> float:
        return self.reads_hit / self.reads

    def show(self) -> None:
        print(
            f"    {self.name:16} {self.hit_ratio:.4f} of {self.reads} reads hit, {self.source_read_bytes / 2**20:.0f}"
            f" MiB read from the source, {self.ssd_write_bytes / 2**20:.0f} MiB written to the SSD",
            flush=True,
        )


def load_trace(path: Path) -> list[Request]:
    records = np.fromfile(path, VSCSI1)
    records = records[np.isin(records["command"], (_READ, _WRITE)) & (records["length_bytes"] > 0)]
    return [
        Request(int(it["command"]) == _READ, int(it["sector"]) * SECTOR_BYTES, int(it["length_bytes"]))
        for it in records
    ]


def through_bathyd(requests: list[Request], disk_bytes: int, ssd_bytes: int, fetch: int | str) -> tuple[Outcome, int]:
    """Return the outcome, and the bytes that the cache has room for."""
    with contextlib.ExitStack() as stack:
        simulated = stack.enter_context(simulated_disks(f"name=ssd,profile=zero,size={ssd_bytes}"))
        directory = stack.enter_context(place())
        ours = stack.enter_context(
            bathyd(
                directory,
                "write-through",
                ssd_bytes=ssd_bytes,
                ssd=simulated.path("ssd"),
                size_bytes=disk_bytes,
                fetch=fetch,
                admits_all=True,
            )
        )
        before = simulated.stats("ssd")["write"]["bytes"]
        file = os.open(ours.file, os.O_RDWR)
        try:
            for it in requests:
                if it.is_read:
                    os.pread(file, it.length_bytes, it.offset_bytes)
                else:
                    os.pwrite(file, bytes(it.length_bytes), it.offset_bytes)
        finally:
            os.close(file)
        engine = ours.engine()
        written = simulated.stats("ssd")["write"]["bytes"] - before
        reads = engine["reads"]
        name = f"bathyd, {fetch if fetch == ADAPTIVE else _kib(int(fetch))}"
        outcome = Outcome(name, reads["requests"], reads["requests_hit"], engine["source_read_bytes"], written)
        return outcome, int(engine["capacity_bytes"])


def _kib(size_bytes: int) -> str:
    return f"{size_bytes >> 10} KiB"


def through_nbdkit(requests: list[Request], disk_bytes: int, cache_bytes: int, block_bytes: int) -> Outcome:
    with place() as directory, cached_disk(directory, disk_bytes, cache_bytes, block_bytes) as disk:
        before, reads, hits = disk.ssd_write_bytes(), 0, 0
        for it in requests:
            if not it.is_read:
                disk.client.write(it.offset_bytes, bytes(it.length_bytes))
                continue
            logged = disk.source_log_bytes()
            disk.client.read(it.offset_bytes, it.length_bytes)
            reads += 1
            hits += logged == disk.source_log_bytes()
        return Outcome(
            f"nbdkit, {_kib(block_bytes)}", reads, hits, disk.source_reads()[1], disk.ssd_write_bytes() - before
        )


def run(requests: list[Request], ssd_bytes: int) -> tuple[Outcome, Outcome]:
    """Return the outcomes of bathyd and nbdkit with nbdkit's blocks."""
    # The last block of a disk may be one that a cache holds in part only.
    disk_bytes = max(it.offset_bytes + it.length_bytes for it in requests) + (1 << 20) >> 20 << 20
    adaptive, cache_bytes = through_bathyd(requests, disk_bytes, ssd_bytes, ADAPTIVE)
    print(f"{len(requests)} requests, room for {cache_bytes / 2**20:.1f} MiB")
    adaptive.show()
    for block_bytes in (UNIT_BYTES, NBDKIT_BLOCK_BYTES):
        ours, _ = through_bathyd(requests, disk_bytes, ssd_bytes, block_bytes)
        ours.show()
        theirs = through_nbdkit(requests, disk_bytes, cache_bytes, block_bytes)
        theirs.show()
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=EXCERPT)
    parser.add_argument("--size", nargs="+", type=parse_bytes, default=[64 << 20, 256 << 20], help="of the cache")
    options = parser.parse_args()
    if shutil.which("nbdkit") is None:
        print("no nbdkit: scripts/install-packages --dev installs it", file=sys.stderr)
        sys.exit(2)
    requests = load_trace(options.file)
    is_met = True
    for size_bytes in options.size:
        ours, theirs = run(requests, size_bytes)
        is_met &= ours.hit_ratio >= theirs.hit_ratio and ours.ssd_write_bytes <= theirs.ssd_write_bytes
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
