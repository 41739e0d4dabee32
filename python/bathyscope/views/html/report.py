"""The page of a benchmark and a recording: that of the benchmark, with a section of who did the I/O."""

from __future__ import annotations

from typing import TextIO

from bathyscope.records.report_finding import ReportFinding
from bathyscope.views import Options
from bathyscope.views.html import ladder


def write(finding: ReportFinding, stream: TextIO, _options: Options) -> None:
    """Write the page of both."""
    stream.write(ladder.page(finding.bench, finding.recording))
