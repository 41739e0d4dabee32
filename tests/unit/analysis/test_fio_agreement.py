"""Percentiles from recorded fio output equal those that fio printed itself, to the width of its bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bathyscope.analysis import latency
from bathyscope.analysis.columns import where
from bathyscope.load import fio
from bathyscope.records import Histogram, RawAnswer

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASES = sorted(
    str(path.parent.relative_to(FIXTURES))
    for op in ("read", "write")
    for path in FIXTURES.glob(f"fio/*/*rand{op}*/fio-0.json")
)


@pytest.mark.parametrize("case", CASES)
def test_percentiles_agree_with_fio(case: str, recorded: Callable[[str], list[RawAnswer]]) -> None:
    answer = recorded(case)[0]
    buckets = fio.parse(answer, step_index=0, client="fio#0").tables[Histogram]
    job = fio.read_output(answer).jobs[0]
    compared = 0
    for direction in ("read", "write"):
        for kind in ("slat", "clat", "lat"):
            printed = job[direction].get(f"{kind}_ns", {}).get("percentile", {})
            histogram = latency.from_rows(where(buckets, direction=direction), kind=kind)
            for text, value in printed.items():
                found = histogram.quantile_ns(float(text) / 100)
                if histogram.io_count == 0 or found is None:
                    continue
                assert abs(found - value) <= max(1.0, value / 64), (kind, text)
                compared += 1
    assert compared >= 10


def test_there_is_something_to_compare() -> None:
    assert {case.split("/")[1] for case in CASES} >= {"3.33"}
