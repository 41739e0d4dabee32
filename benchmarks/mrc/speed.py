"""References a second, ours and libcachesim's in turns, two threads against one."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
from common import Keys, Peer, WorkHash, best_seconds, load_keys, trace_directory, warn_on_debug_build

from bathyscope import _core, mrc

LINE = 4096
SIZES = 10


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
    compare_threads(keys, runs)
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


def speed_up(runs: int, work: Callable[[int], object]) -> float:
    """How much faster `work(threads)` is with two threads, best of `runs` each, in turns."""
    one, two = best_seconds(runs, lambda: work(1), lambda: work(2))
    return one / two


def compare_threads(keys: Keys, runs: int) -> None:
    """What `bathy size` gives to its threads: line sizes in the first pass, cache sizes in the second.

    Beside them twice the same work at once, one profile a thread with nothing in common: what this machine has to
    give to a second thread at this moment.
    """
    part = keys[: 1 << 20]

    def apart(threads: int) -> None:
        for _ in range(2 // threads):
            workers = [
                threading.Thread(target=_core.profile_keys, args=(part,), kwargs={"line_bytes": LINE})
                for _ in range(threads)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

    rows = len(part)
    columns = (
        np.arange(rows, dtype=np.uint64),
        part * np.uint64(LINE),
        np.full(rows, LINE, np.uint32),
        np.zeros(rows, np.uint8),
        np.zeros(rows, np.uint32),
        np.zeros(rows, np.uint32),
    )

    def line_sizes(threads: int) -> None:
        first = _core.ProfilePass([4096, 16_384, 65_536, 262_144], max_lines=32_768)
        first.add_requests(*columns, threads=threads)

    distinct = len(np.unique(part))
    sizes = np.linspace(distinct / SIZES, distinct, SIZES).astype(np.uint64)

    def cache_sizes(threads: int) -> None:
        second = _core.EnginePass()
        second.add_engine("s3-fifo", LINE, sizes)
        second.add_requests(*columns, threads=threads)

    start = time.perf_counter()
    text = {
        "machine": speed_up(runs, apart),
        "bathy size, four line sizes": speed_up(runs, line_sizes),
        f"bathy size, {SIZES} cache sizes": speed_up(runs, cache_sizes),
        f"s3-fifo, {SIZES} sizes": speed_up(
            runs, lambda threads: mrc.simulate(part, "s3-fifo", sizes_bytes=sizes * np.uint64(LINE), threads=threads)
        ),
    }
    print(f"  two threads against one ({time.perf_counter() - start:.0f} s):")
    for label, factor in text.items():
        print(f"    {label:30} {factor:4.2f} x")


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    directory = trace_directory()
    if directory is None:
        return 0
    run("w106", load_keys(directory / "w106.trace.xz"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
