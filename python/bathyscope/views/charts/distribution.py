"""Latency distributions: latency over the share of the I/Os, stretched so that each further nine has the same room."""

from __future__ import annotations

from typing import Any

import altair as alt

from bathyscope.records.finding import LadderFinding, RungGroup
from bathyscope.views import labels
from bathyscope.views.charts import theme as themes
from bathyscope.views.charts.base import LATENCY_LABEL, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme

# Of -log10(1 - q), so that 90 %, 99 %, 99.9 % … lie at 1, 2, 3 …
_TICKS = (0, 0.30103, 1, 2, 3, 4, 5, 6)
_TICK_LABEL = (
    "datum.value < 0.1 ? '0 %' : datum.value < 0.9 ? '50 %' : datum.value < 1.5 ? '90 %' : datum.value < 2.5 ? '99 %'"
    " : datum.value < 3.5 ? '99.9 %' : datum.value < 4.5 ? '99.99 %' : datum.value < 5.5 ? '99.999 %' : '99.9999 %'"
)


def distribution(finding: LadderFinding, group: RungGroup, theme: Theme = LIGHT, *, legend: bool = True) -> Drawing:
    """Return the latency distributions of all layers of one group in one panel."""
    rows = tuple(
        {"layer": d.layer, "name": labels.layer(d.layer), "q": p.quantile, "ns": p.latency_ns}
        for d in finding.distributions
        if d.device_class == group.device_class and d.pattern == group.pattern
        for p in d.points
    )
    title = f"{labels.device_class(group.device_class)} {labels.group_pattern(group)}: latency distribution"
    return Drawing(
        name=f"distribution-{group.device_class or 'all'}-{group.pattern}",
        title=title,
        description=f"{title}. Share of the I/Os from left to right up to the nines, latency upwards, logarithmic.",
        chart=_chart(labels.layers(finding), theme, legend=legend),
        rows=rows,
    )


def _chart(names: list[str], theme: Theme, *, legend: bool) -> Any:
    shown = alt.Legend(labelExpr=_name_expression(names)) if legend else None
    x_axis = alt.Axis(
        values=list(_TICKS),
        labelExpr=_TICK_LABEL,
        title="share of the I/Os that were at most this slow",
        labelOverlap=True,
    )
    y_axis = alt.Axis(labelExpr=LATENCY_LABEL, title=None, tickCount=5, labelOverlap=True)
    dashes = [themes.DASHES.get(name, [4, 4]) for name in names]
    return (
        alt.Chart(named_rows(), height=210)
        # A quantile of exactly 1 has no place on this axis.
        .transform_filter("datum.q < 1")
        .transform_calculate(nines="-log(1 - datum.q) / LN10", percent="format(datum.q * 100, '~r') + ' %'")
        .mark_line(strokeWidth=2.2, interpolate="monotone", strokeJoin="round")
        .encode(
            x=alt.X("nines:Q", axis=x_axis, scale=alt.Scale(nice=False, zero=True)),
            y=alt.Y("ns:Q", axis=y_axis, scale=alt.Scale(type="log", nice=False, padding=8)),
            color=alt.Color("layer:N", scale=alt.Scale(domain=names, range=theme.layer_range(names)), legend=shown),
            strokeDash=alt.StrokeDash("layer:N", scale=alt.Scale(domain=names, range=dashes), legend=shown),
            order="nines:Q",
            tooltip=[alt.Tooltip("name:N", title="layer"), alt.Tooltip("percent:N", title="share")],
        )
    )


def _name_expression(names: list[str]) -> str:
    """Return the expression that turns layer keys into names in a legend; both are program text, not cluster text."""
    known = {name: labels.LAYER_NAMES[name] for name in names if name in labels.LAYER_NAMES}
    out = "datum.label"
    for key, name in known.items():
        out = f"datum.label == '{key}' ? '{name}' : {out}"
    return out
