"""What `bathy size` concludes: curves with latency, life and cost; the knee, the wanted size, the split."""

from __future__ import annotations

import dataclasses

from bathyscope.records.finding import CaveatView, Figure


@dataclasses.dataclass(frozen=True, slots=True)
class SizePoint:
    """One cache size of one curve, with everything that follows from its hit ratio.

    `size_bytes` is `flash_bytes` and `memory_bytes` together; life and cost are of the flash alone. Latencies are of
    reads; `backing_reads_left` is the share of read requests that still reach the backing device. `life_years` is
    None when the trace has no time or the flash no stated endurance. Ratios of reads are None without reads, that of
    writes without writes.
    """

    size_bytes: int
    flash_bytes: int
    memory_bytes: int
    read_hit: Figure
    read_byte_hit: float | None
    write_hit: float | None
    write_byte_hit: float | None
    backing_reads_left: float | None
    fetch_amplification: float | None
    flash_write_bytes_per_day: float | None
    life_years: float | None
    latency_ns_mean: float | None
    latency_ns_p99: float | None
    cost: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class SizeCurve:
    """One curve: a group, a line size, a policy.

    `write_gap_ratio` is the part of the fetch units touched by writes that the writes left unwritten; at least that
    share of those units was written in part. None when nothing is written or writes never enter the cache.
    """

    group_kind: str
    group_name: str
    line_bytes: int
    fetch_bytes: int
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


@dataclasses.dataclass(frozen=True, slots=True)
class SplitShare:
    """What one group gets of a shared SSD, the memory that goes with it, and what one GiB of flash more would bring."""

    group_name: str
    flash_bytes: int
    memory_bytes: int
    read_hit_ratio: float
    hits_per_day: float | None
    marginal_hits_per_gib: float


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

    `call` is worth it, wears out, not worth it or cannot tell. Only the first has a size; line size and policy are
    those of the curve that the answer is about, whatever it is.
    """

    call: str
    sentence: str
    reasons: tuple[str, ...]
    size_bytes: int | None = None
    flash_bytes: int | None = None
    line_bytes: int | None = None
    policy: str | None = None

    @property
    def further_reasons(self) -> tuple[str, ...]:
        """The reasons that the sentence does not say itself."""
        return tuple(reason for reason in self.reasons if reason not in self.sentence)


@dataclasses.dataclass(frozen=True, slots=True)
class SizeFinding:
    """Everything that a size view shows.

    `trials` are curves of single points: sizes that wear out, simulated with admissions that write less.
    """

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
    cost_sentence: str
    caveats: tuple[CaveatView, ...]
