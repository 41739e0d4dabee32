"""Blocks: what a finding is made of, the same for every output.

What becomes blocks of a finding is one file, `views/findings/<NAME of its class>.py`; each output renders blocks.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container
from typing import Any, Literal

Unit = Literal[
    "",
    "count",
    "1/s",
    "1/day",
    "bytes",
    "bytes/s",
    "ns",
    "s",
    "ratio",
    "fine ratio",
    "times",
    "change",
    "time",
    "trend",
    "parts",
    "bar",
    "amount",
    "code",
]
Tone = Literal["", "strong", "dim", "good", "warning", "bad"]
SEVERITIES = ("refused", "warning", "note")
_UNITS: tuple[tuple[str, tuple[Unit, ...]], ...] = (
    ("_bytes_per_day", ("bytes",)),
    ("_per_day", ("1/day",)),
    ("_bytes_per_s", ("bytes/s",)),
    ("_bytes", ("bytes",)),
    ("_per_s", ("1/s", "trend")),
    ("_iops", ("1/s",)),
    ("_ns", ("ns", "time")),
    ("_s", ("s",)),
    ("_ratio_per_gib", ("fine ratio",)),
    ("_ratio", ("ratio", "fine ratio", "times", "change")),
)
_NAMED_UNITS = frozenset(unit for _, units in _UNITS for unit in units)
_STATISTIC = re.compile("_(mean|max|min|p[0-9]+)$")
Only = Literal["", "people", "page", "programs"]
"""Whom a thing is for: people read it on a screen, or where there is room on a page; programs as CSV; empty is all."""


def units_of(key: str) -> tuple[Unit, ...]:
    """Return the units that the end of a key names, the usual one first; empty where it names none."""
    end = "_" + _STATISTIC.sub("", key)
    return next((units for suffix, units in _UNITS if end.endswith(suffix)), ())


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `unit` says how its values are read; "time" is ns since the Unix epoch, "" is text.

    Programs know it by `key` (snake case, its unit last), people by `heading`: a heading may change, a key may not.

    "fine ratio" is shown to a tenth of a percent, "times" is a multiple of something, "change" how much larger
    something is as a share of it, "trend" rates a second of equal times, the latest last, "parts" are the parts of
    a whole in order, each (name, share), "bar" is a share that is drawn, "amount" is text that is a number with its
    unit, "code" is a command. `prose` is text that has a line of its own where
    there is no room beside others. Where `figure` is not empty, values are Figures in units of their own; it says
    whether people see the value alone, its interval as well, or that where there is room.

    `rank`: 0 is always shown; where a terminal is narrow, columns of the highest rank are left out first. `live` is the
    rank on a live screen, where it is another one: there rates come first, here counts. `width`: how many characters it
    takes in a terminal, so that tables below each other have it in one place; 0 is as many as its cells do.
    """

    key: str
    heading: str
    unit: Unit = ""
    help: str = ""
    rank: int = 0
    prose: bool = False
    live: int | None = None
    figure: Literal["", "value", "interval", "roomy"] = ""
    only: Only = ""
    width: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError where the end of the key names another unit than the column's, or none."""
        units = units_of(self.key)
        if self.unit not in units and (units or (self.unit in _NAMED_UNITS and not self.figure)):
            raise ValueError(f"the key {self.key} does not end in the unit of its column, {self.unit or 'none'}")


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Rows of as many values as there are columns, None where a value is not known; `key` names it for programs.

    Tables of one key are parts of one table: they have the same columns. `tones` are those of the rows, if any has one.
    People are shown `shown_max` rows at most, the first ones; None: all.
    """

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    tones: tuple[Tone, ...] = ()
    only: Only = ""
    shown_max: int | None = 40

    def __post_init__(self) -> None:
        """Raise ValueError where two columns have one key, or rows, columns and tones do not fit each other."""
        if len({column.key for column in self.columns}) < len(self.columns):
            raise ValueError(f"two columns of the table {self.key} have the same key")
        if any(len(row) != len(self.columns) for row in self.rows) or len(self.tones) not in (0, len(self.rows)):
            raise ValueError(f"a row of the table {self.key} lacks a value or a tone")


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A sentence, after what leads to it: "Next: ". "strong" is the answer; a finding has one.

    `whole`: it may be a command, which is never broken over lines: what is copied is what is run.
    """

    words: str
    tone: Tone = ""
    lead: str = ""
    whole: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the subject: (name, value)."""

    pairs: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Legend:
    """What stands in the table `table`: `words` in any case, then (heading or cell, its meaning) of what is shown."""

    table: str
    words: str
    signs: tuple[tuple[str, str], ...]

    def of(self, shown: Container[str]) -> str:
        """Return the words, and of the signs those that are shown."""
        return " ".join([self.words, *(f"{sign}: {meaning}." for sign, meaning in self.signs if sign in shown)])


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
class Bars:
    """A picture of a table: for each of its first rows a bar of the columns `parts`, beside it the column `beside`."""

    name: str
    title: str
    table: Table
    parts: tuple[str, ...]
    beside: str


@dataclasses.dataclass(frozen=True, slots=True)
class LinePoint:
    """A point of a line with its 95 % interval; where it is of note, `mark` says what it is."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    mark: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line of a picture."""

    name: str
    points: tuple[LinePoint, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Lines:
    """A picture of lines with their bands; bytes along x are on a logarithmic axis."""

    name: str
    title: str
    x_title: str
    x_unit: Unit
    y_title: str
    y_unit: Unit
    lines: tuple[Line, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Ratios:
    """A picture of a table: its column `ratio` as points with their intervals, on a logarithmic axis.

    Rows that have the same in the column `group` stand together; those of a `series` have its colour, and those of the
    series `base`, over which the ratios are, have 1. What stands beside a point is the figure of the column `label`.
    """

    name: str
    title: str
    table: Table
    group: str
    series: str
    base: str
    label: str


@dataclasses.dataclass(frozen=True, slots=True)
class CaveatView:
    """A caveat as shown beside a number; equal caveats of several steps are one row with a count."""

    code: str
    severity: str
    text: str
    step_keys: tuple[str, ...] = ()


def severity_order(graded: Any) -> int:
    """Return the place of what has a severity, as a sort key: the most severe first, a severity not known last."""
    return SEVERITIES.index(graded.severity) if graded.severity in SEVERITIES else len(SEVERITIES)


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """Blocks below one heading; that of the first section may be empty. `key` is where a link of a page leads.

    `step_key` is that of the load whose verdict stands in it, where a run has several loads.

    Blocks are Text, Facts, Table, Legend, CaveatView, `finding.Verdict`, a Footnote of views, and pictures: HeatMap,
    Bars, Ratios, Lines, and those of `ladder_blocks`.
    """

    key: str
    title: str
    blocks: tuple[Any, ...]
    step_key: str = ""
