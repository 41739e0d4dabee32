"""The page of a sizing: the advice, the curves behind it, the split of the flash, the stability over time."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.records.finding import as_plain
from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint
from bathyscope.units import format_bytes, format_seconds, format_size_short
from bathyscope.views import Options
from bathyscope.views import size_words as words
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.size import drawings
from bathyscope.views.charts.theme import PAGE
from bathyscope.views.footnotes import Footnote
from bathyscope.views.html.blocks import chart_data
from bathyscope.views.html.frame import render_page


def write(finding: SizeFinding, stream: TextIO, _options: Options) -> None:
    """Write the page of a sizing."""
    drawn = {drawing.name: drawing for drawing in drawings(finding, PAGE)}
    charts = chart_data(drawn.values())
    stream.write(render_page(finding, "size.html.j2", _content(finding, drawn), charts=charts, data=as_plain(finding)))


def _content(finding: SizeFinding, drawn: dict[str, Drawing]) -> dict[str, Any]:
    source = words.source_name(finding)
    main = words.main_curve(finding)
    split = words.main_split(finding)
    whole = [c for c in finding.curves if c.group_kind == "all"]
    groups = [] if main is None else [(c, _curve(c)) for c in words.group_curves(finding, main)]
    return {
        "title": f"flash for {source}",
        "file_stem": f"size-{source}",
        "csv_row": "One row for each point of each curve",
        "sections": [
            ("advice", "Advice"),
            ("curves", "Curves"),
            *[("sizes", "Sizes")] * (main is not None),
            *[("groups", f"By {finding.by}")] * bool(groups),
            *[("split", "Split")] * (split is not None),
            ("time", "Over time"),
            ("caveats", "Caveats"),
            ("reading", "How to read"),
        ],
        "finding": finding,
        "source": source,
        "facts": _facts(finding, main),
        "policies": [
            (policy, f"curves-{place}", [_curve(c) for c in whole if c.policy == policy])
            for place, policy in enumerate(dict.fromkeys(c.policy for c in whole))
        ],
        "charts": {key: drawing.title for key, drawing in drawn.items()},
        "main": None if main is None else _main(finding, main),
        "target": "Target" if finding.budget_bytes is None else "Budget",
        "groups": groups,
        "split": None if split is None else {
            "budget": format_bytes(split.budget_bytes),
            "gain": words.split_gain(split),
            "columns": words.split_columns(split),
            "shares": split.shares,
        },
        "notes": [Footnote("", c, everywhere=False) for c in sorted(finding.caveats, key=lambda c: c.rank)],
    }  # fmt: skip


def _facts(finding: SizeFinding, main: SizeCurve | None) -> list[tuple[str, str]]:
    facts = [("I/Os", f"{finding.events:,}")]
    if finding.duration_s > 0:
        facts.append(("Time", format_seconds(finding.duration_s)))
    if main is None:
        return facts
    return [
        *facts,
        ("Reads", f"{main.read_requests:,} of {format_bytes(main.read_bytes)}"),
        ("Writes", f"{main.write_requests:,} of {format_bytes(main.write_bytes)}"),
        ("Working set", format_bytes(main.working_set_bytes)),
        ("Compulsory misses", words.percent(main.cold_read_ratio)),
        ("Method", words.how(main)),
    ]


def _curve(curve: SizeCurve) -> dict[str, str]:
    return {
        "line": format_size_short(curve.line_bytes),
        "working_set": format_bytes(curve.working_set_bytes),
        "cold": words.percent(curve.cold_read_ratio),
        "best": words.best_text(curve),
        "knee": _at(curve.knee) or "none",
        "wanted": _at(curve.wanted) or curve.wanted_reason or "",
        "how": words.how(curve),
    }


def _at(point: SizePoint | None) -> str:
    return "" if point is None else f"{format_bytes(point.size_bytes)}, {words.hit_text(point)}"


def _main(finding: SizeFinding, curve: SizeCurve) -> dict[str, Any]:
    columns = words.columns_of(curve)
    wanted = "meets the target" if finding.budget_bytes is None else "the budget"
    rows = [
        {
            "size": format_bytes(point.size_bytes),
            "advised": words.is_advised(finding, curve, point),
            "marks": ", ".join(name for name, p in (("knee", curve.knee), (wanted, curve.wanted)) if p is point),
            "cells": [(column.cell(point), column.short == "reads") for column in columns],
        }
        for point in curve.points
    ]
    headings = [column.heading for column in columns]
    configuration = words.configuration(curve)
    return {
        "configuration": configuration,
        "line": format_size_short(curve.line_bytes),
        "policy": curve.policy,
        "columns": headings,
        "rows": rows,
    }
