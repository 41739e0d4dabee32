"""Time of the operations inside the OSDs by stage: one bar of shares for each pattern and layer."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from bathyscope.records.ladder_blocks import StageBar, Stages
from bathyscope.units import format_duration_ns, format_percent
from bathyscope.views import labels
from bathyscope.views.charts.base import PERCENT_LABEL, Drawing, named_rows
from bathyscope.views.charts.rows import ROW_HEIGHT, heading_row, headings, order_of, point_row, row_axis
from bathyscope.views.charts.theme import LIGHT, PAGE, Theme

# A narrower segment has no room for its figure; the tooltip and the table have it.
_LABEL_FROM = 0.08


def drawing(block: Stages, theme: Theme = LIGHT) -> Drawing:
    """Return the bars of stages; a page has one legend for all of them."""
    rows = tuple(_rows(block.bars))
    about = f"Shares of the operations' time by stage: {', '.join(labels.STAGES.values())}."
    return Drawing(block.name, block.title, about, functools.partial(_chart, theme, order_of(rows)), rows)


def _rows(bars: Sequence[StageBar]) -> Iterator[dict[str, Any]]:
    for index, (pattern, of_pattern) in enumerate(itertools.groupby(bars, key=lambda bar: bar.pattern)):
        yield {"row": heading_row(index), "kind": "heading", "title": pattern}
        for bar in of_pattern:
            yield from _segments(index, bar)


def _segments(index: int, bar: StageBar) -> list[dict[str, Any]]:
    rows = []
    slots = list(labels.STAGES)
    start = 0.0
    for stage in bar.stages:
        slot = slots.index(stage.stage) if stage.stage in slots else len(slots) - 1
        rows.append(
            {
                "row": point_row(index, bar.layer),
                "kind": "segment",
                "title": bar.pattern,
                "name": bar.layer,
                "stage": labels.STAGES.get(stage.stage, labels.clean(stage.stage)),
                "slot": slot,
                "from": start,
                "to": start + stage.share,
                "middle": start + stage.share / 2,
                "label": format_percent(stage.share) if stage.share >= _LABEL_FROM else "",
                "share": format_percent(stage.share),
                "mean": format_duration_ns(stage.latency_ns_mean),
                "p99": format_duration_ns(stage.latency_ns_p99),
                "ops": bar.sample_count,
            }
        )
        start += stage.share
    return rows


def _chart(theme: Theme, order: list[str]) -> Any:
    names = list(labels.STAGES.values())
    shown = None if theme is PAGE else alt.Legend(symbolType="square")
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
