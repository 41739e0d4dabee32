"""The rungs of the ladder: a dot with its 95 % interval on a logarithmic axis for each layer, linked downwards."""

from __future__ import annotations

import functools
import math
from typing import Any

import altair as alt

from bathyscope.records.finding import LadderFinding, LayerView, PointFinding
from bathyscope.views import figures, labels
from bathyscope.views.charts.base import LABELS, Drawing, named_rows
from bathyscope.views.charts.rows import ROW_HEIGHT, groups_of, heading_row, headings, order_of, point_row, row_axis
from bathyscope.views.charts.theme import LIGHT, Theme
from bathyscope.views.refusal import is_shown, why_refused

METRICS = {
    "iops": "IOPS",
    "bandwidth_bytes_per_s": "Bandwidth",
    "latency_ns_mean": "Mean latency",
    "latency_ns_p99": "p99 latency",
}


def rungs(finding: LadderFinding, device_class: str, metric: str = "iops", theme: Theme = LIGHT) -> Drawing:
    """Return the ladder of one device class by `metric`, a key of METRICS.

    All classes of a finding share the axis, so that their panels can be compared.
    """
    domain = _domain(finding, metric)
    rows = tuple(_rows(finding, device_class, metric, domain))
    return Drawing(
        name=f"ladder-{device_class or 'all'}-{metric}",
        title=f"{labels.device_class(device_class)}: {METRICS[metric]} at each layer",
        description=(
            f"{METRICS[metric]} of {labels.device_class(device_class)} for each pattern and layer with 95 % intervals, "
            "on a logarithmic axis; the table below holds the same figures."
        ),
        chart=functools.partial(_chart, metric, domain, labels.layers(finding), theme, order_of(rows)),
        rows=rows,
    )


def _chart(metric: str, domain: tuple[float, float], layers: list[LayerView], theme: Theme, order: list[str]) -> Any:
    unit = "1/s" if metric == "iops" else ("bytes/s" if metric.startswith("bandwidth") else "ns")
    axis = alt.Axis(
        labelExpr=LABELS[unit], values=_ticks(domain), title=METRICS[metric], orient="top", labelOverlap=True
    )
    x = alt.X("value:Q", scale=alt.Scale(type="log", domain=domain, nice=False), axis=axis)
    y = row_axis(order)
    colour = alt.Color("name:N", scale=theme.layer_scale(layers), legend=None)
    shapes = alt.Scale(domain=[view.title for view in layers], range=[view.shape for view in layers])
    shape = alt.Shape("name:N", scale=shapes, legend=None)
    tooltip = [
        alt.Tooltip("title:N", title="pattern"),
        alt.Tooltip("name:N", title="layer"),
        alt.Tooltip("label:N", title=METRICS[metric]),
        alt.Tooltip("interval:N", title="95 % interval"),
    ]
    base = alt.Chart(named_rows())
    points = base.transform_filter("datum.kind == 'point'")
    link = points.mark_line(color=theme.grid, strokeWidth=2).encode(x=x, y=y, detail="group:N", order="place:Q")
    interval = points.mark_rule(strokeWidth=5, opacity=0.38, strokeCap="round").encode(
        x="low:Q", x2="high:Q", y=y, color=colour
    )
    dots = points.mark_point(filled=True, size=72, opacity=1).encode(
        x=x, y=y, color=colour, shape=shape, tooltip=tooltip
    )
    right = points.transform_filter("datum.side == 'right'").mark_text(
        align="left", dx=11, fontSize=11.5, color=theme.text
    )
    left = points.transform_filter("datum.side == 'left'").mark_text(
        align="right", dx=-11, fontSize=11.5, color=theme.text
    )
    refused = (
        base.transform_filter("datum.kind == 'refused'")
        .mark_text(
            align="left", fontSize=11, fontStyle="italic", color=theme.refused, limit=alt.ExprRef("width - 8"), dx=4
        )
        .encode(x=alt.value(0), y=y, text="label:N", tooltip=["label:N"])
    )
    figures_ = [right.encode(x="high:Q", y=y, text="label:N"), left.encode(x="low:Q", y=y, text="label:N")]
    return alt.layer(headings(y, theme), link, interval, *figures_, dots, refused).properties(
        height=max(1, len(order)) * ROW_HEIGHT
    )


def _rows(finding: LadderFinding, device_class: str, metric: str, domain: tuple[float, float]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for index, group in enumerate(groups_of(finding, device_class)):
        title = labels.group_pattern(group)
        rows.append({"row": heading_row(index), "kind": "heading", "title": title})
        for place, point in enumerate(group.points):
            name = labels.layer(finding, point.layer).title
            known = {"row": point_row(index, name), "group": index, "place": place, "title": title, "name": name}
            rows.append(known | _mark(point, metric, domain))
    return rows


def _mark(point: PointFinding, metric: str, domain: tuple[float, float]) -> dict[str, Any]:
    if not is_shown(point):
        return {"kind": "refused", "label": labels.clean(f"{point.status}: {why_refused(point)}")}
    figure = figures.figure_of(point, metric)
    if figure.value is None or figure.value <= 0:
        return {"kind": "refused", "label": "n/a: not enough data"}
    low = figure.low if figure.low is not None and figure.low > 0 else figure.value
    place = math.log(figure.value / domain[0]) / math.log(domain[1] / domain[0])
    text = f"{figures.value_text(figure.value, figure.unit)} {figures.plus_minus(figure)}".strip()
    return {
        "kind": "point",
        "value": figure.value,
        "low": low,
        "high": figure.high if figure.high is not None else figure.value,
        "label": text,
        "interval": figures.range_text(figure) or "n/a: too few repeats",
        "side": "left" if place > 0.6 else "right",
    }


def _domain(finding: LadderFinding, metric: str) -> tuple[float, float]:
    """Return the ends of the axis: what all points of all classes need, with a margin for the marks."""
    shown = [figures.figure_of(p, metric) for g in finding.groups for p in g.points if is_shown(p)]
    ends = [end for f in shown for end in (f.value, f.low, f.high) if end is not None and end > 0]
    if not ends:
        return 1.0, 10.0
    low, high = min(ends), max(ends)
    # Less than one decade would exaggerate small differences.
    if high / low < 10:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    return low / 1.3, high * 1.3


def _ticks(domain: tuple[float, float]) -> list[float]:
    """Return the powers of ten in the domain, and between them 3 × 10ⁿ where the axis is short."""
    low, high = math.floor(math.log10(domain[0])), math.ceil(math.log10(domain[1]))
    tens = [10.0**n for n in range(low, high + 1)]
    ticks = [t for t in tens if domain[0] <= t <= domain[1]]
    if len(ticks) < 4:
        ticks += [3 * t for t in tens if domain[0] <= 3 * t <= domain[1]]
    return sorted(ticks)
