"""Two runs in a terminal: the effect of each step with its interval, and what else differs between the runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console

from bathyscope.records.finding import CompareFinding, StepEffect
from bathyscope.views import Options, figures
from bathyscope.views.table.terminal import console, new_table, text

_STYLES = {"faster": "green", "slower": "bold red"}
# Below this a step's name would be cut or folded into a column of letters.
_STEP_WIDTH_MIN = 16
_PADDING = 8

# step, figure in A, figure in B, effect, verdict
_Row = tuple[str, str, str, str, str]


def write(finding: CompareFinding, stream: TextIO, options: Options) -> None:
    """Print the headline, a row for each step, the steps that one run lacks, and all that differs besides."""
    out = console(stream, options)
    out.print(text(f"A: {finding.run_a}   B: {finding.run_b}", "dim"))
    out.print(text(finding.headline, "bold"))
    out.print()
    rows = [
        (_name(e), figures.compact(e.a.value, e.a.unit), figures.compact(e.b.value, e.b.unit), _effect(e), e.verdict)
        for e in finding.effects
    ]
    rows += [(step_key, "", "", "", "missing") for step_key, _ in finding.missing]
    figures_width = sum(max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[1:]) if rows else 0
    if out.width < _STEP_WIDTH_MIN + figures_width + _PADDING:
        _write_stacked(rows, out)
    else:
        _write_table(rows, out)
    reasons = [(effect.step_key, effect.reason) for effect in finding.effects if effect.reason]
    for step_key, reason in [*reasons, *finding.missing]:
        out.print(text(f"{step_key}: {reason}", "dim"))
    for heading, notes in (("Not the same configuration:", False), ("Other differences:", True)):
        own = [d for d in finding.differences if (d.severity == "note") == notes]
        if own:
            out.print()
            out.print(text(heading, "bold"))
        for one in own:
            lead = "" if notes else f"{one.severity}: "
            out.print(text(f"  {lead}{one.text}", "" if notes else "yellow"))


def _write_table(rows: Sequence[_Row], out: Console) -> None:
    table = new_table()
    table.padding = (0, 1, 0, 0)
    table.add_column("step", overflow="fold", ratio=1)
    for heading in ("A", "B", "effect"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name, a, b, effect, verdict in rows:
        table.add_row(text(name), text(a), text(b), text(effect), text(verdict, _STYLES.get(verdict, "yellow")))
    out.print(table)


def _write_stacked(rows: Sequence[_Row], out: Console) -> None:
    """Print each step over several lines: a cut figure is a wrong figure."""
    for name, a, b, effect, verdict in rows:
        out.print(text(name, "bold"))
        for line in filter(None, (f"{a} → {b}" if a or b else "", effect)):
            out.print(text(f"  {line}"))
        out.print(text(f"  {verdict}", _STYLES.get(verdict, "yellow")))


def _name(effect: StepEffect) -> str:
    return effect.step_key if effect.metric == "iops" else f"{effect.step_key} ({effect.metric})"


def _effect(effect: StepEffect) -> str:
    ratio = effect.effect
    if ratio.value is None:
        return figures.NOT_KNOWN
    change = figures.change_text(1 + ratio.value)
    if ratio.low is None or ratio.high is None:
        return change
    return f"{change} [{figures.change_text(1 + ratio.low)} … {figures.change_text(1 + ratio.high)}]"
