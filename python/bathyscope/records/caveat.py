"""What limits the use of a figure: shown beside it in every view."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.base import Record, column


@dataclasses.dataclass(frozen=True, slots=True)
class Caveat(Record):
    """One row per caveat: what limits the use of a step's figures, or of the whole run's."""

    TABLE: ClassVar[str] = "caveat"

    step_index: int | None = column("step that it concerns; empty for the whole run")
    code: str = column("stable name: unsteady, cache_hits, recovery, throttle_profile, …")
    severity: str = column(
        "note (for information), warning (do not decide on this figure alone) or refused (no number is shown)"
    )
    text: str = column("one sentence with the evidence")
    source: str = column("part of the program that found it: trust, preflight, capture, …")
