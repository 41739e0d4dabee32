"""Time of the operations inside the OSDs by stage: one bar of shares for each pattern and layer."""

from __future__ import annotations

import functools
from typing import Any

import altair as alt

from bathyscope.records.finding import LadderFinding, PointFinding
from bathyscope.units import format_duration_ns, format_percent
from bathyscope.views import labels
from bathyscope.views.charts.base import PERCENT_LABEL, Drawing, named_rows
from bathyscope.views.charts.rows import ROW_HEIGHT, groups_of, heading_row, headings, order_of, point_row, row_axis
from bathyscope.views.charts.theme import LIGHT, Theme

# A narrower segment has no room for its figure; the tooltip and the table have it.
_LABEL_FROM = 0.08


def stages(finding: LadderFinding, device_class: str, theme: Theme = LIGHT, *, legend: bool = True) -> Drawing:
    """Return the stage shares of one device class; points without operations in the OSDs are left out."""
    rows = tuple(_rows(finding, device_class))
    return Drawing(
        name=f"stages-{device_class or 'all'}",
        title=f"{labels.device_class(device_class)}: time inside the OSDs by stage",
        description=f"Shares of the operations' time by stage: {', '.join(labels.STAGES.values())}.",
        chart=functools.partial(_chart, theme, order_of(rows), legend=legend),
        rows=rows,
    )


def _rows(finding: LadderFinding, device_class: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for index, group in enumerate(groups_of(finding, device_class)):
        points = [point for point in group.points if point.stages]
        if not points:
            continue
        title = labels.group_pattern(group)
        rows.append({"row": heading_row(index), "kind": "heading", "title": title})
        for point in points:
            rows += _segments(index, point, labels.layer(finding, point.layer).title, title)
    return rows


def _segments(index: int, point: PointFinding, name: str, title: str) -> list[dict[str, Any]]:
    rows = []
    slots = list(labels.STAGES)
    start = 0.0
    for stage in point.stages:
        slot = slots.index(stage.stage) if stage.stage in slots else len(slots) - 1
        rows.append(
            {
                "row": point_row(index, name),
                "kind": "segment",
                "title": title,
                "name": name,
                "stage": labels.STAGES.get(stage.stage, labels.clean(stage.stage)),
                "slot": slot,
                "from": start,
                "to": start + stage.share,
                "middle": start + stage.share / 2,
                "label": format_percent(stage.share) if stage.share >= _LABEL_FROM else "",
                "share": format_percent(stage.share),
                "mean": format_duration_ns(stage.latency_ns_mean),
                "p99": format_duration_ns(stage.latency_ns_p99),
                "ops": point.stage_sample_count,
            }
        )
        start += stage.share
    return rows


def _chart(theme: Theme, order: list[str], *, legend: bool) -> Any:
    names = list(labels.STAGES.values())
    shown = alt.Legend(symbolType="square") if legend else None
    y = row_axis(order)
    x_axis = alt.Axis(labelExpr=PERCENT_LABEL, title=None, values=[0, 0.25, 0.5, 0.75, 1], orient="top")
    x_scale = alt.Scale(domain=[0, 1], nice=False)
    segments = alt.Chart(named_rows()).transform_filter("datum.kind == 'segment'")
    fields = ("title:pattern", "name:layer", "stage:stage", "share:share", "mean:mean", "p99:p99", "ops:ops sampled")
    tooltip = [alt.Tooltip(f.split(":")[0], type="nominal", title=f.split(":")[1]) for f in fields]
    bars = segments.mark_bar(height=ROW_HEIGHT - 5, cornerRadius=2, stroke=theme.background, strokeWidth=1).encode(
        x=alt.X("from:Q", axis=x_axis, scale=x_scale),
        x2="to:Q",
        y=y,
        color=alt.Color("stage:N", scale=alt.Scale(domain=names, range=list(theme.stages)), legend=shown),
        tooltip=tooltip,
    )
    text_range = alt.Scale(domain=list(range(len(names))), range=list(theme.stage_text))
    texts = segments.mark_text(fontSize=10.5).encode(
        x=alt.X("middle:Q", scale=x_scale),
        y=y,
        text="label:N",
        color=alt.Color("slot:O", scale=text_range, legend=None),
    )
    chart = alt.layer(headings(y, theme), bars, texts).resolve_scale(color="independent")
    return chart.properties(height=max(1, len(order)) * ROW_HEIGHT)
