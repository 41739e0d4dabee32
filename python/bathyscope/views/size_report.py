"""`bathy size` as one self-contained page: the advice, the curves behind it, who gets what, and how far to trust it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bathyscope.records.finding import as_plain
from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint
from bathyscope.units import (
    format_bytes,
    format_cost,
    format_duration_ns,
    format_line_size,
    format_rate,
    format_seconds,
    format_size_short,
)
from bathyscope.views import csv, labels
from bathyscope.views import size_words as words
from bathyscope.views.charts import PAGE, Drawing
from bathyscope.views.charts import size as charts
from bathyscope.views.report.frame import render_page, write_page
from bathyscope.views.size import point_rows

_BADGES = {"worth it": "ok", "wears out": "warn", "not worth it": "warn", "cannot tell": "warn"}


def write(finding: SizeFinding, path: Path | str) -> Path:
    """Write the page to `path`, whole or not at all; return the path. Raises StoreError."""
    return write_page(page(finding), path)


def page(finding: SizeFinding) -> str:
    """Return the page as one HTML document. Nothing in it is fetched from anywhere."""
    drawings = _drawings(finding)
    chart_data = {
        "templates": {key: drawing.template(PAGE) for key, drawing in drawings.items()},
        "charts": {
            key: {"template": key, "rows": list(drawing.rows), "about": drawing.description}
            for key, drawing in drawings.items()
        },
        "layers": {},
    }
    return render_page(
        "size.html.j2",
        _content(finding, drawings),
        charts=chart_data,
        finding=as_plain(finding),
        csv=csv.as_text(point_rows(finding)),
    )


def _drawings(finding: SizeFinding) -> dict[str, Drawing]:
    """Return the charts that have something to show, by the id of their place in the page."""
    drawings: dict[str, Drawing] = {}
    main = words.main_curve(finding)
    whole = [c for c in finding.curves if c.group_kind == "all" and c.points]
    for place, policy in enumerate(dict.fromkeys(c.policy for c in whole)):
        shown = [c for c in whole if c.policy == policy]
        drawings[f"curves-{place}"] = charts.curves(finding, shown, f"curves-{policy}", policy, PAGE)
    if main is not None and main.points:
        policies = [c for c in whole if c.line_bytes == main.line_bytes]
        if len(policies) > 1:
            title = f"Policies at {format_line_size(main.line_bytes)} lines"
            drawings["policies"] = charts.curves(finding, policies, "policies", title, PAGE)
        groups = [
            c for c in finding.curves
            if c.group_kind != "all" and (c.line_bytes, c.policy) == (main.line_bytes, main.policy) and c.points
        ]  # fmt: skip
        if groups:
            title = f"By {finding.by}"
            drawings["groups"] = charts.curves(finding, groups[: charts.GROUPS_SHOWN], "groups", title, PAGE)
        latency = charts.latency(main, PAGE)
        if latency.rows:
            drawings["latency"] = latency
    split = words.main_split(finding)
    if split is not None and split.shares:
        drawings["split"] = charts.split(split, PAGE)
    stability = charts.stability(finding, PAGE)
    if len(stability.rows) > 1:
        drawings["stability"] = stability
    return drawings


def _content(finding: SizeFinding, drawings: dict[str, Drawing]) -> dict[str, Any]:
    main = words.main_curve(finding)
    split = words.main_split(finding)
    whole = [c for c in finding.curves if c.group_kind == "all"]
    caveats = sorted(finding.caveats, key=lambda c: labels.SEVERITY_ORDER.index(c.severity))
    return {
        "title": f"Bathyscope · flash for {_source(finding)}",
        "source": _source(finding),
        "call": finding.advice.call,
        "badge": _BADGES.get(finding.advice.call, "warn"),
        "headline": labels.clean(finding.advice.sentence),
        "reasons": [labels.clean(reason) for reason in finding.advice.further_reasons],
        "facts": _facts(finding, main),
        "policies": [
            {"name": policy, "chart": f"curves-{place}", "curves": [_curve(c) for c in whole if c.policy == policy]}
            for place, policy in enumerate(dict.fromkeys(c.policy for c in whole))
        ],
        "charts": {key: drawing.title for key, drawing in drawings.items()},
        "main": None if main is None else _main(finding, main),
        "by": finding.by,
        "target": "Target" if finding.budget_bytes is None else "Budget",
        "groups": _groups(finding, main),
        "split": None if split is None else _split(split),
        "stability": labels.clean(finding.stability_sentence),
        "latency": labels.clean(finding.latency_sentence),
        "cost": labels.clean(finding.cost_sentence),
        "caveats": [
            {"severity": c.severity, "code": labels.clean(c.code), "text": labels.clean(c.text)} for c in caveats
        ],
    }


def _source(finding: SizeFinding) -> str:
    names = [labels.clean(Path(source).name) for source in finding.sources]
    return names[0] if len(names) == 1 else f"{len(names)} traces"


def _facts(finding: SizeFinding, main: SizeCurve | None) -> list[tuple[str, str]]:
    facts = [("I/Os", f"{finding.events:,}")]
    if finding.duration_s > 0:
        facts.append(("Time", format_seconds(finding.duration_s)))
    if main is not None:
        facts.append(("Reads", f"{main.read_requests:,} of {format_bytes(main.read_bytes)}"))
        facts.append(("Writes", f"{main.write_requests:,} of {format_bytes(main.write_bytes)}"))
        facts.append(("Working set", format_bytes(main.working_set_bytes)))
        facts.append(("Read for the first time", words.percent(main.cold_read_ratio)))
        facts.append(("Curves", words.how(main)))
    return facts


def _curve(curve: SizeCurve) -> dict[str, str]:
    best = max((p.read_hit.value or 0.0 for p in curve.points), default=0.0)
    return {
        "line": format_size_short(curve.line_bytes),
        "working_set": format_bytes(curve.working_set_bytes),
        "cold": words.percent(curve.cold_read_ratio),
        "best": words.percent(best if curve.read_requests else None),
        "knee": _at(curve.knee) or "no bend",
        "wanted": _at(curve.wanted) or labels.clean(curve.wanted_reason or ""),
        "how": words.how(curve),
    }


def _at(point: SizePoint | None) -> str:
    return "" if point is None else f"{format_bytes(point.size_bytes)}, {words.hit_text(point)}"


def _main(finding: SizeFinding, curve: SizeCurve) -> dict[str, Any]:
    rows = []
    for point in curve.points:
        wanted = "meets the target" if finding.budget_bytes is None else "the budget"
        marks = [name for name, p in (("knee", curve.knee), (wanted, curve.wanted)) if p is point]
        rows.append(
            {
                "size": format_bytes(point.size_bytes),
                "flash": format_bytes(point.flash_bytes),
                "advised": words.is_advised(finding, curve, point),
                "marks": ", ".join(marks),
                "cells": [
                    words.hit_text(point),
                    words.percent(point.read_byte_hit),
                    words.percent(point.write_hit),
                    words.percent(point.backing_reads_left),
                    _or_unknown(point.fetch_amplification, lambda value: f"{value:.2f}"),
                    _or_unknown(point.flash_write_bytes_per_day, format_bytes),
                    words.life_text(point.life_years),
                    _or_unknown(point.latency_ns_mean, format_duration_ns),
                    _or_unknown(point.latency_ns_p99, format_duration_ns),
                    _or_unknown(point.cost, format_cost),
                ],
            }
        )
    return {"line": format_size_short(curve.line_bytes), "policy": curve.policy, "rows": rows}


def _or_unknown(value: float | None, say: Any) -> str:
    return "n/a" if value is None else str(say(value))


def _groups(finding: SizeFinding, main: SizeCurve | None) -> list[dict[str, str]]:
    if main is None:
        return []
    return [
        _curve(curve) | {"name": labels.clean(curve.group_name), "reads": f"{curve.read_requests:,}"}
        for curve in finding.curves
        if curve.group_kind != "all" and (curve.line_bytes, curve.policy) == (main.line_bytes, main.policy)
    ]


def _split(split: Any) -> dict[str, Any]:
    return {
        "budget": format_bytes(split.budget_bytes),
        "gain": words.split_gain(split),
        "memory": any(share.memory_bytes for share in split.shares),
        "rows": [
            {
                "name": labels.clean(share.group_name),
                "size": format_bytes(share.flash_bytes) if share.flash_bytes else "nothing",
                "memory": format_bytes(share.memory_bytes),
                "hit": words.percent(share.read_hit_ratio),
                "per_day": "n/a" if share.hits_per_day is None else format_rate(share.hits_per_day),
                "more": format_rate(share.marginal_hits_per_gib),
            }
            for share in split.shares
        ],
    }
