"""Time series of a step: load, processors, devices; repeats lie over each other."""

from __future__ import annotations

import functools
from typing import Any

import altair as alt

from bathyscope.records.finding import LadderFinding, LayerView
from bathyscope.views import labels
from bathyscope.views.charts.base import LABELS, PLAIN_LABEL, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme

# name of the series → (title, whether its lines belong to several subjects: daemons, devices)
MEASURES = {
    "iops": ("IOPS", False),
    "latency_ns_mean": ("Mean latency", False),
    "cpu_cores": ("CPU (cores)", True),
    "device_utilization": ("Device utilisation", True),
    "bandwidth_bytes_per_s": ("Bandwidth", False),
}
# Bandwidth is IOPS times the block size: a chart of its own would add nothing.
SHOWN = ("iops", "latency_ns_mean", "cpu_cores", "device_utilization")
_HEIGHT = 110


def measure_title(name: str) -> str:
    """Return a measure in words."""
    return MEASURES[name][0] if name in MEASURES else labels.clean(name).replace("_", " ")


def shown_measures(finding: LadderFinding) -> list[str]:
    """Return the measures that are drawn: the known ones in their order, then any other that the finding has."""
    present = dict.fromkeys(series.name for series in finding.series)
    return [n for n in SHOWN if n in present] + [n for n in present if n not in MEASURES]


def series(finding: LadderFinding, step_key: str, name: str, theme: Theme = LIGHT) -> Drawing:
    """Return one measure of one configuration over time, a line for each repeat and subject."""
    chosen = [s for s in finding.series if s.step_key == step_key and s.name == name]
    unit = chosen[0].unit if chosen else ""
    rows = tuple(
        {
            "t": p.t_s,
            "v": p.value,
            "subject": labels.clean(s.subject),
            "repeat": s.repeat_index + 1,
            "layer": s.step_key.partition("/")[0],
        }
        for s in chosen
        for p in s.points
    )
    key = labels.clean(step_key)
    return Drawing(
        name=f"series-{step_key}-{name}",
        title=f"{key}: {measure_title(name)}",
        description=f"{measure_title(name)} of {key} over time, one line for each repeat.",
        chart=functools.partial(_chart, name, unit, labels.layers(finding), theme),
        rows=rows,
    )


def _chart(name: str, unit: str, layers: list[LayerView], theme: Theme) -> Any:
    y_axis = alt.Axis(labelExpr=LABELS.get(unit, PLAIN_LABEL), title=None, tickCount=4)
    # A throttle lets short bursts through: what is beyond 100 % is drawn as well, inside the axes.
    whole = alt.DomainUnionWith(unionWith=[0, 1])
    y_scale = alt.Scale(domain=whole) if unit == "ratio" else alt.Scale(zero=True, nice=True)
    if MEASURES.get(name, ("", True))[1]:
        subjects = alt.Scale(range=[theme.layers[i] for i in (1, 2, 3, 4, 5, 6, 0)])
        legend = alt.Legend(orient="bottom", columns=2, labelLimit=112)
        colour = alt.Color("subject:N", scale=subjects, legend=legend)
    else:
        colour = alt.Color("layer:N", scale=theme.layer_scale(layers, by_name=True), legend=None)
    dash = alt.StrokeDash(
        "repeat:O", legend=None, scale=alt.Scale(range=[[1, 0], [5, 2], [2, 2], [8, 2, 2, 2], [1, 3]])
    )
    return (
        alt.Chart(named_rows(), height=_HEIGHT)
        .mark_line(strokeWidth=1.6, opacity=0.9, strokeJoin="round")
        .encode(
            x=alt.X(
                "t:Q",
                axis=alt.Axis(title=None, labelExpr="datum.label + ' s'", grid=False, tickCount=5),
                scale=alt.Scale(nice=False, zero=True),
            ),
            y=alt.Y("v:Q", axis=y_axis, scale=y_scale),
            color=colour,
            strokeDash=dash,
            detail="subject:N",
            tooltip=[
                alt.Tooltip("subject:N"),
                alt.Tooltip("repeat:O"),
                alt.Tooltip("t:Q", title="s"),
                alt.Tooltip("v:Q", format=".4~g", title="value"),
            ],
        )
    )
