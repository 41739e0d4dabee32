"""What the simulation itself costs: the zero profile beside a plain passthrough daemon on the same front end.

    python -m benchmarks.simdisk.cost [--pairs 5] [--seconds 4]

Both serve a file in memory. Loads alternate between them in pairs, so that what else the machine does meets both.
Prints, for each load, the median IOPS, the ratio of each pair (median and range) and the daemons' processor time for an
I/O.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from pathlib import Path

from benchmarks.daemons import fio, passthrough, processor_s, simulated_disks

SIZE_BYTES = 1 << 30
LOADS = (("randread", 1), ("randread", 16), ("randwrite", 1), ("randwrite", 16))


@dataclasses.dataclass(frozen=True)
class Side:
    """One measurement of one daemon."""

    iops: float
    processor_us: float


@dataclasses.dataclass(frozen=True)
class Result:
    """One load on both daemons."""

    load: str
    depth: int
    zero: tuple[Side, ...]
    plain: tuple[Side, ...]

    @property
    def ratios(self) -> list[float]:
        return [zero.iops / plain.iops for zero, plain in zip(self.zero, self.plain, strict=True)]


def measure(path: Path, pid: int, load: str, depth: int, seconds: float) -> Side:
    before_s = processor_s(pid)
    job = fio(
        path, f"--rw={load}", "--bs=4k", "--ioengine=libaio", f"--iodepth={depth}", "--norandommap", seconds=seconds,
    )  # fmt: skip
    side = job["read" if "read" in load else "write"]
    return Side(side["iops"], (processor_s(pid) - before_s) / max(side["total_ios"], 1) * 1e6)


def run(
    pairs: int, seconds: float, loads: tuple[tuple[str, int], ...] = LOADS, size_bytes: int = SIZE_BYTES
) -> list[Result]:
    results = []
    disk = f"name=disk,profile=zero,size={size_bytes}"
    with simulated_disks(disk) as disks, passthrough(size_bytes) as (plain_path, plain_pid):
        for path in (disks.path("disk"), plain_path):
            fio(path, "--rw=write", "--bs=1M", f"--size={size_bytes}")
        for load, depth in loads:
            zero, plain = [], []
            for pair in range(pairs):
                # The second of a pair may find a warmer machine, so they take turns at being first.
                for is_zero in (pair % 2 == 0, pair % 2 == 1):
                    if is_zero:
                        zero.append(measure(disks.path("disk"), disks.pid, load, depth, seconds))
                    else:
                        plain.append(measure(plain_path, plain_pid, load, depth, seconds))
            results.append(Result(load, depth, tuple(zero), tuple(plain)))
            show(results[-1])
    return results


def show(result: Result) -> None:
    def median(sides: tuple[Side, ...], field: str) -> float:
        return statistics.median(float(getattr(side, field)) for side in sides)

    print(
        f"{result.load:9} depth {result.depth:2}  zero {median(result.zero, 'iops'):8.0f} IOPS"
        f" {median(result.zero, 'processor_us'):5.1f} µs  passthrough {median(result.plain, 'iops'):8.0f} IOPS"
        f" {median(result.plain, 'processor_us'):5.1f} µs  ratio {statistics.median(result.ratios):.3f}"
        f" ({min(result.ratios):.3f} to {max(result.ratios):.3f})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    run(options.pairs, options.seconds)


if __name__ == "__main__":
    main()
