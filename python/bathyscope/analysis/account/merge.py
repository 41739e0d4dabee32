"""The account of a point: medians over the accounts of its repeats, matched by what they are of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from bathyscope.analysis import bootstrap, caveat_texts
from bathyscope.analysis.account.ceilings import THREADS
from bathyscope.records.account import Account, Ceiling, ForeignWork, LatencyPart, OsdShare
from bathyscope.records.figure import Figure

T = TypeVar("T")


def merged(accounts: Sequence[Account]) -> Account | None:
    """Return the account of all repeats; None without any."""
    if not accounts:
        return None
    first = accounts[0]
    latency_ns = _median([account.latency_ns for account in accounts])
    ceilings = _joined(accounts, attrgetter("ceilings"), lambda one: (one.resource, one.subject, one.host))
    return Account(
        first.concurrency,
        _median([account.iops for account in accounts]),
        latency_ns,
        _median([account.in_flight for account in accounts]),
        tuple(_busiest_threads(sorted(ceilings, key=lambda ceiling: -(ceiling.reached.value or 0.0)))),
        _adding_up(_joined(accounts, attrgetter("parts"), attrgetter("place")), latency_ns.value),
        _joined(accounts, attrgetter("osds"), attrgetter("osd")),
        _joined(accounts, attrgetter("foreign"), lambda work: (work.kind, work.subject, work.direction)),
        _joined(accounts, attrgetter("throttles"), lambda throttle: (throttle.subject, throttle.option)),
        _median([account.other_cores for account in accounts]),
    )


def _busiest_threads(ceilings: Sequence[Ceiling]) -> Iterator[Ceiling]:
    """Yield the ceilings, nearest first; of the threads of all OSDs only the busiest of each kind."""
    seen = set()
    for ceiling in ceilings:
        if ceiling.resource not in THREADS or ceiling.resource not in seen:
            yield ceiling
        seen.add(ceiling.resource)


def _adding_up(parts: Sequence[LatencyPart], latency_ns: float | None) -> tuple[LatencyPart, ...]:
    """Return parts of one latency: medians, each of a part alone, need not add up."""
    whole = sum(part.share.value or 0.0 for part in parts)
    if whole <= 0 or not latency_ns:
        return tuple(parts)
    return tuple(
        dataclasses.replace(
            part,
            share=dataclasses.replace(part.share, value=(part.share.value or 0.0) / whole),
            latency_ns=dataclasses.replace(part.latency_ns, value=(part.share.value or 0.0) / whole * latency_ns),
        )
        for part in parts
    )


def _joined(
    accounts: Iterable[Account], read: Callable[[Account], Sequence[T]], key: Callable[[T], Hashable]
) -> tuple[T, ...]:
    """Return the parts of one kind of all repeats, each with the medians of its figures.

    What only one of several repeats has is an exception there, no property of the configuration: it must be in half.
    """
    entries_by_key: dict[Hashable, list[Any]] = {}
    count = 0
    for account in accounts:
        count += 1
        for entry in read(account):
            entries_by_key.setdefault(key(entry), []).append(entry)
    return tuple(_middle(same) for same in entries_by_key.values() if 2 * len(same) >= count)


def _middle(same: Sequence[Any]) -> Any:
    figures = [field.name for field in dataclasses.fields(same[0]) if isinstance(getattr(same[0], field.name), Figure)]
    merged: dict[str, Any] = {name: _median([getattr(entry, name) for entry in same]) for name in figures}
    if isinstance(same[0], OsdShare):
        # How many operations it rests on, not how many repeats.
        operations = sum(share.own_ns.samples for share in same)
        merged["own_ns"] = dataclasses.replace(merged["own_ns"], samples=operations)
    if isinstance(same[0], ForeignWork):
        merged["sentence"] = caveat_texts.ranged(caveat_texts.most_common(work.sentence for work in same))
    return dataclasses.replace(same[0], **merged)


def _median(figures: Sequence[Figure]) -> Figure:
    values = [figure.value for figure in figures if figure.value is not None]
    if len(figures) == 1:
        return figures[0]
    median = bootstrap.median(values).figure(figures[0].unit)
    if figures[0].unit != "ratio" or median.low is None or median.high is None or median.value is None:
        return median
    return dataclasses.replace(median, low=max(0.0, median.low), high=max(median.value, min(1.0, median.high)))
