"""What FUSE over io_uring gains: cached 4 KiB random reads of bathyd over rings beside the least daemon on /dev/fuse.

    python benchmarks/simdisk/bathyd_ring.py [--pairs 7] [--seconds 2]

File and SSD lie in memory; all daemons run with normal priority, as bathyd does in use, and the least daemon has two
threads. `dev` is the same bathyd on /dev/fuse. Loads take turns within a pair. The figures are the median of the ratios
of the pairs, with their range, and the ratio of the best runs of both: on a machine with other work the best runs are
the ones that were disturbed least. Latency is from submission to completion, as fio measures it.
Targets: two jobs of depth 8 at least 1.6 times the requests; depth 1 at most 0.75 of the latency.
Needs root, `fuse.enable_uring=1`, and `cargo build --release -p bathyd -p bathy-fuse --bins --examples`.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from pathlib import Path

from bathyd_cost import SIZE_BYTES, bathyd, missed_requests
from daemons import fio, passthrough

TRANSPORTS = ("ring", "dev")
#: Jobs, and the depth of each.
LOADS = ((1, 1), (2, 8), (1, 16))


def load(path: Path, jobs: int, depth: int, seconds: float) -> tuple[float, float]:
    """Return requests per second and mean latency in microseconds, from the submission on."""
    job = fio(
        path, "--rw=randread", "--bs=4k", "--ioengine=libaio", f"--iodepth={depth}", f"--numjobs={jobs}",
        "--group_reporting", "--time_based", f"--runtime={seconds}", "--norandommap",
    )  # fmt: skip
    return float(job["read"]["iops"]), float(job["read"]["lat_ns"]["mean"]) / 1e3


def run(pairs: int, seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        plain, _ = stack.enter_context(passthrough(SIZE_BYTES, real_time=False))
        paths = {it: stack.enter_context(bathyd("write-through", it, real_time=False)) for it in TRANSPORTS}
        for path in (plain, *paths.values()):
            fio(path, "--rw=write", "--bs=1M", f"--size={SIZE_BYTES}")
            fio(path, "--rw=read", "--bs=64k", f"--size={SIZE_BYTES}", "--loops=2")
        missed = {it: missed_requests(path) for it, path in paths.items()}
        for jobs, depth in LOADS:
            base, found = [], {it: [] for it in TRANSPORTS}
            for _ in range(pairs):
                base.append(load(plain, jobs, depth, seconds))
                for transport, path in paths.items():
                    found[transport].append(load(path, jobs, depth, seconds))
            for transport, runs in found.items():
                print(f"{jobs} x depth {depth:2}  {transport:4} / passthrough daemon on /dev/fuse")
                for name, index, best in (("requests", 0, max), ("latency", 1, min)):
                    ratios = [one[index] / other[index] for one, other in zip(runs, base, strict=True)]
                    ours, theirs = best(one[index] for one in runs), best(one[index] for one in base)
                    print(
                        f"    {name:8} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}),"
                        f" best runs {ours / theirs:.2f} ({ours:.1f} / {theirs:.1f} {'µs' if index else 'IOPS'})",
                        flush=True,
                    )
        for transport, path in paths.items():
            if missed_requests(path) > missed[transport]:
                raise RuntimeError(f"{transport}: not all reads were hits: the figures say nothing about hits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    run(options.pairs, options.seconds)


if __name__ == "__main__":
    main()
