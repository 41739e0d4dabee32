"""The page of a recording: who did the I/O, over time and in every view, and how the recording went."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding
from bathyscope.records.collect_finding import CollectFinding
from bathyscope.records.finding import as_plain
from bathyscope.units import format_percent, format_seconds
from bathyscope.views import Options, labels
from bathyscope.views.activity_rows import cell, shown_columns
from bathyscope.views.charts.heat import drawings
from bathyscope.views.charts.theme import PAGE
from bathyscope.views.html.frame import render_page

_ROWS_SHOWN = 200
# Views whose rows are things that are counted beside the heading.
_COUNTED = ("devices", "clients", "osds", "nodes")
_TITLES = {"devices": "Images", "osds": "OSDs"}


def write(finding: CollectFinding, stream: TextIO, _options: Options) -> None:
    """Write the page of a recording."""
    drawn = {drawing.name: drawing for drawing in drawings(finding, PAGE)}
    charts = {
        "templates": {key: drawing.template(PAGE) for key, drawing in drawn.items()},
        "charts": {
            key: {"template": key, "rows": list(drawing.rows), "about": drawing.description}
            for key, drawing in drawn.items()
        },
        "layers": {},
    }
    content = _content(finding, {key: drawing.title for key, drawing in drawn.items()})
    stream.write(render_page(finding, "collect.html.j2", content, charts=charts, data=as_plain(finding)))


def _content(finding: CollectFinding, charts: dict[str, str]) -> dict[str, Any]:
    shown = [_view(view) for view in finding.views]
    return {
        "title": f"who did the I/O of {finding.target}",
        "file_stem": f"collect-{finding.run_id}",
        "csv_row": "One row for each image",
        "sections": [
            ("who", "Who"),
            *[("heat", "Over time")] * bool(charts),
            *[(view["name"], view["title"]) for view in shown],
            ("recording", "Recording"),
        ],
        "finding": finding,
        "facts": [
            ("Recorded", format_seconds((finding.end_ns - finding.start_ns) / 1e9)),
            ("From", labels.time_utc(finding.start_ns)),
            ("Cluster", labels.clean(finding.target)),
            *[(view["title"], f"{view['count']:,}") for view in shown if view["name"] in _COUNTED and view["count"]],
        ],
        "charts": charts,
        "views": shown,
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


def _view(view: ActivityFinding) -> dict[str, Any]:
    table = view.tables[0]
    columns = [(place, table.columns[place]) for place in shown_columns(table)]
    return {
        "name": view.view,
        "title": _TITLES.get(view.view, view.view.capitalize()),
        "sentence": view.sentence,
        "unseen": view.unseen,
        "columns": [(column.name, column.help) for _, column in columns],
        "rows": [[_cell(column, row[place]) for place, column in columns] for row in table.rows[:_ROWS_SHOWN]],
        "count": len(table.rows),
        "more": max(0, len(table.rows) - _ROWS_SHOWN),
    }


def _cell(column: ActivityColumn, value: Any) -> str | list[tuple[str, str]]:
    """Return a value for reading; parts of a whole as (name, share), which the page draws."""
    if column.unit == "parts" and value:
        return [(labels.clean(name), f"{share:.1%}") for name, share in value]
    return cell(column, value)
