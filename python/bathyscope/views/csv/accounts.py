"""The loads of a run with their nearest ceilings as CSV: one row for each."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.records.explain_finding import AccountsFinding
from bathyscope.records.figure import Figure
from bathyscope.records.finding import PointFinding
from bathyscope.views import Options
from bathyscope.views.account_words import nearest
from bathyscope.views.csv import field_columns, figure_columns, write_rows


def write(finding: AccountsFinding, stream: TextIO, _options: Options) -> None:
    """Write one row for each load."""
    write_rows([_row(finding.run_id, point) for point in finding.points], stream)


def _row(run_id: str, point: PointFinding) -> dict[str, Any]:
    row = {"run_id": run_id} | field_columns(point, "step_key", "status", "reason")
    for name in ("iops", "latency_ns_mean"):
        row |= figure_columns(name, getattr(point, name))
    return row | account_columns(point)


def account_columns(point: PointFinding) -> dict[str, Any]:
    """Return the columns of a load's nearest ceiling and of its verdict; empty where none is known."""
    ceiling, nothing = nearest(point), Figure(None, "")
    row: dict[str, Any] = {
        "ceiling_resource": ceiling and ceiling.resource,
        "ceiling_subject": ceiling and ceiling.subject,
        "ceiling_host": ceiling and ceiling.host,
    }
    row |= figure_columns("ceiling_iops", ceiling.iops if ceiling else nothing)
    row |= figure_columns("ceiling_reached_ratio", ceiling.reached if ceiling else nothing)
    row["in_flight"] = point.account and point.account.in_flight.value
    row["verdict_limit"] = point.verdict.limit
    row["verdict_subject"] = point.verdict.subject
    row["verdict"] = point.verdict.sentence
    row["next_step"] = point.verdict.next_step
    return row
