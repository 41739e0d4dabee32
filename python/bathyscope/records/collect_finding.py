"""A recording as one finding: what limited its clients, every view of it, who did how much when, and how it went."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import HeatMap
from bathyscope.records.explain_finding import AccountFinding
from bathyscope.records.recording_finding import RecordingFinding


@dataclasses.dataclass(frozen=True, slots=True)
class CollectFinding:
    """A recording from `start_ns` to `end_ns`, in ns since the Unix epoch.

    `load` is what clients did and what limited them; None where that is not known: `why_no_load` says why, `next_step`
    what to do about it.
    """

    NAME: ClassVar[str] = "collect"

    run_id: str
    target: str
    start_ns: int
    end_ns: int
    views: tuple[ActivityFinding, ...]
    heat_maps: tuple[HeatMap, ...]
    recording: RecordingFinding
    load: AccountFinding | None
    why_no_load: str
    next_step: str
