"""Two runs compared: the effect of each step with its interval, and what else differs between the runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bathyscope.records.blocks import Column, Section, Table, Text, Tone
from bathyscope.records.finding import CompareFinding, Difference
from bathyscope.views.findings import rows_of

_COLUMNS = (
    Column("run_a", "run A", only="programs"),
    Column("run_b", "run B", only="programs"),
    Column("step", "step", only="people"),
    Column("step_key", "step", only="programs"),
    Column("metric", "metric", only="programs"),
    Column("a", "A", "1/s", figure="value"),
    Column("b", "B", "1/s", figure="value"),
    Column("unit", "unit", only="programs"),
    Column("effect_ratio", "effect", "change", "B relative to A", figure="interval"),
    Column("verdict", "verdict"),
    Column("reason", "reason", prose=True),
)
_DIFFERENCES = (
    Column("area", "area"),
    Column("subject", "subject"),
    Column("name", "what"),
    Column("a", "A"),
    Column("b", "B"),
    Column("severity", "severity"),
)
TABLES = ("steps", "differences")
_TONES: dict[str, Tone] = {"faster": "good", "slower": "bad", "missing": "warning", "inconclusive": "warning"}


def sections(finding: CompareFinding) -> Iterator[Section]:
    """Yield the headline, a row for each step, and all that differs besides."""
    runs = (finding.run_a, finding.run_b)
    about = Text(f"A: {finding.run_a}   B: {finding.run_b}", "dim")
    yield Section("compared", "", (about, Text(finding.headline, "strong")))
    rows: list[tuple[Any, ...]] = [
        (
            *runs,
            each.step_key if each.metric == "iops" else f"{each.step_key} ({each.metric})",
            *(each.step_key, each.metric, each.a, each.b, each.a.unit or each.b.unit),
            *(each.effect, each.verdict, each.reason),
        )
        for each in finding.effects
    ]
    rows += [(*runs, key, key, None, None, None, None, None, "missing", side) for key, side in finding.missing]
    tones = tuple(_TONES.get(row[-2], "") for row in rows)
    differences = rows_of(_DIFFERENCES, finding.differences)
    steps = Table("steps", "steps", _COLUMNS, tuple(rows), tones, shown_max=None)
    yield Section("steps", "", (steps, Table("differences", "differences", _DIFFERENCES, differences, only="programs")))
    notes = [each for each in finding.differences if each.severity == "note"]
    graver = [each for each in finding.differences if each.severity != "note"]
    yield Section("configuration", "Not the same configuration:", tuple(map(_graver, graver)))
    yield Section("differences", "Other differences:", tuple(Text(each.text, "", "  ") for each in notes))


def _graver(difference: Difference) -> Text:
    return Text(f"{difference.severity}: {difference.text}", "warning", "  ")
