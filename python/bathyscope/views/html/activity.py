"""The page of one view of a recording."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.finding import as_plain
from bathyscope.units import format_seconds
from bathyscope.views import Options, labels
from bathyscope.views.activity_rows import cell, shown_columns
from bathyscope.views.charts.activity import drawings
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.theme import PAGE
from bathyscope.views.html.frame import render_page

_ROWS_SHOWN = 200
_TITLES = {"devices": "Images", "osds": "OSDs"}


def write(finding: ActivityFinding, stream: TextIO, _options: Options) -> None:
    """Write the page of a view."""
    drawn, view = drawings(finding, PAGE), view_content(finding)
    content = {
        "title": f"{view['title'].lower()} of {finding.target}",
        "file_stem": f"{finding.view}-{finding.run_id}",
        "csv_row": "One row for each row of the table",
        "sections": [("top", view["title"]), *[("pictures", "Pictures")] * bool(drawn), (finding.view, "Table")],
        "finding": finding,
        "facts": [
            ("Recorded", format_seconds((finding.end_ns - finding.start_ns) / 1e9)),
            ("From", labels.time_utc(finding.start_ns)),
            *[(name, labels.clean(value)) for name, value in finding.facts],
        ],
        "charts": {drawing.name: drawing.title for drawing in drawn},
        "view": view,
    }
    stream.write(render_page(finding, "activity.html.j2", content, charts=chart_data(drawn), data=as_plain(finding)))


def chart_data(drawn: Iterable[Drawing]) -> dict[str, Any]:
    """Return what the script of the page draws, each chart by its own template."""
    named = {drawing.name: drawing for drawing in drawn}
    return {
        "templates": {key: drawing.template(PAGE) for key, drawing in named.items()},
        "charts": {
            key: {"template": key, "rows": list(drawing.rows), "about": drawing.description}
            for key, drawing in named.items()
        },
        "layers": {},
    }


def view_content(view: ActivityFinding) -> dict[str, Any]:
    """Return what the templates show of a view: its first rows, as text."""
    table = view.tables[0]
    columns = [(place, table.columns[place]) for place in shown_columns(table)]
    return {
        "name": view.view,
        "title": _TITLES.get(view.view, view.view.capitalize()),
        "sentence": view.sentence,
        "unseen": view.unseen,
        "columns": [(column.name, column.help) for _, column in columns],
        "rows": [[cell(column, row[place]) for place, column in columns] for row in table.rows[:_ROWS_SHOWN]],
        "count": len(table.rows),
        "more": max(0, len(table.rows) - _ROWS_SHOWN),
    }
