"""The words and figures of the page, ready to be placed: the template only places them."""

from __future__ import annotations

import json
import shlex
from itertools import groupby
from typing import Any

from bathyscope.records.finding import CommandView, Figure, LadderFinding, PointFinding, RungGroup
from bathyscope.units import format_seconds
from bathyscope.views import figures, labels
from bathyscope.views.applies import applies
from bathyscope.views.charts import theme
from bathyscope.views.charts.ladder import METRICS
from bathyscope.views.charts.series import measure_title, shown_measures
from bathyscope.views.footnotes import Footnote, Footnotes
from bathyscope.views.refusal import is_shown, why_refused
from bathyscope.views.report.data import series_id

_COLUMNS = (
    ("iops", "IOPS"),
    ("bandwidth_bytes_per_s", "Bandwidth"),
    ("latency_ns_mean", "Mean"),
    ("latency_ns_p50", "p50"),
    ("latency_ns_p99", "p99"),
    ("latency_ns_p999", "p99.9"),
    ("loss", "Loss"),
    ("write_amplification", "Write ampl."),
    ("osd_cpu_us_per_op", "OSD CPU / op"),
    ("device_utilization", "Device"),
)
_STATUS = {"done": "complete", "running": "still running", "interrupted": "interrupted", "failed": "failed"}


def content(finding: LadderFinding) -> dict[str, Any]:
    """Return the variables of the template."""
    notes = Footnotes(finding)
    classes = labels.device_classes(finding)
    measures = shown_measures(finding)
    indexed = list(enumerate(finding.groups))
    return {
        "title": f"Bathyscope · {labels.clean(finding.target)} · {labels.clean(finding.plan_name)}",
        "run_id": labels.clean(finding.run_id),
        "headline": labels.clean(finding.headline),
        "status": finding.status,
        "status_text": _STATUS.get(finding.status, labels.clean(finding.status)),
        "facts": _facts(finding),
        "metrics": list(METRICS.items()),
        "columns": _COLUMNS,
        "layers": [_layer(name) for name in labels.layers(finding)],
        "stages": [{"name": labels.stage(s), "slot": i} for i, s in enumerate(theme.STAGES)],
        "classes": [
            {
                "index": n,
                "name": labels.device_class(c),
                "groups": [_group(i, g, notes, measures) for i, g in indexed if g.device_class == c],
                "has_stages": any(p.stages for g in finding.groups if g.device_class == c for p in g.points),
            }
            for n, c in enumerate(classes)
        ],
        "witnesses": [_row(p, None, notes) | {"pattern": labels.pattern(p)} for p in finding.witnesses],
        "distribution_groups": _with_distribution(finding),
        "has_series": bool(finding.series),
        "caveats": [_caveat(note) for note in notes.notes],
        "environment": _environment(finding),
        "commands": _commands(finding.commands),
        "command_count": len(finding.commands),
    }


def _facts(finding: LadderFinding) -> list[tuple[str, str]]:
    facts = [("Target", labels.clean(finding.target)), ("Plan", labels.clean(finding.plan_name))]
    facts.append(("Started", labels.time_utc(finding.started_ns)))
    if finding.ended_ns is not None:
        facts.append(("Took", format_seconds((finding.ended_ns - finding.started_ns) / 1e9)))
    points = [p for g in finding.groups for p in g.points]
    refused = sum(not is_shown(p) for p in points)
    facts.append(("Configurations", f"{len(points)}" + (f", {refused} refused" if refused else "")))
    for wanted in ("ceph_version", "fio_version"):
        value = next((v for _, name, v in finding.environment if name == wanted), None)
        if value:
            facts.append(({"ceph_version": "Ceph", "fio_version": "fio"}[wanted], labels.clean(value)))
    return facts


def _layer(name: str) -> dict[str, Any]:
    return {"name": labels.layer(name), "slot": theme.layer_slot(name), "shape": theme.SHAPES.get(name, "circle")}


def _group(index: int, group: RungGroup, notes: Footnotes, measures: list[str]) -> dict[str, Any]:
    losses = {loss.upper_layer: loss for loss in group.losses}
    return {
        "index": index,
        "pattern": labels.group_pattern(group),
        "sentence": labels.clean(group.sentence),
        "rows": [_row(p, losses[p.layer].ratio if p.layer in losses else None, notes) for p in group.points],
        "losses": [labels.clean(loss.sentence) for loss in group.losses if loss.sentence],
        "evidence": _evidence(group),
        "series": [
            {
                "layer": labels.layer(p.layer),
                "slot": theme.layer_slot(p.layer),
                "key": labels.clean(p.step_key),
                "refused": None if is_shown(p) else labels.clean(f"{p.status}: {why_refused(p)}"),
                "charts": [{"id": series_id(index, n, m), "title": measure_title(m)} for m in measures],
            }
            for n, p in enumerate(group.points)
        ],
    }


