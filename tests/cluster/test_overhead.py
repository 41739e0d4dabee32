"""The checks of benchmarks/overhead at a smoke size: that they measure what they say, and their arithmetic.

Nothing here depends on how fast the machine is or what else runs on it; the limits are those of the benchmark.
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


def test_the_time_of_a_plan_is_held_against_that_of_its_loads(
    cluster: Any, overhead: ModuleType, tmp_path: Path
) -> None:
    found = overhead.check_time(cluster.target, tmp_path, argparse.Namespace(runtime=1.0, **SMALL))
    assert found["steps"] == 12
    assert found["loads_s"] == 24
    assert found["took_s"] > found["loads_s"]
    assert found["ratio"] == pytest.approx(found["took_s"] / found["loads_s"], abs=0.01)


def test_runs_with_all_captured_are_held_against_runs_with_nothing(
    cluster: Any, overhead: ModuleType, tmp_path: Path
) -> None:
    found = overhead.check_capture(cluster.target, tmp_path, argparse.Namespace(runtime=1.0, **SMALL))
    assert found["samples"]["off"] == 0
    assert found["samples"]["on"] > 100
    assert len(found["ratios"]) == 3
    assert found["median_loss"] == pytest.approx(1 - sorted(found["ratios"])[1], abs=0.001)
    low, high = found["ratio_interval_95"]
    assert low <= 1 - found["median_loss"] <= high
    # About 0.4 s for a run of one step; of three runs of a second, less than what a collection of garbage takes.
    assert abs(found["extra_cpu_s_of_a_run"]) < 2


def test_our_figures_are_held_against_plain_fio_in_turns(cluster: Any, overhead: ModuleType, tmp_path: Path) -> None:
    found = overhead.check_plain(cluster.target, tmp_path, argparse.Namespace(runtime=1.0, **SMALL))
    assert len(found["ours"]) == len(found["plain"]) == 3
    assert min(found["ours"] + found["plain"]) > 0
    low, high = found["interval_95"]
    assert low <= found["ratio"] <= high


def test_a_load_under_a_recording_is_held_against_the_same_load_alone(
    borrowed_lab: Any, overhead: ModuleType, tmp_path: Path
) -> None:
    with borrowed_lab("ssd=3") as cluster:
        options = argparse.Namespace(runtime=2.0, recordings=2, **SMALL | {"pairs": 1})
        before = cluster.snapshot()["osds"]
        for check in (overhead.check_collect, overhead.check_bursts):
            found = check(cluster.target, tmp_path, options)
            assert len(found["ratios"]) == 1
            assert found["ratios"][0] > 0
            assert found["median_loss"] == pytest.approx(1 - found["ratios"][0], abs=1e-4)
        assert cluster.snapshot()["osds"] == before
