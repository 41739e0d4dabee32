"""A benchmark and a recording of the same cluster as one finding: one report shows both."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.collect_finding import CollectFinding
from bathyscope.records.finding import LadderFinding


@dataclasses.dataclass(frozen=True, slots=True)
class ReportFinding:
    """How fast each layer is, and who did the I/O of the recording."""

    NAME: ClassVar[str] = "report"

    bench: LadderFinding
    recording: CollectFinding
