"""What a hit costs: cached 4 KiB random reads of `bathyd` beside daemons that cache nothing, and beside no daemon.

    python -m benchmarks.cache.hits [--turns 7] [--seconds 2] [--where /dev/shm]

All sides serve a file of their own in memory with normal priority, and fio loads them with `io_uring` and direct I/O.
`passthrough` is the least daemon on the same FUSE crate (`crates/bathy-fuse/examples/passthrough.rs`), with as few
threads as serve it best at depth 16 on two processors; `passthrough, 32 threads` has as many as bathyd. All sides are
compared with both. `bindfs` is Debian's. `raw` is the file of the SSD without any daemon: the physical limit.
`bathyd, ring` is FUSE over io_uring, if the kernel offers it. Latency is from submission to completion, as fio
measures it. Every read of bathyd is a hit, or the run fails. Aims, each beside the faster of the two passthrough
daemons: depth 16 at least 0.9 of its requests and more than bindfs; depth 1 within 5 µs of its latency; over the ring
1.6 times its requests with two jobs of depth 8, and 0.75 of its latency at depth 1.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import shutil
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import pairs
from benchmarks.cache.bed import Bathyd, bathyd, bindfs, place, sparse, write_and_read
from benchmarks.daemons import IN_MEMORY, fio, passthrough, processor_s

from bathyscope.analysis import bootstrap

SIZE_BYTES = 512 << 20
#: Jobs, and the depth of each.
LOADS = ((1, 1), (1, 16), (2, 8))
#: What the passthrough daemon has.
FEW_THREADS = 2
#: What bathyd has unless it is configured.
THREADS = 32
#: Their threads: few serve best at depth 16, as many as bathyd has at depth 1.
YARDSTICKS = {"passthrough": FEW_THREADS, f"passthrough, {THREADS} threads": THREADS}
ENABLE_RING = Path("/sys/module/fuse/parameters/enable_uring")


@dataclasses.dataclass(frozen=True)
class Measured:
    """One run of fio."""

    iops: float
    latency_us: float
    #: The processor time of the daemon for a request; 0 where there is none.
    processor_us: float


@dataclasses.dataclass(frozen=True)
class Side:
    """A file to read, and the daemon that serves it, if one does."""

    file: Path
    pid: int | None


@dataclasses.dataclass(frozen=True)
class Result:
    """One load on all sides, turn by turn."""

    jobs: int
    depth: int
    sides: Mapping[str, list[Measured]]

    def show(self, busy: str) -> None:
        print(f"{self.jobs} x depth {self.depth}, {busy}")
        for name, runs in self.sides.items():
            own = statistics.median(it.iops for it in runs)
            processor_us = bootstrap.median([it.processor_us for it in runs])
            print(f"    {name:23} {own:8.0f} IOPS, processor {pairs.text(processor_us, 1)} µs", flush=True)
            for yardstick in (it for it in YARDSTICKS if it != name):
                base = self.sides[yardstick]
                requests = pairs.ratio([it.iops for it in runs], [it.iops for it in base])
                extra = pairs.difference([it.latency_us for it in runs], [it.latency_us for it in base])
                print(
                    f"        / {yardstick:23} {pairs.text(requests, 2)}, latency {pairs.text(extra, 1)} µs more",
                    flush=True,
                )


def measure(side: Side, jobs: int, depth: int, seconds: float) -> Measured:
    before_s = processor_s(side.pid) if side.pid else 0.0
    job = fio(
        side.file, "--rw=randread", "--bs=4k", "--ioengine=io_uring", f"--iodepth={depth}", f"--numjobs={jobs}",
        "--group_reporting", "--norandommap", seconds=seconds,
    )  # fmt: skip
    spent_s = processor_s(side.pid) - before_s if side.pid else 0.0
    read = job["read"]
    return Measured(float(read["iops"]), float(read["lat_ns"]["mean"]) / 1e3, spent_s / max(read["total_ios"], 1) * 1e6)


def run(
    turns: int,
    seconds: float,
    *,
    loads: tuple[tuple[int, int], ...] = LOADS,
    size_bytes: int = SIZE_BYTES,
    where: Path = IN_MEMORY,
) -> list[Result]:
    with contextlib.ExitStack() as stack:
        directories = (stack.enter_context(place(where)) for _ in iter(int, 1))
        kinds: dict[str, dict[str, Any]] = {
            "bathyd": {"threads": THREADS, "transport": "dev"},
            "bathyd, 2 threads": {"threads": FEW_THREADS, "transport": "dev"},
        }
        if ENABLE_RING.exists() and ENABLE_RING.read_text().strip() == "Y":
            kinds["bathyd, ring"] = {"transport": "ring"}
        else:
            print(f"no FUSE over io_uring: {ENABLE_RING} is not Y")
        serve = functools.partial(bathyd, mode="write-through", ssd_bytes=2 * size_bytes, size_bytes=size_bytes)
        ours: dict[str, Bathyd] = {
            name: stack.enter_context(serve(next(directories), **config)) for name, config in kinds.items()
        }
        sides = {name: Side(it.file, it.pid) for name, it in ours.items()}
        for name, threads in YARDSTICKS.items():
            sides[name] = Side(*stack.enter_context(passthrough(size_bytes, threads, real_time=False, where=where)))
        if shutil.which("bindfs"):
            sides["bindfs"] = Side(*stack.enter_context(bindfs(next(directories), size_bytes)))
        else:
            print("no bindfs: scripts/install-packages --dev installs it")
        sides["raw"] = Side(sparse(next(directories) / "raw", size_bytes), None)
        for side in sides.values():
            write_and_read(side.file, size_bytes)
        missed = {name: it.reads_missed() for name, it in ours.items()}
        results = []
        for jobs, depth in loads:
            busy = pairs.busy()
            measured: dict[str, Callable[[], Measured]] = {
                name: functools.partial(measure, side, jobs, depth, seconds) for name, side in sides.items()
            }
            results.append(Result(jobs, depth, pairs.in_turns(measured, turns)))
            results[-1].show(str(busy))
        for name, it in ours.items():
            if it.reads_missed() > missed[name]:
                raise RuntimeError(f"{name}: not all reads were hits: the figures say nothing about hits")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--where", type=Path, default=IN_MEMORY, help="a directory for all files")
    options = parser.parse_args()
    run(options.turns, options.seconds, where=options.where)


if __name__ == "__main__":
    main()
