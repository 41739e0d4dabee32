"""The account of one load: of its tables the one for programs, a row for each figure of each thing that it is made of.

`section` is load, ceiling, latency, osd, throttle, foreign, alternative, evidence or prediction; `name` and `subject`
say which thing of it, `figure` which of its figures; `text` is what is said beside the figure: the words of a ceiling,
the source of a capacity, a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bathyscope.records.account import Account
from bathyscope.records.blocks import Section
from bathyscope.records.explain_finding import AccountFinding
from bathyscope.records.figure import Figure
from bathyscope.views.findings import for_programs

_COLUMNS = ("section", "name", "subject", "host", "figure", "value", "low", "high", "unit", "text")


def sections(finding: AccountFinding) -> Iterator[Section]:
    """Yield the figures in the order in which a terminal shows them."""
    lead = {"run_id": finding.run_id, "step_key": finding.point.step_key}
    yield Section("figures", "Figures", (for_programs("figures", [lead | row for row in _rows(finding)]),))


def _rows(finding: AccountFinding) -> Iterator[dict[str, Any]]:
    point, verdict = finding.point, finding.point.verdict
    load = ("load", verdict.limit, verdict.subject, "")
    yield _row(*load, "iops", point.iops, point.reason or verdict.sentence)
    yield _row(*load, "latency", point.latency_ns_mean, verdict.next_step)
    if point.account:
        yield _row(*load, "in_flight", point.account.in_flight)
        yield _row(*load, "concurrency", Figure(point.account.concurrency, ""))
        yield from _account(point.account)
    for section, facts in (("alternative", verdict.alternatives), ("evidence", verdict.evidence)):
        for fact in facts:
            yield _row(section, fact.name, "", "", "value", fact.figure)
    for one in finding.predictions:
        about = ("prediction", one.change, one.limit, "")
        yield _row(*about, "iops", one.iops, one.sentence)
        yield _row(*about, "latency", one.latency_ns)
        yield _row(*about, "ratio", one.ratio, "; ".join(one.assumptions))


def _account(account: Account) -> Iterator[dict[str, Any]]:
    for ceiling in account.ceilings:
        about = ("ceiling", ceiling.resource, ceiling.subject, ceiling.host)
        yield _row(*about, "demand", ceiling.demand, ceiling.words)
        yield _row(*about, "capacity", ceiling.capacity, ceiling.source)
        yield _row(*about, "iops", ceiling.iops)
        yield _row(*about, "reached", ceiling.reached, "" if ceiling.binding else "holds nothing back when reached")
    for part in account.parts:
        yield _row("latency", part.place, "", "", "latency", part.latency_ns)
        yield _row("latency", part.place, "", "", "share", part.share)
    for osd in account.osds:
        about = ("osd", "", f"osd.{osd.osd}", osd.host)
        yield _row(*about, "op_share", osd.op_share)
        yield _row(*about, "expected_share", Figure(osd.expected_share, "ratio"))
        yield _row(*about, "in_flight_share", osd.in_flight_share)
        yield _row(*about, "own_latency", osd.own_ns)
    for throttle in account.throttles:
        yield _row("throttle", throttle.option, throttle.subject, "", "held_share", throttle.held_share)
    for work in account.foreign:
        about = ("foreign", work.kind, work.subject, "")
        yield _row(*about, f"{work.direction}_rate".lstrip("_"), work.rate, work.sentence)
        yield _row(*about, "share", work.share)


def _row(  # noqa: PLR0917 - one parameter for each column
    section: str, name: str, subject: str, host: str, figure: str, value: Figure, text: str = ""
) -> dict[str, Any]:
    values = (section, name, subject, host, figure, value.value, value.low, value.high, value.unit, text)
    return dict(zip(_COLUMNS, values, strict=True))
