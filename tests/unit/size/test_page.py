"""The page in a browser: every chart is drawn, nothing is fetched, nothing complains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.views.pages import in_a_browser, loaded

from bathyscope.analysis.sizing import SizeQuestion, build
from bathyscope.records import CurvePoint, to_table
from bathyscope.records.size_finding import SizeFinding
from bathyscope.simulate.trace import TraceFiles
from bathyscope.spec.size import SizeSpec
from bathyscope.views import as_text

from .curves import curve_points
from .traces import loop_and_scan, write_csv


@pytest.fixture
def finding(tmp_path: Path) -> SizeFinding:
    """A loop and a scan with a budget, two policies and windows: every chart but the latency has something to show."""
    path = write_csv(tmp_path / "mixed.csv", loop_and_scan())
    asked: dict[str, Any] = {"line_bytes": (4096, 65_536), "policies": ("s3-fifo", "lru"), "window_s": 1.0}
    rows, report = curve_points(TraceFiles([path], by="image"), **asked)
    question = SizeQuestion(SizeSpec(by="image", budget_bytes=600 << 10, **asked), report)
    return build(to_table(CurvePoint, rows), question)


@in_a_browser
def test_every_chart_is_drawn(finding: SizeFinding, tmp_path: Path) -> None:
    path = tmp_path / "size.html"
    path.write_text(as_text(finding, "html"))
    dom, console = loaded(path, tmp_path / "profile", "--window-size=1400,6000")
    assert console == []
    places = set(re.findall(r'data-chart="([a-z0-9-]+)"', dom))
    assert places == {"curves-0", "curves-1", "policies", "groups", "split", "stability"}
    assert f'data-drawn="{len(places)}"' in dom
    assert 'data-failed="0"' in dom
    assert "NaN" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)


def test_the_page_says_what_the_finding_says(finding: SizeFinding) -> None:
    text = as_text(finding, "html")
    assert f"<h1>{finding.advice.sentence}</h1>" in text
    for caveat in finding.caveats:
        assert caveat.text in text
    assert "loop" in text
    words = " ".join(re.sub(r"<[^>]+>", " ", text.split('<script type="application/gzip"')[0]).split())
    assert "Best split of 600 KiB of flash" in words
    assert "DRAM" in words
    # A budget is no target, and all of it for each group is no answer.
    assert "meets the target" not in words
    assert ">: the budget" in text.replace("&gt;", ">")
    assert "max hits knee at knee loop" in words
    assert len(text) < 1_500_000
