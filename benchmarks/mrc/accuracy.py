"""How far our curves are from the truth; exit code 1 when a bound is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import Keys, Peer, WorkHash, load_all, load_keys, trace_directory, warn_on_debug_build

from bathyscope import mrc

LINE = 4096
SALTS = 10
BOUNDS = {8192: 0.007, 32_768: 0.003}
MINIATURE_BOUND = 0.01
MINIATURE_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
PEER_SHARES = (0.01, 0.05, 0.1, 0.2)


def error(estimate: npt.NDArray[np.float64], truth: npt.NDArray[np.float64]) -> float:
    return float(np.abs(estimate - truth).mean())


def mean_and_worst(errors: Sequence[float]) -> str:
    return f"{np.mean(errors):.4f}/{max(errors):.4f}"


def check_peer(keys: Keys, distinct: int) -> tuple[str, bool]:
    """Exact LRU against libcachesim at several sizes: the largest difference."""
    peer = Peer(keys)
    if not peer.available:
        return "     -", True
    sizes = sorted({max(1, round(distinct * share)) for share in PEER_SHARES})
    ours = mrc.mrc(keys, samples=None, sizes_bytes=np.array(sizes) * LINE).miss_ratio
    worst = max(abs(float(our) - peer.miss_ratio("lru", size)) for our, size in zip(ours, sizes, strict=True))
    return f"{worst:.6f}", worst < 0.00005


def check_reader(path: Path, truth: mrc.MissRatioCurve) -> bool:
    """Whether the product's own reader gives the very curve of the keys, which other code read."""
    profiles = mrc.profile_traces([path], line_bytes=[LINE], samples=None)
    curve = profiles.profiles[0].profile.curve(truth.sizes_bytes)
    return bool(np.array_equal(curve.miss_ratio, truth.miss_ratio))


def check_samples(keys: Keys, truth: mrc.MissRatioCurve, samples: int, work: WorkHash) -> tuple[str, bool]:
    chosen, raw, adjusted, grouped = [], [], [], []
    for salt in range(SALTS):
        curve = mrc.mrc(keys, samples=samples, salt=salt, sizes_bytes=truth.sizes_bytes)
        group = mrc.profile(keys, samples=samples, salt=salt, group_bytes=65_536).curve(truth.sizes_bytes)
        chosen.append(error(curve.miss_ratio, truth.miss_ratio))
        raw.append(error(curve.miss_ratio_raw, truth.miss_ratio))
        adjusted.append(error(curve.miss_ratio_adjusted, truth.miss_ratio))
        grouped.append(error(group.miss_ratio, truth.miss_ratio))
        work.add(curve.miss_ratio)
    columns = (mean_and_worst(errors) for errors in (chosen, raw, adjusted, grouped))
    return "  ".join(columns), max(chosen) <= BOUNDS[samples]


def check_miniature(keys: Keys, distinct: int, work: WorkHash) -> tuple[str, bool]:
    sizes = np.array(sorted({max(1, round(distinct * share)) for share in MINIATURE_SHARES})) * LINE
    truth = mrc.simulate(keys, "s3-fifo", sizes_bytes=sizes)
    errors = []
    for salt in range(SALTS):
        curve = mrc.simulate(keys, "s3-fifo", sizes_bytes=sizes, rate=0.01, salt=salt)
        errors.append(error(curve.miss_ratio, truth.miss_ratio))
        work.add(curve.miss_ratio)
    return mean_and_worst(errors), max(errors) <= MINIATURE_BOUND


def run(traces: Iterable[tuple[str, Keys, Path | None]]) -> bool:
    """Print a table; True when every bound holds. Where a path is given, the product's reader is checked on it too."""
    warn_on_debug_build()
    work = WorkHash()
    good = True
    print("mean/worst absolute error of ten salts; samples: chosen, raw, adjusted, chosen by 64 KiB group")
    for name, keys, path in traces:
        truth = mrc.mrc(keys, samples=None)
        distinct = len(np.unique(keys))
        peer, fine = check_peer(keys, distinct)
        good &= fine
        print(f"{name}: {len(keys)} references, {distinct} distinct, exact against libcachesim {peer}")
        if path is not None:
            fine = check_reader(path, truth)
            good &= fine
            print(f"  read by bathy-trace: {'the same curve' if fine else 'ANOTHER CURVE'}")
        for samples in BOUNDS:
            text, fine = check_samples(keys, truth, samples, work)
            good &= fine
            print(f"  {samples:6} samples  {text}  {'ok' if fine else 'MISSED'}")
        text, fine = check_miniature(keys, distinct, work)
        good &= fine
        print(f"  s3-fifo miniature {text}  {'ok' if fine else 'MISSED'}", flush=True)
    print(f"hash of the work {work}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="*", type=Path, help="trace files instead of those of BATHY_TRACES")
    paths: list[Path] = parser.parse_args().trace
    if paths:
        return 0 if run((path.name, load_keys(path), path) for path in paths) else 1
    directory = trace_directory()
    if directory is None:
        return 0
    return 0 if run((name, keys, None) for name, keys in load_all(directory)) else 1


if __name__ == "__main__":
    sys.exit(main())
