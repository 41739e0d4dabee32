"""The sentences beside the figures: where latencies come from, what the busiest time asks, what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.analysis.sizing.demand import PeakHour
from bathyscope.analysis.sizing.drives import Demand
from bathyscope.analysis.sizing.question import SizeQuestion
from bathyscope.records import CurvePoint
from bathyscope.records.size_finding import Advice, Purchase
from bathyscope.units import (
    format_bandwidth,
    format_bytes,
    format_cost,
    format_duration_ns,
    format_rate,
    format_seconds,
    three_digits,
)


def latency_sentence(question: SizeQuestion) -> str:
    """Return where the latencies come from."""
    if question.hit is None or question.miss is None:
        return (
            "No latency is expected: the trace has no latencies, and none were given (--hit-latency, --miss-latency)."
        )
    return (
        f"A hit takes {format_duration_ns(question.hit.mean_ns)} on average ({question.hit.source}), "
        f"a miss {format_duration_ns(question.miss.mean_ns)} ({question.miss.source})."
    )


def demand_sentences(
    demand: Demand | None, hour: PeakHour | None, windows: Sequence[CurvePoint], question: SizeQuestion
) -> tuple[str, ...]:
    """Return what the busiest hour leaves to the disks, and what the busiest minute asks of the flash."""
    sentences = []
    if hour is not None:
        when = "the busiest hour" if question.trace.duration_s >= 3600 else f"these {format_seconds(hour.seconds)}"
        backing = question.backing
        per_disk = 1.0 / backing.busy_s(1, 4096)
        kind = question.spec.backing if question.disk is None else f"the disk of {question.spec.backing}"
        sentences.append(
            f"In {when} {three_digits(hour.reads_left_per_s)} of {three_digits(hour.reads_per_s)} reads/s are left to "
            f"the disks and keep {_disks(hour.disks_left)} busy; without the cache reads would keep "
            f"{_disks(hour.disks_without)} busy, and writes keep {_disks(hour.disks_writes)} busy in either case "
            f"({kind}: {format_rate(per_disk)} random 4K reads/s a disk)."
        )
    if demand is not None:
        seconds = max(row.duration_s for row in windows)
        minute = "minute asks" if seconds <= 60 else f"{format_seconds(seconds)} ask"
        moved = format_bandwidth(demand.read_bytes_per_s + demand.write_bytes_per_s)
        sentences.append(
            f"The busiest {minute} at most {format_rate(demand.read_iops)} reads/s, "
            f"{format_rate(demand.write_iops)} writes/s and {moved} of the flash."
        )
    return tuple(sentences)


def _disks(count: float) -> str:
    return f"{_percent(count)} of one disk" if count < 1 else f"{three_digits(count)} disks"


def drive_words(purchase: Purchase) -> str:
    """Return what to buy: "one kingston-dc600m-960g"."""
    return f"one {purchase.drive}" if purchase.count == 1 else f"{purchase.count} {purchase.drive}"


def share_words(purchase: Purchase) -> str:
    """Return what the cache uses of the drives: "0.3 % of its capacity, 2 % of its endurance"."""
    its = "its" if purchase.count == 1 else "their"
    shares = (
        (purchase.capacity_share, f"of {its} capacity"),
        (purchase.endurance_share, f"of {its} endurance"),
        (purchase.demand_share, f"of {its} speed in the busiest minute"),
    )
    return ", ".join(f"{_percent(share)} {words}" for share, words in shares if share is not None)


def _percent(share: float) -> str:
    return "less than 0.1%" if share < 0.001 else f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def cost_sentence(advice: Advice, question: SizeQuestion) -> str:
    """Return what the advised drives cost, and what of them the cache uses; empty where nothing is advised."""
    purchase = advice.purchase
    if purchase is None or advice.flash_bytes is None:
        return ""
    prices = question.spec.prices
    source = f"{'packaged estimate' if prices.packaged else 'prices'} of {prices.as_of}"
    drives = drive_words(purchase)
    return (
        f"{drives[0].upper()}{drives[1:]} cost{'s' if purchase.count == 1 else ''} {format_cost(purchase.price)} "
        f"{prices.currency} ({source}); {format_bytes(advice.flash_bytes)} of flash "
        f"use {share_words(purchase)}."
    )
