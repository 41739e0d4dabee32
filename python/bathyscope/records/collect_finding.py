"""A recording as one finding: how it went, every view of it, and who did how much when."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import HeatMap
from bathyscope.records.recording_finding import RecordingFinding


@dataclasses.dataclass(frozen=True, slots=True)
class CollectFinding:
    """A recording from `start_ns` to `end_ns`, in ns since the Unix epoch."""

    NAME: ClassVar[str] = "collect"

    run_id: str
    target: str
    start_ns: int
    end_ns: int
    views: tuple[ActivityFinding, ...]
    heat_maps: tuple[HeatMap, ...]
    recording: RecordingFinding
