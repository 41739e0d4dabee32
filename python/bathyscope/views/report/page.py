"""The report of a run: template, styles, scripts and data in one file with a strict content security policy."""

from __future__ import annotations

from pathlib import Path

from bathyscope.records.finding import LadderFinding
from bathyscope.views import csv
from bathyscope.views.refusal import without_refused
from bathyscope.views.report.content import content
from bathyscope.views.report.data import chart_data, finding_data
from bathyscope.views.report.frame import render_page, write_page


def write(finding: LadderFinding, path: Path | str) -> Path:
    """Write the report to `path`, whole or not at all; return the path. Raises StoreError."""
    return write_page(page(finding), path)


def page(finding: LadderFinding) -> str:
    """Return the report as one HTML document. Nothing in it is fetched from anywhere."""
    finding = without_refused(finding)
    return render_page(
        "report.html.j2",
        content(finding),
        charts=chart_data(finding),
        finding=finding_data(finding),
        csv=csv.as_text(finding),
    )
