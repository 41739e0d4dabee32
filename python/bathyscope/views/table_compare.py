"""Two runs in a terminal: the effect of each step with its interval, and what else differs between the runs."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from bathyscope.records.finding import CompareFinding, Figure, StepEffect
from bathyscope.views import figures
from bathyscope.views.terminal import text

_STYLES = {"faster": "green", "slower": "bold red"}


def write(finding: CompareFinding, out: Console) -> None:
    """Print the headline, a row for each step, the steps that one run lacks, and the changed environment."""
    out.print(text(f"A: {finding.run_a}   B: {finding.run_b}", "dim"))
    out.print(text(finding.headline, "bold"))
    out.print()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("step", overflow="fold", ratio=1)
    for name in ("A", "B", "effect"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("call", no_wrap=True)
    for effect in finding.effects:
        name = effect.step_key if effect.metric == "iops" else f"{effect.step_key} ({effect.metric})"
        call = text(effect.call, _STYLES.get(effect.call, "yellow"))
        figures_ = (_value(effect.a), _value(effect.b), _effect(effect))
        table.add_row(text(name), *(text(f) for f in figures_), call)
    for step_key, side in finding.missing:
        table.add_row(text(step_key), "", "", "", text(f"missing: {side}", "yellow"))
    out.print(table)
    for effect in finding.effects:
        if effect.reason:
            out.print(text(f"{effect.step_key}: {effect.reason}", "dim"))
    if finding.environment_changes:
        out.print()
        out.print(text("What else differs:", "bold"))
        for subject, name, a, b in finding.environment_changes:
            out.print(text(f"  {subject} {name}: {a} → {b}"))


def _value(figure: Figure) -> str:
    return figures.compact(figure.value, figure.unit)


def _effect(effect: StepEffect) -> str:
    ratio = effect.effect
    if ratio.value is None:
        return figures.NOT_KNOWN
    change = figures.change_text(1 + ratio.value)
    if ratio.low is None or ratio.high is None:
        return change
    return f"{change} [{figures.change_text(1 + ratio.low)} … {figures.change_text(1 + ratio.high)}]"
