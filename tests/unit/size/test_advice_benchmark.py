"""The benchmark of the advice against brute force at a size that runs in seconds, and that it would see bad advice."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow.compute as pc
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "advice"


@pytest.fixture
def advice(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("advice")
    sys.modules.pop("advice", None)


def test_the_advice_is_among_the_best_of_all_configurations(advice: ModuleType, tmp_path: Path) -> None:
    space = advice.Space(policies=("s3-fifo", "lru", "lirs"), shares=(0.05, 0.1, 0.3, 0.6, 1.0))
    trace = advice.write_csv(tmp_path / "t.csv", *advice.synthetic(3, 2000))
    for one in advice.compare("smoke", trace, space, 1, budgets=(0.3,)):
        assert one.ok, advice.show(one)
        assert one.simulated < one.brute


def test_a_bad_choice_is_seen(advice: ModuleType, tmp_path: Path) -> None:
    """Told of 4K lines only, the advice is far from the best of a trace of neighbours."""
    trace = advice.write_csv(tmp_path / "t.csv", *advice.synthetic(3, 2000))
    workload, question, rows = advice.advised(trace, 1)
    brute = advice.brute_force(workload, advice.Space(policies=("lru",), shares=(0.3, 1.0)))
    outcome = advice.judge("bad", question, rows.filter(pc.field("line_bytes") == 4096), brute)
    assert not outcome.ok
    assert "MISSED" in advice.show(outcome)
