"""Windows in the views: what the sentence does not count is not drawn as if it did."""

from __future__ import annotations

import dataclasses
import json

from bathyscope.analysis.sizing import SizeQuestion, build
from bathyscope.records import CurvePoint, to_table
from bathyscope.records.size import TraceSummary
from bathyscope.records.size_finding import SizeFinding, StabilityWindow
from bathyscope.spec.size import SizeSpec
from bathyscope.views import as_text
from bathyscope.views.charts import size as charts


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


def test_the_chart_pales_the_same_windows() -> None:
    rows = charts.stability(finding((5000, 0.2, False), (5000, 1.0, True), (99, 0.5, False), (0, None, False))).rows
    assert [(row["window"], row["judged"]) for row in rows] == [(1, False), (2, True), (3, False)]
    assert rows[2]["label"] == "50.0% of 99 reads, not counted"


def test_without_reads_no_ratio_is_said() -> None:
    windows = json.loads(as_text(finding((0, None, False), (5000, 0.0, True)), "json"))["stability"]
    assert [(w["read_requests"], w["read_hit_ratio"]) for w in windows] == [(0, None), (5000, 0.0)]
