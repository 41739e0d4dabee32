"""A recording as one finding: how it went, every view of it, and who did how much when."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.activity_finding import ActivityFinding, Unit
from bathyscope.records.recording_finding import RecordingFinding


@dataclasses.dataclass(frozen=True, slots=True)
class HeatMap:
    """Values of several things over time: a row for each of `names`, a column for each `bin_ns` from `start_ns`.

    None where nothing is known. `kind` is what the names are, in the singular.
    """

    name: str
    title: str
    kind: str
    unit: Unit
    names: tuple[str, ...]
    start_ns: int
    bin_ns: int
    values: tuple[tuple[float | None, ...], ...]


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
