"""The page of a recording: who did the I/O, over time and in every view, and how the recording went."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.records.collect_finding import CollectFinding
from bathyscope.records.finding import as_plain
from bathyscope.units import format_percent, format_seconds
from bathyscope.views import Options, labels
from bathyscope.views.cells import cell, shown_columns
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.theme import PAGE
from bathyscope.views.html.frame import render_page
from bathyscope.views.pictures.collect import drawings

_ROWS_SHOWN = 200
# Views whose rows are things that are counted beside the heading.
_COUNTED = ("devices", "clients", "osds", "nodes")
# On a page that has more to show, the tables of these are open.
_LEADING = ("devices", "clients")
_TITLES = {"devices": "Images", "osds": "OSDs", "osd_pools": "OSDs by pool", "ops": "Operations"}


def write(finding: CollectFinding, stream: TextIO, _options: Options) -> None:
    """Write the page of a recording."""
    who = who_did_it(finding)
    content = {
        **who,
        "title": f"who did the I/O of {finding.target}",
        "file_stem": f"collect-{finding.run_id}",
        "csv_row": "One row for each image",
        "sections": [
            ("who", "Who"),
            *[("heat", "Over time")] * bool(who["charts"]),
            *[(view["name"], view["title"]) for view in who["views"]],
            ("recording", "Recording"),
        ],
        "finding": finding,
        "sources": [
            (
                source.source,
                format_seconds(source.period_ns / 1e9) if source.period_ns else "–",
                f"{source.collection_count:,}",
                f"{source.failure_count:,}",
                f"{source.missed_count:,}",
                len(source.gaps),
                format_percent(source.wall_ratio),
            )
            for source in finding.recording.sources
        ],
    }
    stream.write(
        render_page(
            finding, "collect.html.j2", content, charts=chart_data(drawings(finding, PAGE)), data=as_plain(finding)
        )
    )


def chart_data(drawn: Iterable[Drawing]) -> dict[str, Any]:
    """Return the charts as `render_page` takes them, each by a template of its own."""
    named = {drawing.name: drawing for drawing in drawn}
    return {
        "templates": {key: drawing.template(PAGE) for key, drawing in named.items()},
        "charts": {
            key: {"template": key, "rows": list(drawing.rows), "about": drawing.description}
            for key, drawing in named.items()
        },
        "layers": {},
    }


def who_did_it(finding: CollectFinding) -> dict[str, Any]:
    """Return what a page says of who did the I/O: the facts, the titles of the charts by name, and the views."""
    shown = [view_content(view) for view in finding.views]
    return {
        "facts": [
            ("Recorded", format_seconds((finding.end_ns - finding.start_ns) / 1e9)),
            ("From", labels.time_utc(finding.start_ns)),
            ("Cluster", labels.clean(finding.target)),
            *[(view["title"], f"{view['count']:,}") for view in shown if view["name"] in _COUNTED and view["count"]],
        ],
        "charts": {drawing.name: drawing.title for drawing in drawings(finding, PAGE)},
        "views": shown,
        "leading": _LEADING,
    }


def view_content(view: ActivityFinding) -> dict[str, Any]:
    """Return what a page shows of a view: the first rows of its tables, as text."""
    first, *others = map(_table, view.tables)
    title = _TITLES.get(view.view, view.view.capitalize())
    about = {"name": view.view, "title": title, "sentence": view.sentence, "unseen": view.unseen, "others": others}
    return {**first, **about}


def _table(table: Table) -> dict[str, Any]:
    columns = [(place, table.columns[place]) for place in shown_columns(table)]
    return {
        "title": table.title,
        "columns": [(column.heading, column.help, _kind(column)) for _, column in columns],
        "rows": [
            [(_cell(column, row[place]), _kind(column), _share(column, row[place])) for place, column in columns]
            for row in table.rows[:_ROWS_SHOWN]
        ],
        "count": len(table.rows),
        "more": max(0, len(table.rows) - _ROWS_SHOWN),
    }


def _kind(column: Column) -> str:
    """Return the class of a column's cells: words are read from the left, figures from the right."""
    return "figure" if column.unit else "prose" if column.prose else "words"


def _share(column: Column, value: Any) -> str:
    """Return how much of its cell a share fills; nothing for what is no share."""
    return f"{100 * min(1.0, max(0.0, value)):.1f}%" if column.unit == "ratio" and value is not None else ""


def _cell(column: Column, value: Any) -> str | list[tuple[str, str]]:
    """Return a value for reading; parts of a whole as (name, share), which the page draws."""
    if column.unit == "parts" and value:
        return [(labels.clean(name), f"{share:.1%}") for name, share in value]
    return cell(column, value)
