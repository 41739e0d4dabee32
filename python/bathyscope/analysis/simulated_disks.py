"""What simulated disks did in a window, by their own counters: time busy and with what, lateness, faults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pyarrow as pa

from bathyscope.analysis.columns import strings, total, where


@dataclasses.dataclass(frozen=True, slots=True)
class DiskTime:
    """One simulated disk over a window. Shares (0 to 1) are of the window; None where nothing was done.

    `seek`, `rotation` and `transfer` are of a hard disk's arm, which works one request at a time: together they are at
    most `busy`, as long as nothing is destaged or read ahead.
    `lateness_ratio`: by how much longer than on the drive a request took, because its answer was late.
    """

    busy: float
    seek: float
    rotation: float
    transfer: float
    queue_depth: float
    lateness_ratio: float | None
    faults: tuple[str, ...]


def disk_times(samples: pa.Table, devices: Iterable[str]) -> dict[str, DiskTime]:
    """Return device → what the simulated disk that it is did, for those of `devices` that are one."""
    uses = {}
    for device in devices:
        rows = where(samples, device=device)
        window_ns = total(rows, "duration_ns")
        if window_ns <= 0:
            continue
        queue_ns, lateness_ns = total(rows, "queue_ns"), total(rows, "lateness_ns")
        busy, seek, rotation, transfer = (
            total(rows, name) / window_ns for name in ("busy_ns", "seek_ns", "rotation_ns", "transfer_ns")
        )
        faults = dict.fromkeys(fault for text in strings(rows, "faults") for fault in text.split("; ") if fault)
        late = lateness_ns / queue_ns if queue_ns > 0 else None
        uses[device] = DiskTime(busy, seek, rotation, transfer, queue_ns / window_ns, late, tuple(faults))
    return uses
