"""Cells of tables for reading, and which columns are shown where there is no room for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bathyscope.records.blocks import Column, Table, Unit
from bathyscope.records.figure import Figure
from bathyscope.views import figures, labels
from bathyscope.views.figures import NOT_APPLICABLE

# Cells of a terminal that parts of a whole are drawn in.
_BAR_CELLS = 12

_BARS = "▁▂▃▄▅▆▇█"
# Those that a share of 1 takes.
_SHARE_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


def _trend(rates: Sequence[float | None]) -> str:
    """Return rates as bars against the greatest of them; what is not known is a space."""
    most = max((rate for rate in rates if rate is not None), default=0.0) or 1.0
    top = len(_BARS) - 1
    return "".join(" " if rate is None else _BARS[min(top, math.ceil(top * rate / most))] for rate in rates)


def marks(names: Sequence[str]) -> dict[str, str]:
    """Return a letter for each name, its first one that no name before it has."""
    letters: dict[str, str] = {}
    for name in names:
        letters[name] = next((letter for letter in name if letter not in letters.values()), "?")
    return letters


def _bar(parts: Sequence[tuple[str, float]]) -> str:
    """Return parts of a whole as letters, each as often as its share is: qqsssssssrrr."""
    letters = marks([name for name, _ in parts])
    bar, passed = "", 0.0
    for name, share in parts:
        passed += share
        bar += letters[name] * (round(passed * _BAR_CELLS) - len(bar))
    return bar


def _share_bar(share: float) -> str:
    """Return a share as a bar, exact to an eighth of a character."""
    whole, eighths = divmod(round(8 * _SHARE_CELLS * min(max(share, 0.0), 1.0)), 8)
    return ("█" * whole + _EIGHTHS[eighths]).rstrip()


_FORMATS = figures.FORMATS | {"trend": _trend, "parts": _bar, "bar": _share_bar}


def shortened(name: str, length: int) -> str:
    """Return a name that is no longer than `length`."""
    return name if len(name) <= length else name[: length - 1] + "…"


def cell(column: Column, value: Any) -> str:
    """Return a value for reading."""
    return _figure(column, value) if column.figure else value_cell(value, column.unit)


def value_cell(value: Any, unit: Unit) -> str:
    """Return a value of a unit for reading."""
    if value is None or value == "" or (isinstance(value, float) and not math.isfinite(value)):
        return NOT_APPLICABLE
    if isinstance(value, bool):
        return "yes" if value else "no"
    form = _FORMATS.get(unit)
    return labels.clean(str(value)) if form is None else form(value)


def _figure(column: Column, figure: Figure | None) -> str:
    """Return a figure in as few characters as it takes; "n/a" where it was not measured, a dash where it has none."""
    if figure is None:
        return NOT_APPLICABLE
    if column.unit == "change":
        return _change(figure, is_alone=column.figure == "value")
    if column.unit == "fine ratio":
        return fine_ratio(figure)
    # A multiple is a number without a unit for those who compute with it.
    value = figures.compact(figure.value, "times" if column.unit == "times" else figure.unit)
    return value if column.figure == "value" else f"{value} {figures.plus_minus(figure)}".rstrip()


def fine_ratio(figure: Figure) -> str:
    """Return a ratio with half its interval in points of a percent, when it has one: "50.9% ±1.2"."""
    text = figures.value_text(figure.value, "fine ratio")
    if figure.value is None or figure.low is None or figure.high is None or figure.high - figure.low < 0.0005:
        return text
    return f"{text} ±{50 * (figure.high - figure.low):.1f}"


def _change(figure: Figure, *, is_alone: bool) -> str:
    """Return a change, unless `is_alone` with its interval: "+18% [+15% … +21%]"."""
    value, low, high = (
        None if each is None else figures.change_text(1 + each) for each in (figure.value, figure.low, figure.high)
    )
    return (value or figures.NOT_KNOWN) if is_alone or low is None or high is None else f"{value} [{low} … {high}]"


def shown_columns(*parts: Table) -> list[int]:
    """Return the indexes of the columns that people are shown: without those that may be left out and are empty.

    Parts of one table show the same columns.
    """
    return [
        index
        for index, column in enumerate(parts[0].columns)
        if column.only != "programs"
        and (not column.rank or any(row[index] not in (None, "") for part in parts for row in part.rows))
    ]


def left_out_first(table: Table, indexes: Sequence[int], *, live: bool = False) -> list[int]:
    """Return those of `indexes` that may be left out where there is no room: the highest rank first, the last of it."""
    ranks = {index: _rank(table.columns[index], live=live) for index in indexes}
    return sorted((index for index in indexes if ranks[index]), key=lambda index: (-ranks[index], -index))


def _rank(column: Column, *, live: bool) -> int:
    return column.live if live and column.live is not None else column.rank
