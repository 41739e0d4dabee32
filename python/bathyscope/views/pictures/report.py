"""Every chart of a benchmark and of a recording."""

from __future__ import annotations

from collections.abc import Iterator

from bathyscope.records.report_finding import ReportFinding
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.theme import Theme
from bathyscope.views.pictures import blocks, ladder


def drawings(finding: ReportFinding, theme: Theme) -> Iterator[Drawing]:
    """Yield the charts of the benchmark, then those of the recording."""
    yield from ladder.drawings(finding.bench, theme)
    yield from blocks.drawings(finding.recording, theme)
