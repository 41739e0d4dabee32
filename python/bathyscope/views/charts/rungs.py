"""The rungs of the ladder: a dot with its 95 % interval on a logarithmic axis for each layer, linked downwards."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from bathyscope.records.blocks import Table, units_of
from bathyscope.records.figure import Figure
from bathyscope.records.ladder_blocks import Rungs
from bathyscope.views import figures, labels
from bathyscope.views.charts.base import LABELS, Drawing, named_rows
from bathyscope.views.charts.rows import ROW_HEIGHT, heading_row, headings, order_of, point_row, row_axis
from bathyscope.views.charts.theme import LIGHT, Theme


def drawing(block: Rungs, theme: Theme = LIGHT) -> Drawing:
    """Return the rungs: a heading for each table, a dot for each of its rows."""
    domain = _domain([figure for table in block.all_tables for figure in _figures(table, block.figure)])
    rows = tuple(_rows(block, domain))
    about = f"{block.title}, with 95 % intervals, on a logarithmic axis; the table below holds the same figures."
    chart = functools.partial(_chart, block, domain, theme, order_of(rows))
    return Drawing(block.name, block.title, about, chart, rows)


def _chart(block: Rungs, domain: tuple[float, float], theme: Theme, order: list[str]) -> Any:
    label = LABELS[units_of(block.figure)[0]]
    axis = alt.Axis(labelExpr=label, values=_ticks(domain), title=block.measure, orient="top", labelOverlap=True)
    x = alt.X("value:Q", scale=alt.Scale(type="log", domain=domain, nice=False), axis=axis)
    y = row_axis(order)
    colour = alt.Color("name:N", scale=theme.layer_scale(block.layers), legend=None)
    shapes = alt.Scale(domain=[view.title for view in block.layers], range=[view.shape for view in block.layers])
    shape = alt.Shape("name:N", scale=shapes, legend=None)
    tooltip = [
        alt.Tooltip("title:N", title="pattern"),
        alt.Tooltip("name:N", title="layer"),
        alt.Tooltip("label:N", title=block.measure),
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


def _figures(table: Table, key: str) -> list[Figure]:
    index = [column.key for column in table.columns].index(key)
    return [row[index] for row in table.rows if row[index] is not None]


def _rows(block: Rungs, domain: tuple[float, float]) -> Iterator[dict[str, Any]]:
    titles = {view.name: view.title for view in block.layers}
    for index, table in enumerate(block.tables):
        yield {"row": heading_row(index), "kind": "heading", "title": table.title}
        # What is indented is a part of the row above it.
        for number, values in enumerate(row for row in table.rows if not row[0].startswith(" ")):
            row = dict(zip((column.key for column in table.columns), values, strict=True))
            name = titles.get(row["layer"], row["layer"])
            of_row = {
                "row": point_row(index, name),
                "group": index,
                "place": number,
                "title": table.title,
                "name": name,
            }
            yield of_row | _mark(row, row[block.figure], domain)


def _mark(row: dict[str, Any], figure: Figure | None, domain: tuple[float, float]) -> dict[str, Any]:
    if row["refusal"]:
        return {"kind": "refused", "label": labels.clean(row["refusal"])}
    if figure is None or figure.value is None or figure.value <= 0:
        return {"kind": "refused", "label": "n/a: not enough data"}
    low = figure.low if figure.low is not None and figure.low > 0 else figure.value
    share = math.log(figure.value / domain[0]) / math.log(domain[1] / domain[0])
    return {
        "kind": "point",
        "value": figure.value,
        "low": low,
        "high": figure.high if figure.high is not None else figure.value,
        "label": f"{figures.value_text(figure.value, figure.unit)} {figures.plus_minus(figure)}".strip(),
        "interval": figures.range_text(figure) or "n/a: too few repeats",
        "side": "left" if share > 0.6 else "right",
    }


def _domain(shown: Sequence[Figure]) -> tuple[float, float]:
    """Return the ends of an axis that holds all figures, with a margin for the marks."""
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
