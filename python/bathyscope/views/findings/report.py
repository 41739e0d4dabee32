"""A benchmark and a recording: what each of them says, the benchmark first."""

from __future__ import annotations

from collections.abc import Iterator

from bathyscope.records.blocks import Section
from bathyscope.records.report_finding import ReportFinding
from bathyscope.views.findings import sections_of


def sections(finding: ReportFinding) -> Iterator[Section]:
    """Yield the sections of both."""
    yield from sections_of(finding.bench)
    yield from sections_of(finding.recording)
