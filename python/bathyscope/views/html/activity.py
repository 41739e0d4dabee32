"""The page of one view of a recording."""

from __future__ import annotations

from typing import TextIO

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.finding import as_plain
from bathyscope.units import format_seconds
from bathyscope.views import Options, labels
from bathyscope.views.charts.activity import drawings
from bathyscope.views.charts.theme import PAGE
from bathyscope.views.html.collect import chart_data, view_content
from bathyscope.views.html.frame import render_page


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
    stream.write(render_page(finding, "view.html.j2", content, charts=chart_data(drawn), data=as_plain(finding)))
