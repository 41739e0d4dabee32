"""Traces whose curves are known, as CSV files of our own format."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

LINE = 4096
Row = tuple[int, str, int, int, str]
"""Time in microseconds, op, offset, length, volume."""


def write_csv(path: Path, rows: Iterable[Row], latency_us: int | None = None) -> Path:
    header = "time_us,op,offset_bytes,length_bytes,volume" + ("" if latency_us is None else ",latency_us")
    tail = "" if latency_us is None else f",{latency_us}"
    lines = [f"{time},{op},{offset},{length},{volume}{tail}" for time, op, offset, length, volume in rows]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def loop_and_scan(rounds: int = 50, lines: int = 100) -> list[Row]:
    """Image "loop" reads the same lines over and over; image "scan" reads as many, never the same twice."""
    rows: list[Row] = []
    for step in range(rounds * lines):
        rows.append((2 * step * 1000, "read", step % lines * LINE, LINE, "loop"))
        rows.append(((2 * step + 1) * 1000, "read", step * LINE, LINE, "scan"))
    return rows


def lru_hits(keys: Iterable[int], size: int) -> int:
    """The definition of a cache, slowly."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in keys:
        if key in cache:
            hits += 1
            cache.move_to_end(key)
        else:
            if len(cache) == size:
                cache.popitem(last=False)
            cache[key] = None
    return hits
