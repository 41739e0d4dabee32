"""A recording in a terminal: what each source gave and cost, then every gap and every absence of a daemon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.padding import Padding

from bathyscope.records.recording_finding import DaemonAbsence, Gap, RecordingFinding
from bathyscope.units import format_bytes, format_duration_ns, format_percent, format_seconds
from bathyscope.views import Options, labels
from bathyscope.views.figures import NOT_KNOWN
from bathyscope.views.table.fitting import fitting
from bathyscope.views.table.terminal import console, text

_SPANS_SHOWN = 20
_HEADINGS = ("source", "period", "collected", "failed", "missed", "mean cost", "max cost", "bytes", "time")
# What is left out first where a terminal is narrow; JSON and CSV have all of it.
_DISPENSABLE = ("max cost", "bytes", "period", "mean cost", "time")


def write(finding: RecordingFinding, stream: TextIO, options: Options) -> None:
    """Print the span, a row for each source, the gaps and the absences."""
    out = console(stream, options)
    length = format_seconds((finding.end_ns - finding.start_ns) / 1e9)
    out.print(
        text(f"recorded {labels.time_utc(finding.start_ns)} to {labels.time_utc(finding.end_ns)}: {length}", "dim")
    )
    if not finding.sources:
        out.print(text("nothing was recorded"))
        return
    out.print()
    _write_sources(finding, out)
    out.print(text("cost: duration of one collection; time: share of the recording", "dim"))
    gaps = [f"{source.source}: {_gap(gap)}" for source in finding.sources for gap in source.gaps]
    _write_spans("gaps", gaps, out)
    _write_spans("absent daemons", [_absence(absence) for absence in finding.absences], out)


def _write_sources(finding: RecordingFinding, out: Console) -> None:
    rows = [
        (
            "yellow" if source.failure_count or source.missed_count or source.gaps else "",
            [
                labels.clean(source.source),
                format_seconds(source.period_ns / 1e9) if source.period_ns else NOT_KNOWN,
                f"{source.collection_count:,}",
                f"{source.failure_count:,}",
                f"{source.missed_count:,}",
                format_duration_ns(source.mean_cost_ns),
                format_duration_ns(source.max_cost_ns),
                format_bytes(source.answer_bytes),
                format_percent(source.wall_ratio),
            ],
        )
        for source in finding.sources
    ]
    out.print(fitting(_HEADINGS, rows, out, _DISPENSABLE))


def _write_spans(name: str, lines: Sequence[str], out: Console) -> None:
    out.print()
    out.print(text(f"{name}: {len(lines) or 'none'}", "bold"))
    for line in lines[:_SPANS_SHOWN]:
        out.print(Padding(text(line, "yellow"), (0, 0, 0, 2), expand=False))
    if len(lines) > _SPANS_SHOWN:
        out.print(text(f"  and {len(lines) - _SPANS_SHOWN} more; --output csv has them all", "dim"))


def _gap(gap: Gap) -> str:
    between = f", {gap.collection_count} collections in it" if gap.collection_count else ""
    return f"{_span(gap.start_ns, gap.end_ns)}{between}: {gap.reason}"


def _absence(absence: DaemonAbsence) -> str:
    end = "then it was back" if absence.returned else "until the end"
    return f"{absence.daemon}: {_span(absence.start_ns, absence.end_ns)}, {end}"


def _span(start_ns: int, end_ns: int) -> str:
    return f"{format_seconds((end_ns - start_ns) / 1e9)} from {labels.time_utc(start_ns)}"
