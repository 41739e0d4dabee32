"""Writes op rows in segments, joins and queries them, and prints how long that took and how much memory it needed.

    python benchmarks/store/ops.py [--rows 10000000] [--directory DIRECTORY]

Memory is the greatest resident set of this process (VmHWM), the libraries included. The aim: ten million rows within
1 GiB.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.records import Op, build_table
from bathyscope.store import RunDirectory, Workspace, duck

SEGMENT_ROWS = 250_000
SECOND_NS = 10**9
START_NS = 1_790_000_000 * SECOND_NS
OPS_PER_S = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        print(json.dumps(measure(Path(directory), arguments.rows), indent=1))


def measure(directory: Path, rows: int) -> dict[str, float]:
    """Return seconds and peak memory in MiB after each part of the work."""
    found: dict[str, float] = {"rows": rows, "imports_mib": peak_mib()}
    with Workspace(directory).create_run(kind="collect", started_ns=START_NS) as run:
        with timed(found, "write"):
            write(run, rows)
        with timed(found, "query_segments"):
            query(run, rows)
        with timed(found, "window_of_segments"):
            window(run, rows)
        with timed(found, "compact"):
            run.compact()
        with timed(found, "query"):
            query(run, rows)
        with timed(found, "window"):
            window(run, rows)
    return found


def write(run: RunDirectory, rows: int) -> None:
    random = np.random.default_rng(1)
    for number, first in enumerate(range(0, rows, SEGMENT_ROWS)):
        with run.begin_segment(f"part-{number:05d}") as writer:
            writer.table(Op, ops(random, first, min(SEGMENT_ROWS, rows - first)))
            writer.commit()


def ops(random: np.random.Generator, first: int, count: int) -> pa.Table:
    """Return rows as wide and as varied as those of a large cluster."""
    started_ns = START_NS + np.arange(first, first + count) * (SECOND_NS // OPS_PER_S)
    objects = random.integers(0, 1 << 20, count)
    parts = random.lognormal(12, 1, (5, count)).astype(np.int64)
    client = random.integers(0, 1000, count)
    return build_table(
        Op,
        {
            "osd": random.integers(0, 1000, count),
            "client": names("client.", client),
            "client_address": names("10.0.0.", client % 250),
            "pool_id": 2,
            "pg": names("2.", objects % 4096),
            "object_name": names("rbd_data.5e6b1c7d2a34.000000000", objects),
            "op": pa.array(["read", "write"]).take(pa.array(random.integers(0, 2, count))),
            "offset_bytes": random.integers(0, 1024, count) * 4096,
            "length_bytes": 4096,
            "started_ns": started_ns,
            "duration_ns": parts.sum(axis=0),
            **dict(zip(("queue_ns", "prepare_ns", "store_ns", "replica_wait_ns", "reply_ns"), parts, strict=True)),
            "slowest_peer": random.integers(0, 1000, count),
            "complete_sample": True,
            "complete_since_ns": START_NS,
        },
    )


def names(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def query(run: RunDirectory, rows: int) -> None:
    sql = """
        SELECT count(*) AS n, (SELECT count(*) FROM (SELECT osd, op, avg(duration_ns), quantile_cont(duration_ns, 0.99)
        FROM op GROUP BY osd, op)) AS groups, (SELECT max(n) FROM (SELECT object_name, count(*) AS n FROM op
        GROUP BY object_name)) AS hottest FROM op
    """
    (row,) = duck.query([run], sql).to_pylist()
    assert row["n"] == rows
    assert row["groups"] <= 2000


def window(run: RunDirectory, rows: int) -> None:
    start_ns = START_NS + rows // 2 * (SECOND_NS // OPS_PER_S)
    table = run.table(Op, start_ns=start_ns, end_ns=start_ns + 10 * SECOND_NS, columns=["started_ns", "duration_ns"])
    assert table.num_rows == 10 * OPS_PER_S


@contextmanager
def timed(found: dict[str, float], what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    found[f"{what}_s"] = round(time.perf_counter() - started, 2)
    found[f"{what}_mib"] = peak_mib()


def peak_mib() -> float:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return round(int(match[1]) / 1024, 1)


if __name__ == "__main__":
    main()
