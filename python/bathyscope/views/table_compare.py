"""Two runs in a terminal: the effect of each step with its interval, and what else differs between the runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from bathyscope.records.finding import CompareFinding, Figure, StepEffect
from bathyscope.views import figures
from bathyscope.views.terminal import text

_STYLES = {"faster": "green", "slower": "bold red"}
# Below this a step's name would be cut or folded into a column of letters.
_STEP_WIDTH_MIN = 16
_PADDING = 12

# step, figure in A, figure in B, effect, call
_Row = tuple[str, str, str, str, str]


def write(finding: CompareFinding, out: Console) -> None:
    """Print the headline, a row for each step, the steps that one run lacks, and the changed environment."""
    out.print(text(f"A: {finding.run_a}   B: {finding.run_b}", "dim"))
    out.print(text(finding.headline, "bold"))
    out.print()
    rows = [(_name(e), _value(e.a), _value(e.b), _effect(e), e.call) for e in finding.effects]
    rows += [(step_key, "", "", "", f"missing: {side}") for step_key, side in finding.missing]
    figures_width = sum(max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[1:]) if rows else 0
    if out.width < _STEP_WIDTH_MIN + figures_width + _PADDING:
        _write_stacked(rows, out)
    else:
        _write_table(rows, out)
    for effect in finding.effects:
        if effect.reason:
            out.print(text(f"{effect.step_key}: {effect.reason}", "dim"))
    if finding.environment_changes:
        out.print()
        out.print(text("What else differs:", "bold"))
        for subject, name, a, b in finding.environment_changes:
            out.print(text(f"  {subject} {name}: {a} → {b}"))


def _write_table(rows: Sequence[_Row], out: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("step", overflow="fold", ratio=1)
    for heading in ("A", "B", "effect"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("call", no_wrap=True)
    for name, a, b, effect, call in rows:
        table.add_row(text(name), text(a), text(b), text(effect), text(call, _STYLES.get(call, "yellow")))
    out.print(table)


def _write_stacked(rows: Sequence[_Row], out: Console) -> None:
    """Print each step over several lines: a cut figure is a wrong figure."""
    for name, a, b, effect, call in rows:
        out.print(text(name, "bold"))
        for line in filter(None, (f"{a} → {b}" if a or b else "", effect)):
            out.print(text(f"  {line}"))
        out.print(text(f"  {call}", _STYLES.get(call, "yellow")))


def _name(effect: StepEffect) -> str:
    return effect.step_key if effect.metric == "iops" else f"{effect.step_key} ({effect.metric})"


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
