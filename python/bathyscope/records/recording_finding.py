"""What a recording holds and where it has holes: the finding of a recording."""

from __future__ import annotations

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """A span in which a source was not collected as often as planned.

    From the last good collection before it to the first one after it; `collection_count` are good ones in between, of a
    source that was slowed down or missed every other one. `reason` is what was said of it.
    """

    start_ns: int
    end_ns: int
    reason: str
    collection_count: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class SourceRecording:
    """What recording one source gave and cost.

    `period_ns` is 0 for a source that is asked when it is needed. `collection_count` are those that took place,
    `failure_count` of these without success, `missed_count` those that did not take place. `wall_ratio` is the share of
    the recording's time that they took.
    """

    source: str
    period_ns: int
    collection_count: int
    failure_count: int
    missed_count: int
    mean_cost_ns: float
    max_cost_ns: int
    answer_bytes: int
    wall_ratio: float
    gaps: tuple[Gap, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DaemonAbsence:
    """A span in which one daemon counted nothing while others did.

    `returned`: it was back before the recording ended, so it was restarted or could not be asked.
    """

    daemon: str
    start_ns: int
    end_ns: int
    returned: bool


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingFinding:
    """A recording: its span, what each source gave and cost, its gaps, and the daemons that were absent."""

    NAME: ClassVar[str] = "recording"

    start_ns: int
    end_ns: int
    sources: tuple[SourceRecording, ...] = ()
    absences: tuple[DaemonAbsence, ...] = ()
