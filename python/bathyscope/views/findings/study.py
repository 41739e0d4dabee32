"""What a study found: what was expected and came of it, and every access pattern in every phase."""

from __future__ import annotations

from collections.abc import Iterator

from bathyscope.records.blocks import Column, Ratios, Section, Table, Text, Tone
from bathyscope.records.study_finding import ExpectationView, StudyFinding
from bathyscope.views import labels
from bathyscope.views.figures import range_text
from bathyscope.views.findings import caveats_section

_TONES: dict[bool | None, Tone] = {True: "good", False: "bad", None: "warning"}
_COLUMNS = (
    Column("study", "study", only="programs"),
    Column("pattern", "pattern"),
    Column("phase", "phase"),
    Column("step_key", "step", only="programs"),
    Column("clients", "clients", "count", only="programs"),
    Column("iops", "IOPS", "1/s", figure="interval"),
    Column("bandwidth_bytes_per_s", "MiB/s", "bytes/s", rank=3, figure="value"),
    Column("latency_ns_mean", "mean latency", "ns", rank=2, figure="value"),
)
_LAST = (Column("read_hit_ratio", "hits", "ratio", rank=1), Column("caveats", "caveats", only="programs"))
_LEGEND = "figures of all clients together; hits: share of the bytes read that was cached"


def sections(finding: StudyFinding) -> Iterator[Section]:
    """Yield the expectations, the patterns and the caveats."""
    about = Text(f"run {finding.run_id}: {finding.clients} clients", "dim")
    answer = Text(f"{finding.title}: {finding.sentence}.", "strong")
    yield Section("study", f"Study {finding.study}", (about, answer, *map(_expected, finding.expectations)))
    times = Column("ratio", f"over {finding.base}", "times", figure="interval", only="" if finding.base else "programs")
    rows = tuple(
        (
            *(finding.study, row.pattern, cell.phase, cell.step_key, finding.clients),
            *(cell.iops, cell.bandwidth_bytes_per_s, cell.latency_ns_mean),
            *(None if cell.ratio.value is None else cell.ratio, cell.read_hit_ratio),
            labels.caveat_codes(cell.step_key, finding.caveats),
        )
        for row in finding.rows
        for cell in row.cells
    )
    table = Table("cells", "patterns", (*_COLUMNS, times, *_LAST), rows, shown_max=None)
    title = f"IOPS over those of {finding.base}"
    picture = [Ratios("study", title, table, "pattern", "phase", finding.base, "iops")] if finding.base else []
    yield Section("phases", "Every access pattern in every phase", (*picture, table, Text(_LEGEND, "dim")))
    yield caveats_section(finding.caveats)


def _expected(expectation: ExpectationView) -> Text:
    """Return what was expected and came of it, with the interval of the ratio."""
    interval = range_text(expectation.ratio)
    words = f"{expectation.sentence}{f' (95 % interval {interval})' if interval else ''}"
    return Text(words, _TONES[expectation.met], "- ")
