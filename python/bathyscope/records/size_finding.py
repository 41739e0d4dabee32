"""What `bathy size` concludes: curves with latency, life and cost; the knee, the wanted size, the split."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.blocks import CaveatView
from bathyscope.records.figure import Figure
from bathyscope.units import format_size_short


@dataclasses.dataclass(frozen=True, slots=True)
class Purchase:
    """The drives of one kind that hold a cache, bear its writes and meet its peak demand for the least money.

    The shares are of all of these drives together; None where it is not known. `life_years` is inf when nothing is
    written and None when the writes of a warm cache, or the endurance of the drive, are not known.
    """

    drive: str
    count: int
    price: float
    capacity_share: float
    endurance_share: float | None
    demand_share: float | None
    life_years: float | None

    @property
    def share(self) -> float:
        """What the cache uses of the drives: the largest of the shares."""
        return max(self.capacity_share, self.endurance_share or 0.0, self.demand_share or 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class SizePoint:
    """One cache size of one curve, with everything that follows from its hit ratio.

    `size_bytes` is `flash_bytes` and `dram_bytes` together. Latencies are of reads; `backing_reads_left` is the share
    of read requests that still reach the backing device, and `disk_time_left` the share of the time that reads keep
    the backing disks busy without the cache. `flash_write_bytes_per_day` is what a warm cache writes, None when no
    window of the trace is warm; `fill_bytes` is what was written before. `purchase` is None when no drives of the
    price file will do. Ratios of reads are None without reads, those of writes without writes.
    """

    size_bytes: int
    flash_bytes: int
    dram_bytes: int
    read_hit: Figure
    read_byte_hit: float | None
    write_hit: float | None
    write_byte_hit: float | None
    backing_reads_left: float | None
    fetch_amplification: float | None
    disk_time_left: float | None
    fill_bytes: float | None
    flash_write_bytes_per_day: float | None
    latency_ns_mean: float | None
    latency_ns_p99: float | None
    purchase: Purchase | None

    @property
    def life_years(self) -> float | None:
        """The life of the drives to buy."""
        return None if self.purchase is None else self.purchase.life_years

    @property
    def cost(self) -> float | None:
        """The price of the drives to buy."""
        return None if self.purchase is None else self.purchase.price


@dataclasses.dataclass(frozen=True, slots=True)
class SizeCurve:
    """One curve: a group, and a configuration of line size, fetch size, policy and admission.

    `unit_bytes` are valid or not together. `write_gap_ratio` is the part of the units touched by writes that the writes
    left unwritten; at least that share of those units was written in part. None when nothing is written or writes never
    enter the cache. Of an adaptive fetch size `fetch_bytes` is the unit.
    """

    group_kind: str
    group_name: str
    line_bytes: int
    fetch_bytes: int
    unit_bytes: int
    policy: str
    admission: str
    method: str
    sampled_lines: int | None
    read_requests: int
    write_requests: int
    read_bytes: int
    write_bytes: int
    working_set_bytes: int
    cold_read_ratio: float | None
    cold_write_ratio: float | None
    write_gap_ratio: float | None
    points: tuple[SizePoint, ...]
    knee: SizePoint | None
    wanted: SizePoint | None
    wanted_reason: str | None
    is_fetch_adaptive: bool = False

    @property
    def fetch_words(self) -> str:
        """The fetch size, as it stands behind the line size: " fetched by 4K"; nothing for whole lines."""
        if self.is_fetch_adaptive:
            return f" of {format_size_short(self.unit_bytes)} units, adaptive fetch"
        return "" if self.unit_bytes == self.line_bytes else f" fetched by {format_size_short(self.fetch_bytes)}"


@dataclasses.dataclass(frozen=True, slots=True)
class SplitShare:
    """What one group gets of a shared SSD, and the DRAM that goes with it.

    `marginal_hit_ratio_per_gib` is the share of all groups' reads that one GiB of flash more would turn into hits.
    """

    group_name: str
    flash_bytes: int
    dram_bytes: int
    read_hit_ratio: float
    hits_per_day: float | None
    marginal_hit_ratio_per_gib: float


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """The best split of one SSD over the groups, for one line size and policy. `budget_bytes` is flash.

    `hits` counts read requests over the trace; `hits_even` is what an even split would have had.
    """

    line_bytes: int
    policy: str
    budget_bytes: int
    shares: tuple[SplitShare, ...]
    hits: float
    hits_even: float


@dataclasses.dataclass(frozen=True, slots=True)
class StabilityWindow:
    """The hit ratio of one part of the trace at the size recommended for the whole.

    `read_hit_ratio` is None without reads. `judged` says whether the verdict on stability counts it: the first window
    is cold, others may hold too few reads.
    """

    window: str
    size_bytes: int
    read_requests: int
    read_hit_ratio: float | None
    judged: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """The answer in one sentence, and its reasons, of which the sentence may hold the first.

    `verdict` is worth it, wears out, not worth it or inconclusive. Only the first has a size and drives to buy; line
    size, fetch size, policy and admission are those of the curve that the answer is about, whatever it is.
    """

    verdict: str
    sentence: str
    reasons: tuple[str, ...]
    size_bytes: int | None = None
    flash_bytes: int | None = None
    line_bytes: int | None = None
    unit_bytes: int | None = None
    fetch_bytes: int | None = None
    is_fetch_adaptive: bool | None = None
    policy: str | None = None
    admission: str | None = None
    purchase: Purchase | None = None

    @property
    def further_reasons(self) -> tuple[str, ...]:
        """The reasons that the sentence does not say itself."""
        return tuple(reason for reason in self.reasons if reason not in self.sentence)


@dataclasses.dataclass(frozen=True, slots=True)
class SizeFinding:
    """Everything that a size view shows.

    `curves` are those that were asked for; `trials` are of the configurations that were tried beside them, which the
    advice may be about.
    """

    NAME: ClassVar[str] = "size"

    sources: tuple[str, ...]
    events: int
    skipped: int
    duration_s: float
    by: str
    budget_bytes: int | None
    advice: Advice
    curves: tuple[SizeCurve, ...]
    trials: tuple[SizeCurve, ...]
    splits: tuple[Split, ...]
    stability: tuple[StabilityWindow, ...]
    stability_sentence: str
    latency_sentence: str
    demand_sentences: tuple[str, ...]
    cost_sentence: str
    caveats: tuple[CaveatView, ...]
