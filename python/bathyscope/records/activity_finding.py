"""Who did the I/O: one view of a recording as plain tables, the same for every output."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

Unit = Literal["", "count", "1/s", "bytes", "bytes/s", "ns", "s", "ratio", "times", "time", "trend", "parts"]


@dataclasses.dataclass(frozen=True, slots=True)
class ActivityColumn:
    """A column of a view. `unit` says how its values are read; "time" is ns since the Unix epoch, "" is text.

    "times" is a multiple of something, "trend" rates a second of equal times, the latest last, "parts" are the parts
    of a whole in order, each (name, share). `prose` is text that has a line of its own where there is no room beside
    others.

    `rank`: 0 is always shown; where a terminal is narrow, columns of the highest rank are left out first. `live` is the
    rank on a live screen, where it is another one: there rates come first, here counts.
    """

    name: str
    unit: Unit = ""
    help: str = ""
    rank: int = 0
    prose: bool = False
    live: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ActivityTable:
    """One table of a view: rows of as many values as there are columns, None where a value is not known."""

    title: str
    columns: tuple[ActivityColumn, ...]
    rows: tuple[tuple[Any, ...], ...]


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
    tables: tuple[ActivityTable, ...] = ()
    unseen: tuple[str, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()
