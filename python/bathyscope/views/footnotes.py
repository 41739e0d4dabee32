"""Marks that lead from a figure to its caveats: one letter for each kind of caveat, not one for each sentence.

The same warning has another figure at each step ("ranged by 22 %", "by 31 %"); a mark for each would bury the
table. A kind that holds for every point stands once and marks none.
"""

from __future__ import annotations

import dataclasses
import itertools
import string
from collections import Counter

from bathyscope.records.blocks import CaveatView, severity_order
from bathyscope.records.finding import LadderFinding, PointFinding


@dataclasses.dataclass(frozen=True, slots=True)
class Footnote:
    """A kind of caveat. `everywhere` says that it holds for the whole run or for every point: no point shows `mark`."""

    mark: str
    caveat: CaveatView
    everywhere: bool


class Footnotes:
    """The footnotes of a ladder, the most severe first, and the marks of its points."""

    def __init__(self, finding: LadderFinding) -> None:
        points = finding.points
        kinds: dict[tuple[str, str, str], CaveatView] = {}
        for caveat in [*finding.caveats, *(c for p in points for c in p.caveats)]:
            kinds.setdefault(_key(caveat), caveat)
        count = Counter(key for p in points for key in {_key(c) for c in p.caveats})
        ordered = sorted(kinds.items(), key=lambda item: severity_order(item[1]))
        self._by_key: dict[tuple[str, str, str], Footnote] = {}
        letters = map(_letter, itertools.count())
        for index, (key, caveat) in enumerate(ordered):
            everywhere = not caveat.step_keys or count[key] == len(points) > 1
            self._by_key[key] = Footnote(f"all{index}" if everywhere else next(letters), caveat, everywhere)
        self.notes = list(self._by_key.values())

    def of(self, point: PointFinding) -> list[tuple[str, str]]:
        """Return (mark, the point's own sentence) for each caveat that sets the point apart, in order of marks."""
        notes = [(self._by_key[_key(caveat)], caveat.text) for caveat in point.caveats]
        apart = {note.mark: text for note, text in notes if not note.everywhere}
        return sorted(apart.items(), key=lambda item: (len(item[0]), item[0]))


def _key(caveat: CaveatView) -> tuple[str, str, str]:
    return caveat.severity, caveat.code, "" if caveat.step_keys else caveat.text


def _letter(index: int) -> str:
    """Return a, b, … z, a1, b1, …"""
    turn, letter = divmod(index, len(string.ascii_lowercase))
    return string.ascii_lowercase[letter] + (str(turn) if turn else "")
