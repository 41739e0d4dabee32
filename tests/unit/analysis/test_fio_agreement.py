"""Percentiles from recorded fio output equal those that fio printed itself, to the width of its bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from bathyscope.analysis import latency
from bathyscope.records import Histogram, to_table
from bathyscope.sources import fio
from bathyscope.sources.base import load_raw

FIXTURES = Path(__file__).parents[2] / "fixtures" / "fio"
CASES = sorted(path.parent for path in FIXTURES.glob("*/*randread*/fio-0.json")) + sorted(
    path.parent for path in FIXTURES.glob("*/*randwrite*/fio-0.json")
)


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_percentiles_agree_with_fio(case: Path) -> None:
    answer = load_raw(case)[0]
    rows = fio.parse("r", 0, answer, client="fio#0")
    job = fio.read_output(answer).jobs[0]
    compared = 0
    for direction in ("read", "write"):
        for kind in ("slat", "clat", "lat"):
            printed = job[direction].get(f"{kind}_ns", {}).get("percentile", {})
            own = [h for h in rows.histograms if h.direction == direction]
            histogram = latency.from_rows(to_table(Histogram, own), kind=kind)
            for text, value in printed.items():
                found = histogram.quantile_ns(float(text) / 100)
                if histogram.io_count == 0 or found is None:
                    continue
                assert abs(found - value) <= max(1.0, value / 64), (kind, text)
                compared += 1
    assert compared >= 10


def test_there_is_something_to_compare() -> None:
    assert {case.parent.name for case in CASES} >= {"3.33"}
