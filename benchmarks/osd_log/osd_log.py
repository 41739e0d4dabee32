"""How fast logs of OSDs are read, beside `grep | awk` that counts the same.

    python benchmarks/osd_log/osd_log.py [--megabytes 2000] [--directory DIRECTORY]

The log is a recorded one, repeated with other images and clients, in the page cache. Rates are by processor time: what
one processor does that has nothing else to do.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from typer.testing import CliRunner

from bathyscope import _core, cli
from bathyscope.osd_log import OsdLogs

RECORDED = Path(__file__).parents[2] / "tests" / "fixtures" / "osd_log" / "16.2.15"
REPEATS = 3
IMAGES = 997

# What the pipeline prints for each OSD, image and kind: count, bytes, sum of the latencies.
AWK = r"""
{
    at = index($0, ":::rbd_data."); if (!at) next
    rest = substr($0, at + 12)
    image = substr(rest, 1, index(rest, ".") - 1)
    list = substr(rest, index(rest, "[") + 1)
    op = list ~ /(^|,)(read|sparse-read) / ? "read" : "other"
    if (list ~ /(^|,)(write|writefull|zero|truncate|delete)[] ]/) op = "write"
    size = match(list, /[0-9]+~[0-9]+/) ? substr(list, RSTART, RLENGTH) : 0; sub(/.*~/, "", size)
    match($0, / osd\.[0-9]+ /); key = substr($0, RSTART + 5, RLENGTH - 6) " " image " " op
    count[key]++; bytes[key] += size; seconds[key] += $NF
}
END { for (key in count) print key, count[key], bytes[key], seconds[key] }
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    if _core.DEBUG_BUILD:
        print("warning: a debug build of the core; rates say nothing", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        print(json.dumps(measure(Path(directory), arguments.megabytes), indent=1))


def measure(directory: Path, megabytes: int) -> dict[str, Any]:
    """Return MB/s of each way to read a log at debug_osd 15, and of the reader at debug_ms 1."""
    stats = make(RECORDED / "debug_osd" / "ceph-osd.2.log.1.gz", directory / "ceph-osd.2.log", megabytes)
    found: dict[str, Any] = {"megabytes": round(stats.stat().st_size / 1e6, 1), "operations": read(stats)}
    assert counted(stats) == piped(stats)
    found["reader_mb_per_s"] = rate(stats, lambda: read(stats))
    found["import_mb_per_s"] = rate(stats, lambda: imported(stats, directory), repeats=1)
    found["grep_awk_mb_per_s"] = rate(stats, lambda: piped(stats))
    found["reader_over_grep_awk"] = round(found["reader_mb_per_s"] / found["grep_awk_mb_per_s"], 2)
    found["import_over_grep_awk"] = round(found["import_mb_per_s"] / found["grep_awk_mb_per_s"], 2)
    stats.unlink()
    messages = make(RECORDED / "debug_ms" / "ceph-osd.2.log", directory / "ceph-osd.2.log", megabytes // 4)
    found["messages_operations"] = read(messages)
    found["messages_reader_mb_per_s"] = rate(messages, lambda: read(messages))
    return found


def make(recorded: Path, path: Path, megabytes: int) -> Path:
    """Write a log of that size: whole copies of the recorded one, each with an image and a client of its own."""
    content = recorded.read_bytes()
    text = gzip.decompress(content) if recorded.suffix == ".gz" else content
    images = sorted(set(re.findall(rb"rbd_data\.((?:[0-9]+\.)?[0-9a-f]+)\.", text)))
    clients = sorted(set(re.findall(rb"client\.([0-9]+)", text)))
    with path.open("wb") as file:
        copy = 0
        while file.tell() < megabytes * 1_000_000:
            changed = text
            for image in images:
                changed = changed.replace(b"rbd_data." + image, b"rbd_data.%012x" % (copy % IMAGES))
            for client in clients:
                changed = changed.replace(b"client." + client, b"client.%d" % (100_000 + copy))
            file.write(changed)
            copy += 1
    # The first reading would find it dirty.
    os.sync()
    return path


def rate(path: Path, work: Callable[[], object], *, repeats: int = REPEATS) -> float:
    """Return MB for each second of processor time, this process's and its children's, of the best of some repeats."""
    best_s = float("inf")
    for _ in range(repeats):
        before_s = processor_s()
        work()
        best_s = min(best_s, processor_s() - before_s)
    return round(path.stat().st_size / 1e6 / best_s, 1)


def processor_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def read(path: Path) -> int:
    """Read a log as columns; return the number of operations."""
    reader = _core.OsdLogReader([str(path)])
    ops = 0
    while (batch := reader.next_batch()) is not None:
        ops += len(batch["op"])
    return ops


def counted(path: Path) -> dict[str, tuple[int, int]]:
    """Return count and bytes by OSD, image and kind, of what the reader gives."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for table in OsdLogs([path]).tables():
        rows = table.filter(pc.starts_with(table["object_name"], "rbd_data."))
        images = pc.extract_regex(rows["object_name"], r"^rbd_data\.(?P<image>[^.]+)").combine_chunks().field(0)
        lengths = np.nan_to_num(rows["length_bytes"].to_numpy(zero_copy_only=False)).astype(np.int64)
        for osd, image, op, length in zip(
            rows["osd"].to_pylist(), images.to_pylist(), rows["op"].to_pylist(), lengths.tolist(), strict=True
        ):
            counts[f"{osd} {image} {op}"] += 1
            sizes[f"{osd} {image} {op}"] += length
    return {key: (count, sizes[key]) for key, count in counts.items()}


def piped(path: Path) -> dict[str, tuple[int, int]]:
    """Return the same from `grep | awk`, as the scripts of operators do it."""
    environment = {**os.environ, "LC_ALL": "C"}
    with subprocess.Popen(
        ["grep", "-F", " log_op_stats osd_op(", str(path)], stdout=subprocess.PIPE, env=environment
    ) as grep:
        done = subprocess.run(
            ["awk", AWK], stdin=grep.stdout, stdout=subprocess.PIPE, env=environment, check=True, text=True
        )
    found = {}
    for line in io.StringIO(done.stdout):
        osd, image, op, count, size, _seconds = line.split()
        found[f"{osd} {image} {op}"] = (int(count), round(float(size)))
    return found


def imported(path: Path, directory: Path) -> None:
    """Import a log as the verb does: columns, Parquet, the table of the busiest images."""
    words = ["import", "osd-log", str(path), "--workspace", str(directory / "runs"), "--output", "json"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output


if __name__ == "__main__":
    main()
