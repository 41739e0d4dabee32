"""A dry run: what a run takes and writes, what it changes and how that goes back, the load commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from bathyscope.records.blocks import Column, Facts, Section, Table, Text
from bathyscope.records.prediction_finding import PlannedChange, PlannedCommand, PredictionFinding
from bathyscope.units import format_bytes, format_seconds
from bathyscope.views import labels

_CHANGES = (
    Column("where", "where"),
    Column("change", "change"),
    Column("undone_by", "undone by"),
    Column("count", "times"),
    Column("expected_s", "expected", "s"),
    Column("worst_s", "at worst", "s"),
)
_LOADS = (Column("step_key", "step"), Column("line", "command", "code"))
_COMMANDS = (
    Column("step_key", "step"),
    Column("command", "command", "code"),
    Column("environment", "environment"),
    Column("root", "root"),
    Column("cgroup", "control group"),
)

TABLES = ("commands", "changes")


def sections(finding: PredictionFinding) -> Iterator[Section]:
    """Yield the summary, the changes and the loads."""
    cost = finding.cost
    title = f"{finding.plan_name} on {finding.target}: {_counted(finding.configuration_count, 'configuration')}"
    steps = f"{_counted(finding.repeats, 'repeat')} = {_counted(cost.step_count, 'step')}"
    if finding.repeats_min < finding.repeats:
        steps = f"{finding.repeats_min} to {finding.repeats} repeats = {cost.step_count_min} to {cost.step_count} steps"
    prolonged = (
        f"every step prolonged {_counted(finding.prolong_max, 'time')}" if finding.prolong_max else "no prolongation"
    )
    worst = f"at worst: {prolonged}, preparations at the limit at which they are given up"
    yield Section(
        "prediction",
        "",
        (
            Text(f"{title} × {steps}", "strong"),
            Facts(tuple(_facts(finding))),
            Text(f"{worst}; assumed: {'; '.join(cost.assumptions)}", "dim"),
            *(Text(note, "", "note: ") for note in finding.notes),
            *_refusal(finding),
        ),
    )
    commands = []
    for each in finding.commands:
        argv, environment = map(labels.shell_word, each.argv), (f"{name}={value}" for name, value in each.environment)
        commands.append((each.step_key, " ".join(argv), " ".join(environment), each.root, each.cgroup))
    others = ""
    if finding.repeats > 1:
        others = f" (repeat 1 of {finding.repeats}; the others have other random seeds, --output json has them)"
    loads = tuple((each.step_key, _line(each)) for each in finding.commands if not each.repeat_index)
    changes = tuple(map(dataclasses.astuple, finding.changes))
    of_changes = Table("changes", "changes", _CHANGES, changes, only="programs")
    all_loads = Table("commands", "commands", _COMMANDS, tuple(commands), only="programs")
    lines = _lines(finding.changes, at_most=finding.repeats_min < finding.repeats)
    yield Section("changes", "Changes, and how each goes back:", (all_loads, of_changes, *lines))
    yield Section("loads", f"Loads{others}:", (Table("loads", "loads", _LOADS, loads, only="people"),))


def _facts(finding: PredictionFinding) -> Iterator[tuple[str, str]]:
    cost = finding.cost
    least = f"{format_seconds(cost.expected_min_s)} to " if cost.expected_min_s < cost.expected_s else ""
    yield "time", f"about {least}{format_seconds(cost.expected_s)}; at worst {format_seconds(cost.worst_s)}"
    filled = f"{format_bytes(cost.fill_bytes)} before the loads"
    if cost.stored_bytes != cost.fill_bytes:
        filled += f" ({format_bytes(cost.stored_bytes)} with replicas)"
    yield "written", f"{filled}, and up to about {format_bytes(cost.load_bytes)} by the loads"
    for pool in finding.pools:
        where = f"class {pool.device_class}" if pool.device_class else "all classes"
        copies = f"{pool.replicas} replicas on different {pool.failure_domain}s"
        yield "pool", f"{pool.name}: {pool.pg_count} PGs, {copies}, {where}"
    if finding.pools:
        counts = ((len(finding.pools), "pool"), (finding.pg_count, "PG"), (finding.rule_count, "CRUSH rule"))
        made = ", ".join(_counted(*each) for each in (*counts, (finding.image_count, "image")))
        yield "made", f"{made}; removed at the end"


def _lines(changes: Sequence[PlannedChange], *, at_most: bool) -> Iterator[Text]:
    """Yield changes for people: some are commands, others are sentences."""
    for each in changes:
        yield Text(f"{each.change}{_often(each, at_most=at_most)}", "", f"  {each.where}: ", whole=True)
        if each.undone_by:
            yield Text(each.undone_by, "dim", "    ← ", whole=True)


def _often(change: PlannedChange, *, at_most: bool) -> str:
    """Return how often a change is made, or is `at_most`, and what it takes, where that is known."""
    words = [f"{'up to ' if at_most else ''}{change.count} times"] if change.count > 1 else []
    if change.expected_s:
        words.append(f"about {format_seconds(change.expected_s)}{' each' if words else ''}")
    return f" ({', '.join(words)})" if words else ""


def _refusal(finding: PredictionFinding) -> Iterator[Text]:
    if finding.refusal:
        yield Text(f"as it is now, the run would be refused: {finding.refusal}", "bad", "REFUSED: ")
    if finding.refusal_hint:
        yield Text(finding.refusal_hint, "", "hint: ")


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _line(command: PlannedCommand) -> str:
    words = [f"{name}={value}" for name, value in command.environment]
    words += ["chroot", command.root] if command.root else []
    where = f"  # in {command.cgroup}" if command.cgroup else ""
    return " ".join(map(labels.shell_word, [*words, *command.argv])) + where
