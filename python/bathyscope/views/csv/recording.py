"""A recording as CSV: one row for each source, each gap and each absence of a daemon; `kind` says which."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.records.recording_finding import RecordingFinding
from bathyscope.views import Options
from bathyscope.views.csv import field_columns, write_rows

_OF_SOURCES = (
    "period_ns", "collection_count", "failure_count", "missed_count", "mean_cost_ns", "max_cost_ns", "answer_bytes",
    "wall_ratio",
)  # fmt: skip
_COLUMNS = ("kind", "name", "start_ns", "end_ns", "reason", "returned", *_OF_SOURCES)


def write(finding: RecordingFinding, stream: TextIO, _options: Options) -> None:
    """Write the sources, each followed by its gaps, then the absences."""
    rows: list[dict[str, Any]] = []
    span = {"start_ns": finding.start_ns, "end_ns": finding.end_ns}
    for source in finding.sources:
        rows.append({"kind": "source", "name": source.source, **span, **field_columns(source, *_OF_SOURCES)})
        rows += [
            {"kind": "gap", "name": source.source, "start_ns": gap.start_ns, "end_ns": gap.end_ns,
             "reason": gap.reason, "collection_count": gap.collection_count}
            for gap in source.gaps
        ]  # fmt: skip
    rows += [
        {"kind": "absence", "name": a.daemon, "start_ns": a.start_ns, "end_ns": a.end_ns, "returned": a.returned}
        for a in finding.absences
    ]
    write_rows([dict.fromkeys(_COLUMNS) | row for row in rows], stream, _COLUMNS)
