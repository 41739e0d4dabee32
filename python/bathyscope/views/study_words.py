"""What the table and the page of a study both say."""

from __future__ import annotations

from bathyscope.records.study_finding import ExpectationView, StudyCell
from bathyscope.units import format_percent
from bathyscope.views.figures import range_text, value_text


def cell_lines(cell: StudyCell) -> list[str]:
    """Return IOPS, bandwidth and mean latency, then what is known of the ratio and of the hits."""
    lines = [f"{value_text(cell.iops.value, '1/s')} IOPS", value_text(cell.bandwidth_bytes_per_s.value, "bytes/s")]
    lines.append(value_text(cell.latency_ns_mean.value, "ns"))
    if cell.ratio.value is not None:
        lines.append(value_text(cell.ratio.value, cell.ratio.unit))
    if cell.read_hit_ratio is not None:
        lines.append(f"hits {format_percent(cell.read_hit_ratio)}")
    return lines


def expectation_words(expectation: ExpectationView) -> str:
    """Return what was expected and came of it, with the interval of the ratio."""
    interval = range_text(expectation.ratio)
    return f"{expectation.sentence}{f' (95 % interval {interval})' if interval else ''}"
