"""A Parquet table of operations beside the same as CSV: time, processor time and peak memory of `bathy size`.

Both hold reads of 4 KiB of one image, popular as in `billion.py`. The third table has the same rows in no order. All
three must give the same curves; Parquet may take no more memory than CSV and no more time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from billion import UNIVERSE, generate
from common import warn_on_debug_build
from pyarrow import csv, parquet

from bathyscope.spec.step import DEFAULT_OBJECT_BYTES
from bathyscope.units import format_bytes

CHUNK = 1 << 20
BLOCK = 4096
INTERVAL_NS = 100_000
IMAGE = "5f3a2b"
MORE_MEMORY, MORE_TIME = 1.05, 1.10
"""Of that of CSV, beyond which Parquet is too large or too slow: what two runs of the same differ by."""


def operations(rows: int, universe: int, *, in_order: bool) -> Iterator[pa.Table]:
    """Yield the operations in pieces, the same ones in either order."""
    rng = np.random.default_rng(1)
    blocks = np.concatenate([generate(rng, min(CHUNK, rows - at), universe) for at in range(0, rows, CHUNK)])
    order = np.arange(rows) if in_order else np.random.default_rng(2).permutation(rows)
    for at in range(0, rows, CHUNK):
        number = order[at : at + CHUNK]
        place = blocks[number].astype(np.int64) * BLOCK
        objects, of_row = np.unique(place // DEFAULT_OBJECT_BYTES, return_inverse=True)
        names = pa.array([f"rbd_data.{IMAGE}.{one:016x}" for one in objects])
        count = len(number)
        yield pa.table(
            {
                "started_ns": number.astype(np.int64) * INTERVAL_NS,
                "osd": of_row.astype(np.int64) % 12,
                "pool_id": np.full(count, 2, np.int64),
                "object_name": names.take(pa.array(of_row)),
                "op": pa.array(["read"]).take(pa.array(np.zeros(count, np.int64))),
                "offset_bytes": place % DEFAULT_OBJECT_BYTES,
                "length_bytes": np.full(count, BLOCK, np.int64),
                "duration_ns": 2_000_000 + number.astype(np.int64) % 1_000_000,
                "place_bytes": place,
            }
        )


def write_parquet(path: Path, rows: int, universe: int, in_order: bool) -> None:
    """Write them as a run keeps them."""
    pieces = (piece.drop_columns("place_bytes") for piece in operations(rows, universe, in_order=in_order))
    first = next(pieces)
    with parquet.ParquetWriter(path, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(piece)


def write_csv(path: Path, rows: int, universe: int, in_order: bool) -> None:
    """Write them as a table of an image."""
    writer = None
    with path.open("wb") as file:
        for piece in operations(rows, universe, in_order=in_order):
            columns = {
                "time_ns": piece["started_ns"],
                "op": piece["op"],
                "offset_bytes": piece["place_bytes"],
                "length_bytes": piece["length_bytes"],
                "image": pc.utf8_slice_codeunits(piece["object_name"], len("rbd_data."), len(f"rbd_data.{IMAGE}")),
                "osd": piece["osd"],
                "latency_ns": piece["duration_ns"],
            }
            table = pa.table(columns)
            if writer is None:
                writer = csv.CSVWriter(file, table.schema, write_options=csv.WriteOptions(quoting_style="none"))
            writer.write_table(table)


@dataclass(frozen=True)
class Cost:
    """What one run took, and the points of its curves."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    points: list[Any]


def size(trace: Path, options: list[str]) -> Cost:
    """Run `bathy size` on a trace."""
    command = [sys.executable, "-m", "bathyscope.cli", "size", str(trace), "--output", "json", *options]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    found = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    points = [
        (curve["line_bytes"], point["size_bytes"], point["read_hit"])
        for curve in found["curves"]
        for point in curve["points"]
    ]
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, points)


def in_process(work: Any, *arguments: Any) -> None:
    """Run work in a process of its own: a program counts the memory of the one that it was started from as its peak."""
    process = multiprocessing.Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work.__name__} failed")


def run(options: argparse.Namespace) -> bool:
    """Print the table; True when Parquet is no worse than CSV and all curves are the same."""
    warn_on_debug_build()
    given = ["--threads", str(options.threads), *options.option]
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        tables = {
            "CSV": (Path(directory) / "ops.csv", write_csv, True),
            "Parquet": (Path(directory) / "ops.parquet", write_parquet, True),
            "Parquet, in no order": (Path(directory) / "shuffled.parquet", write_parquet, False),
        }
        for path, write, in_order in tables.values():
            in_process(write, path, options.rows, options.universe, in_order)
        print(f"{options.rows:,} rows, bathy size {' '.join(given)}; the best of {options.runs} runs, taken in turns")
        costs: dict[str, list[Cost]] = {name: [] for name in tables}
        for _ in range(options.runs):
            for name, (path, *_) in tables.items():
                costs[name].append(size(path, given))
        print(f"{'':22} {'file':>9} {'time':>8} {'processor':>10} {'peak memory':>12}")
        for name, found in costs.items():
            seconds, cpu = min(one.seconds for one in found), min(one.cpu_seconds for one in found)
            peak, length = max(one.peak_bytes for one in found), tables[name][0].stat().st_size
            print(f"{name:22} {format_bytes(length):>9} {seconds:6.1f} s {cpu:8.1f} s {format_bytes(peak):>12}")
    return judged(costs)


def judged(costs: dict[str, list[Cost]]) -> bool:
    """Say what is worse than CSV; True when nothing is. The table in no order has to be sorted: its time is its own."""
    base, good = costs["CSV"], True
    for name, found in costs.items():
        same = all(one.points == base[0].points for one in found)
        memory = max(one.peak_bytes for one in found) / max(one.peak_bytes for one in base)
        seconds = min(one.seconds for one in found) / min(one.seconds for one in base)
        fine = same and memory <= MORE_MEMORY and (seconds <= MORE_TIME or name not in {"CSV", "Parquet"})
        words = (
            f"{'the same' if same else 'OTHER'} curves, {memory:.2f} of the memory of CSV, {seconds:.2f} of its time"
        )
        print(f"{name}: {words}, {'ok' if fine else 'MISSED'}")
        good &= fine
    return good


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--rows", type=int, default=20_000_000)
    made.add_argument("--universe", type=int, default=UNIVERSE, help="blocks of 4 KiB, a power of two")
    made.add_argument("--directory", type=Path, default=None, help="where the tables are written; they are removed")
    made.add_argument("--runs", type=int, default=3)
    made.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    made.add_argument("--option", action="append", default=[], help="passed on to bathy size: --option=--line=64K")
    return made


def main() -> int:
    return 0 if run(parser().parse_args()) else 1


if __name__ == "__main__":
    sys.exit(main())
