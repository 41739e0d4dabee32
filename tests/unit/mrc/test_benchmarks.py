"""The miss-ratio benchmarks at a size that runs in a second, so that they do not rot."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from bathyscope import mrc

ROOT = Path(__file__).parents[3]
BENCHMARKS = ROOT / "benchmarks" / "mrc"
TRACES = ROOT / "tests" / "fixtures" / "traces"
NAMES = ("common", "accuracy", "speed", "billion", "verb", "coverage", "tables")


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name, None)


def test_accuracy_holds_on_the_excerpts(benchmarks: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]) -> None:
    load = benchmarks["common"].load_keys
    names = ("cloudphysics_excerpt.vscsi", "multi3.lirs")
    assert benchmarks["accuracy"].run([(name, load(TRACES / name), TRACES / name) for name in names])
    output = capsys.readouterr().out
    assert "MISSED" not in output
    assert output.count("the same curve") == 2
    assert "hash of the work" in output


@pytest.mark.parametrize("name", ["arc/made.lis", "lirs/cs-500.trace.gz", "vscsi1/cloudPhysicsIO-400.vscsi"])
def test_two_readers_agree_on_a_trace(benchmarks: dict[str, ModuleType], name: str) -> None:
    path = TRACES / name
    truth = mrc.mrc(benchmarks["common"].load_keys(path), samples=None)
    assert benchmarks["accuracy"].check_reader(path, truth)
    another = mrc.mrc(benchmarks["common"].load_keys(path)[:-1], samples=None, sizes_bytes=truth.sizes_bytes)
    assert not benchmarks["accuracy"].check_reader(path, another)


def test_two_readers_agree_on_volumes_and_trims(benchmarks: dict[str, ModuleType], tmp_path: Path) -> None:
    path = tmp_path / "made.csv"
    lines = ("volume,op,offset_bytes,length_bytes", "b,read,0,8192", "a,write,0,8192", "a,trim,0,4096")
    more = ("b,R,4096,1", "a,r,1,8192", "")
    path.write_text("\n".join(lines + more))
    keys = benchmarks["common"].load_keys(path)
    assert len(keys) == 8
    assert benchmarks["accuracy"].check_reader(path, mrc.mrc(keys, samples=None))


@pytest.mark.parametrize("strides", [(1,), (4,), (64,), (4096,), (1, 16, 1000)])
def test_the_bands_of_samples_hold_for_strides(
    benchmarks: dict[str, ModuleType], capsys: pytest.CaptureFixture[str], strides: tuple[int, ...]
) -> None:
    keys = benchmarks["coverage"].strided(strides, 60_000, 16_000)
    # Sizes of one salt stand or fall together: sixteen salts cannot tell 88 % from 94 %.
    assert benchmarks["coverage"].run([("made", keys)], 4096, 48, ["s3-fifo"]), capsys.readouterr().out


def test_speed_prints_every_case(benchmarks: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]) -> None:
    keys = np.random.default_rng(1).integers(0, 2000, 200_000).astype(np.uint64)
    benchmarks["speed"].run("smoke", keys, runs=1)
    output = capsys.readouterr().out
    assert output.count("M refs/s") >= 6
    assert "s3-fifo" in output


def test_the_generated_trace_follows_the_analytic_curve(
    benchmarks: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmarks["billion"].run(2_000_000, 1 << 15, 1 << 15)
    assert "analytic" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--policy", "lru"], "4K lines: "),
        (["--policy", "s3-fifo", "--samples", "1024", "--line", "4K"], "simulated in full"),
        (["--policy", "sieve", "--no-truth", "--requests", "1000", "--at-least", "100K", "--line", "4K"], "no truth"),
    ],
)
def test_the_verb_is_run_as_a_program_and_compared(
    benchmarks: dict[str, ModuleType], capfd: pytest.CaptureFixture[str], tmp_path: Path, given: list[str], words: str
) -> None:
    verb = benchmarks["verb"]
    small = ["--requests", "100000", "--universe", str(1 << 14), "--directory", str(tmp_path)]
    assert verb.run(verb.parser().parse_args([*small, *given]))
    output = capfd.readouterr().out
    assert "M requests/s, peak" in output
    assert words in output
    assert "MISSED" not in output
    assert list(tmp_path.iterdir()) == []


def test_a_curve_that_is_off_is_missed(benchmarks: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]) -> None:
    point = {"value": 0.5, "low": 0.48, "high": 0.52}
    found = {"curves": [{"group_kind": "all", "line_bytes": 4096, "points": [{"size_bytes": 8192, "read_hit": point}]}]}
    assert benchmarks["verb"].distances(found, {4096: {8192: 0.524}})
    assert not benchmarks["verb"].distances(found, {4096: {8192: 0.526}})
    assert "MISSED" in capsys.readouterr().out


def test_a_parquet_table_gives_the_curves_of_the_same_csv(
    benchmarks: dict[str, ModuleType], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tables = benchmarks["tables"]
    given = ["--rows", "20000", "--universe", "4096", "--runs", "1", "--directory", str(tmp_path), "--option=--line=4K"]
    # What a table of this size takes is all fixed cost; whether it is worse than CSV is not looked at here.
    tables.run(tables.parser().parse_args(given))
    output = capsys.readouterr().out
    assert output.count("the same curves") == 3
    assert "OTHER" not in output
    assert list(tmp_path.iterdir()) == []


def test_tables_that_are_worse_or_differ_are_missed(benchmarks: dict[str, ModuleType]) -> None:
    tables = benchmarks["tables"]
    base = tables.Cost(1.0, 1.0, 100, [1])
    assert tables.judged({"CSV": [base], "Parquet": [tables.Cost(1.0, 1.0, 104, [1])]})
    assert not tables.judged({"CSV": [base], "Parquet": [tables.Cost(1.0, 1.0, 120, [1])]})
    assert not tables.judged({"CSV": [base], "Parquet": [tables.Cost(1.5, 1.0, 100, [1])]})
    assert not tables.judged({"CSV": [base], "Parquet": [tables.Cost(1.0, 1.0, 100, [2])]})


def test_without_traces_the_benchmarks_say_so(
    benchmarks: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BATHY_TRACES", raising=False)
    monkeypatch.setattr(sys, "argv", ["accuracy.py"])
    assert benchmarks["accuracy"].main() == 0
    assert "BATHY_TRACES" in capsys.readouterr().err
