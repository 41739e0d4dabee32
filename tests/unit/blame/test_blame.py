"""What the views say first of recordings of each case, against what was injected: the short form of the benchmark."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
BLAME, FIXTURES = "benchmarks.blame.blame", "benchmarks.blame.fixtures"
RECORDED = sorted(path.name for path in (ROOT / "tests" / "fixtures" / "blame").iterdir())


@pytest.fixture(scope="module")
def blame() -> Iterator[dict[str, ModuleType]]:
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for place in (ROOT, ROOT / "benchmarks" / "verdicts"):
            patch.syspath_prepend(str(place))
        yield {name: importlib.import_module(name) for name in (BLAME, FIXTURES)}
    # Other benchmarks have modules of the same names.
    for name in ("bed", "injectors", *(name for name in set(sys.modules) - before if name.startswith("benchmarks"))):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("case", RECORDED)
def test_the_right_one_is_named_and_nobody_else(blame: dict[str, ModuleType], case: str, tmp_path: Path) -> None:
    fixture = ROOT / "tests" / "fixtures" / "blame" / case
    run_id = blame[FIXTURES].restore(fixture, tmp_path)
    judged = blame[BLAME].judge(case, tmp_path, run_id)
    expected = "right" if blame[BLAME].CASES[case].view else "quiet"
    assert judged.outcome == expected, judged.sentences


@pytest.mark.parametrize(
    ("case", "view", "sentence", "outcome"),
    [
        ("slow-disk", "balance", "osd.1 is slow: a read takes 90 ms, that of its peers 9 ms.", "right"),
        ("slow-disk", "balance", "osd.2 is slow: a read takes 90 ms, that of its peers 9 ms.", "wrong"),
        ("slow-disk", "balance", "No OSD stands out: neither its load nor its latency is unlike its peers'.", "silent"),
        ("uniform-ssd", "timeline", "After 10 s reads went from 1/s to 9/s.", "quiet"),
        ("uniform-ssd", "timeline", "After 10 s reads went from 1/s to 9/s, and with it image vms/vm1.", "wrong"),
        ("uniform-ssd", "devices", "vms/vm1 does 60 % of the I/O: 6 of 10 IOPS.", "wrong"),
    ],
)
def test_what_counts_as_right(blame: dict[str, ModuleType], case: str, view: str, sentence: str, outcome: str) -> None:
    said = dict.fromkeys(blame[BLAME].VIEWS, "No image stands out.") | {view: sentence}
    assert blame[BLAME].Judged(case, said).outcome == outcome
