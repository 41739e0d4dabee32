"""The page of a run: its words and figures, ready for the template, which only places them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from bathyscope.records.collect_finding import CollectFinding
from bathyscope.records.figure import Figure
from bathyscope.records.finding import (
    CommandView,
    DirectionFinding,
    LadderFinding,
    PointFinding,
    RungGroup,
    as_plain,
)
from bathyscope.units import format_seconds
from bathyscope.views import Options, figures, labels
from bathyscope.views.account_words import (
    alternatives,
    has_accounts,
    known_text,
    little,
    nearest,
    pictured,
    place,
    spoken_of,
    throttle_text,
)
from bathyscope.views.charts.rungs import METRICS
from bathyscope.views.charts.series import measure_title, shown_measures
from bathyscope.views.charts.theme import PAGE
from bathyscope.views.findings import sections_of
from bathyscope.views.findings.account import ceilings
from bathyscope.views.footnotes import Footnotes
from bathyscope.views.html.blocks import chart_data as of_blocks
from bathyscope.views.html.blocks import page_block, page_sections
from bathyscope.views.html.frame import packed, render_page
from bathyscope.views.html.ladder_charts import chart_data, finding_data
from bathyscope.views.pictures.blocks import drawings
from bathyscope.views.refusal import is_shown, why_refused

_COLUMNS = (
    ("iops", "IOPS"),
    ("bandwidth_bytes_per_s", "Bandwidth"),
    ("latency_ns_mean", "Mean"),
    ("latency_ns_p50", "p50"),
    ("latency_ns_p99", "p99"),
    ("latency_ns_p999", "p99.9"),
    ("loss", "Loss"),
    ("write_amplification", "Write amplification"),
    ("osd_cpu_us_per_op", "OSD CPU per op"),
    ("device_utilization", "Device utilisation"),
)
# Of more patterns, the figures below their pictures are left to `bathy explain`: they would make the page too large.
_TABLES_MAX = 60
_STATUS = {"done": "complete", "running": "still running"}


def write(finding: LadderFinding, stream: TextIO, _options: Options) -> None:
    """Write the page of a run."""
    stream.write(page(finding))


def page(finding: LadderFinding, recording: CollectFinding | None = None) -> str:
    """Return the page of a run, with a section of who did the I/O of a recording if there is one."""
    charts, data = chart_data(finding), finding_data(finding)
    content = _content(finding, charts["charts"], recording)
    if recording is not None:
        of_recording = of_blocks(drawings(recording, PAGE))
        charts = {name: {**known, **of_recording[name]} for name, known in charts.items()}
        data["recording"] = as_plain(recording)
    return render_page(finding, "ladder.html.j2", content, charts=charts, data=data)


def _content(finding: LadderFinding, charts: dict[str, Any], recording: CollectFinding | None) -> dict[str, Any]:
    notes = Footnotes(finding)
    blocks = {section["key"]: section for section in page_sections(sections_of(finding))}
    who = [] if recording is None else page_sections(sections_of(recording))
    indexed = list(enumerate(finding.groups))
    accounts = {i: _account(finding, pictured(g)) for i, g in indexed if f"ceilings-{i}" in charts}
    distribution_groups = [(i, g) for i, g in indexed if f"distribution-{i}" in charts]
    return {
        "title": f"{finding.target} · {finding.plan_name}",
        "file_stem": finding.run_id,
        "csv_row": "One row for each configuration",
        "sections": [
            ("verdicts", "Verdicts"),
            *[("ceilings", "Ceilings")] * bool(accounts),
            *[("saturation", "Saturation")] * ("saturation" in blocks),
            ("ladder", "Ladder"),
            *[("latency", "Latency")] * bool(distribution_groups),
            ("stages", "OSD stages"),
            *[("nodes", "Nodes")] * ("nodes" in blocks),
            *[("time", "Over time")] * bool(finding.series),
            *[("who", "Who")] * (recording is not None),
            ("caveats", "Caveats"),
            ("environment", "Environment"),
            ("commands", "Commands"),
            ("reading", "How to read"),
        ],
        "finding": finding,
        "labels": labels,
        "status_text": _STATUS.get(finding.status, finding.status),
        "facts": _facts(finding),
        "metrics": METRICS,
        "repeats": max((p.repeats for g in finding.groups for p in g.points), default=0),
        "repeats_drawn": max((one.repeat_index + 1 for one in finding.series), default=0),
        "measures": {name: measure_title(name) for name in shown_measures(finding)},
        "columns": _columns(finding),
        "classes": [
            {
                "index": number,
                "name": labels.device_class(name),
                "groups": [_group(finding, i, g, notes) for i, g in indexed if g.device_class == name],
                "has_stages": any(p.stages for g in finding.groups if g.device_class == name for p in g.points),
            }
            for number, name in enumerate(labels.device_classes(finding))
        ],
        "blocks": blocks,
        "cross_checks": [_row(finding, point, None, notes) for point in finding.cross_checks],
        "accounts": accounts,
        "distribution_groups": distribution_groups,
        "who": who,
        "who_sentences": [each["sentence"] for key in ("devices", "load") for each in who if each["key"] == key],
        "recording_id": recording and recording.run_id,
        "notes": notes.notes,
        "commands": (commands := _commands(finding.commands)),
        # A thousand commands are half a megabyte, and alike: the page writes those of a step when it is opened.
        "commands_data": packed(commands),
    }


def _columns(finding: LadderFinding) -> tuple[tuple[str, str], ...]:
    """Return (field, heading) of the columns of figures."""
    ceiling = (("ceiling", "Of ceiling"),) if has_accounts(finding) else ()
    return (*_COLUMNS, *ceiling, *(figures.TENANT_COLUMNS if figures.has_tenants(finding) else ()))


def _facts(finding: LadderFinding) -> list[tuple[str, str]]:
    facts = [("Target", finding.target), ("Plan", finding.plan_name), ("Started", labels.time_utc(finding.started_ns))]
    if finding.ended_ns is not None:
        facts.append(("Took", format_seconds((finding.ended_ns - finding.started_ns) / 1e9)))
    points = [p for g in finding.groups for p in g.points]
    refused = sum(not is_shown(p) for p in points)
    facts.append(("Configurations", f"{len(points)}" + (f", {refused} refused" if refused else "")))
    for title, wanted in (("Ceph", "ceph_version"), ("fio", "fio_version")):
        facts += [(title, value) for _, name, value in finding.environment if name == wanted and value][:1]
    return facts


def _group(finding: LadderFinding, index: int, group: RungGroup, notes: Footnotes) -> dict[str, Any]:
    losses = {loss.upper_layer: loss.ratio for loss in group.losses}
    verdict = spoken_of(group)
    return {
        "index": index,
        "pattern": labels.group_pattern(group),
        "sentence": group.sentence,
        "rows": [_row(finding, point, losses.get(point.layer), notes) for point in group.points],
        "evidence": [
            (e.name, figures.value_text(e.figure.value, e.figure.unit), figures.range_text(e.figure))
            for e in (verdict.evidence if verdict else ())
        ],
        "alternatives": alternatives(verdict) if verdict else "",
        "next_step": verdict.next_step if verdict else "",
    }


def _account(finding: LadderFinding, point: PointFinding | None) -> dict[str, Any]:
    """Return what stands below the picture of an account: the parts of the latency, and the ceilings in figures."""
    account = point.account if point else None
    if point is None or account is None:
        return {}
    is_small = len(finding.groups) <= _TABLES_MAX
    return {
        "layer": labels.layer(finding, point.layer),
        "step_key": point.step_key,
        "parts": [(place(p.place), known_text(p.latency_ns), known_text(p.share)) for p in account.parts],
        # A page has sixty of these tables: each shows what a terminal does.
        "ceilings": [page_block(block, getattr(block, "shown_max", 0)) for block in ceilings(account) if is_small],
        "little": little(account),
        "more_work": [*map(throttle_text, account.throttles), *(work.sentence for work in account.foreign)],
    }


def _row(finding: LadderFinding, point: PointFinding, loss: Figure | None, notes: Footnotes) -> dict[str, Any]:
    return {
        "point": point,
        "layer": labels.layer(finding, point.layer),
        "refused": None if is_shown(point) else why_refused(point),
        "cells": [_cell(point, loss, name) for name, _ in _columns(finding)],
        "notes": notes.of(point),
        "directions": [
            (f"{d.direction}s", [_direction_cell(d, name) for name, _ in _columns(finding)]) for d in point.directions
        ],
    }


def _direction_cell(direction: DirectionFinding, name: str) -> dict[str, str]:
    figure: Figure | None = getattr(direction, name, None)
    if figure is None or figure.value is None:
        return _nothing(figures.NOT_APPLICABLE if figure is None else figures.NOT_KNOWN)
    return _shown(figure, name)


def _nothing(value: str) -> dict[str, str]:
    return {"value": value, "range": "", "kind": "none"}


def _shown(figure: Figure, kind: str) -> dict[str, str]:
    return {"value": figures.value_text(figure.value, figure.unit), "range": figures.range_text(figure), "kind": kind}


def _cell(point: PointFinding, loss: Figure | None, name: str) -> dict[str, str]:
    if name == "loss":
        return _loss(loss)
    if name == "ceiling":
        ceiling = nearest(point)
        return _shown(ceiling.reached, name) | {"range": ceiling.words} if ceiling else _nothing(figures.NOT_APPLICABLE)
    figure = figures.figure_of(point, name)
    if figure.value is None:
        return _nothing(figures.NOT_KNOWN if figures.applies(name, point) else figures.NOT_APPLICABLE)
    return _shown(figure, name)


def _loss(loss: Figure | None) -> dict[str, str]:
    if loss is None or loss.value is None:
        return _nothing(figures.NOT_APPLICABLE if loss is None else figures.NOT_KNOWN)
    span, kind = "", "same"
    if loss.low is not None and loss.high is not None:
        span = f"{figures.change_text(loss.low)} … {figures.change_text(loss.high)}"
        # Coloured only when the whole interval has the same sign.
        kind = "down" if loss.high < 1 else "up" if loss.low > 1 else "same"
    return {"value": figures.change_text(loss.value), "range": span, "kind": kind}


def _commands(commands: Sequence[CommandView]) -> dict[str, list[dict[str, str]]]:
    """Return the commands by step: what became of each, and it as a line that a shell would run as it ran."""
    by_step: dict[str, list[dict[str, str]]] = {}
    for command in commands:
        words = [f"{name}={labels.shell_word(value)}" for name, value in command.environment]
        about = f"{command.label}, repeat {command.repeat_index + 1}: {format_seconds(command.duration_s)}"
        by_step.setdefault(command.step_key, []).append(
            {
                "about": f"{about}, exit code {command.exit_code}",
                "line": " ".join([*words, *map(labels.shell_word, command.argv)]),
            }
        )
    return by_step
