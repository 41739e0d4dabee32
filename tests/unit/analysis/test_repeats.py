"""When a configuration has been measured often enough."""

from __future__ import annotations

from typing import Any

import pytest

from bathyscope.analysis.repeats import Repeats
from bathyscope.layers import traits
from bathyscope.records import Step
from bathyscope.spec.plan import Plan, expand


def row(key: str, repeat: int, **changes: Any) -> Any:
    step: Any = Step.__new__(Step)
    for name, value in {"step_key": key, "repeat_index": repeat, "status": "done", **changes}.items():
        object.__setattr__(step, name, value)
    return step


@pytest.fixture
def plan() -> Plan:
    phases = [{"name": "a"}, {"name": "b"}]
    return Plan.model_validate(
        {"name": "t", "layers": ["rbd"], "patterns": ["read-4K-qd1"], "repeats": 9, "phases": phases}
    )


def test_all_phases_of_a_configuration_are_measured_as_often(plan: Plan) -> None:
    steps = expand(plan, ("hdd",), traits())
    repeats = Repeats(0.1, steps)
    measured = []
    # In the phase b the sixth round brings the interval within a tenth.
    rates = {"a": [100.0] * 9, "b": [80.0, 120.0, 100.0, 101.0, 99.0, 100.0, 100.0, 100.0, 100.0]}
    for step in steps:
        if not repeats.are_enough(step):
            measured.append(step.phase)
            repeats.add(row(step.key, step.repeat_index), rates[step.phase][step.repeat_index])
    assert measured == ["a", "b"] * (len(measured) // 2)
    assert 3 * 2 < len(measured) < 9 * 2


def test_a_round_of_which_a_step_is_kept_is_measured_in_full_when_the_run_goes_on(plan: Plan) -> None:
    steps = expand(plan, ("hdd",), traits())
    repeats = Repeats(0.1, steps)
    # Three rounds of both phases, and the fourth of the first phase.
    for step in steps[:7]:
        repeats.add(row(step.key, step.repeat_index), 100.0)
    assert [repeats.are_enough(step) for step in steps[7:10]] == [False, True, True]


def test_refused_repeats_do_not_count_and_two_are_never_enough(plan: Plan) -> None:
    steps = expand(plan.model_copy(update={"phases": ()}), ("hdd",), traits())
    repeats = Repeats(0.1, steps)
    for number, status in enumerate(("done", "done", "refused", "failed")):
        repeats.add(row(steps[0].key, number, status=status), 100.0)
    assert not repeats.are_enough(steps[4])
    repeats.add(row(steps[0].key, 4), 100.0)
    assert repeats.are_enough(steps[5])
    assert not Repeats(None, steps).are_enough(steps[5])
