"""The page of a study: the expectations, the chart, the table, the caveats."""

from __future__ import annotations

from typing import TextIO

from bathyscope.records.finding import as_plain
from bathyscope.records.study_finding import StudyFinding
from bathyscope.views import Options
from bathyscope.views.charts.study import drawings
from bathyscope.views.charts.theme import PAGE
from bathyscope.views.footnotes import Footnote
from bathyscope.views.html.frame import render_page
from bathyscope.views.study_words import cell_lines, expectation_words


def write(finding: StudyFinding, stream: TextIO, _options: Options) -> None:
    """Write the page of a study."""
    drawn = drawings(finding, PAGE)
    charts = {
        "templates": {drawing.name: drawing.template(PAGE) for drawing in drawn},
        "charts": {
            drawing.name: {"template": drawing.name, "rows": list(drawing.rows), "about": drawing.description}
            for drawing in drawn
        },
        "layers": {},
    }
    content = {
        "title": finding.title,
        "file_stem": f"study-{finding.study}",
        "csv_row": "One row for each access pattern and phase",
        "sections": [("result", "Result"), ("phases", "Phases"), ("caveats", "Caveats")],
        "finding": finding,
        "charts": {drawing.name: drawing.title for drawing in drawn},
        "expectations": [expectation_words(expectation) for expectation in finding.expectations],
        "rows": [
            (row.pattern, [{cell.phase: cell_lines(cell) for cell in row.cells}.get(phase) for phase in finding.phases])
            for row in finding.rows
        ],
        "notes": [Footnote("", c, everywhere=False) for c in sorted(finding.caveats, key=lambda c: c.rank)],
    }
    stream.write(render_page(finding, "study.html.j2", content, charts=charts, data=as_plain(finding)))
