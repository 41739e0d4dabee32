"""The chart of a study: how fast each access pattern is in each phase, compared with the first phase."""

from __future__ import annotations

import functools
from typing import Any

import altair as alt

from bathyscope.records.study_finding import StudyFinding
from bathyscope.views.charts.base import Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme
from bathyscope.views.figures import range_text, value_text

_SLOTS = (5, 1, 2, 0, 3, 4)
_LEGEND = alt.Legend(title=None, symbolOpacity=1, symbolStrokeWidth=0)


def drawings(finding: StudyFinding, theme: Theme = LIGHT) -> list[Drawing]:
    """Return the chart, or none without a comparison."""
    rows = tuple(_rows(finding))
    if finding.base is None or not rows:
        return []
    about = (
        f"IOPS of each access pattern over those of the phase {finding.base}, on a logarithmic axis; "
        "the table below holds the same figures."
    )
    return [
        Drawing("study", f"IOPS over those of {finding.base}", about, functools.partial(_chart, finding, theme), rows)
    ]


def _chart(finding: StudyFinding, theme: Theme) -> Any:
    phases = list(finding.phases)
    colours = [theme.layers[_SLOTS[place % len(_SLOTS)] % len(theme.layers)] for place in range(len(phases))]
    y = alt.Y("pattern:N", sort=[row.pattern for row in finding.rows], axis=alt.Axis(title=None, ticks=False))
    offset = alt.YOffset("phase:N", sort=phases)
    ticks = [digit * 10.0**power for power in range(-2, 4) for digit in (1, 2, 5)]
    axis = alt.Axis(title=f"times {finding.base}", labelExpr="format(datum.value,'~g')+' ×'", values=ticks)
    # A bar on a logarithmic axis has no length; a point has a place.
    x = alt.X("ratio:Q", scale=alt.Scale(type="log"), axis=axis)
    colour = alt.Color("phase:N", scale=alt.Scale(domain=phases, range=colours), legend=_LEGEND)
    tooltip = [
        alt.Tooltip("pattern:N"),
        alt.Tooltip("phase:N"),
        alt.Tooltip("label:N", title="IOPS"),
        alt.Tooltip("interval:N", title="95 % interval"),
        alt.Tooltip("hits:N", title="read hit ratio"),
    ]
    base = alt.Chart(named_rows())
    interval = base.mark_rule(strokeWidth=5, opacity=0.38, strokeCap="round").encode(
        x="low:Q", x2="high:Q", y=y, yOffset=offset, color=colour
    )
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=x, y=y, yOffset=offset, color=colour, tooltip=tooltip
    )
    words = base.mark_text(align="left", dx=11, fontSize=11.5, color=theme.text).encode(
        x="high:Q", y=y, yOffset=offset, text="label:N"
    )
    return alt.layer(interval, dots, words).properties(height=24 * len(phases) * max(1, len(finding.rows)))


def _rows(finding: StudyFinding) -> list[dict[str, Any]]:
    rows = []
    for row in finding.rows:
        for cell in row.cells:
            is_base = cell.phase == finding.phases[0]
            ratio = 1.0 if is_base else cell.ratio.value
            if not ratio or cell.iops.value is None:
                continue
            rows.append(
                {
                    "pattern": row.pattern,
                    "phase": cell.phase,
                    "ratio": ratio,
                    "low": cell.ratio.low or ratio,
                    "high": cell.ratio.high or ratio,
                    "label": f"{value_text(cell.iops.value, '1/s')} IOPS",
                    "interval": range_text(cell.ratio) or "n/a",
                    "hits": value_text(cell.read_hit_ratio, "ratio"),
                }
            )
    return rows
