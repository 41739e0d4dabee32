"""What files cost through a mount, beside the same daemon without a cache, and beside the bare directory.

    python -m benchmarks.cache.files [--turns 7] [--where DIR] [--size-mib 64] [--ssd-mib 1024]
                                     [--peer NAME=PROGRAM ...] [--passthrough-hp PROGRAM]

One thread does what applications do with files, through the page cache wherever there is one:

* `create`: make a file, write 4 KiB, close it;
* `open`: open a file that was read before, read 4 KiB, close it;
* `remove`: remove the files that were made;
* `write`: aligned 4 KiB at random places of a file that was written before;
* `read`: 128 KiB after 128 KiB of a file.

Figures are microseconds for each. `cache` is bathyd with the mode `write-through`, and all is admitted; `pass-through`
is the same program without a cache. `--peer` adds another build of bathyd, as a cache. `--passthrough-hp` adds
libfuse's example of that name (`--nopassthrough`, so that requests come to it), which keeps pages in the kernel;
`--direct-io` makes it see each read, as bathyd does. All are on one file system, the file of the SSD too. With a large
file that is larger than the SSD its reads miss.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import pairs
from benchmarks.cache.bed import bathyd, place
from benchmarks.daemons import IN_MEMORY, program, serving

BLOCK_BYTES = 4096
READ_BYTES = 128 << 10
LOADS = ("create", "open", "remove", "write", "read")
BARE = "bare directory"


@dataclasses.dataclass
class Side:
    """A directory in which files are made and used."""

    directory: Path

    def prepare(self, size_bytes: int, files: int) -> None:
        """Make the file that is written to and read, and those that are opened, and let the cache have them."""
        block = os.urandom(1 << 20)
        with (self.directory / "large").open("wb", buffering=0) as file:
            for _ in range(size_bytes // len(block)):
                file.write(block)
        (self.directory / "known").mkdir()
        for number in range(files):
            (self.directory / "known" / str(number)).write_bytes(block[:BLOCK_BYTES])
        self.measure(files)

    def measure(self, files: int) -> dict[str, float]:
        """Return the microseconds that one of each takes."""
        took_us = {}
        for load in LOADS:
            begun = time.perf_counter()
            count = getattr(self, load)(files)
            took_us[load] = (time.perf_counter() - begun) / count * 1e6
        (self.directory / "made").rmdir()
        return took_us

    def create(self, files: int) -> int:
        block = bytes(BLOCK_BYTES)
        (self.directory / "made").mkdir()
        for number in range(files):
            made = os.open(self.directory / "made" / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(made, block)
            os.close(made)
        return files

    def remove(self, files: int) -> int:
        for number in range(files):
            (self.directory / "made" / str(number)).unlink()
        return files

    def open(self, files: int) -> int:
        for number in range(files):
            known = os.open(self.directory / "known" / str(number), os.O_RDONLY)
            os.read(known, BLOCK_BYTES)
            os.close(known)
        return files

    def write(self, files: int) -> int:
        block, count = os.urandom(BLOCK_BYTES), 4 * files
        with (self.directory / "large").open("r+b", buffering=0) as file:
            blocks = os.fstat(file.fileno()).st_size // BLOCK_BYTES
            for _ in range(count):
                os.pwrite(file.fileno(), block, random.randrange(blocks) * BLOCK_BYTES)
        return count

    def read(self, _files: int) -> int:
        buffer, count = bytearray(READ_BYTES), 0
        with (self.directory / "large").open("rb", buffering=0) as file:
            while file.readinto(buffer):
                count += 1
        return count


@contextlib.contextmanager
def passthrough_hp(binary: Path, directory: Path, *options: str) -> Iterator[Path]:
    """Serve a directory with libfuse's example."""
    below, above = directory / "below", directory / "above"
    below.mkdir(parents=True)
    above.mkdir()
    with serving([binary, "--foreground", "--nopassthrough", *options, below, above], above):
        yield above


def run(
    turns: int,
    *,
    files: int = 500,
    size_bytes: int = 64 << 20,
    ssd_bytes: int = 1 << 30,
    where: Path = IN_MEMORY,
    peers: Mapping[str, Path] | None = None,
    passthrough_hp_program: Path | None = None,
) -> dict[str, dict[str, list[float]]]:
    """Measure each load on all sides, turn by turn, and print how they compare."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(place(where))
        ours = program("bathyd")
        daemons = {"cache": (ours, "write-through"), "pass-through": (ours, "pass-through")}
        daemons |= {name: (binary, "write-through") for name, binary in (peers or {}).items()}
        sides = {BARE: Side(directory / "bare")}
        sides[BARE].directory.mkdir()
        for name, (binary, mode) in daemons.items():
            its = directory / name
            its.mkdir()
            served = bathyd(its, mode, binary=binary, ssd_bytes=ssd_bytes, admits_all=True)
            sides[name] = Side(stack.enter_context(served).file.parent)
        if passthrough_hp_program:
            for name, options in {"passthrough_hp": (), "passthrough_hp --direct-io": ("--direct-io",)}.items():
                its = passthrough_hp(passthrough_hp_program, directory / name, *options)
                sides[name] = Side(stack.enter_context(its))
        for side in sides.values():
            side.prepare(size_bytes, files)
        busy = pairs.busy()
        took = pairs.in_turns({name: functools.partial(it.measure, files) for name, it in sides.items()}, turns)
        print(busy)
    found = {load: {name: [turn[load] for turn in its] for name, its in took.items()} for load in LOADS}
    for load, took_us in found.items():
        show(load, took_us)
    return found


def show(load: str, took_us: Mapping[str, list[float]]) -> None:
    for name, took in took_us.items():
        compared = took_us if name == "cache" else (BARE, "pass-through")
        others = [other for other in compared if other != name]
        ratios = [f"/ {other} {pairs.text(pairs.ratio(took, took_us[other]), 2)}" for other in others]
        print(f"{load:7} {name:27} {statistics.median(took):8.1f} µs, {', '.join(ratios)}", flush=True)


def named(argument: str) -> tuple[str, Path]:
    name, _, binary = argument.partition("=")
    return name, Path(binary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--where", type=Path, default=IN_MEMORY)
    parser.add_argument("--size-mib", type=int, default=64)
    parser.add_argument("--ssd-mib", type=int, default=1024)
    parser.add_argument("--peer", type=named, action="append", default=[], metavar="NAME=PROGRAM")
    parser.add_argument("--passthrough-hp", type=Path, metavar="PROGRAM")
    options = parser.parse_args()
    run(
        options.turns,
        files=options.files,
        size_bytes=options.size_mib << 20,
        ssd_bytes=options.ssd_mib << 20,
        where=options.where,
        peers=dict(options.peer),
        passthrough_hp_program=options.passthrough_hp,
    )


if __name__ == "__main__":
    main()
