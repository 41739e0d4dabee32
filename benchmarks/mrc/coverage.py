"""How often the 95 % bands of samples hold the truth, by salts; exit code 1 when one does so less than `LEAST`.

Programs walk disks in strides: a column of a table, a stripe of a volume, the first 4 KiB of every object. A sample
that treats neighbouring lines alike takes all or none of these.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import Keys, load_all, load_keys, trace_directory, warn_on_debug_build

from bathyscope import _core, mrc
from bathyscope.simulate.points import T95

LINE = 4096
LEAST = 0.90
STRIDES = (1, 2, 3, 4, 8, 16, 17, 60, 64, 100, 256, 1000, 1024, 4096)
MIXTURES = ((1, 4), (1, 64), (2, 256, 1024), (1, 16, 100, 4096))
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
REGION_LINES = (4, 16)
"""Regions that `bathy size` samples whole: four lines at least, 64 KiB for short requests."""

Floats = npt.NDArray[np.float64]
Estimate = Callable[[int], tuple[Floats, Floats]]
"""The hit ratio at each size and its standard error, of the sample of a salt."""


def places(rng: np.random.Generator, references: int, distinct: int) -> Keys:
    """Numbers below `distinct`: half of them skewed at random, half in loops over parts of all."""
    skewed = rng.permutation(distinct)[(rng.random(references) ** 3 * distinct).astype(np.int64)]
    lengths = np.geomspace(distinct / 20, distinct, 5).astype(np.int64)
    loops = np.concatenate([np.resize(np.arange(length), max(length, references // 5)) for length in lengths])
    return np.where(np.arange(references) % 2 == 0, skewed, np.resize(loops, references)).astype(np.uint64)


def strided(strides: tuple[int, ...], references: int, distinct: int) -> Keys:
    """A trace of several strided areas, each with its share of the references and of the lines, taken in turns."""
    rng = np.random.default_rng(sum(strides))
    count = len(strides)
    areas = [
        places(rng, references // count, distinct // count) * np.uint64(stride) + np.uint64(number << 34)
        for number, stride in enumerate(strides)
    ]
    return np.stack(areas, axis=1).ravel()


def of_profile(keys: Keys, sizes: npt.NDArray[np.uint64], samples: int) -> Estimate:
    """Stack distances of LRU, as `bathyscope.mrc` gives them."""

    def estimate(salt: int) -> tuple[Floats, Floats]:
        curve = mrc.mrc(keys, samples=samples, salt=salt, sizes_bytes=sizes * np.uint64(LINE))
        return curve.hit_ratio, curve.stderr

    return estimate


def of_engine(
    keys: Keys, sizes: npt.NDArray[np.uint64], rate: float | None, policy: str, region_lines: int
) -> Estimate:
    """What `bathy size` simulates: the share of reads that hit."""
    rows = len(keys)
    nothing = np.zeros(rows, np.uint32)
    length_bytes, op = np.full(rows, LINE, np.uint32), np.zeros(rows, np.uint8)
    columns = (np.arange(rows, dtype=np.uint64), keys * np.uint64(LINE), length_bytes, op, nothing, nothing)

    def estimate(salt: int) -> tuple[Floats, Floats]:
        core = _core.EnginePass()
        core.add_engine(policy, LINE, sizes, rate=rate, salt=salt, sample_region_bytes=region_lines * LINE)
        core.add_requests(*columns)
        found = core.results(0)
        return found["read_requests_hit"] / found["read_requests"], found["read_hit_stderr"]

    return estimate


@dataclass(frozen=True)
class Coverage:
    """Of all salts and sizes: how often the band holds the truth, the mean error, and half of the mean band."""

    share: float
    error: float
    half: float

    def __str__(self) -> str:
        return f"{self.share:6.1%} {self.error:.4f} ±{self.half:.4f}"


def coverage(estimate: Estimate, truth: Floats, salts: int) -> Coverage:
    """Hold the estimates of every salt against the truth."""
    found = [estimate(salt) for salt in range(salts)]
    errors = np.abs([hit - truth for hit, _ in found])
    halves = T95 * np.array([stderr for _, stderr in found])
    return Coverage(float((errors <= halves + 1e-9).mean()), float(errors.mean()), float(halves.mean()))


def run(traces: Iterable[tuple[str, Keys]], samples: int, salts: int, policies: Iterable[str]) -> bool:
    """Print a row for each trace; True when every band holds the truth often enough."""
    warn_on_debug_build()
    good = True
    print("share of bands that hold the truth, mean error, half of the mean band")
    for name, keys in traces:
        distinct = len(np.unique(keys))
        if samples >= distinct / 2:
            continue
        sizes = np.unique(np.maximum(1, np.rint(distinct * np.array(SHARES)))).astype(np.uint64)
        truth = mrc.mrc(keys, samples=None, sizes_bytes=sizes * np.uint64(LINE)).hit_ratio
        found = {"profile": coverage(of_profile(keys, sizes, samples), truth, salts)}
        for policy in policies:
            for region in REGION_LINES:
                exact, _ = of_engine(keys, sizes, None, policy, region)(0)
                engine = of_engine(keys, sizes, samples / distinct, policy, region)
                found[f"{policy}, regions of {region}"] = coverage(engine, exact, salts)
        print(name)
        for label, one in found.items():
            good &= one.share >= LEAST
            print(f"  {label:24} {one}  {'ok' if one.share >= LEAST else 'MISSED'}", flush=True)
    return good


def generated(references: int, distinct: int) -> Iterator[tuple[str, Keys]]:
    """Traces of single strides and of mixtures."""
    for strides in (*((stride,) for stride in STRIDES), *MIXTURES):
        yield "stride " + " and ".join(map(str, strides)), strided(strides, references, distinct)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="*", type=Path, help="trace files instead of those of BATHY_TRACES")
    parser.add_argument("--salts", type=int, default=100)
    parser.add_argument("--references", type=int, default=200_000, help="of a generated trace")
    parser.add_argument("--distinct", type=int, default=40_000, help="of a generated trace")
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--policy", action="append", help="default: lru and s3-fifo")
    options = parser.parse_args()
    policies = options.policy or ["lru", "s3-fifo"]
    good = True
    if options.trace:
        good = run(((path.name, load_keys(path)) for path in options.trace), options.samples, options.salts, policies)
    else:
        made = generated(options.references, options.distinct)
        good = run(made, options.samples, options.salts, policies)
        directory = trace_directory()
        if directory is not None:
            good &= run(load_all(directory), options.samples, options.salts, policies)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
