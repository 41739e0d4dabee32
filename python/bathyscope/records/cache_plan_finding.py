"""What `bathy cache plan` concludes: which OSDs get how much of the SSD of their node, and what that would bring."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.blocks import CaveatView


@dataclasses.dataclass(frozen=True, slots=True)
class CacheMemory:
    """Memory of a daemon by its parts: the index of all lines, the lines that wait in memory, and what never grows.

    `files_max` is how many files the cache knows at once; a file takes a line at least.
    """

    index_bytes: int
    stage_bytes: int
    daemon_bytes: int
    budget_bytes: int
    files_max: int

    @property
    def all_bytes(self) -> int:
        """Return the sum of the parts."""
        return self.index_bytes + self.stage_bytes + self.daemon_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedSource:
    """An OSD to cache, and its share of the SSD.

    `directory` is its data directory, as the OSD reports it, empty where the run does not have it. `useful_bytes` of
    flash bring all the hits of the plan; beyond it the run shows none, and the rest of the SSD is shared out in
    proportion, because the run did not see everything. Ratios are of read requests that clients sent to it;
    `reads_left_ratio` and `disk_time_left_ratio` are what its disk keeps of the reads and of the time that they take,
    None without reads. `flash_write_bytes_per_day` is what a warm cache writes, None where the run holds no warm time.
    """

    name: str
    osd: int
    directory: str
    flash_bytes: int
    useful_bytes: int
    dram_bytes: int
    read_requests: int
    read_hit_ratio: float
    disk_time_left_ratio: float | None
    flash_write_bytes_per_day: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedCache:
    """The SSD of one node. `index_bytes` is the memory that its lines take besides the small queue in DRAM;
    `memory_bytes` is all that its daemon takes, which may take `memory_budget_bytes`. It knows `files_max` files at
    once, and a file takes a line of flash at least.

    `read_hit_ratio` is that of all reads of the node's OSDs, `read_hit_ratio_even` what an even split would have.
    `without` are the OSDs that get nothing, because nothing read there would hit, or the flash
    brings more elsewhere.
    """

    node: str
    flash_bytes: int
    useful_bytes: int
    dram_bytes: int
    index_bytes: int
    memory_bytes: int
    memory_budget_bytes: int
    files_max: int
    read_requests: int
    read_hit_ratio: float | None
    read_hit_ratio_even: float | None
    sources: tuple[PlannedSource, ...]
    without: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class CachePlan:
    """A plan for each node. `bathy cache source create --from-plan` reads its JSON."""

    NAME: ClassVar[str] = "cache_plan"

    run_id: str
    events: int
    duration_s: float
    line_bytes: int
    fetch_bytes: int
    policy: str
    admission: str
    mode: str
    caches: tuple[PlannedCache, ...]
    caveats: tuple[CaveatView, ...]
