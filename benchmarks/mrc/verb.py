"""`bathy size` as a program: a trace file of any size, wall time, requests a second, peak memory, distance from truth.

The trace is written in pieces, as vSCSI records of 32 bytes: reads of 4 KiB, whose popularity is that of `billion.py`.
For LRU the truth is analytic, also for larger lines: a line is as popular as its blocks together. For another policy it
is the same simulation without sampling, which for a long trace takes long (`--no-truth` leaves it out).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from billion import SCATTER, UNIVERSE, analytic, generate, probabilities
from common import VSCSI1, WorkHash, warn_on_debug_build

from bathyscope import simulate
from bathyscope.records import CurvePoint, from_table
from bathyscope.simulate.trace import TraceFiles
from bathyscope.spec.size import CurveKey, Pass, SizeSpec, WantedSizes
from bathyscope.units import format_bytes, format_size_short, parse_bytes

CHUNK = 1 << 20
BLOCK = 4096
READ_10 = 0x28
VERSION_1 = 1 << 8
INTERVAL_US = 100
BOUND = 0.005
"""Distance from the truth, in hit ratio, beyond the half of the 95 % band that the verb gives."""

Floats = npt.NDArray[np.float64]


def write_trace(path: Path, requests: int, universe: int, seed: int = 1) -> None:
    """Stream the records to the file."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, requests, CHUNK):
            count = min(CHUNK, requests - start)
            records = np.zeros(count, VSCSI1)
            records["serial"] = np.arange(start, start + count, dtype=np.uint64).astype(np.uint32)
            records["length_bytes"] = BLOCK
            records["segments"] = 1
            records["command"] = READ_10
            records["version"] = VERSION_1
            records["sector"] = generate(rng, count, universe) * np.uint64(BLOCK // 512)
            records["time_us"] = np.arange(start, start + count, dtype=np.uint64) * np.uint64(INTERVAL_US)
            records.tofile(file)


def line_probabilities(universe: int, line_bytes: int) -> Floats:
    """The probability of each line, the most popular first; blocks lie where `generate` scatters them."""
    ranks = np.arange(universe, dtype=np.uint64)
    block = (ranks * np.uint64(SCATTER)) & np.uint64(universe - 1)
    of_line = np.bincount((block // np.uint64(line_bytes // BLOCK)).astype(np.int64), probabilities(universe))
    return np.sort(of_line)[::-1]


def size(trace: Path, *options: str) -> tuple[dict[str, Any], float]:
    """What the verb finds, and the seconds that it takes."""
    command = [sys.executable, "-m", "bathyscope.cli", "size", str(trace), "--output", "json", *options]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - start
    return json.loads(done.stdout), seconds


def hit_ratios(found: dict[str, Any]) -> dict[int, dict[int, dict[str, float]]]:
    """The points of the curves of the whole trace, by line size and cache size."""
    return {
        curve["line_bytes"]: {point["size_bytes"]: point["read_hit"] for point in curve["points"]}
        for curve in found["curves"]
        if curve["group_kind"] == "all"
    }


def distances(found: dict[str, Any], truth: dict[int, dict[int, float]]) -> bool:
    """Print the hit ratios beside the truth; True when all are within the bound."""
    within = True
    for line, points in hit_ratios(found).items():
        known = [size for size in sorted(points) if size in truth[line]]
        beyond = []
        for place, size_bytes in enumerate(known):
            point = points[size_bytes]
            half = (point["high"] - point["low"]) / 2
            off = abs(point["value"] - truth[line][size_bytes])
            beyond.append(off - half)
            if place % max(1, len(known) // 4) == 0:
                print(
                    f"  {format_size_short(line):>5} lines, {format_bytes(size_bytes):>8}: {point['value']:.4f} "
                    f"(± {half:.4f}), truth {truth[line][size_bytes]:.4f}, off by {off:.4f}"
                )
        worst = max(beyond, default=float("inf"))
        within &= worst <= BOUND
        print(f"  {format_size_short(line):>5} lines: {len(known)} sizes {'ok' if worst <= BOUND else 'MISSED'}")
    return within


def run(options: argparse.Namespace) -> bool:
    """Print the figures; True when the curves are where they should be."""
    warn_on_debug_build()
    requests = max(options.requests, -(-parse_bytes(options.at_least) // VSCSI1.itemsize))
    given = ["--line", options.line, "--threads", str(options.threads), "--policy", options.policy]
    given += ["--samples", str(options.samples)] if options.samples else []
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        trace = Path(directory) / "verb.vscsi"
        start = time.perf_counter()
        write_trace(trace, requests, options.universe)
        print(
            f"{requests:,} requests in {format_bytes(trace.stat().st_size)}, "
            f"written in {time.perf_counter() - start:.1f} s"
        )
        found, seconds = size(trace, *given)
        # The largest of the children waited for, and there was one.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(
            f"bathy size {' '.join(given)}: {seconds:.1f} s, {requests / seconds / 1e6:.2f} M requests/s, "
            f"peak {format_bytes(peak)}"
        )
        curves = hit_ratios(found)
        work = WorkHash()
        for points in curves.values():
            work.add([point["value"] for point in points.values()])
        print(f"hash of the work {work}")
        if options.policy == "lru":
            truth = {line: of_lru(requests, options.universe, line, sorted(points)) for line, points in curves.items()}
        elif options.no_truth:
            print("no truth: the full simulation was left out")
            return True
        else:
            start = time.perf_counter()
            truth = in_full(trace, options.policy, curves, options.threads)
            print(f"the same sizes, simulated in full: {time.perf_counter() - start:.1f} s")
        return distances(found, truth)


def in_full(
    trace: Path, policy: str, curves: dict[int, dict[int, dict[str, float]]], threads: int
) -> dict[int, dict[int, float]]:
    """The hit ratio at each of the sizes, without sampling; in this process, so that the sizes can be chosen."""
    spec = SizeSpec(line_bytes=tuple(sorted(curves)), policies=(policy,), exact=True, threads=threads)
    wanted = tuple(
        WantedSizes(CurveKey("all", "all", line, policy), tuple(points), spec.admission)
        for line, points in curves.items()
    )
    rows = simulate.run(Pass("options", wanted), simulate.profile(TraceFiles([trace]), spec))
    truth: dict[int, dict[int, float]] = {line: {} for line in curves}
    for row in from_table(CurvePoint, rows):
        truth[row.line_bytes][row.size_bytes] = row.read_hit_ratio
    return truth


def of_lru(requests: int, universe: int, line_bytes: int, sizes_bytes: list[int]) -> dict[int, float]:
    """The analytic hit ratio of LRU at each size; sizes that hold every line hit all but first reads."""
    p = line_probabilities(universe, line_bytes)
    lines = np.asarray(sizes_bytes, np.uint64) // np.uint64(line_bytes)
    hits = 1.0 - analytic(requests, p, lines)
    return {size_bytes: float(hit) for size_bytes, hit in zip(sizes_bytes, hits, strict=True)}


def parser() -> argparse.ArgumentParser:
    """The options; without any, a size that takes seconds."""
    made = argparse.ArgumentParser(description="bathy size as a program: time, memory, accuracy.")
    made.add_argument("--requests", type=int, default=1_000_000, help="1000000000 for the long run: 32 GB on disk")
    made.add_argument("--at-least", default="0", metavar="SIZE", help="or more requests: a file of this size, as 40G")
    made.add_argument("--universe", type=int, default=UNIVERSE, help="blocks of 4 KiB, a power of two")
    made.add_argument("--directory", type=Path, default=None, help="where the trace is written; it is removed")
    made.add_argument("--line", default="4K,64K")
    made.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    made.add_argument("--policy", default="lru", help="one policy; lru has an analytic truth")
    made.add_argument("--samples", type=int, default=None, help="as for the verb")
    made.add_argument("--no-truth", action="store_true", help="no full simulation of another policy than lru")
    return made


def main() -> int:
    return 0 if run(parser().parse_args()) else 1


if __name__ == "__main__":
    sys.exit(main())
