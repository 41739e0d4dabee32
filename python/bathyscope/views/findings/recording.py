"""How a recording went: what each source gave and cost, every gap and every absence of a daemon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bathyscope.records.blocks import Column, Section, Table, Text, Tone
from bathyscope.records.recording_finding import DaemonAbsence, Gap, RecordingFinding
from bathyscope.units import format_seconds
from bathyscope.views import labels
from bathyscope.views.findings import rows_of

_SOURCES = (
    Column("source", "source"),
    Column("period_s", "period", "s", rank=3),
    Column("collection_count", "collected", "count"),
    Column("failure_count", "failed", "count"),
    Column("missed_count", "missed", "count"),
    Column("mean_cost_ns", "mean cost", "ns", "duration of one collection", rank=2),
    Column("max_cost_ns", "max cost", "ns", "of one collection", rank=5),
    Column("answer_bytes", "bytes", "bytes", rank=4),
    Column("wall_ratio", "time", "ratio", "share of the recording that collecting took", rank=1),
)
_SPAN = (Column("start_ns", "from", "time"), Column("lasted_s", "lasted", "s"))
_GAPS = (
    Column("source", "source"),
    *_SPAN,
    Column("collection_count", "collected in it", "count"),
    Column("reason", "reason"),
)
_ABSENCES = (Column("daemon", "daemon"), *_SPAN, Column("returned", "came back"))
_SPANS_SHOWN = 20


def sections(finding: RecordingFinding) -> Iterator[Section]:
    """Yield the sources, the gaps and the absences."""
    length = format_seconds((finding.end_ns - finding.start_ns) / 1e9)
    span = f"recorded {labels.time_utc(finding.start_ns)} to {labels.time_utc(finding.end_ns)}: {length}"
    sources = tuple(
        (each.source, each.period_ns / 1e9 or None, *counted)
        for each, counted in zip(finding.sources, rows_of(_SOURCES[2:], finding.sources), strict=True)
    )
    tones: tuple[Tone, ...] = tuple(
        "warning" if each.failure_count or each.missed_count or each.gaps else "" for each in finding.sources
    )
    gaps = tuple(
        (each.source, gap.start_ns, (gap.end_ns - gap.start_ns) / 1e9, gap.collection_count, gap.reason)
        for each in finding.sources
        for gap in each.gaps
    )
    absences = tuple(
        (each.daemon, each.start_ns, (each.end_ns - each.start_ns) / 1e9, each.returned) for each in finding.absences
    )
    legend = "cost: duration of one collection; time: share of the recording" if sources else "nothing was recorded"
    table = Table("sources", "sources", _SOURCES, sources, tones)
    yield Section("recording", "Recording", (Text(span, "dim"), table, Text(legend, "dim")))
    lines = [f"{each.source}: {_gap(gap)}" for each in finding.sources for gap in each.gaps]
    yield _spans(Table("gaps", "Gaps", _GAPS, gaps, only="programs"), lines)
    lines = [_absence(each) for each in finding.absences]
    yield _spans(Table("absences", "Absent daemons", _ABSENCES, absences, only="programs"), lines)


def _spans(table: Table, lines: Sequence[str]) -> Section:
    """Return spans as rows for programs and as lines for people."""
    shown = [Text(line, "warning", "  ") for line in lines[:_SPANS_SHOWN]] or [Text("none", "dim")]
    if len(lines) > _SPANS_SHOWN:
        more = f"and {len(lines) - _SPANS_SHOWN:,} more; --output csv --table {table.key} has them all"
        shown.append(Text(more, "dim", "  "))
    return Section(table.key, f"{table.title}: {len(lines):,}" if lines else table.title, (table, *shown))


def _gap(gap: Gap) -> str:
    between = f", {gap.collection_count} collections in it" if gap.collection_count else ""
    return f"{_span(gap.start_ns, gap.end_ns)}{between}: {gap.reason}"


def _absence(absence: DaemonAbsence) -> str:
    end = "then it was back" if absence.returned else "until the end"
    return f"{absence.daemon}: {_span(absence.start_ns, absence.end_ns)}, {end}"


def _span(start_ns: int, end_ns: int) -> str:
    return f"{format_seconds((end_ns - start_ns) / 1e9)} from {labels.time_utc(start_ns)}"
