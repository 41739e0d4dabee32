"""How long the flash lives under the writes that the cache makes."""

from __future__ import annotations

import dataclasses


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
        return self.drive_writes_per_day * capacity_bytes * 365.0 * self.warranty_years

    def life_years(self, capacity_bytes: float, written_bytes_per_day: float | None) -> float | None:
        """Return the years until the promise is used up; None when it cannot be told, inf when nothing is written."""
        total = self.total_bytes(capacity_bytes)
        if total is None or written_bytes_per_day is None:
            return None
        if written_bytes_per_day <= 0:
            return float("inf")
        return total / (written_bytes_per_day * 365.0)
