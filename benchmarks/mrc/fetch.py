"""Fixed fetch sizes against the adaptive one: hits, bytes fetched, time of the disk, writes to the SSD.

Lines of 64 KiB with units of 4 KiB, S3-FIFO as the cache runs it, write-through. The disk's time is the time of the
reads that miss: positioning, and the transfer of all that is fetched. See benchmarks/mrc/README.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import load_keys, trace_directory, warn_on_debug_build

from bathyscope import _core

UNIT, LINE = 4 << 10, 64 << 10
FIXED = (4 << 10, 16 << 10, 64 << 10)
# Seconds of an access, and bytes a second.
DISKS = {"HDD": (8e-3, 150e6), "SSD": (0.1e-3, 500e6)}
FRACTIONS = (0.01, 0.05, 0.2)
# How much more of the disk's time than the best fixed size takes is good enough.
MOST_OVER = 1.06

Counts = dict[str, npt.NDArray[np.float64]]


def main() -> int:
    """Print a row for each trace and size; 1 if the adaptive size is more than 6 % worse than the best fixed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path, metavar="FILE")
    traces = parser.parse_args().traces
    warn_on_debug_build()
    if not traces:
        directory = trace_directory()
        if directory is None:
            return 0
        traces = [directory / "cloudPhysicsIO.vscsi", directory / "w106.trace.xz", *sorted(directory.glob("lirs/*.gz"))]
    print("| trace | cache | fetch | read hits | fetched / read | HDD | SSD | SSD writes / read |")
    print("|---|---|---|---|---|---|---|---|")
    worst = max((max(rows(path), default=0.0) for path in traces), default=0.0)
    print(f"worst disk time of the adaptive size over the best fixed one: {worst:.3f}")
    return int(worst > MOST_OVER)


def rows(path: Path) -> Iterator[float]:
    """Print the rows of a trace, and yield the adaptive size's disk time over the best fixed one's, for each disk."""
    name = path.name.partition(".")[0]
    keys = load_keys(path)
    lines = len(np.unique(keys // np.uint64(LINE // UNIT)))
    sizes = np.unique(np.maximum(np.array([lines * share for share in FRACTIONS], np.uint64), 2))
    if sizes[-1] < 100:
        return
    core = _core.EnginePass()
    engines = {
        f"{size >> 10}K": core.add_engine("s3-fifo", LINE, sizes, unit_bytes=UNIT, fetch_bytes=size) for size in FIXED
    }
    for disk, (access_s, bytes_per_s) in DISKS.items():
        engines[disk] = core.add_engine(
            "s3-fifo", LINE, sizes, fetch_bytes=UNIT, break_even_bytes=round(access_s * bytes_per_s)
        )
    if path.suffix == ".vscsi":
        core.read_traces([str(path)])
    else:
        # The other traces have block numbers alone: reads of 4 KiB.
        count = len(keys)
        core.add_requests(
            np.arange(count, dtype=np.uint64) * 1000,
            keys * np.uint64(UNIT),
            np.full(count, UNIT, np.uint32),
            np.zeros(count, np.uint8),
            np.full(count, 2**32 - 1, np.uint32),
            np.zeros(count, np.uint32),
        )
    results = {engine: core.results(number) for engine, number in engines.items()}
    over = dict.fromkeys(DISKS, 0.0)
    for place, size in enumerate(sizes):
        for disk, disk_model in DISKS.items():
            best = min(busy_s(results[f"{fixed >> 10}K"], disk_model)[place] for fixed in FIXED)
            over[disk] = busy_s(results[disk], disk_model)[place] / best
            yield over[disk]
        for engine, counts in results.items():
            busy = [f"{busy_s(counts, disk_model)[place]:.1f} s" for disk_model in DISKS.values()]
            if engine in DISKS:
                busy = [
                    f"{seconds} ({over[disk]:.3f})" if disk == engine else ""
                    for disk, seconds in zip(DISKS, busy, strict=True)
                ]
            read = counts["read_bytes"][place]
            print(
                f"| {name} | {int(size) * LINE >> 20} MiB | {'adaptive ' if engine in DISKS else ''}{engine} "
                f"| {counts['read_requests_hit'][place] / counts['read_requests'][place]:.4f} "
                f"| {counts['backing_read_bytes'][place] / read:.2f} | {' | '.join(busy)} "
                f"| {counts['flash_write_bytes'][place] / read:.2f} |"
            )


def busy_s(counts: Counts, disk: tuple[float, float]) -> npt.NDArray[np.float64]:
    """How long the reads that miss keep a disk busy."""
    access_s, bytes_per_s = disk
    missed = counts["read_requests"] - counts["read_requests_hit"]
    return missed * access_s + counts["backing_read_bytes"] / bytes_per_s


if __name__ == "__main__":
    sys.exit(main())
