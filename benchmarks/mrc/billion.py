"""A generated trace of a billion references: time, memory, and distance from the analytic curve.

References are independent with the popularity of a bounded Pareto distribution cut to integers, whose probabilities
are known exactly. The LRU miss ratio then follows from the characteristic time T of a cache of C lines (Che, Tung,
Wang, IEEE JSAC 2002): C = sum(1 - exp(-p T)). A reference at time t misses when its line was not touched within the
last min(t, T), so a trace of N references misses C / N + (1 - T / N) sum(p exp(-p T)): cold misses are in it.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np
import numpy.typing as npt
from common import WorkHash, warn_on_debug_build

from bathyscope import _core

UNIVERSE = 1 << 22
ALPHA = 0.9
CHUNK = 1 << 22
LINE = 4096
BOUND = 0.005
MEMORY_BOUND_BYTES = 2 << 30
SCATTER = 2_654_435_761
"""Odd, so that the multiplication permutes the lines: popular lines are not neighbours."""

Floats = npt.NDArray[np.float64]


def generate(rng: np.random.Generator, count: int, universe: int) -> npt.NDArray[np.uint64]:
    """Line numbers by inversion of the distribution."""
    top = (universe + 1.0) ** (1 - ALPHA) - 1
    ranks = (rng.random(count) * top + 1) ** (1 / (1 - ALPHA))
    lines = np.minimum(ranks, universe).astype(np.uint64) - np.uint64(1)
    return (lines * np.uint64(SCATTER)) & np.uint64(universe - 1)


def probabilities(universe: int) -> Floats:
    """The probability of each line, the most popular first."""
    edges = np.arange(1, universe + 2, dtype=np.float64) ** (1 - ALPHA)
    return np.diff(edges) / (edges[-1] - 1)


def analytic(references: int, p: Floats, sizes: npt.NDArray[np.uint64]) -> Floats:
    """The expected miss ratio of each size. `p` falls; it is binned so finely that the binning does not show."""
    universe = len(p)
    starts = np.unique(
        np.concatenate([np.arange(min(1000, universe)), np.geomspace(1, universe - 1, 6000).astype(int)])
    )
    counts = np.diff(np.append(starts, universe))
    mean = np.add.reduceat(p, starts) / counts
    times = np.geomspace(1, references, 4000)
    filled = np.array([counts @ -np.expm1(-mean * t) for t in times])
    steady = np.array([(counts * mean) @ np.exp(-mean * t) for t in times])
    misses = filled / references + (1 - times / references) * steady
    ratio: Floats = np.interp(sizes.astype(np.float64), filled, misses)
    return ratio


def run(references: int, universe: int, samples: int, seed: int = 1) -> bool:
    """Print the figures; True when the bounds hold."""
    warn_on_debug_build()
    rng = np.random.default_rng(seed)
    profile = _core.profile_keys(np.empty(0, np.uint64), line_bytes=LINE, max_lines=samples)
    generating = profiling = 0.0
    for start in range(0, references, CHUNK):
        before = time.perf_counter()
        keys = generate(rng, min(CHUNK, references - start), universe)
        between = time.perf_counter()
        profile.add_keys(keys)
        generating += between - before
        profiling += time.perf_counter() - between
    sizes = np.linspace(universe / 100, universe, 100).astype(np.uint64)
    curve = profile.curve(sizes, "lines", "all")
    difference = np.abs(curve["miss_ratio"] - analytic(references, probabilities(universe), sizes))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    work = WorkHash()
    work.add(curve["miss_ratio"])
    print(f"{references:,} references over {universe:,} lines, {samples:,} samples, estimate {curve['estimate']}")
    print(
        f"generated in {generating:.1f} s, profiled in {profiling:.1f} s ({references / profiling / 1e6:.0f} M refs/s)"
    )
    print(f"profile {profile.memory_bytes / 2**20:.1f} MiB, peak of the process {peak / 2**20:.0f} MiB")
    print(f"distance from the analytic curve: mean {difference.mean():.5f}, largest {difference.max():.5f}")
    print(f"hash of the work {work}")
    return bool(difference.max() <= BOUND) and peak <= MEMORY_BOUND_BYTES


def main() -> int:
    parser = argparse.ArgumentParser(description="A billion references: time, memory, accuracy.")
    parser.add_argument("--references", type=int, default=1_000_000_000)
    parser.add_argument("--samples", type=int, default=131_072, help="tracked lines; 32768 gives a smaller profile")
    options = parser.parse_args()
    return 0 if run(options.references, UNIVERSE, options.samples) else 1


if __name__ == "__main__":
    sys.exit(main())
