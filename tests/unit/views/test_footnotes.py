from __future__ import annotations

import dataclasses

from bathyscope.records.blocks import CaveatView
from bathyscope.records.finding import PointFinding
from bathyscope.views.footnotes import Footnotes

from . import samples


def with_caveats(*rows: tuple[int, str, str]) -> tuple[Footnotes, list[PointFinding]]:
    """Return the footnotes and points of a ladder of two groups; a row is (place of the point, code, sentence)."""
    finding = samples.ladder()
    groups = []
    place = 0
    for group in finding.groups[:2]:
        points = []
        for p in group.points:
            own = tuple(CaveatView(code, "warning", text, (p.step_key,)) for at, code, text in rows if at == place)
            points.append(dataclasses.replace(p, caveats=own))
            place += 1
        groups.append(dataclasses.replace(group, points=tuple(points)))
    finding = dataclasses.replace(finding, groups=tuple(groups), cross_checks=(), caveats=(samples.LAB,))
    return Footnotes(finding), [p for g in groups for p in g.points]


def test_one_letter_for_each_kind_and_each_point_keeps_its_own_sentence() -> None:
    notes, points = with_caveats((0, "unsteady", "by 22 %"), (1, "unsteady", "by 31 %"), (1, "few_ios", "too few"))
    assert notes.of(points[0]) == [("a", "by 22 %")]
    assert notes.of(points[1]) == [("a", "by 31 %"), ("b", "too few")]
    assert notes.of(points[2]) == []
    assert [(n.mark, n.caveat.code) for n in notes.notes if not n.everywhere] == [("a", "unsteady"), ("b", "few_ios")]


def test_what_holds_for_every_point_marks_none() -> None:
    notes, points = with_caveats(*((place, "few_repeats", "one repeat") for place in range(6)))
    assert all(notes.of(p) == [] for p in points)
    assert [n.caveat.code for n in notes.notes] == ["few_repeats", "lab_shared_cpu"]
    assert all(n.everywhere for n in notes.notes)
