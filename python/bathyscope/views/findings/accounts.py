"""The loads of a run, a row for each: how far it is from its nearest ceiling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bathyscope.records.blocks import CaveatView, Column, Only, Section, Table, Text, Tone
from bathyscope.records.explain_finding import AccountsFinding
from bathyscope.records.figure import Figure
from bathyscope.records.finding import PointFinding
from bathyscope.views import labels
from bathyscope.views.account_words import nearest
from bathyscope.views.cells import shortened
from bathyscope.views.findings import caveats_section
from bathyscope.views.refusal import is_shown, why_refused

TABLES = ("loads",)
# Columns of people have no room for more.
_WORDS_LENGTH = 28
_NONE = Figure(None, "")
ACCOUNT = (
    Column("ceiling_resource", "resource", only="programs"),
    Column("ceiling_subject", "subject", only="programs"),
    Column("ceiling_host", "host", only="programs"),
    Column("ceiling_iops", "ceiling", "1/s", rank=2, figure="value"),
    Column("ceiling_reached_ratio", "reached", "ratio", figure="value"),
    Column("in_flight", "in flight", only="programs"),
    Column("verdict_limit", "limit", only="programs"),
    Column("verdict_subject", "subject", only="programs"),
    Column("verdict", "verdict", only="programs"),
    Column("next_step", "next step", only="programs"),
)
"""The nearest ceiling of a load and its verdict."""
_COLUMNS = (
    Column("run_id", "run", only="programs"),
    Column("step_key", "step"),
    Column("status", "status", only="programs"),
    Column("reason", "reason", prose=True),
    Column("iops", "IOPS", "1/s", figure="interval"),
    Column("latency_ns_mean", "latency", "ns", only="programs", figure="interval"),
    *ACCOUNT,
    Column("nearest_ceiling", "nearest ceiling", rank=3, only="people"),
    Column("limit", "verdict", rank=1, only="people"),
    Column("caveats", "caveats", only="programs"),
)
_LEGEND = (
    "ceiling: the IOPS at which the nearest resource has none left; reached: how much of it the load reaches. "
    "`bathy explain RUN STEP` prints the whole account."
)


def sections(finding: AccountsFinding) -> Iterator[Section]:
    """Yield the table of the loads, and what limits the use of its figures."""
    yield Section("run", "", (Text(f"run {finding.run_id} on {finding.target}", "dim"),))
    yield Section("loads", "", (table_of(finding.run_id, finding.points, finding.caveats),))
    has_account = any(map(nearest, finding.points))
    legend = Text(_LEGEND, "dim") if has_account else Text("No load of this run has an account of its resources.")
    yield Section("legend", "", (legend,))
    yield caveats_section(finding.caveats)


def table_of(run_id: str, points: Sequence[PointFinding], caveats: Sequence[CaveatView] = (), only: Only = "") -> Table:
    """Return the table of loads; of `caveats` it has those of the whole run."""
    tones: tuple[Tone, ...] = tuple("" if is_shown(point) else "bad" for point in points)
    rows = tuple((*_row(run_id, p), labels.caveat_codes(p.step_key, p.caveats, caveats)) for p in points)
    return Table("loads", "loads", _COLUMNS, rows, tones, only, None)


def _row(run_id: str, point: PointFinding) -> tuple[Any, ...]:
    shown, ceiling = is_shown(point), nearest(point)
    words = "" if ceiling is None else shortened(labels.clean(ceiling.words), _WORDS_LENGTH)
    why = point.reason if shown else why_refused(point)
    verdict = labels.limit(point.verdict) if shown else point.status
    rate = point.iops if shown else None
    return run_id, point.step_key, point.status, why, rate, point.latency_ns_mean, *account(point), words, verdict


def account(point: PointFinding) -> tuple[Any, ...]:
    """Return the values of ACCOUNT; None where there is none."""
    ceiling, verdict = nearest(point), point.verdict
    head = (
        (None,) * 5
        if ceiling is None
        else (ceiling.resource, ceiling.subject, ceiling.host, ceiling.iops, ceiling.reached)
    )
    in_flight = point.account and point.account.in_flight.value
    return *head, in_flight, verdict.limit, verdict.subject, verdict.sentence, verdict.next_step
