"""Windows in the views: what the sentence does not count is not drawn as if it did."""

from __future__ import annotations

import dataclasses
import json

from bathyscope.analysis.sizing import SizeQuestion, build
from bathyscope.records import CurvePoint, to_table
from bathyscope.records.blocks import Lines
from bathyscope.records.size import TraceSummary
from bathyscope.records.size_finding import SizeFinding, StabilityWindow
from bathyscope.spec.size import SizeSpec
from bathyscope.views import as_text
from bathyscope.views.findings import sections_of


def finding(*windows: tuple[int, float | None, bool]) -> SizeFinding:
    empty = build(
        to_table(CurvePoint, []), SizeQuestion(SizeSpec(), TraceSummary(("t",), 0, time_ns_range=(0, 10**10)))
    )
    found = tuple(StabilityWindow(str(i), 4096, *window) for i, window in enumerate(windows))
    return dataclasses.replace(empty, stability=found)


def shown(of: SizeFinding) -> str:
    return as_text(of, "table")


def test_windows_that_are_not_counted_have_a_mark_in_place_of_a_bar() -> None:
    text = shown(finding((5000, 0.0, False), (5000, 1.0, True), (99, 0.5, False), (0, None, False), (100, 0.0, True)))
    assert "0 to 100%: ·█··▁\n" in text
    assert "·: not counted" in text


def test_the_mark_is_explained_only_where_it_stands() -> None:
    assert "not counted" not in shown(finding((5000, 0.2, True), (5000, 1.0, True)))


def test_the_chart_tells_the_same_windows_apart() -> None:
    of = finding((5000, 0.2, False), (5000, 1.0, True), (99, 0.5, False), (0, None, False))
    (drawn,) = (block for section in sections_of(of) for block in section.blocks if isinstance(block, Lines))
    points = {line.name: [(point.x, point.y) for point in line.points] for line in drawn.lines}
    assert points == {"counted": [(2, 1.0)], "not counted": [(1, 0.2), (3, 0.5)]}


def test_without_reads_no_ratio_is_said() -> None:
    windows = json.loads(as_text(finding((0, None, False), (5000, 0.0, True)), "json"))["stability"]
    assert [(w["read_requests"], w["read_hit_ratio"]) for w in windows] == [(0, None), (5000, 0.0)]
