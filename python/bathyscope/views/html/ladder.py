"""The page of a run: a template over the blocks of its ladder, which only places them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from bathyscope.records.blocks import Column, Section, Table
from bathyscope.records.collect_finding import CollectFinding
from bathyscope.records.figure import Figure
from bathyscope.records.finding import CommandView, LadderFinding, RungGroup, as_plain
from bathyscope.records.ladder_blocks import Distributions, TimeSeries
from bathyscope.units import format_seconds
from bathyscope.views import Options, figures, labels
from bathyscope.views.account_words import known_text, little, pictured, place, throttle_text
from bathyscope.views.cells import cell, shown_columns
from bathyscope.views.charts.base import Drawing
from bathyscope.views.findings import sections_of
from bathyscope.views.findings.account import ceilings
from bathyscope.views.findings.ladder import MEASURES, group_key, over_time
from bathyscope.views.footnotes import Footnotes
from bathyscope.views.html.blocks import chart_data, page_block, page_sections
from bathyscope.views.html.frame import packed, render_page
from bathyscope.views.refusal import is_shown

# Of more patterns, the figures below their pictures are left to `bathy explain`: they would make the page too large.
_TABLES_MAX = 60
_STATUS = {"done": "complete", "running": "still running"}
# What a page shows elsewhere than in a column of its own.
_NO_COLUMN = ("title", "refusal", "ceiling_words")


def write(finding: LadderFinding, stream: TextIO, _options: Options) -> None:
    """Write the page of a run."""
    stream.write(page(finding))


def page(finding: LadderFinding, recording: CollectFinding | None = None) -> str:
    """Return the page of a run, with a section of who did the I/O of a recording if there is one."""
    sections, data = sections_of(finding), _finding_data(finding)
    places = {
        id(each): index for name in ("series", "distributions") for index, each in enumerate(getattr(finding, name))
    }

    def rows_of(block: Any, drawing: Drawing) -> dict[str, Any]:
        """Refer to the data of the finding, where the page has it, so that no point is in the file twice."""
        match block:
            case TimeSeries():
                return {"series": [places[id(each)] for each in block.series]}
            case Distributions():
                return {"distributions": [places[id(each)] for each in block.lines]}
        return {"rows": _shorter(list(drawing.rows))}

    charts = chart_data(sections, rows_of)
    charts["layers"] = {view.name: view.title for view in labels.layers(finding)}
    content = _content(finding, sections, charts["charts"], recording)
    if recording is not None:
        of_recording = chart_data(sections_of(recording))
        charts = {name: {**of_bench, **of_recording[name]} for name, of_bench in charts.items()}
        data["recording"] = as_plain(recording)
    return render_page(finding, "ladder.html.j2", content, charts=charts, data=data)


def _content(
    finding: LadderFinding, sections: Sequence[Section], charts: Mapping[str, Any], recording: CollectFinding | None
) -> dict[str, Any]:
    notes = Footnotes(finding)
    who = [] if recording is None else page_sections(sections_of(recording))
    marks = {p.step_key: notes.of(p) for p in finding.points}
    by_key = {section.key: section for section in sections}
    blocks = {section["key"]: section for section in page_sections([by_key["saturation"], by_key["nodes"]])}
    columns = _columns([block for each in sections for block in each.blocks if getattr(block, "key", "") == "points"])

    def group_of(group: RungGroup) -> dict[str, Any]:
        table, verdict = by_key[f"group-{group_key(group)}"].blocks
        return {
            "key": group_key(group),
            "pattern": table.title,
            "rows": _rows(finding, table, columns, marks),
            "verdict": page_block(verdict),
            "account": _account(finding, group),
        }

    has = {name: any(key.startswith(f"{name}-") for key in charts) for name in ("ceilings", "distribution", "stages")}
    return {
        "title": f"{finding.target} · {finding.plan_name}",
        "file_stem": finding.run_id,
        "csv_row": "One row for each configuration",
        "sections": [
            ("verdicts", "Verdicts"),
            *[("ceilings", "Ceilings")] * has["ceilings"],
            *[("saturation", "Saturation")] * ("saturation" in blocks),
            ("ladder", "Ladder"),
            *[("latency", "Latency")] * has["distribution"],
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
        "metrics": MEASURES,
        "repeats": max((p.repeats for g in finding.groups for p in g.points), default=0),
        "repeats_drawn": max((each.repeat_index + 1 for each in finding.series), default=0),
        "measures": over_time(finding),
        "columns": columns,
        "charts": charts,
        "has": has,
        "classes": [
            {
                "key": name or "all",
                "name": labels.device_class(name),
                "groups": [group_of(group) for group in finding.groups if group.device_class == name],
            }
            for name in labels.device_classes(finding)
        ],
        "blocks": blocks,
        "cross_checks": [
            (section.title, _rows(finding, section.blocks[0], columns, marks))
            for section in sections
            if section.key.startswith("cross_check-")
        ],
        "who": who,
        "who_sentences": [each["sentence"] for key in ("devices", "load") for each in who if each["key"] == key],
        "recording_id": recording and recording.run_id,
        "notes": notes.notes,
        "commands": (commands := _commands(finding.commands)),
        # A thousand commands are half a megabyte, and alike: the page writes those of a step when it is opened.
        "commands_data": packed(commands),
    }


def _columns(tables: Sequence[Table]) -> list[Column]:
    """Return the columns of figures."""
    if not tables:
        return []
    shown = (tables[0].columns[index] for index in shown_columns(*tables))
    return [column for column in shown if column.key not in _NO_COLUMN]


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


def _account(finding: LadderFinding, group: RungGroup) -> dict[str, Any]:
    """Return what stands below the picture of an account: the parts of the latency, and the ceilings in figures."""
    point = pictured(group)
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


def _rows(
    finding: LadderFinding, table: Table, columns: Sequence[Column], marks: Mapping[str, list[tuple[str, str]]]
) -> list[dict[str, Any]]:
    rows = []
    for values, tone in zip(table.rows, table.tones, strict=True):
        row = dict(zip((column.key for column in table.columns), values, strict=True))
        # What is indented is a part of the row above it.
        is_part = row["title"].startswith(" ")
        rows.append(
            {
                **{name: row[name] for name in ("step_key", "refusal")},
                "part": row["title"].strip() if is_part else "",
                "tone": tone,
                "layer": labels.layer(finding, row["layer"]),
                "cells": [_cell(column, row[column.key], row["ceiling_words"]) for column in columns],
                "notes": [] if is_part else marks[row["step_key"]],
            }
        )
    return rows


def _cell(column: Column, figure: Figure | None, ceiling_words: str | None) -> dict[str, str]:
    """Return a figure with its interval below it."""
    if figure is None or figure.value is None:
        nothing = figures.NOT_APPLICABLE if figure is None else figures.NOT_KNOWN
        return {"value": nothing, "range": "", "kind": "none"}
    if column.unit != "change":
        span = str(ceiling_words) if column.key == "ceiling" else figures.range_text(figure)
        return {"value": figures.value_text(figure.value, figure.unit), "range": span, "kind": column.key}
    value, _, span = cell(dataclasses.replace(column, figure="interval"), figure).partition(" [")
    # Coloured only when the whole interval has the same sign.
    is_less, is_more = ((figure.high or 0) < 0, (figure.low or 0) > 0)
    return {"value": value, "range": span.rstrip("]"), "kind": "down" if is_less else "up" if is_more else "same"}


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


def _finding_data(finding: LadderFinding) -> dict[str, Any]:
    """Return the finding for the page: like JSON output, but points of series and distributions as columns.

    Figures are rounded to seven, points to five and those of accounts to four significant digits, which is finer than
    any of them is measured.
    """
    plain: dict[str, Any] = as_plain(finding)
    for name, keys in (("series", ("t_s", "value")), ("distributions", ("quantile", "latency_ns"))):
        for each in plain[name]:
            # Quantiles keep their nines.
            each["points"] = {
                key: [_rounded(point[key], 9 if key == "quantile" else 5) for point in each["points"]] for key in keys
            }
    return {name: value if name in ("series", "distributions") else _shorter(value) for name, value in plain.items()}


def _shorter(value: Any, digits: int = 7) -> Any:
    if isinstance(value, dict):
        # An account has more figures than all the rest, and none is known to a thousandth.
        return {name: _shorter(each, 4 if name == "account" else digits) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shorter(each, digits) for each in value]
    return _rounded(value, digits) if isinstance(value, float) else value


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")
