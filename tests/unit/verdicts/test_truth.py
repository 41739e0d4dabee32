"""The verdicts of every recorded case, all at once: a change of a rule shows here what it does to each of them."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.unit.analysis.builders import ladder_finding, ladder_of
from tests.unit.views import golden

from bathyscope import layers
from bathyscope.records.account import Account, Ceiling
from bathyscope.records.figure import Figure
from bathyscope.records.finding import Verdict

ROOT = Path(__file__).parents[3]
NAMES = ("truth", "bed", "injectors", "cases", "runner", "fixtures", "recorded", "recordings")


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, ModuleType]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "verdicts"))
        yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def judged(verdicts: dict[str, ModuleType]) -> list[Any]:
    """Every load of every case that was recorded, in the order of the cases."""
    found: list[Any] = []
    directory, cases = verdicts["fixtures"].FIXTURES, verdicts["cases"].CASES
    recorded = {path.name for path in directory.iterdir()}
    assert recorded <= cases.keys(), "a fixture of no case"
    for name, case in cases.items():
        if name in recorded:
            finding = ladder_of(verdicts["fixtures"].read(directory / name), (), layers.views())
            found += verdicts["truth"].judge(name, dict(case.loads), finding, injected=not case.clean)
    return found


def said_of(truth: ModuleType, judged: list[Any]) -> str:
    blocks = [
        f"{one.case}, {one.pattern}: {one.outcome}\n"
        f"  true: {' or '.join(sorted(one.expect.limits))}{f' of {one.expect.subject}' if one.expect.subject else ''}\n"
        f"  said: {one.limit}{f' of {one.subject}' if one.subject else ''}. {one.sentence}\n"
        for one in judged
    ]
    runs = len({one.case for one in judged if not one.injected})
    return "".join(blocks) + "\n" + truth.totals_text(truth.totals(judged), runs)


@pytest.mark.slow
def test_what_is_said_of_every_recorded_case(verdicts: dict[str, ModuleType], judged: list[Any]) -> None:
    golden.check("verdicts.txt", said_of(verdicts["truth"], judged))


@pytest.mark.slow
def test_what_a_recording_says_of_the_same_loads(verdicts: dict[str, ModuleType]) -> None:
    """Without a load generator's answers: who made the load is not known, and what limits it is."""
    directory = verdicts["fixtures"].FIXTURES
    found: list[Any] = []
    for name, case in verdicts["cases"].CASES.items():
        if (directory / name).is_dir():
            found += verdicts["recorded"].judge(case, verdicts["fixtures"].read(directory / name))
    golden.check("verdicts_recorded.txt", said_of(verdicts["truth"], found))
    outcomes = [one.outcome for one in found]
    assert outcomes.count("right") >= verdicts["truth"].NAMED_LEAST * len(outcomes)
    assert outcomes.count("wrong") <= verdicts["truth"].WRONG_MOST * len(outcomes)


def test_every_case_has_loads_that_its_plan_measures(verdicts: dict[str, ModuleType]) -> None:
    cases = verdicts["cases"].CASES
    assert len([case for case in cases.values() if not case.clean]) >= 24
    for case in cases.values():
        plan = verdicts["runner"].plan_of(case)
        assert [pattern.name for pattern in plan.pattern_values()] == list(case.loads)
        assert plan.name == case.name
        assert case.lab in verdicts["bed"].LABS


def expect(verdicts: dict[str, ModuleType], *limits: str, subject: str = "") -> Any:
    return verdicts["truth"].Expect(frozenset(limits), subject)


@pytest.mark.parametrize(
    ("limit", "sentence", "outcome"),
    [
        ("device", "Reads reach 131 IOPS: osd.0's SSD (node1) is at 92 % of its ceiling.", "right"),
        ("device", "Reads reach 1.31k IOPS: the device of osd.0 is the limit", "right"),
        # Another OSD, whose name begins alike.
        ("device", "Reads reach 131 IOPS: osd.01's SSD is at its ceiling.", "wrong"),
        ("device", "Reads reach 131 IOPS: osd.1's SSD is at its ceiling.", "wrong"),
        # The right name, too late.
        ("device", "Reads reach 131 IOPS: a device is at its ceiling. It is that of osd.0.", "wrong"),
        ("osd_cpu", "Reads reach 131 IOPS: osd.0 has no processor time left.", "wrong"),
        ("nearest", "Reads reach 131 IOPS: nearest limit: osd.0's SSD, 61 % reached.", "none"),
        ("queue", "Reads wait in the queue of osd.0.", "none"),
    ],
)
def test_an_outcome_is_of_the_first_sentence(
    verdicts: dict[str, ModuleType], limit: str, sentence: str, outcome: str
) -> None:
    wanted = expect(verdicts, "device", subject=r"osd\.0")
    assert verdicts["truth"].outcome(limit, sentence, wanted) == outcome


def test_the_bounds(verdicts: dict[str, ModuleType]) -> None:
    truth = verdicts["truth"]

    def load(outcome: str, *, injected: bool = True, ceiling_iops: float = 1.0) -> Any:
        of = (expect(verdicts, "device"), outcome, 1.0, ceiling_iops)
        return truth.Judged("case", injected, "randread-4K-qd1", "", "", "", *of)

    good, clean = [load("right")] * 97 + [load("wrong")] * 2 + [load("none")], load("right", injected=False)
    assert truth.totals([*good, clean]).within_bounds
    assert not truth.totals([*good, clean, load("wrong", injected=False)]).within_bounds
    assert not truth.totals([*good, load("wrong"), load("wrong")]).within_bounds
    assert not truth.totals([load("right")] * 89 + [load("none")] * 11).within_bounds
    assert not truth.totals([*good, load("no figure")]).within_bounds
    # What an injected limit lets through is predicted. Of a wrong name nothing is asked.
    assert truth.totals([*good, load("right", ceiling_iops=1.1)]).within_bounds
    assert not truth.totals([*good, load("right", ceiling_iops=1.2)]).within_bounds
    assert truth.totals([*good, load("none", ceiling_iops=9.0)]).within_bounds


def test_the_ceiling_is_that_of_what_is_named(verdicts: dict[str, ModuleType]) -> None:
    def ceiling(resource: str, subject: str, iops: float) -> Ceiling:
        unknown = Figure(None, "ratio")
        return Ceiling(resource, subject, "", "", unknown, unknown, "", Figure(iops, "1/s"), unknown)

    rate = Figure(130.0, "1/s")
    near = (ceiling("host_cpu", "", 50.0), ceiling("device", "osd.1", 900.0), ceiling("device", "osd.0", 132.0))
    account = Account(16, rate, Figure(1e8, "ns"), Figure(16.0, "1"), near)
    finding = ladder_finding()
    point = dataclasses.replace(finding.groups[0].points[0], iops=rate, account=account)
    judged = []
    for limit, subject, sentence in (
        ("device", "osd.0", "osd.0's SSD is at its ceiling."),
        ("host_cpu", "", "The machine's processors are used up."),
        ("network", "node2", "The link of node2 is full."),
    ):
        named = dataclasses.replace(point, verdict=Verdict(limit, sentence, subject=subject))
        found = dataclasses.replace(finding, groups=(dataclasses.replace(finding.groups[0], points=(named,)),))
        expected = {point.pattern: expect(verdicts, "device", subject=r"osd\.0")}
        judged += verdicts["truth"].judge("slow-device", expected, found, injected=True)
    assert [one.ceiling_iops for one in judged] == [132.0, 50.0, None]
    assert [one.off_ceiling for one in judged] == [pytest.approx(1 - 130 / 132), None, None]
