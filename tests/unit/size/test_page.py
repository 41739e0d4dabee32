"""The page in a browser: every chart is drawn, nothing is fetched, nothing complains."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bathyscope.analysis.sizing import SizeQuestion, build
from bathyscope.errors import StoreError
from bathyscope.records import CurvePoint, to_table
from bathyscope.records.size_finding import SizeFinding
from bathyscope.sources.block_trace import TraceFiles
from bathyscope.sources.curve_points import curve_points
from bathyscope.sources.curve_request import CurveRequest
from bathyscope.views import size_report

from .traces import loop_and_scan, write_csv

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def finding(tmp_path: Path) -> SizeFinding:
    """A loop and a scan with a budget, two policies and windows: every chart but the latency has something to show."""
    path = write_csv(tmp_path / "mixed.csv", loop_and_scan())
    request = CurveRequest(line_bytes=(4096, 65_536), policies=("s3-fifo", "lru"), window_s=1.0)
    rows, report = curve_points(TraceFiles([path], by="image"), request)
    question = SizeQuestion(
        ("mixed.csv",), report.events, report.skipped, report.duration_s, "image", budget_bytes=600 << 10
    )
    return build(to_table(CurvePoint, rows), question)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the page is not loaded in a browser")
def test_every_chart_is_drawn(finding: SizeFinding, tmp_path: Path) -> None:
    path = size_report.write(finding, tmp_path / "size.html")
    command = [CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    command += ["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", "--window-size=1400,6000"]
    done = subprocess.run(
        [*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=150, check=True
    )
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    places = set(re.findall(r'data-chart="([a-z0-9-]+)"', done.stdout))
    assert places == {"curves-0", "curves-1", "policies", "groups", "split", "stability"}
    assert f'data-drawn="{len(places)}"' in done.stdout
    assert 'data-failed="0"' in done.stdout
    assert "NaN" not in re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)


def test_a_page_that_cannot_be_written_leaves_nothing(finding: SizeFinding, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        size_report.write(finding, tmp_path / "file" / "size.html")


def test_the_page_says_what_the_finding_says(finding: SizeFinding) -> None:
    text = size_report.page(finding)
    assert f"<h1>{finding.advice.sentence}</h1>" in text
    for caveat in finding.caveats:
        assert caveat.text in text
    assert "loop" in text
    words = " ".join(re.sub(r"<[^>]+>", " ", text.split('<script type="application/json"')[0]).split())
    assert "The best split of 600 KiB of flash" in words
    assert "And memory" in words
    # A budget is no target, and all of it for each group is no answer.
    assert "meets the target" not in words
    assert "Knee Budget How" in words
    assert "Most that hits Knee loop" in words
    assert len(text) < 1_500_000
