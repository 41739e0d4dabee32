"""What the miss-ratio benchmarks share: traces, the optional peer, timing, a hash of the work."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import lzma
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from bathyscope import _core

Keys = npt.NDArray[np.uint64]

VSCSI1 = np.dtype(
    [
        ("serial", "<u4"),
        ("length_bytes", "<u4"),
        ("segments", "<u4"),
        ("command", "<u2"),
        ("version", "<u2"),
        ("sector", "<u8"),
        ("time_us", "<u8"),
    ]
)
ORACLE_GENERAL = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])


def warn_on_debug_build() -> None:
    """Say that figures of a debug build mean nothing."""
    if _core.DEBUG_BUILD:
        print("warning: the core is a debug build; these figures mean nothing", file=sys.stderr)


def trace_directory() -> Path | None:
    """The directory of BATHY_TRACES, or None after saying that it is missing."""
    value = os.environ.get("BATHY_TRACES")
    if value and Path(value).is_dir():
        return Path(value)
    print("skipped: set BATHY_TRACES to a directory with the traces (see benchmarks/mrc/README.md)", file=sys.stderr)
    return None


def load_keys(path: Path) -> Keys:
    """The 4 KiB line numbers of a trace, shape (references,), read without the product's own readers.

    Known by their names: .vscsi, .trace.xz (u32), .lis of ARC and .csv of the product (both also .gz or .zst), and for
    any other name one line number a line.
    """
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".vscsi"):
        records = np.fromfile(path, VSCSI1)
        return lines_of_extents(records["sector"].astype(np.int64) * 512, records["length_bytes"])
    if name.endswith(".trace.xz"):
        with lzma.open(path) as file:
            return np.frombuffer(file.read(), "<u4").astype(np.uint64)
    if name.endswith(".lis"):
        with pa.input_stream(path) as stream:
            numbers = np.array(stream.read().split(), np.int64).reshape(-1, 4)
        return lines_of_extents(numbers[:, 0] * 4096, numbers[:, 1] * 4096)
    if name.endswith(".csv"):
        table = csv.read_csv(path)
        if "op" in table.column_names:
            # Trims are no references.
            table = table.filter(pc.match_substring_regex(table["op"], "^[rRwW]"))
        volumes = np.zeros(len(table), np.int64)
        if "volume" in table.column_names:
            volumes = pc.rank(table["volume"], tiebreaker="dense").to_numpy().astype(np.int64)
        # Volumes lie a pebibyte apart, which no trace reaches within one of them.
        return lines_of_extents((volumes << 50) + table["offset_bytes"].to_numpy(), table["length_bytes"].to_numpy())
    opened: Any = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()  # noqa: SIM115 - entered below
    with opened as file:
        return np.array([int(line) for line in file if line.strip() not in {"", "*"}], np.uint64)


def lines_of_extents(offset_bytes: npt.NDArray[np.int64], length_bytes: npt.NDArray[Any]) -> Keys:
    """Every 4 KiB line that each extent touches, in order; extents of 0 bytes touch none."""
    touching = length_bytes > 0
    offset, length = offset_bytes[touching], length_bytes[touching].astype(np.int64)
    first = offset // 4096
    count = (offset + length - 1) // 4096 - first + 1
    starts = np.cumsum(count) - count
    return (np.repeat(first - starts, count) + np.arange(count.sum())).astype(np.uint64)


def load_all(directory: Path) -> Iterable[tuple[str, Keys]]:
    """Every trace of the directory by name."""
    for path in [directory / "w106.trace.xz", directory / "cloudPhysicsIO.vscsi"]:
        if path.exists():
            yield path.name.split(".")[0], load_keys(path)
    for path in sorted((directory / "lirs").glob("*.trace.gz")):
        yield "lirs/" + path.name.split(".")[0], load_keys(path)


def best_seconds(runs: int, *works: Callable[[], object]) -> list[float]:
    """The shortest time of each work; the works take turns, so that a busy machine slows all of them."""
    best = [float("inf")] * len(works)
    for _ in range(runs):
        for index, work in enumerate(works):
            start = time.perf_counter()
            work()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


class WorkHash:
    """A short hash over every result of a run."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, values: npt.ArrayLike) -> None:
        """Add results, rounded so that the order of additions does not matter."""
        self._hash.update(np.round(np.asarray(values, np.float64), 9).tobytes())

    def __str__(self) -> str:
        return self._hash.hexdigest()[:16]


class Peer:
    """libcachesim, if it is there, on a temporary file of the same references."""

    def __init__(self, keys: Keys) -> None:
        self.available = importlib.util.find_spec("libcachesim") is not None
        self._file = tempfile.NamedTemporaryFile(suffix=".oracleGeneral")  # noqa: SIM115 - lives with the peer
        if not self.available:
            return
        records = np.zeros(len(keys), ORACLE_GENERAL)
        records["id"] = keys + np.uint64(1)
        records["size"] = 1
        records["next"] = -2
        records["time"] = np.arange(len(keys)) // 1000
        records.tofile(self._file)
        self._file.flush()
        peer = importlib.import_module("libcachesim")
        self._reader = peer.TraceReader(self._file.name, peer.TraceType.ORACLE_GENERAL_TRACE)
        self._policies = {"lru": peer.LRU, "s3-fifo": peer.S3FIFO}

    def miss_ratio(self, policy: str, size_lines: int) -> float:
        """Miss ratio of one cache."""
        cache = self._policies[policy](size_lines, hashpower=20)
        return float(cache.process_trace(self._reader)[0])
