"""The account of a load in words that its table, its page and its picture share."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from bathyscope.records.account import Account, Ceiling, OsdShare, Throttle
from bathyscope.records.figure import Figure
from bathyscope.records.finding import PointFinding, RungGroup, Verdict
from bathyscope.units import format_percent
from bathyscope.views import figures, labels
from bathyscope.views.refusal import is_shown

NOT_KNOWN = "not known"
_HALF = 0.5
# Beyond these, a list in a sentence is no longer read.
_ALTERNATIVES_MAX = 3
_NODES_MAX = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A place where latency is spent: its title, and its colour as a slot of the theme's stages."""

    title: str
    slot: int


# In the order in which an I/O passes them. A stage of the operation history has the same colour.
PLACES = {
    "outside": Place("outside the OSDs", 5),
    "queue": Place("queue", 0),
    "prepare": Place("prepare", 1),
    "store": Place("store", 2),
    "kv_sync": Place("kv-sync", 6),
    "replica_wait": Place("replica wait", 3),
    "inside": Place("inside the OSDs", 7),
}
# A capacity in seconds a second is a number of what works for that long: of these, no whole processors.
_SERVERS = {"client_thread": "threads", "kv_sync": "threads", "op_workers": "threads", "in_flight": "in flight"}


def place(name: str) -> Place:
    """Return the place of a part; one that is not known stands by its name."""
    return PLACES.get(name, Place(labels.clean(name).replace("_", " "), PLACES["inside"].slot))


def nearest(point: PointFinding) -> Ceiling | None:
    """Return the ceiling that the load is nearest to; None where none is known."""
    return next(iter(point.account.limits), None) if point.account else None


def spoken_of(group: RungGroup) -> PointFinding | None:
    """Return the point whose verdict the group's sentence says: that of the highest layer with a figure."""
    return next((p for p in reversed(group.points) if is_shown(p) and p.iops.value is not None), None)


def pictured(group: RungGroup) -> PointFinding | None:
    """Return the point whose account stands for the group: the highest layer that has one."""
    return next((p for p in reversed(group.points) if is_shown(p) and p.account is not None), None)


def known_text(figure: Figure) -> str:
    """Return a figure for reading, "not known" where there is none."""
    return NOT_KNOWN if figure.value is None else figures.value_text(figure.value, figure.unit)


def demand_text(demand: Figure) -> str:
    """Return what one I/O takes of a resource: "180 µs", "0.34 I/Os", "8.00 KiB"."""
    if demand.value is None:
        return figures.NOT_KNOWN
    if demand.unit in ("s", "bytes"):
        return figures.value_text(demand.value, demand.unit)
    return f"{figures.value_text(demand.value, '')} I/Os"


def capacity_text(ceiling: Ceiling) -> str:
    """Return what a resource gives: "2 cores", "1.16 GiB/s", "13.2k I/Os/s"."""
    value, unit = ceiling.capacity.value, ceiling.capacity.unit
    if value is None:
        return figures.NOT_KNOWN
    if unit == "bytes":
        return figures.value_text(value, "bytes/s")
    if unit == "s":
        words = _SERVERS.get(ceiling.resource, "cores")
        return f"{figures.trimmed(value)} {words.removesuffix('s') if value == 1 else words}"
    return f"{figures.value_text(value, '')} I/Os/s"


def in_order(account: Account) -> list[Ceiling]:
    """Return the ceilings that hold the load back, the nearest first, then those that do not or are not known."""
    return [*account.limits, *(ceiling for ceiling in account.ceilings if ceiling not in account.limits)]


def nearest_of_each(ceilings: Sequence[Ceiling], most: int) -> list[Ceiling]:
    """Return the nearest `most` ceilings of each kind of resource: a thousand disks must not hide the processors."""
    seen: Counter[str] = Counter()
    kept = []
    for ceiling in ceilings:
        seen[ceiling.resource] += 1
        if seen[ceiling.resource] <= most:
            kept.append(ceiling)
    return kept


def sources(account: Account) -> list[tuple[str, list[str]]]:
    """Return where the capacities are from, each source with the names of its resources."""
    names: dict[str, list[str]] = {}
    for ceiling in account.ceilings:
        if ceiling.capacity.value is not None:
            names.setdefault(ceiling.source, []).append(ceiling.words)
    return list(names.items())


def little(account: Account) -> str:
    """Return Little's law with the figures of the load, and how far it is from closing."""
    in_flight = known_text(dataclasses.replace(account.in_flight, unit=""))
    text = (
        f"{known_text(account.iops)} IOPS × {known_text(account.latency_ns)} = {in_flight} I/Os in flight; "
        f"the load keeps {account.concurrency}"
    )
    if account.in_flight.value is None or not account.concurrency:
        return f"{text}."
    if account.in_flight.value < _HALF * account.concurrency:
        # A load that keeps to a rate has as many in flight as it needs.
        return text.replace("; the load keeps", ", of at most") + "."
    apart = figures.change_text(account.in_flight.value / account.concurrency)
    return f"{text}, and the account closes." if apart == "0%" else f"{text}: the account is {apart} off."


def throttle_text(throttle: Throttle) -> str:
    """Return what an OSD's own limit held back, as a sentence."""
    held = known_text(throttle.held_share)
    return f"{labels.clean(throttle.subject)}: {labels.clean(throttle.option)} held back {held} of what came."


def standing_out(osds: Sequence[OsdShare], most: int) -> list[OsdShare]:
    """Return all OSDs in order of their ids, or of many those whose share is furthest from even, the furthest first."""
    if len(osds) <= most:
        return sorted(osds, key=lambda share: share.osd)
    return sorted(osds, key=lambda share: (-_unevenness(share), share.osd))[:most]


def by_node(osds: Sequence[OsdShare]) -> str:
    """Return the shares of nodes with several OSDs under the load, the greatest first; empty where none has several."""
    nodes: dict[str, list[OsdShare]] = {}
    for osd in osds:
        nodes.setdefault(osd.host, []).append(osd)
    if len(nodes) < 2 or len(nodes) == len(osds):
        return ""

    def share(name: str, field: str) -> float:
        return sum(getattr(osd, field).value or 0.0 for osd in nodes[name])

    order = sorted(nodes, key=lambda name: (-share(name, "in_flight_share"), name))
    texts = [
        f"{labels.machine(name)} {format_percent(share(name, 'op_share'))} of the I/Os and "
        f"{format_percent(share(name, 'in_flight_share'))} of the time"
        for name in order[:_NODES_MAX]
    ]
    more = f"; and {len(order) - _NODES_MAX} more nodes" if len(order) > _NODES_MAX else ""
    return "by node: " + ", ".join(texts) + more


def _unevenness(osd: OsdShare) -> float:
    shares = (osd.op_share.value, osd.in_flight_share.value)
    return max((abs(share - osd.expected_share) for share in shares if share is not None), default=0.0)


def evidence(verdict: Verdict) -> str:
    """Return the evidence of a verdict with its figures."""
    return "; ".join(f"{labels.clean(each.name)} {known_text(each.figure)}" for each in verdict.evidence)


def alternatives(verdict: Verdict, where: str) -> str:
    """Return the first causes that were considered besides, with their figures, but those that the sentence names.

    `where` says where the others are, if there are any.
    """
    others = [cause for cause in verdict.alternatives if cause.name not in verdict.sentence]
    shown = [f"{labels.clean(cause.name)} ({known_text(cause.figure)})" for cause in others[:_ALTERNATIVES_MAX]]
    more = [f"and {len(others) - len(shown):,} more: {where}"] * (len(others) > len(shown))
    return "; ".join([*shown, *more])
