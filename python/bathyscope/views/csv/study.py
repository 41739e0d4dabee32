"""What a study found as CSV: one row for each access pattern and phase."""

from __future__ import annotations

from typing import TextIO

from bathyscope.records.study_finding import StudyFinding
from bathyscope.views import Options
from bathyscope.views.csv import figure_columns, write_rows


def write(finding: StudyFinding, stream: TextIO, _options: Options) -> None:
    """Write one row for each cell."""
    rows = [
        {
            "study": finding.study,
            "pattern": row.pattern,
            "phase": cell.phase,
            "clients": finding.clients,
            "iops": cell.iops.value,
            "bandwidth_bytes_per_s": cell.bandwidth_bytes_per_s.value,
            "latency_ns_mean": cell.latency_ns_mean.value,
            **figure_columns("ratio", cell.ratio),
            "read_hit_ratio": cell.read_hit_ratio,
        }
        for row in finding.rows
        for cell in row.cells
    ]
    write_rows(rows, stream)
