"""Which drives to buy: they hold the cache, bear its writes for the life asked for, and meet its peak demand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from bathyscope.records.size_finding import Purchase
from bathyscope.spec.prices import DAYS, Drive

MOST_DRIVES = 24
"""Drives of one kind that are advised at most: the bays of a server."""


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of the flash in its busiest time: I/Os and bytes in a second."""

    read_iops: float
    write_iops: float
    read_bytes_per_s: float
    write_bytes_per_s: float

    def share_of(self, drive: Drive) -> float:
        """Return the part of a drive's time that it takes. Reads and writes share the drive, so their parts add up."""
        iops = self.read_iops / drive.read_iops + self.write_iops / drive.write_iops
        read, write = self.read_bytes_per_s / drive.read_mb_per_s, self.write_bytes_per_s / drive.write_mb_per_s
        return max(iops, (read + write) / 1e6)


def cheapest(
    drives: Mapping[str, Drive],
    flash_bytes: int,
    written_bytes_per_day: float | None,
    demand: Demand | None,
    least_life_years: float | None,
) -> Purchase | None:
    """Return the drives for the least money, of equal prices the smallest; None when no kind will do.

    What is not known (writes of a warm cache, endurance, demand) is no reason for a larger drive. A least life of None
    is the drive's warranty.
    """
    purchases: list[tuple[float, float, str, Purchase]] = []
    for name, drive in drives.items():
        capacity, endurance_bytes = flash_bytes / drive.capacity_bytes, drive.endurance_bytes
        load = None if demand is None else demand.share_of(drive)
        endurance = None
        if written_bytes_per_day is not None and endurance_bytes is not None:
            years = drive.warranty_years if least_life_years is None else least_life_years
            endurance = written_bytes_per_day * DAYS * years / endurance_bytes
        count = max(1, math.ceil(max(capacity, load or 0.0, endurance or 0.0) - 1e-9))
        if count <= MOST_DRIVES:
            purchase = Purchase(
                drive=name,
                count=count,
                price=drive.price * count,
                capacity_share=capacity / count,
                endurance_share=None if endurance is None else endurance / count,
                demand_share=None if load is None else load / count,
                life_years=life_years(drive, count, written_bytes_per_day),
            )
            purchases.append((purchase.price, drive.capacity_bytes * count, name, purchase))
    return min(purchases)[-1] if purchases else None


def life_years(drive: Drive, count: int, written_bytes_per_day: float | None) -> float | None:
    """Return the years until so many drives have used up their endurance; None when that is not known."""
    if written_bytes_per_day is None or drive.endurance_bytes is None:
        return None
    if written_bytes_per_day <= 0:
        return math.inf
    return drive.endurance_bytes * count / (written_bytes_per_day * DAYS)
