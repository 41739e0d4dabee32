"""How long the flash lives under the writes that the cache makes, and what flash would live as long as is asked."""

from __future__ import annotations

import dataclasses

DAYS = 365.0
"""Of a year, as data sheets count them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Endurance:
    """What the vendor promises: drive writes per day over the warranty, or total bytes written, or neither."""

    drive_writes_per_day: float | None = None
    warranty_years: float = 5.0
    total_bytes_written: float | None = None

    def total_bytes(self, capacity_bytes: float) -> float | None:
        """Return the bytes that may be written over the drive's life; None when nothing is promised."""
        if self.total_bytes_written is not None:
            return self.total_bytes_written
        if self.drive_writes_per_day is None:
            return None
        return self.drive_writes_per_day * capacity_bytes * DAYS * self.warranty_years

    def life_years(self, capacity_bytes: float, written_bytes_per_day: float | None) -> float | None:
        """Return the years until the promise is used up; None when it cannot be told, inf when nothing is written."""
        total = self.total_bytes(capacity_bytes)
        if total is None or written_bytes_per_day is None:
            return None
        if written_bytes_per_day <= 0:
            return float("inf")
        return total / (written_bytes_per_day * DAYS)

    def bearable_bytes_per_day(self, capacity_bytes: float, years: float) -> float | None:
        """Return the bytes that may be written in a day for a life of `years`; None when nothing is promised."""
        total = self.total_bytes(capacity_bytes)
        return None if total is None else total / (years * DAYS)

    def lasting_capacity_bytes(self, written_bytes_per_day: float, years: float) -> float | None:
        """Return the smallest drive that bears the writes for `years`; None when its size does not matter."""
        if self.total_bytes_written is not None or self.drive_writes_per_day is None:
            return None
        return written_bytes_per_day * years / (self.drive_writes_per_day * self.warranty_years)
