"""The checks of benchmarks/overhead at a smoke size: their arithmetic and that nothing is far off.

The limits that count are those of the benchmark, on a quiet machine; here others may be at work, so these only
catch what is wrong by much.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
SMALL = {"pairs": 3, "pattern": "randread-4K-qd4", "image_size": "32M"}


@pytest.fixture(scope="module")
def overhead() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "overhead" / "overhead.py"
    spec = importlib.util.spec_from_file_location("overhead_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["overhead_benchmark"] = module
    spec.loader.exec_module(module)
    return module


def test_a_plan_takes_little_more_than_its_loads(cluster: Any, overhead: ModuleType, tmp_path: Path) -> None:
    found = overhead.check_time(cluster.target, tmp_path, argparse.Namespace(runtime=1.0, **SMALL))
    assert found["steps"] == 12
    assert found["loads_s"] == 24
    # What surrounds a step is the same for one of 1 s and one of 10 s: 1.25 there is 2.4 here.
    assert 1 < found["ratio"] < 4


def test_capture_costs_little(cluster: Any, overhead: ModuleType, tmp_path: Path) -> None:
    found = overhead.check_capture(cluster.target, tmp_path, argparse.Namespace(runtime=1.0, **SMALL))
    assert len(found["ratios"]) == 3
    assert found["median_loss"] < 0.3


def test_our_figures_are_those_of_plain_fio(cluster: Any, overhead: ModuleType, tmp_path: Path) -> None:
    found = overhead.check_plain(cluster.target, tmp_path, argparse.Namespace(runtime=1.0, **{**SMALL, "pairs": 5}))
    assert len(found["ours"]) == len(found["plain"]) == 5
    low, high = found["interval_95"]
    assert low <= found["ratio"] <= high
    # The run-to-run interval of five short pairs on a machine with others on it.
    assert low <= 1.1
    assert high >= 0.9
