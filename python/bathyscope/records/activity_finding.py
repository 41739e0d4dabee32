"""Who did the I/O: one view of a recording as plain tables, the same for every output."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.blocks import HeatMap, Table


@dataclasses.dataclass(frozen=True, slots=True)
class ActivityFinding:
    """A view of a recording from `start_ns` to `end_ns`, in ns since the Unix epoch.

    `sentence` says what the view shows first; `facts` are (name, value) about its subject; the first of `tables` is the
    one that CSV has. `unseen` says what cannot be seen here and what would show it.
    """

    NAME: ClassVar[str] = "activity"

    view: str
    run_id: str
    target: str
    start_ns: int
    end_ns: int
    sentence: str
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    unseen: tuple[str, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()
