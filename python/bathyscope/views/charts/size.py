"""Charts of sizing: hits over cache size with bands, latency over size, who gets what of one SSD, hits over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from bathyscope.records.size_finding import SizeCurve, SizeFinding, Split
from bathyscope.units import format_bytes, format_duration_ns, format_line_size, format_rate
from bathyscope.views import labels
from bathyscope.views.charts.base import LATENCY_LABEL, PERCENT_LABEL, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme
from bathyscope.views.size_words import percent

BYTES_LABEL = (
    "datum.value >= 1099511627776 ? format(datum.value/1099511627776,'.3~g')+' TiB'"
    " : datum.value >= 1073741824 ? format(datum.value/1073741824,'.3~g')+' GiB'"
    " : datum.value >= 1048576 ? format(datum.value/1048576,'.3~g')+' MiB'"
    " : datum.value >= 1024 ? format(datum.value/1024,'.3~g')+' KiB' : format(datum.value,'d')+' B'"
)
# Colours of line sizes: the slots of the palette that are farthest apart come first; dashes repeat the message.
_SLOTS = (1, 2, 3, 4, 5, 6, 0)
_DASHES: tuple[list[int], ...] = ([1, 0], [8, 3], [4, 2], [2, 2], [8, 2, 2, 2], [1, 3], [12, 3])
GROUPS_SHOWN = 7
CHART_HEIGHT = 300


def curves(finding: SizeFinding, shown: Sequence[SizeCurve], name: str, title: str, theme: Theme = LIGHT) -> Drawing:
    """Return the hit ratio of reads over cache size: a line with its 95 % band for each of `shown`."""
    names = [_series_name(curve, shown) for curve in shown]
    rows = [row for curve, series in zip(shown, names, strict=True) for row in _curve_rows(finding, curve, series)]
    x = _size_axis([row["size"] for row in rows])
    y = alt.Y(
        "hit:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(labelExpr=PERCENT_LABEL, title="reads that hit", tickCount=5),
    )
    colour, dash = _colour(names, theme), _dash(names)
    base = alt.Chart(named_rows())
    points = base.transform_filter("datum.kind == 'point'")
    band = points.mark_area(opacity=0.16).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour)
    line = points.mark_line(strokeWidth=2.2, interpolate="monotone").encode(x=x, y=y, color=colour, strokeDash=dash)
    dots = points.mark_point(filled=True, size=26, opacity=0.9).encode(x=x, y=y, color=colour, tooltip=_tooltip())
    marks = (
        base.transform_filter("datum.kind == 'mark'")
        .mark_point(size=150, strokeWidth=2.5, filled=False)
        .encode(x=x, y=y, color=colour, shape=_mark_shape(), tooltip=_tooltip())
    )
    words = (
        base.transform_filter("datum.mark == 'advised'")
        .mark_text(align="right", dx=-11, dy=-9, fontSize=11.5, fontWeight=600, color=theme.text)
        .encode(x=x, y=y, text="label:N")
    )
    chart = alt.layer(band, line, dots, marks, words).properties(height=CHART_HEIGHT)
    about = f"{title}: share of reads that hit over the cache size; the tables below hold the same figures."
    return Drawing(name, title, about, chart, tuple(rows))


def latency(curve: SizeCurve, theme: Theme = LIGHT) -> Drawing:
    """Return the expected mean and 99th percentile of the read latency over cache size; no rows when unknown."""
    rows = [
        {"size": p.size_bytes, "ns": value, "series": series, "size_label": format_bytes(p.size_bytes),
         "label": format_duration_ns(value)}
        for p in curve.points
        for series, value in (("mean", p.latency_ns_mean), ("99th percentile", p.latency_ns_p99))
        if value is not None
    ]  # fmt: skip
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    x = _size_axis([row["size"] for row in rows])
    y = alt.Y("ns:Q", scale=alt.Scale(zero=True), axis=alt.Axis(labelExpr=LATENCY_LABEL, title=None, tickCount=5))
    tooltip = [alt.Tooltip("size_label:N", title="cache"), alt.Tooltip("label:N", title="expected")]
    base = alt.Chart(named_rows()).encode(x=x, y=y, color=_colour(names, theme), strokeDash=_dash(names))
    line = base.mark_line(strokeWidth=2.2)
    dots = base.mark_point(filled=True, size=30).encode(tooltip=tooltip)
    title = "Expected read latency"
    about = "Expected mean and 99th percentile of the read latency over the cache size."
    return Drawing("latency", title, about, alt.layer(line, dots).properties(height=220), tuple(rows))


def split(one: Split, theme: Theme = LIGHT) -> Drawing:
    """Return the best split of one SSD: a bar for each group with what it gets and what it hits there."""
    rows = tuple(
        {
            "group": labels.clean(share.group_name)[:40],
            "place": place,
            "size": share.flash_bytes,
            "label": f"{format_bytes(share.flash_bytes)} · {100 * share.read_hit_ratio:.0f}% hit"
            if share.flash_bytes
            else "nothing",
            "more": f"{format_rate(share.marginal_hits_per_gib)} hits",
        }
        for place, share in enumerate(one.shares[:24])
    )
    largest = max((share.flash_bytes for share in one.shares), default=1)
    x = alt.X("size:Q", scale=alt.Scale(domain=[0, largest * 1.35]), axis=None)
    y = alt.Y(
        "group:N", sort=[str(row["group"]) for row in rows], axis=alt.Axis(title=None, labelLimit=190, ticks=False)
    )
    tooltip = [
        alt.Tooltip("group:N", title="group"),
        alt.Tooltip("label:N", title="gets"),
        alt.Tooltip("more:N", title="1 GiB more"),
    ]
    base = alt.Chart(named_rows()).encode(x=x, y=y)
    bars = base.mark_bar(color=theme.layers[1], cornerRadiusEnd=3, height=16).encode(tooltip=tooltip)
    words = base.mark_text(align="left", dx=6, fontSize=11.5, color=theme.text).encode(text="label:N")
    title = f"Split of {format_bytes(one.budget_bytes)}"
    about = "What each group gets of the flash, and what share of its reads hits there."
    return Drawing("split", title, about, alt.layer(bars, words).properties(height=max(60, 26 * len(rows))), rows)


def stability(finding: SizeFinding, theme: Theme = LIGHT) -> Drawing:
    """Return the hit ratio of each window of the trace at the size that is judged; pale where it is not counted."""
    rows = tuple(
        {
            "window": int(w.window) + 1 if w.window.isdecimal() else place + 1,
            "hit": w.read_hit_ratio,
            "judged": w.judged,
            "label": f"{percent(w.read_hit_ratio)} of {w.read_requests:,} reads{'' if w.judged else ', not counted'}",
        }
        for place, w in enumerate(finding.stability)
        if w.read_hit_ratio is not None
    )
    x = alt.X("window:O", axis=alt.Axis(title="window", labelAngle=0, labelOverlap=True, ticks=False))
    y = alt.Y(
        "hit:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(labelExpr=PERCENT_LABEL, title="reads that hit", tickCount=5),
    )
    opacity = alt.condition("datum.judged", alt.value(1.0), alt.value(0.25))
    tooltip = [alt.Tooltip("window:O"), alt.Tooltip("label:N", title="hits")]
    chart = (
        alt.Chart(named_rows())
        .mark_bar(color=theme.layers[1], cornerRadiusEnd=2)
        .encode(x=x, y=y, opacity=opacity, tooltip=tooltip)
        .properties(height=180)
    )
    about = "Share of reads that hit in each window of the trace; pale bars are not counted: cold, or of few reads."
    return Drawing("stability", "Hits over time", about, chart, rows)


def _series_name(curve: SizeCurve, shown: Sequence[SizeCurve]) -> str:
    parts = []
    if len({c.line_bytes for c in shown}) > 1:
        parts.append(f"{format_line_size(curve.line_bytes)} lines")
    if len({c.policy for c in shown}) > 1:
        parts.append(curve.policy)
    if len({c.group_name for c in shown}) > 1:
        parts.insert(0, labels.clean(curve.group_name)[:30])
    return ", ".join(parts) or f"{format_line_size(curve.line_bytes)} lines"


def _curve_rows(finding: SizeFinding, curve: SizeCurve, series: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for point in curve.points:
        hit = point.read_hit.value or 0.0
        known = {
            "series": series,
            "size": point.size_bytes,
            "hit": hit,
            "size_label": format_bytes(point.size_bytes),
            "hit_label": f"{100 * hit:.1f}%",
        }
        low = point.read_hit.low if point.read_hit.low is not None else hit
        high = point.read_hit.high if point.read_hit.high is not None else hit
        rows.append(known | {"kind": "point", "low": low, "high": high})
        advised = (
            curve.group_kind == "all"
            and (finding.advice.size_bytes, finding.advice.line_bytes) == (point.size_bytes, curve.line_bytes)
            and finding.advice.policy == curve.policy
        )
        if advised or point is curve.wanted or point is curve.knee:
            target = "target met" if finding.budget_bytes is None else "budget"
            mark = "advised" if advised else target if point is curve.wanted else "knee"
            rows.append(known | {"kind": "mark", "mark": mark, "label": f"{mark}: {format_bytes(point.size_bytes)}"})
    return rows


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("series:N", title="curve"),
        alt.Tooltip("size_label:N", title="cache"),
        alt.Tooltip("hit_label:N", title="reads that hit"),
    ]


def _mark_shape() -> alt.Shape:
    marks, shapes = ["knee", "target met", "budget", "advised"], ["diamond", "square", "square", "circle"]
    scale = alt.Scale(domain=marks, range=shapes)
    return alt.Shape("mark:N", scale=scale, legend=None)


def _colour(names: Sequence[str], theme: Theme) -> alt.Color:
    colours = [theme.layers[_SLOTS[place % len(_SLOTS)]] for place in range(len(names))]
    return alt.Color("series:N", scale=alt.Scale(domain=list(names), range=colours), legend=_legend(names))


def _dash(names: Sequence[str]) -> alt.StrokeDash:
    dashes = [_DASHES[place % len(_DASHES)] for place in range(len(names))]
    return alt.StrokeDash("series:N", scale=alt.Scale(domain=list(names), range=dashes), legend=_legend(names))


def _legend(names: Sequence[str]) -> alt.Legend | None:
    """Return the legend of colour and dash together; Vega-Lite joins them only when both are the same."""
    if len(names) < 2:
        return None
    return alt.Legend(symbolType="circle", symbolOpacity=1, symbolStrokeWidth=0, columns=4)


def _size_axis(sizes: Sequence[Any]) -> alt.X:
    low, high = min(sizes, default=1), max(sizes, default=2)
    power = 1 << max(0, int(low).bit_length() - 1)
    ticks = []
    while power <= high * 2:
        ticks.append(power)
        power *= 2
    scale = alt.Scale(type="log", base=2, domain=[low, max(high, low * 2)], nice=False)
    axis = alt.Axis(labelExpr=BYTES_LABEL, values=ticks, title="cache size", labelOverlap=True, grid=False)
    return alt.X("size:Q", scale=scale, axis=axis)
