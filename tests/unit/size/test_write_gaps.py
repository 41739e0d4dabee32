"""How much of what writes touch they leave unwritten, counted here from the requests, and what it does to the hits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bathyscope.simulate.trace import TraceFiles

from .curves import curve_points, whole
from .traces import LINE, Row, write_csv


def gaps(path: Path, **changes: object) -> dict[int, float | None]:
    rows, _ = curve_points(TraceFiles([path]), **changes)
    return {row.line_bytes: row.write_gap_ratio for row in whole(rows)}


@pytest.mark.parametrize("samples", [None, 2048])
def test_the_gap_is_counted_request_by_request(tmp_path: Path, samples: int | None) -> None:
    rng = random.Random(3)
    rows: list[Row] = [
        (t, rng.choice(["read", "write"]), 512 * rng.randrange(1 << 16), 512 * rng.randrange(1, 40), rng.choice("ab"))
        for t in range(5000)
    ]
    path = write_csv(tmp_path / "t.csv", rows)
    writes = [(offset, length) for _, op, offset, length, _ in rows if op == "write"]
    written = sum(length for _, length in writes)

    def expected(unit: int) -> float:
        touched = sum((offset + length - 1) // unit - offset // unit + 1 for offset, length in writes) * unit
        return 1 - written / touched

    sizes = (4096, 65_536)
    found = gaps(path, line_bytes=sizes, samples=samples)
    assert found == {line: pytest.approx(expected(line)) for line in sizes}
    found = gaps(path, line_bytes=sizes, fetch_bytes=2048, samples=samples)
    assert found == {line: pytest.approx(expected(2048)) for line in sizes}
    assert gaps(path, line_bytes=sizes, fetch_bytes=1024, on_write="invalidate") == dict.fromkeys(sizes)


def test_aligned_writes_leave_nothing_and_no_writes_have_no_gap(tmp_path: Path) -> None:
    aligned: list[Row] = [(t, "write", t * 3 * LINE, 2 * LINE, "a") for t in range(100)]
    assert gaps(write_csv(tmp_path / "a.csv", aligned), line_bytes=(LINE,)) == {LINE: 0.0}
    reads: list[Row] = [(t, "read", t * 512, 512, "a") for t in range(100)]
    assert gaps(write_csv(tmp_path / "r.csv", reads), line_bytes=(LINE,)) == {LINE: None}


def test_what_the_caveat_says_is_so(tmp_path: Path) -> None:
    """Each 4 KiB block is written and then read: a hit where the unit is the block, a miss where it is the line."""
    rows: list[Row] = []
    for step in range(2000):
        offset = step * 65_536
        rows += [(2 * step, "write", offset, LINE, "a"), (2 * step + 1, "read", offset, LINE, "a")]
    path = write_csv(tmp_path / "t.csv", rows)
    hits = {}
    for fetch in (None, LINE, 16_384, 65_536):
        rows_found, _ = curve_points(TraceFiles([path]), line_bytes=(65_536,), policies=("lru",), fetch_bytes=fetch)
        hits[fetch] = whole(rows_found)[-1].read_hit_ratio
    # Whatever is fetched, units are those of bathyd.
    assert hits == {None: 0.0, LINE: 1.0, 16_384: 1.0, 65_536: 1.0}
