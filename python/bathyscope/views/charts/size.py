"""Charts of sizing: hit ratio and latency over the cache size, the split of one SSD, hit ratio over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from bathyscope.records.size_finding import SizeCurve, SizeFinding, Split
from bathyscope.units import format_bytes, format_duration_ns, format_line_size
from bathyscope.views import labels
from bathyscope.views import size_words as words
from bathyscope.views.charts.base import LATENCY_LABEL, PERCENT_LABEL, Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, Theme

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


def drawings(finding: SizeFinding, theme: Theme) -> Iterator[Drawing]:
    """Yield every chart that has something to show; its name is its place in the page."""
    main = words.main_curve(finding)
    whole = [c for c in finding.curves if c.group_kind == "all" and c.points]
    for place, policy in enumerate(dict.fromkeys(c.policy for c in whole)):
        yield curves(finding, [c for c in whole if c.policy == policy], f"curves-{place}", policy, theme)
    if main is not None and main.points:
        policies = [c for c in whole if c.line_bytes == main.line_bytes]
        if len(policies) > 1:
            title = f"Policies at {format_line_size(main.line_bytes)} lines"
            yield curves(finding, policies, "policies", title, theme)
        groups = [c for c in words.group_curves(finding, main) if c.points][:GROUPS_SHOWN]
        if groups:
            yield curves(finding, groups, "groups", f"By {finding.by}", theme)
        yield from (d for d in [latency(main, theme)] if d.rows)
    one = words.main_split(finding)
    if one is not None and one.shares:
        yield split(one, theme)
    yield from (d for d in [stability(finding, theme)] if len(d.rows) > 1)


def curves(finding: SizeFinding, shown: Sequence[SizeCurve], name: str, title: str, theme: Theme = LIGHT) -> Drawing:
    """Return the hit ratio of reads over cache size: a line with its 95 % band for each of `shown`."""
    names = [_series_name(curve, shown) for curve in shown]
    rows = [row for curve, series in zip(shown, names, strict=True) for row in _curve_rows(finding, curve, series)]
    x = _size_axis([row["size"] for row in rows])
    y = _hit_axis()
    colour, dash = _colour(names, theme), _dash(names)
    base = alt.Chart(named_rows())
    points = base.transform_filter("datum.kind == 'point'")
    band = points.mark_area(opacity=0.16).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour)
    line = points.mark_line(strokeWidth=2.2, interpolate="monotone").encode(x=x, y=y, color=colour, strokeDash=dash)
    dots = points.mark_point(filled=True, size=26, opacity=0.9).encode(x=x, y=y, color=colour, tooltip=_tooltip())
    shapes = {"knee": "diamond", "target met": "square", "budget": "square", "advised": "circle"}
    shape = alt.Shape("mark:N", scale=alt.Scale(domain=list(shapes), range=list(shapes.values())), legend=None)
    marks = (
        base.transform_filter("datum.kind == 'mark'")
        .mark_point(size=150, strokeWidth=2.5, filled=False)
        .encode(x=x, y=y, color=colour, shape=shape, tooltip=_tooltip())
    )
    texts = (
        base.transform_filter("datum.mark == 'advised'")
        .mark_text(align="left", dx=11, dy=16, fontSize=11.5, fontWeight=600, color=theme.text)
        .encode(x=x, y=y, text="label:N")
    )
    chart = alt.layer(band, line, dots, marks, texts).properties(height=CHART_HEIGHT)
    about = f"{title}: read hit ratio over the cache size; the tables below hold the same figures."
    return Drawing(name, title, about, lambda: chart, tuple(rows))


def latency(curve: SizeCurve, theme: Theme = LIGHT) -> Drawing:
    """Return the expected mean and p99 of the read latency over cache size; no rows when they are not known."""
    rows = [
        {"size": p.size_bytes, "ns": value, "series": series, "size_label": format_bytes(p.size_bytes),
         "label": format_duration_ns(value)}
        for p in curve.points
        for series, value in (("mean", p.latency_ns_mean), ("p99", p.latency_ns_p99))
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
    about = "Expected mean and p99 of the read latency over the cache size."
    chart = alt.layer(line, dots).properties(height=220)
    return Drawing("latency", title, about, lambda: chart, tuple(rows))


def split(one: Split, theme: Theme = LIGHT) -> Drawing:
    """Return the best split of one SSD: a bar for each group with its flash and its hit ratio."""
    rows = tuple(
        {
            "group": labels.clean(share.group_name)[:40],
            "place": place,
            "size": share.flash_bytes,
            "label": f"{format_bytes(share.flash_bytes)} · {100 * share.read_hit_ratio:.0f}% hit"
            if share.flash_bytes
            else "none",
            "more": f"{share.marginal_hit_ratio_per_gib:.1%} of all reads",
        }
        for place, share in enumerate(one.shares[:24])
    )
    largest = max((share.flash_bytes for share in one.shares), default=1)
    x = alt.X("size:Q", scale=alt.Scale(domain=[0, largest * 1.75]), axis=None)
    y = alt.Y(
        "group:N", sort=[str(row["group"]) for row in rows], axis=alt.Axis(title=None, labelLimit=190, ticks=False)
    )
    tooltip = [
        alt.Tooltip("group:N", title="group"),
        alt.Tooltip("label:N", title="flash"),
        alt.Tooltip("more:N", title="marginal hit ratio per GiB"),
    ]
    base = alt.Chart(named_rows()).encode(x=x, y=y)
    bars = base.mark_bar(color=theme.layers[1], cornerRadiusEnd=3, height=16).encode(tooltip=tooltip)
    texts = base.mark_text(align="left", dx=6, fontSize=11.5, color=theme.text).encode(text="label:N")
    title = f"Split of {format_bytes(one.budget_bytes)}"
    about = "Share of the flash of each group, and the read hit ratio of the group there."
    chart = alt.layer(bars, texts).properties(height=max(60, 26 * len(rows)))
    return Drawing("split", title, about, lambda: chart, rows)


def stability(finding: SizeFinding, theme: Theme = LIGHT) -> Drawing:
    """Return the hit ratio of each window of the trace at the size that is judged; pale where it is not counted."""
    rows = tuple(
        {
            "window": int(w.window) + 1 if w.window.isdecimal() else place + 1,
            "hit": w.read_hit_ratio,
            "judged": w.judged,
            "label": f"{words.percent(w.read_hit_ratio)} of {w.read_requests:,} reads"
            + ("" if w.judged else ", not counted"),
        }
        for place, w in enumerate(finding.stability)
        if w.read_hit_ratio is not None
    )
    x = alt.X("window:O", axis=alt.Axis(title="window", labelAngle=0, labelOverlap=True, ticks=False))
    y = _hit_axis()
    opacity = alt.condition("datum.judged", alt.value(1.0), alt.value(0.25))
    tooltip = [alt.Tooltip("window:O"), alt.Tooltip("label:N", title="hits")]
    chart = (
        alt.Chart(named_rows())
        .mark_bar(color=theme.layers[1], cornerRadiusEnd=2)
        .encode(x=x, y=y, opacity=opacity, tooltip=tooltip)
        .properties(height=180)
    )
    about = "Read hit ratio in each window of the trace; pale bars are not counted: cold, or few reads."
    return Drawing("stability", "Read hit ratio over time", about, lambda: chart, rows)


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
        advised = words.is_advised(finding, curve, point)
        if advised or point is curve.wanted or point is curve.knee:
            target = "target met" if finding.budget_bytes is None else "budget"
            mark = "advised" if advised else target if point is curve.wanted else "knee"
            rows.append(known | {"kind": "mark", "mark": mark, "label": f"{mark}: {format_bytes(point.size_bytes)}"})
    return rows


def _tooltip() -> list[alt.Tooltip]:
    titles = {"series": "curve", "size_label": "cache", "hit_label": "read hit ratio"}
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]


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


def _hit_axis() -> alt.Y:
    axis = alt.Axis(labelExpr=PERCENT_LABEL, title="read hit ratio", tickCount=5)
    return alt.Y("hit:Q", scale=alt.Scale(domain=[0, 1]), axis=axis)


def _size_axis(sizes: Sequence[Any]) -> alt.X:
    low, high = min(sizes, default=1), max(sizes, default=2)
    ticks = [1 << power for power in range(max(0, int(low).bit_length() - 1), int(2 * high).bit_length())]
    scale = alt.Scale(type="log", base=2, domain=[low, max(high, low * 2)], nice=False)
    axis = alt.Axis(labelExpr=BYTES_LABEL, values=ticks, title="cache size", labelOverlap=True, grid=False)
    return alt.X("size:Q", scale=scale, axis=axis)
