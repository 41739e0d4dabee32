"""What a study measured: one row a step, beside the rows of its load."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.base import Record, column


@dataclasses.dataclass(frozen=True, slots=True)
class StudyStep(Record):
    """One row per step of a study: one access pattern in one phase."""

    TABLE: ClassVar[str] = "study_step"

    step_index: int = column("place of the step in the run's order, from 0")
    phase: str = column("what the study changes from one phase to the next: no-cache, first, repeated")
    pattern: str = column("access pattern: randread-4K-qd8")
    block_size_bytes: int = column("size of one I/O", unit="bytes")
    started_ns: int = column("start of the measured window, since the Unix epoch", unit="ns")
    ended_ns: int = column("end of the measured window, since the Unix epoch", unit="ns")
    cache_read_count: int | None = column("reads that the caches of all OSDs were asked for; empty without caches")
    cache_read_hit_count: int | None = column("of these, reads that were cached as a whole")
    cache_read_bytes: int | None = column("bytes that the caches were asked for", unit="bytes")
    cache_read_hit_bytes: int | None = column("of these, bytes that were cached", unit="bytes")
    cpu_steal_ratio: float | None = column(
        "share of the time, from before the load to its end, in which processors waited for the hypervisor (steal)",
        optional=True,
    )
