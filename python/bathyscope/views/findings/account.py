"""The account of one load: what limits it, each ceiling, where its latency is, and what each change would bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from bathyscope.records import CLIENTS
from bathyscope.records.account import Account, Ceiling, ForeignWork
from bathyscope.records.blocks import Column, Section, Table, Text, Tone
from bathyscope.records.explain_finding import AccountFinding
from bathyscope.records.figure import Figure
from bathyscope.records.finding import Evidence
from bathyscope.views import account_words as words
from bathyscope.views import figures, labels
from bathyscope.views.cells import shortened
from bathyscope.views.findings import accounts, caveats_section, rows_of
from bathyscope.views.refusal import is_shown, why_refused

TABLES = (
    "loads", "ceilings", "parts", "osds", "throttles", "foreign", "alternatives", "evidence", "predictions",
)  # fmt: skip
_OSDS_MAX = 10
_CEILINGS_OF_A_KIND = 3
# Figures have more to say in a narrow terminal than the end of a name; the lines below the table have all of it.
_NAME_LENGTH = 28
_UNIT = Column("unit", "unit", only="programs")
_CEILINGS = (
    Column("short_name", "resource", only="people"),
    Column("name", "resource", only="programs"),
    Column("resource", "kind", only="programs"),
    Column("subject", "subject", only="programs"),
    Column("host", "host", only="programs"),
    Column("demand_words", "one I/O takes", "amount", rank=1, only="people"),
    Column("capacity_words", "capacity", "amount", rank=2, only="people"),
    Column("demand", "demand", figure="value", only="programs"),
    Column("capacity", "capacity", figure="value", only="programs"),
    _UNIT,
    Column("capacity_source", "capacity from", only="programs"),
    Column("iops", "ceiling IOPS", "1/s", figure="interval"),
    Column("reached_ratio", "reached", "ratio", figure="value"),
    Column("is_binding", "holds back", only="programs"),
)
_PARTS = (
    Column("title", "place", only="people"),
    Column("place", "place", only="programs"),
    Column("latency_ns", "latency", "ns", figure="value"),
    Column("share_ratio", "share", "ratio", figure="value"),
    Column("bar", " ", "bar", rank=1, only="people"),
)
_OSDS = (
    Column("osd", "OSD"),
    Column("host", "host", rank=2),
    Column("op_share_ratio", "I/Os", "ratio", figure="value"),
    Column("expected_share_ratio", "even", "ratio", rank=1, figure="value"),
    Column("in_flight_share_ratio", "time", "ratio", figure="value"),
    Column("own_latency_ns", "own part", "ns", figure="value"),
)
_OSDS_LEGEND = (
    "I/Os, time: its share of the I/Os and of their time in OSDs. even: the share that its CRUSH weight gives. "
    "own part: how long its own part of an I/O takes."
)
_THROTTLES = (
    Column("subject", "of"),
    Column("option", "option"),
    Column("limit", "limit", "count", rank=1),
    Column("held_ratio", "held back", "ratio", "share of what came that found it full", figure="value"),
)
_FOREIGN = (
    Column("work", "work", only="people"),
    Column("kind", "kind", only="programs"),
    Column("subject", "subject", only="programs"),
    Column("direction", "direction", only="programs"),
    Column("rate_words", "rate", "amount", only="people"),
    Column("rate", "rate", figure="value", only="programs"),
    _UNIT,
    Column("share_ratio", "of the load's", "ratio", rank=1, figure="value"),
    Column("sentence", "sentence", prose=True),
)
_FACTS = (Column("name", "what"), Column("value", "figure", "amount", figure="interval"), _UNIT)
_PREDICTIONS = (
    Column("change", "change"),
    Column("iops", "IOPS", "1/s", figure="interval"),
    Column("latency_ns", "latency", "ns", rank=1, figure="value"),
    Column("ratio", "× IOPS", "times", "the IOPS then over those measured", figure="value"),
    Column("limit", "nearest ceiling then", rank=2),
    Column("sentence", "sentence", prose=True),
    Column("assumptions", "assumed", only="programs"),
)


def sections(finding: AccountFinding) -> Iterator[Section]:
    """Yield the verdict, the account, the facts, and what each change would bring."""
    point, verdict = finding.point, finding.point.verdict
    is_recorded = point.layer == CLIENTS
    of_run = f"run {finding.run_id} on {finding.target}"
    about = (
        f"what clients did in {of_run}" if is_recorded else f"{point.step_key} ({labels.pattern(point)}) of {of_run}"
    )
    load = accounts.table_of(finding.run_id, [point], only="programs")
    caveats = [dataclasses.replace(caveat, step_keys=()) for caveat in point.caveats]
    if not is_shown(point):
        refused = Text(f"{point.status}: {why_refused(point)}", "bad")
        answer = Text(verdict.sentence, "strong") if is_recorded else refused
        yield Section("load", "Load", (Text(about, "dim"), answer, load))
        yield caveats_section(caveats)
        return
    facts = (_facts("alternatives", verdict.alternatives), _facts("evidence", verdict.evidence))
    yield Section("load", "Load", (Text(about, "dim"), verdict, load, *facts))
    if point.account is None:
        why = "the run recorded too little for it" if point.on_cluster else "this load went through no OSD"
        yield Section("ceilings", "Ceilings", (Text(f"There is no account of its resources: {why}."),))
    else:
        yield from _account(point.account, is_recorded=is_recorded)
    assumed = (
        Text(" ".join(prediction.assumptions), "dim", f"{prediction.change} assumes: ")
        for prediction in finding.predictions
    )
    yield Section(
        "predictions",
        "What if",
        (_table("predictions", _PREDICTIONS, rows_of(_PREDICTIONS, finding.predictions)), *assumed),
    )
    yield caveats_section(caveats)


def _table(key: str, columns: tuple[Column, ...], rows: Sequence[tuple[Any, ...]], **more: Any) -> Table:
    return Table(key, key, columns, tuple(rows), **more)


def _facts(key: str, facts: Sequence[Evidence]) -> Table:
    rows = [(fact.name, fact.figure, fact.figure.unit) for fact in facts]
    return _table(key, _FACTS, rows, only="programs")


def _account(account: Account, *, is_recorded: bool) -> Iterator[Section]:
    rate = f"{words.known_text(account.iops)} {figures.plus_minus(account.iops)}".rstrip()
    yield Section("ceilings", f"Ceilings (measured: {rate} IOPS)", tuple(ceilings(account)))
    parts = [
        (words.place(part.place).title, part.place, part.latency_ns, part.share, part.share.value)
        for part in account.parts
    ]
    mean = words.known_text(account.latency_ns)
    yield Section("latency", f"Where the latency is (mean: {mean})", (_table("parts", _PARTS, parts),))
    yield _osds(account)
    throttles = [
        (throttle.subject, throttle.option, throttle.limit, throttle.held_share) for throttle in account.throttles
    ]
    yield Section("throttles", "Throttles", (_table("throttles", _THROTTLES, throttles),))
    yield Section(
        "foreign", "Work that is not the load's", (_table("foreign", _FOREIGN, [*map(_work, account.foreign)]),)
    )
    # What clients have in flight is known by this law alone.
    if not is_recorded:
        yield Section("little", "Little's law", (Text(words.little(account)),))


def ceilings(account: Account) -> Iterator[object]:
    """Yield the ceilings, the nearest of each kind first, and where their capacities are from."""
    if not account.ceilings:
        yield Text("No resource was seen.")
        return
    ordered = words.in_order(account)
    shown = words.nearest_of_each(ordered, _CEILINGS_OF_A_KIND)
    ordered = [*shown, *(ceiling for ceiling in ordered if ceiling not in shown)]
    tones: tuple[Tone, ...] = tuple("" if ceiling in account.limits else "dim" for ceiling in ordered)
    yield _table("ceilings", _CEILINGS, [*map(_ceiling, ordered)], tones=tones, shown_max=len(shown))
    for source, names in words.sources(account):
        yield Text(_joined(names), "dim", f"capacity from {source}: ")
    if harmless := [ceiling.words for ceiling in account.ceilings if not ceiling.binding]:
        yield Text(_joined(harmless), "dim", "holds nothing back when reached: ")
    if unknown := [ceiling.words for ceiling in account.ceilings if ceiling.capacity.value is None]:
        yield Text(_joined(unknown), "warning", "capacity not known: ")


def _ceiling(ceiling: Ceiling) -> tuple[Any, ...]:
    names = (ceiling.words, ceiling.resource, ceiling.subject, ceiling.host)
    demand, capacity = words.demand_text(ceiling.demand), words.capacity_text(ceiling)
    cells = (ceiling.demand, ceiling.capacity, ceiling.demand.unit, ceiling.source, ceiling.iops, ceiling.reached)
    short = shortened(labels.clean(ceiling.words), _NAME_LENGTH)
    return short, *names, demand, capacity, *cells, ceiling.binding


def _joined(names: Sequence[str]) -> str:
    shown = 3
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _osds(account: Account) -> Section:
    shown = words.standing_out(account.osds, _OSDS_MAX)
    rows = [
        (
            f"osd.{share.osd}",
            labels.machine(share.host),
            share.op_share,
            Figure(share.expected_share, "ratio"),
            share.in_flight_share,
            share.own_ns,
        )
        for share in (*shown, *(share for share in account.osds if share not in shown))
    ]
    is_whole = len(shown) == len(rows)
    title = "What each OSD does" if is_whole else f"The {len(shown)} OSDs that stand out most"
    nodes = words.by_node(account.osds)
    texts = [Text(nodes)] * bool(nodes) + [Text(_OSDS_LEGEND, "dim")] * bool(rows)
    return Section("osds", title, (_table("osds", _OSDS, rows, shown_max=_OSDS_MAX), *texts))


def _work(work: ForeignWork) -> tuple[Any, ...]:
    """Return the row of foreign work; the share of a machine's processors is in its sentence."""
    is_of_machine = work.rate.unit == "cores"
    name = f"{work.kind} ({work.subject})" if is_of_machine else work.subject or work.kind
    rate = words.known_text(work.rate) + " I/Os/s" * (work.rate.unit == "1/s" and work.rate.value is not None)
    share = None if is_of_machine or work.share.value is None else work.share
    return name, work.kind, work.subject, work.direction, rate, work.rate, work.rate.unit, share, work.sentence
