"""A dry run in a terminal: what a run takes and writes, what it changes and how that goes back, the load commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from bathyscope.records.prediction_finding import PlannedCommand, PredictionFinding
from bathyscope.units import format_bytes, format_seconds
from bathyscope.views import Options, labels
from bathyscope.views.table.terminal import console, text


def write(finding: PredictionFinding, stream: TextIO, options: Options) -> None:
    """Print the summary, then the changes, then the commands; these as they would be typed, one a line."""
    out = console(stream, options)
    found = finding.cost
    title = f"{finding.plan_name} on {finding.target}: {_counted(finding.configuration_count, 'configuration')}"
    steps = f"{_counted(finding.repeats, 'repeat')} = {_counted(found.step_count, 'step')}"
    out.print(text(f"{title} × {steps}", "bold"))
    out.print(text(f"time     about {format_seconds(found.expected_s)}; at worst {format_seconds(found.worst_s)}"))
    filled = f"{format_bytes(found.fill_bytes)} before the loads"
    if found.stored_bytes != found.fill_bytes:
        filled += f" ({format_bytes(found.stored_bytes)} with replicas)"
    out.print(text(f"written  {filled}, and up to about {format_bytes(found.load_bytes)} by the loads"))
    for pool in finding.pools:
        where = f"class {pool.device_class}" if pool.device_class else "all classes"
        copies = f"{pool.replicas} replicas on different {pool.failure_domain}s"
        out.print(text(f"pool     {pool.name}: {pool.pg_count} PGs, {copies}, {where}"))
    if finding.pools:
        counts = ((len(finding.pools), "pool"), (finding.pg_count, "PG"), (finding.rule_count, "CRUSH rule"))
        made = ", ".join(_counted(*one) for one in (*counts, (finding.image_count, "image")))
        out.print(text(f"made     {made}; removed at the end"))
    prolonged = (
        f"every step prolonged {_counted(finding.prolong_max, 'time')}" if finding.prolong_max else "no prolongation"
    )
    worst = f"at worst: {prolonged}, preparations at the limit at which they are given up"
    out.print(text(f"{worst}; assumed: {'; '.join(found.assumptions)}", "dim"))
    for line in _checked(finding):
        out.print(text(line))
    if finding.changes:
        out.print()
        out.print(text("Changes, and how each goes back:", "bold"))
        for change in finding.changes:
            out.print(text(f"  {change.where}: {change.change}"), soft_wrap=True)
            if change.undone_by:
                out.print(text(f"    ← {change.undone_by}", "dim"), soft_wrap=True)
    out.print()
    others = ""
    if finding.repeats > 1:
        others = f" (repeat 1 of {finding.repeats}; the others have other random seeds, --output json has them)"
    out.print(text(f"Loads{others}:", "bold"))
    for command in finding.commands:
        if command.repeat_index:
            continue
        out.print(text(f"# {command.step_key}", "dim"), soft_wrap=True)
        out.print(text(_line(command)), soft_wrap=True)


def _checked(finding: PredictionFinding) -> Iterator[str]:
    """Yield what the checks before the run say."""
    yield from (f"note     {note}" for note in finding.notes)
    if finding.refusal:
        yield f"REFUSED  as it is now, the run would be refused: {finding.refusal}"
    if finding.refusal_hint:
        yield f"hint     {finding.refusal_hint}"


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _line(command: PlannedCommand) -> str:
    words = [f"{name}={value}" for name, value in command.environment]
    words += ["chroot", command.root] if command.root else []
    where = f"  # in {command.cgroup}" if command.cgroup else ""
    return " ".join(map(labels.shell_word, [*words, *command.argv])) + where
