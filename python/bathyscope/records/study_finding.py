"""What a study concludes: every access pattern in every phase, and which expectations were met."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.blocks import CaveatView
from bathyscope.records.figure import Figure


@dataclasses.dataclass(frozen=True, slots=True)
class StudyCell:
    """One access pattern in one phase. `step_key` is that of its steps.

    `ratio` is its IOPS over those of the finding's `base`, whose own is not known. `read_hit_ratio` is the share of the
    bytes read from the OSDs' caches that were cached; None where there are no caches, and for writes.
    """

    phase: str
    step_key: str
    iops: Figure
    bandwidth_bytes_per_s: Figure
    latency_ns_mean: Figure
    ratio: Figure
    read_hit_ratio: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class StudyRow:
    """One access pattern; one cell for each phase."""

    pattern: str
    cells: tuple[StudyCell, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectationView:
    """What was expected of a ratio. `met` is None when it is not known."""

    pattern: str
    phase: str
    ratio_min: float
    ratio: Figure
    met: bool | None
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class StudyFinding:
    """Everything that a study shows. `base` is the phase over which ratios are; None where there are none.

    `is_judged`: the expectations hold for what was measured (a lab with simulated disks); elsewhere they are only
    reported.
    """

    NAME: ClassVar[str] = "study"

    run_id: str
    study: str
    title: str
    phases: tuple[str, ...]
    base: str | None
    clients: int
    rows: tuple[StudyRow, ...]
    expectations: tuple[ExpectationView, ...]
    is_judged: bool
    sentence: str
    caveats: tuple[CaveatView, ...]

    @property
    def passed(self) -> bool:
        """Whether all that is expected was met, where that is judged: what cannot be judged was not met."""
        return not self.is_judged or all(expectation.met for expectation in self.expectations)