def _evidence(group: RungGroup) -> list[dict[str, str]]:
    """Return the evidence of the topmost point that has any: the sentence of the group is about it."""
    for point in reversed(group.points):
        if is_shown(point) and point.verdict.evidence:
            return [
                {"name": labels.clean(e.name), "value": figures.value_text(e.figure.value, e.figure.unit),
                 "range": figures.range_text(e.figure), "layer": labels.layer(point.layer)}
                for e in point.verdict.evidence
            ]  # fmt: skip
    return []


def _row(point: PointFinding, loss: Figure | None, notes: Footnotes) -> dict[str, Any]:
    shown = is_shown(point)
    return {
        "layer": labels.layer(point.layer),
        "slot": theme.layer_slot(point.layer),
        "shape": theme.SHAPES.get(point.layer, "circle"),
        "key": labels.clean(point.step_key),
        "witness": labels.clean(point.witness),
        "device_class": labels.device_class(point.device_class),
        "refused": None if shown else labels.clean(f"{point.status.capitalize()}: {why_refused(point)}"),
        "cells": [_cell(point, loss, name) for name, _ in _COLUMNS] if shown else [],
        "iops": figures.value_text(point.iops.value, point.iops.unit) if shown else None,
        "notes": [(mark, labels.clean(text)) for mark, text in notes.of(point)],
        "doubt": any(c.severity == "doubt" for c in point.caveats),
        "verdict": labels.clean(point.verdict.sentence),
    }


def _cell(point: PointFinding, loss: Figure | None, name: str) -> dict[str, str]:
    if name == "loss":
        if loss is None:
            return {"value": figures.NOT_APPLICABLE, "range": "", "kind": "none"}
        span = ""
        if loss.value is not None and loss.low is not None and loss.high is not None:
            span = f"{figures.change_text(loss.low)} … {figures.change_text(loss.high)}"
        # Coloured only when the interval leaves no doubt about the sign.
        lost = loss.high is not None and loss.high < 1
        gained = loss.low is not None and loss.low > 1
        kind = "none" if loss.value is None else ("down" if lost else "up" if gained else "same")
        return {"value": figures.change_text(loss.value), "range": span, "kind": kind}
    figure = figures.figure_of(point, name)
    if figure.value is None:
        known = applies(name, point)
        return {"value": figures.NOT_KNOWN if known else figures.NOT_APPLICABLE, "range": "", "kind": "none"}
    return {"value": figures.value_text(figure.value, figure.unit), "range": figures.range_text(figure), "kind": name}


def _with_distribution(finding: LadderFinding) -> list[dict[str, Any]]:
    known = {(d.device_class, d.pattern) for d in finding.distributions}
    return [
        {"index": i, "name": labels.device_class(g.device_class), "pattern": labels.group_pattern(g)}
        for i, g in enumerate(finding.groups)
        if (g.device_class, g.pattern) in known
    ]


def _caveat(note: Footnote) -> dict[str, Any]:
    caveat = note.caveat
    return {
        "mark": note.mark,
        "severity": caveat.severity if caveat.severity in labels.SEVERITY_ORDER else "note",
        "code": labels.clean(caveat.code),
        "text": labels.clean(caveat.text),
        "steps": [] if note.everywhere else [labels.clean(key) for key in caveat.step_keys],
        "everywhere": note.everywhere,
    }


def _environment(finding: LadderFinding) -> list[dict[str, Any]]:
    ordered = sorted(finding.environment, key=lambda fact: fact[0])
    return [
        {"subject": labels.clean(subject), "facts": [(labels.clean(n), labels.clean(v)) for _, n, v in facts]}
        for subject, facts in groupby(ordered, key=lambda fact: fact[0])
    ]


def _commands(commands: tuple[CommandView, ...]) -> list[dict[str, Any]]:
    """Return the commands by step, each as a line that a shell would run as it ran."""
    by_step: dict[str, list[dict[str, Any]]] = {}
    for command in commands:
        words = [f"{name}={shlex.quote(value)}" for name, value in command.environment]
        words += [_quoted(word) for word in command.argv]
        by_step.setdefault(command.step_key, []).append(
            {
                "label": labels.clean(command.label),
                "repeat": command.repeat_index + 1,
                "line": " ".join(words),
                "exit_code": command.exit_code,
                "duration": format_seconds(command.duration_s),
            }
        )
    return [{"key": labels.clean(key), "commands": found} for key, found in by_step.items()]


def _quoted(word: str) -> str:
    """Return a word for a shell; control characters by escapes, so that what is copied is what was run."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = json.dumps(word)[1:-1].replace("'", "\\'").replace('\\"', '"')
    return f"$'{escaped}'"
