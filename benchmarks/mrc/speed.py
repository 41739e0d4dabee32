"""References a second, ours and libcachesim's in turns, two threads against one."""

from __future__ import annotations

import argparse
import sys

import numpy as np
from common import Keys, Peer, WorkHash, best_seconds, load_keys, trace_directory, warn_on_debug_build

from bathyscope import mrc

LINE = 4096


def rate(references: int, seconds: float) -> str:
    return f"{references / seconds / 1e6:8.1f} M refs/s"


def run(name: str, keys: Keys, runs: int = 7) -> None:
    warn_on_debug_build()
    count = len(keys)
    work = WorkHash()
    print(f"{name}: {count} references; best of {runs} runs, taken in turns")
    cases = {
        "exact LRU, all sizes": {"samples": None},
        "sampled at rate 0.01": {"rate": 0.01},
        "sampled, 8 Ki lines": {"samples": 8192},
        "sampled, 32 Ki lines": {"samples": 32_768},
    }
    for label, options in cases.items():
        one, two = best_seconds(
            runs,
            lambda options=options: mrc.profile(keys, **options),
            lambda options=options: mrc.profile(keys, threads=2, **options),
        )
        work.add(mrc.profile(keys, **options).curve().miss_ratio)
        print(f"  {label:24} {rate(count, one)}, two threads {one / two:4.2f} x")
    compare_simulation(keys, runs, work)
    print(f"hash of the work {work}")


def compare_simulation(keys: Keys, runs: int, work: WorkHash) -> None:
    count, distinct = len(keys), len(np.unique(keys))
    size = max(1, distinct // 10)
    peer = Peer(keys)
    for policy in ("lru", "s3-fifo"):

        def ours(policy: str = policy, sizes: tuple[int, ...] = (size,)) -> mrc.MissRatioCurve:
            return mrc.simulate(keys, policy, sizes_bytes=np.array(sizes) * LINE)

        work.add(ours().miss_ratio)
        seconds, ten = best_seconds(runs, ours, lambda ours=ours: ours(sizes=(size,) * 10))
        text = (
            f"  {policy + ', one size':24} {rate(count, seconds)}; each further size {rate(count, (ten - seconds) / 9)}"
        )
        if peer.available:
            seconds, theirs = best_seconds(runs, ours, lambda policy=policy: peer.miss_ratio(policy, size))
            text += f"; libcachesim {rate(count, theirs)}, ours is {theirs / seconds:.1f} x"
        print(text)


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    directory = trace_directory()
    if directory is None:
        return 0
    run("w106", load_keys(directory / "w106.trace.xz"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
