"""The answer of `bathy size`: of its tables the one for programs, a row for each point of each curve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bathyscope.records.blocks import Section
from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint
from bathyscope.views.csv import field_columns, figure_columns
from bathyscope.views.findings import for_programs
from bathyscope.views.size_words import is_advised


def sections(finding: SizeFinding) -> Iterator[Section]:
    """Yield the points; `mark` says which are the knee, the wanted and the advised size."""
    rows = [_row(finding, curve, point) for curve in (*finding.curves, *finding.trials) for point in curve.points]
    yield Section("points", "Points", (for_programs("points", rows),))


def _row(finding: SizeFinding, curve: SizeCurve, point: SizePoint) -> dict[str, Any]:
    marks = [name for name, p in (("knee", curve.knee), ("wanted", curve.wanted)) if p is point]
    marks += ["advised"] if is_advised(finding, curve, point) else []
    return {
        **field_columns(
            curve, "group_kind", "group_name", "line_bytes", "unit_bytes", "fetch_bytes", "is_fetch_adaptive", "policy",
            "admission", "method",
        ),
        **field_columns(point, "size_bytes", "flash_bytes", "dram_bytes"),
        **figure_columns("read_hit_ratio", point.read_hit),
        "read_byte_hit_ratio": point.read_byte_hit,
        "write_hit_ratio": point.write_hit,
        "write_byte_hit_ratio": point.write_byte_hit,
        "backing_reads_left": point.backing_reads_left,
        **field_columns(curve, "cold_read_ratio", "cold_write_ratio", "write_gap_ratio"),
        **field_columns(
            point, "fetch_amplification", "disk_time_left", "fill_bytes", "flash_write_bytes_per_day", "life_years",
            "latency_ns_mean", "latency_ns_p99", "cost",
        ),
        "drive": point.purchase and point.purchase.drive,
        "drive_count": point.purchase and point.purchase.count,
        **field_columns(curve, "read_requests", "write_requests", "working_set_bytes", "sampled_lines"),
        "mark": " ".join(marks),
    }  # fmt: skip
