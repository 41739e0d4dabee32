"""Two runs compared, as CSV: a row for each step compared, each step of one run only, and each other difference."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.records.finding import CompareFinding, StepEffect
from bathyscope.views import Options
from bathyscope.views.csv import figure_columns, write_rows


def write(finding: CompareFinding, stream: TextIO, _options: Options) -> None:
    """Write one row for each step; the verdict on a step that one run lacks is "missing".

    A difference between the runs has no step; its verdict is "differs: " and its severity.
    """
    runs = {"run_a": finding.run_a, "run_b": finding.run_b}
    rows = [runs | _row(effect) for effect in finding.effects]
    names = list(rows[0]) if rows else [*runs, "step_key", "metric", "verdict", "reason"]
    rows += [
        dict.fromkeys(names) | runs | {"step_key": step_key, "verdict": "missing", "reason": side}
        for step_key, side in finding.missing
    ]
    rows += [
        dict.fromkeys(names) | runs | {"verdict": f"differs: {one.severity}", "reason": f"{one.area}: {one.text}"}
        for one in finding.differences
    ]
    write_rows(rows, stream)


def _row(effect: StepEffect) -> dict[str, Any]:
    row: dict[str, Any] = {"step_key": effect.step_key, "metric": effect.metric}
    row |= {"verdict": effect.verdict, "reason": effect.reason}
    row |= figure_columns("effect_ratio", effect.effect)
    row |= figure_columns("a", effect.a) | figure_columns("b", effect.b)
    return row | {"unit": effect.a.unit or effect.b.unit}
