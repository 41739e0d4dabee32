"""Marks that lead from a figure to its caveats: one letter for each kind of caveat, not one for each sentence.

The same doubt has another figure at each step ("ranged by 22 %", "by 31 %"); a mark for each would bury the
table. A kind that holds for every point is said once and marks none.
"""

from __future__ import annotations

import dataclasses
import string
from collections import Counter

from bathyscope.records.finding import CaveatView, LadderFinding, PointFinding
from bathyscope.views.labels import SEVERITY_ORDER

_Key = tuple[str, str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Footnote:
    """A kind of caveat. `everywhere` says that it holds for the whole run or for every point: no point shows `mark`."""

    mark: str
    caveat: CaveatView
    everywhere: bool


class Footnotes:
    """The footnotes of a ladder, the gravest first, and the marks of its points."""

    def __init__(self, finding: LadderFinding) -> None:
        points = [p for g in finding.groups for p in g.points] + list(finding.witnesses)
        found: dict[_Key, CaveatView] = {}
        for caveat in [*finding.caveats, *(c for p in points for c in p.caveats)]:
            found.setdefault(_key(caveat), caveat)
        count = Counter(key for p in points for key in {_key(c) for c in p.caveats})
        ordered = sorted(found.items(), key=lambda item: _severity(item[1].severity))
        self.notes: list[Footnote] = []
        letters = 0
        for index, (key, caveat) in enumerate(ordered):
            everywhere = not caveat.step_keys or count[key] == len(points) > 1
            self.notes.append(Footnote(f"all{index}" if everywhere else _letter(letters), caveat, everywhere))
            letters += not everywhere
        self._by_key = {key: note for (key, _), note in zip(ordered, self.notes, strict=True)}

    def of(self, point: PointFinding) -> list[tuple[str, str]]:
        """Return (mark, the point's own sentence) for each caveat that sets the point apart, in order of marks."""
        own = {}
        for caveat in point.caveats:
            note = self._by_key[_key(caveat)]
            if not note.everywhere:
                own[note.mark] = caveat.text
        return sorted(own.items(), key=lambda item: (len(item[0]), item[0]))


def _key(caveat: CaveatView) -> _Key:
    return caveat.severity, caveat.code, "" if caveat.step_keys else caveat.text


def _severity(name: str) -> int:
    return SEVERITY_ORDER.index(name) if name in SEVERITY_ORDER else len(SEVERITY_ORDER)


def _letter(index: int) -> str:
    """Return a, b, … z, a1, b1, …"""
    turn, place = divmod(index, len(string.ascii_lowercase))
    return string.ascii_lowercase[place] + (str(turn) if turn else "")
