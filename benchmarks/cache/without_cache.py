"""What a cache costs where it cannot help: reads that miss it, and writes, beside the same daemon without a cache.

    python -m benchmarks.cache.without_cache [--turns 7] [--seconds 5] [--profile hdd-7200-4t ...]

Both sides are bathyd over a block device on a simulated disk of their own (`crates/bathy-simdisk`), whose service
times are known; one has the mode `write-through` and an SSD in memory, the other `pass-through`. The cache is small
and full before the first turn, so that each miss evicts, and fio reads other places in every run. Writes go to a GiB
that was written before: its regions are marked, which is the steady state. Aim: at most 5 % slower. `served` is the
share of the reads that the cache served after all. A third disk of the same profile without any daemon is the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks import pairs
from benchmarks.cache.bed import bathyd, place
from benchmarks.daemons import fio, simulated_disks

from bathyscope.lab import loop

#: What the write cache of a hard disk takes drifts from turn to turn, so its writes are measured without one as well.
PROFILES = ("hdd-7200-4t", "hdd-7200-4t,write-cache=off", "ssd-sata")
DISK_BYTES = 100 << 30
#: Where writes go.
HOT_BYTES = 1 << 30
SSD_BYTES = 64 << 20
#: fio's `rw`, and the depth.
LOADS = (("randread", 1), ("randread", 16), ("randwrite", 1), ("randwrite", 16))
MODES = {"cache": "write-through", "no cache": "pass-through"}
#: The side without a daemon.
BARE = "bare device"


@dataclasses.dataclass(frozen=True)
class Result:
    """One load on both sides, turn by turn."""

    profile: str
    load: str
    depth: int
    iops: Mapping[str, list[float]]
    served_share: float

    def show(self, busy: str) -> None:
        ratio = pairs.ratio(self.iops["cache"], self.iops["no cache"])
        limit = pairs.ratio(self.iops["no cache"], self.iops[BARE])
        own = statistics.median(self.iops["cache"])
        print(
            f"{self.profile:27} {self.load:9} depth {self.depth:2}: {own:8.1f} IOPS,"
            f" / no cache {pairs.text(ratio)}, served {self.served_share:.1%},"
            f" no cache / {BARE} {pairs.text(limit)}, {busy}",
            flush=True,
        )


@contextlib.contextmanager
def block_device(file: Path) -> Iterator[str]:
    device = loop.attach(file)
    try:
        yield device
    finally:
        loop.detach(str(file))


def measure(file: Path, load: str, depth: int, seconds: float, size_bytes: int) -> float:
    # By default fio would draw the same places in every run, and find them cached.
    job = fio(
        file, "--randrepeat=0", f"--rw={load}", "--bs=4k", "--ioengine=libaio", f"--iodepth={depth}",
        "--norandommap", f"--size={size_bytes}", seconds=seconds,
    )  # fmt: skip
    return float(job["read" if load == "randread" else "write"]["iops"])


def fill(file: Path, ssd_bytes: int) -> None:
    """Write more to one end of the disk than the cache has room for."""
    fio(file, "--rw=randwrite", "--bs=64k", "--ioengine=libaio", "--iodepth=16", f"--size={2 * ssd_bytes}")


def run(
    turns: int,
    seconds: float,
    *,
    profiles: tuple[str, ...] = PROFILES,
    loads: tuple[tuple[str, int], ...] = LOADS,
    disk_bytes: int = DISK_BYTES,
    hot_bytes: int = HOT_BYTES,
    ssd_bytes: int = SSD_BYTES,
) -> list[Result]:
    results = []
    for profile in profiles:
        with contextlib.ExitStack() as stack:
            disks = [f"name={disk},profile={profile},size={disk_bytes}" for disk in (*MODES.values(), "bare")]
            simulated = stack.enter_context(simulated_disks(*disks))
            served = {}
            for name, mode in MODES.items():
                device = stack.enter_context(block_device(simulated.path(mode)))
                directory = stack.enter_context(place())
                served[name] = stack.enter_context(bathyd(directory, mode, ssd_bytes=ssd_bytes, device=device))
            sides = {name: it.file for name, it in served.items()}
            sides[BARE] = Path(stack.enter_context(block_device(simulated.path("bare"))))
            for file in sides.values():
                fill(file, ssd_bytes)
            for load, depth in loads:
                size_bytes = disk_bytes if load == "randread" else hot_bytes
                if load == "randwrite":
                    # All regions are marked then.
                    for file in sides.values():
                        fio(file, "--rw=write", "--bs=1M", f"--size={size_bytes}")
                before = served["cache"].engine()["reads"]
                busy = pairs.busy()
                measured: dict[str, Callable[[], float]] = {
                    name: functools.partial(measure, file, load, depth, seconds, size_bytes)
                    for name, file in sides.items()
                }
                iops = pairs.in_turns(measured, turns)
                after = served["cache"].engine()["reads"]
                reads = after["requests"] - before["requests"]
                served_share = (after["requests_hit"] - before["requests_hit"]) / reads if reads else 0.0
                results.append(Result(profile, load, depth, iops, served_share))
                results[-1].show(str(busy))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--profile", nargs="+", default=PROFILES)
    options = parser.parse_args()
    run(options.turns, options.seconds, profiles=tuple(options.profile))


if __name__ == "__main__":
    main()
