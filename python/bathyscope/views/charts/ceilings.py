"""The account of a load as one picture: its ceilings as lines, the measured rate below them, its latency as a bar.

Everything is placed here, in a square of 1 by 1, so that a page needs one specification for all loads of a run. Lines
have their names beside them: an axis with numbers of its own would only repeat them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from bathyscope.records.account import Account, Ceiling, LatencyPart
from bathyscope.records.figure import Figure
from bathyscope.records.finding import LayerView
from bathyscope.records.ladder_blocks import Ceilings
from bathyscope.units import format_percent, format_rate
from bathyscope.views import figures, labels
from bathyscope.views.account_words import PLACES, known_text, nearest_of_each, place
from bathyscope.views.charts.base import Drawing, named_rows
from bathyscope.views.charts.theme import LIGHT, PAGE, Theme

_HEIGHT = 244
_CEILINGS_MAX = 5
# Ceilings that are further above the load say nothing of it, and would press all others together.
_FAR_RATIO = 6.0
# Where the greatest rate is more than this times the measured one, a linear axis would hide how near the nearest is.
_LINEAR_RATIO_MAX = 2.5
# Places from the left: where lines end, and where their names begin.
_LINE_END, _NAME_START = 0.30, 0.36
_BAR_START, _BAR_END = 0.07, 0.20
# Places from the bottom: the latency's bar, its heading, what the scale is, the least and the greatest rate.
_PARTS_BOTTOM, _PARTS_TOP, _PARTS_HEADING = 0.0, 0.10, 0.15
_SCALE, _RATE_BOTTOM, _RATE_TOP = 0.245, 0.29, 0.96
_NAME_DISTANCE = 17 / _HEIGHT
_WHOLE = alt.Scale(domain=[0, 1], nice=False)
# A narrower segment has no room for its figure; the legend has it.
_SHARE_FROM = 0.09


def drawing(block: Ceilings, theme: Theme = LIGHT) -> Drawing:
    """Return the picture of an account; a page has a legend of its own below each."""
    ceilings, shown = _shown(block.account)
    rows = (
        *_rates(block.account, shown, block.layer, len(ceilings) - len(shown)),
        *_parts(block.account.parts, block.account.latency_ns),
    )
    legend = [] if theme is PAGE else [row["place"] for row in rows if row["kind"] == "part"]
    chart = functools.partial(_chart, block.layers, theme, legend)
    return Drawing(block.name, block.title, _description(block, shown), chart, rows, "ceilings")


def _shown(account: Account) -> tuple[list[Ceiling], list[Ceiling]]:
    """Return the nearest ceiling of each kind of resource (alike disks would be lines on one place), and those drawn.

    The nearest is always drawn, others where they are in reach.
    """
    ceilings = [ceiling for ceiling in nearest_of_each(account.limits, 1) if (ceiling.iops.value or 0) > 0]
    far = _FAR_RATIO * (account.iops.value or math.inf)
    return ceilings, [
        ceiling for i, ceiling in enumerate(ceilings[:_CEILINGS_MAX]) if i == 0 or (ceiling.iops.value or 0) <= far
    ]


def _description(block: Ceilings, shown: Sequence[Ceiling]) -> str:
    account = block.account
    words = [f"{known_text(account.iops)} IOPS measured on {block.layer.words}"]
    words += [f"{labels.clean(c.words)} {known_text(c.iops)} ({known_text(c.reached)} reached)" for c in shown]
    words += [f"{place(p.place).title} {known_text(p.share)} of the latency" for p in account.parts]
    return f"{block.title}: {'; '.join(words)}."


def _rates(account: Account, shown: Sequence[Ceiling], view: LayerView, more: int) -> list[dict[str, Any]]:
    """Return the ceilings and the measured rate, with names that do not lie over each other."""
    measured = account.iops.value or 0.0
    values = [ceiling.iops.value or 0.0 for ceiling in shown] + [measured] * (measured > 0)
    if not values:
        return []
    log = len(shown) > 1 and max(values) > _LINEAR_RATIO_MAX * min(values)
    ends = (min(values) / 2 if log else 0.0, max(values))

    def height(value: float) -> float:
        inside = min(max(value, ends[0]), ends[1])
        share = math.log(inside / ends[0]) / math.log(ends[1] / ends[0]) if log else inside / ends[1]
        return _RATE_BOTTOM + share * (_RATE_TOP - _RATE_BOTTOM)

    lines: list[dict[str, Any]] = [_line(ceiling, height, first=ceiling is shown[0]) for ceiling in shown]
    if measured > 0:
        lines.append(_measured(account.iops, height, view, bar=not log))
    lines.sort(key=lambda line: -line["y"])
    for line, name in zip(lines, _apart([line["y"] for line in lines]), strict=True):
        line["name_y"] = name
    scale = "logarithmic" if log else "from 0"
    if more:
        scale += f"; {more} more above"
    return [{"kind": "bottom", "y": _RATE_BOTTOM, "name": scale, "name_y": _SCALE}, *lines]


def _line(ceiling: Ceiling, height: Any, *, first: bool) -> dict[str, Any]:
    words = labels.clean(ceiling.words)
    return {
        "kind": "nearest" if first else "ceiling",
        "y": height(ceiling.iops.value or 0.0),
        "name": f"{known_text(ceiling.reached)} of {format_rate(ceiling.iops.value or 0.0)} · {words}",
        "about": words,
        "rate": f"{known_text(ceiling.iops)} {figures.range_text(ceiling.iops)}".rstrip(),
        "reached": known_text(ceiling.reached),
    }


def _measured(iops: Figure, height: Any, view: LayerView, *, bar: bool) -> dict[str, Any]:
    value = iops.value or 0.0
    return {
        "kind": "measured",
        "y": height(value),
        "low": height(value if iops.low is None else iops.low),
        "high": height(value if iops.high is None else iops.high),
        "layer": view.title,
        "bar": bar,
        "name": f"{known_text(iops)} {figures.plus_minus(iops)}".rstrip() + " IOPS measured",
        "about": f"measured on {view.words}",
        "rate": f"{known_text(iops)} {figures.range_text(iops)}".rstrip(),
        "reached": "",
    }


def _apart(wanted: Sequence[float]) -> list[float]:
    """Return places for names, as near as can be to those wanted (from the top down) and a line apart."""
    places: list[float] = []
    for height in wanted:
        places.append(min(height, places[-1] - _NAME_DISTANCE) if places else height)
    least = _RATE_BOTTOM
    for index in reversed(range(len(places))):
        places[index] = max(places[index], least)
        least = places[index] + _NAME_DISTANCE
    return places


def _parts(parts: Sequence[LatencyPart], latency_ns: Figure) -> list[dict[str, Any]]:
    shares = [(part, part.share.value) for part in parts if part.share.value is not None]
    if not shares:
        return []
    rows: list[dict[str, Any]] = [
        {"kind": "heading", "y": _PARTS_HEADING, "name": f"Mean latency {known_text(latency_ns)}"}
    ]
    start = 0.0
    for part, share in shares:
        where = place(part.place)
        rows.append(
            {
                "kind": "part",
                "from": start,
                "to": start + share,
                "middle": start + share / 2,
                "bottom": _PARTS_BOTTOM,
                "y": (_PARTS_BOTTOM + _PARTS_TOP) / 2,
                "top": _PARTS_TOP,
                "place": where.title,
                "slot": where.slot,
                "name": format_percent(share) if share >= _SHARE_FROM else "",
                "share": format_percent(share),
                "rate": known_text(part.latency_ns),
            }
        )
        start += share
    return rows


def _only(*kinds: str) -> Any:
    return alt.Chart(named_rows()).transform_filter(alt.FieldOneOfPredicate(field="kind", oneOf=list(kinds)))


def _across(field: str) -> alt.X:
    return alt.X(f"{field}:Q", scale=_WHOLE, axis=None)


def _up(field: str) -> alt.Y:
    return alt.Y(f"{field}:Q", scale=_WHOLE, axis=None)


def _at(share: float) -> Any:
    """Return a place from the left that is the same for all rows."""
    return alt.XDatum(share, type="quantitative", scale=_WHOLE, axis=None)


def _chart(layers: Sequence[LayerView], theme: Theme, legend: list[str]) -> Any:
    rates = alt.layer(*_lines(theme), *_measurement(layers, theme), *_names(theme))
    latency = _latency(theme, legend)
    return alt.layer(rates, latency).resolve_scale(color="independent", shape="independent").properties(height=_HEIGHT)


def _tooltip(**fields: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in fields.items()]


def _lines(theme: Theme) -> list[Any]:
    """Return the ceilings, each with a thread to its name. The nearest is solid and thick, the others are dashed."""
    tooltip = _tooltip(about="ceiling", rate="IOPS", reached="reached")
    span = {"x": _at(0), "x2": alt.X2Datum(_LINE_END), "y": _up("y")}
    thread = {"x": _at(_LINE_END), "x2": alt.X2Datum(_NAME_START), "y": _up("y"), "y2": "name_y:Q"}
    return [
        _only("bottom").mark_rule(color=theme.grid, strokeWidth=1.5).encode(**span),
        _only("ceiling", "nearest", "measured").mark_rule(color=theme.grid, strokeWidth=1.2).encode(**thread),
        _only("ceiling")
        .mark_rule(color=theme.muted, strokeWidth=1.4, strokeDash=[5, 3])
        .encode(**span, tooltip=tooltip),
        _only("nearest").mark_rule(color=theme.text, strokeWidth=3).encode(**span, tooltip=tooltip),
    ]


def _measurement(layers: Sequence[LayerView], theme: Theme) -> list[Any]:
    """Return the measured rate: a bar from the bottom, its interval, and the mark of its layer."""
    tooltip = _tooltip(about="load", rate="IOPS")
    colour = alt.Color("layer:N", scale=theme.layer_scale(layers), legend=None)
    shapes = alt.Scale(domain=[view.title for view in layers], range=[view.shape for view in layers])
    shape = alt.Shape("layer:N", scale=shapes, legend=None)
    bar = {"x": _at(_BAR_START), "x2": alt.X2Datum(_BAR_END), "y": _up("y"), "y2": alt.Y2Datum(_RATE_BOTTOM)}
    edge = {"x": _at(_BAR_START), "x2": alt.X2Datum(_LINE_END), "y": _up("y")}
    middle = _at((_BAR_START + _BAR_END) / 2)
    measured = _only("measured")
    return [
        # On a logarithmic axis the length of a bar would mean nothing.
        measured.transform_filter("datum.bar").mark_bar(opacity=0.22).encode(**bar, color=colour, tooltip=tooltip),
        measured.mark_rule(strokeWidth=1.6).encode(**edge, color=colour),
        measured.mark_rule(strokeWidth=5, opacity=0.5, strokeCap="round").encode(
            x=middle, y=_up("low"), y2="high:Q", color=colour
        ),
        measured.mark_point(filled=True, size=80, opacity=1).encode(
            x=middle, y=_up("y"), color=colour, shape=shape, tooltip=tooltip
        ),
    ]


def _names(theme: Theme) -> list[Any]:
    styles = {
        "ceiling": ("name_y", 400, theme.muted),
        "nearest": ("name_y", 700, theme.text),
        "measured": ("name_y", 600, theme.text),
    }
    limit = alt.ExprRef(f"width * {1 - _NAME_START} - 4")
    scale = _only("bottom").mark_text(align="left", baseline="middle", fontSize=10.5, color=theme.muted)
    return [
        scale.encode(x=_at(0), y=_up("name_y"), text="name:N"),
        *(
            _only(kind)
            .mark_text(
                align="left", baseline="middle", fontSize=11.5, dx=4, limit=limit, fontWeight=weight, color=colour
            )
            .encode(x=_at(_NAME_START), y=_up(field), text="name:N")
            for kind, (field, weight, colour) in styles.items()
        ),
    ]


def _latency(theme: Theme, legend: list[str]) -> Any:
    """Return the stacked bar of the parts of the latency, with its heading."""
    titles = [part.title for part in PLACES.values()]
    colours = alt.Scale(domain=titles, range=[theme.stages[part.slot] for part in PLACES.values()])
    text_colours = alt.Scale(domain=list(range(len(theme.stage_text))), range=list(theme.stage_text))
    shown = alt.Legend(symbolType="square", orient="bottom", values=legend) if legend else None
    heading = _only("heading").mark_text(align="left", baseline="middle", fontSize=11.5, color=theme.muted)
    bars = _only("part").mark_bar(stroke=theme.background, strokeWidth=1.5, cornerRadius=2)
    texts = _only("part").mark_text(fontSize=10.5, baseline="middle")
    return alt.layer(
        heading.encode(x=alt.value(0), y=_up("y"), text="name:N"),
        bars.encode(
            x=_across("from"),
            x2="to:Q",
            y=_up("bottom"),
            y2="top:Q",
            color=alt.Color("place:N", scale=colours, legend=shown),
            tooltip=_tooltip(place="where", rate="latency", share="share"),
        ),
        texts.encode(
            x=_across("middle"), y=_up("y"), text="name:N",
            color=alt.Color("slot:O", scale=text_colours, legend=None),
        ),
    ).resolve_scale(color="independent")  # fmt: skip
