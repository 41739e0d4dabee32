"""How fast a start after a kill reads the line table of a large cache: bytes of the table a second.

    python -m benchmarks.cache.start [--size-gib 1024] [--turns 7] [--where /dev/shm]

The SSD is a sparse file; its table (2 GiB for 1 TiB) is empty first, as after the making of a cache, and then has a
line in every slot. By default it lies in memory, so that the figure is what the processor can do: on a device it is
at most what that reads. The time is that of the whole opening (`crates/bathy-cache/examples/open_rate.rs`). Aim: the
sparse table at 1 GB/s.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
from pathlib import Path

from benchmarks import pairs
from benchmarks.cache.bed import place
from benchmarks.daemons import IN_MEMORY, program

from bathyscope.analysis import bootstrap


@dataclasses.dataclass(frozen=True)
class Result:
    """The starts with one table."""

    table: str
    table_bytes: int
    lines: int
    seconds: list[float]

    def show(self) -> None:
        rate = bootstrap.median([self.table_bytes / it / 1e9 for it in self.seconds])
        print(
            f"{self.table:5} table of {self.table_bytes / 2**20:.0f} MiB, {self.lines} lines:"
            f" {bootstrap.median(self.seconds).value:.2f} s, {pairs.text(rate, 2)} GB/s",
            flush=True,
        )


def run(size_gib: int, turns: int, where: Path = IN_MEMORY) -> list[Result]:
    busy = pairs.busy()
    with place(where) as directory:
        command = [program("examples/open_rate"), directory, size_gib, turns]
        done = subprocess.run([str(it) for it in command], check=True, capture_output=True, text=True)
    results = []
    for line in done.stdout.splitlines():
        table, table_bytes, lines, *seconds = line.split()
        results.append(Result(table, int(table_bytes), int(lines), [float(it) for it in seconds]))
        results[-1].show()
    print(busy)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-gib", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--where", type=Path, default=IN_MEMORY, help="a directory for the sparse file")
    options = parser.parse_args()
    run(options.size_gib, options.turns, options.where)


if __name__ == "__main__":
    main()
