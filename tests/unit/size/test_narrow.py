"""A number that is cut off is a wrong number: a narrow terminal shows fewer columns, never parts of them."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from bathyscope.analysis.sizing import SizeQuestion, build
from bathyscope.records import CurvePoint, to_table
from bathyscope.simulate.trace import TraceFiles
from bathyscope.spec.size import SizeSpec
from bathyscope.views import render
from bathyscope.views.table.fitting import fitting

from .curves import curve_points
from .traces import loop_and_scan, write_csv

COLUMNS = ["cache", "reads", "bytes", "writes", "fetch", "flash/day", "life", "mean", "p99", "cost"]
LEFT_OUT_FIRST = ("writes", "bytes", "flash/day", "fetch", "p99", "cost", "life")
CELLS = ["1.09 GiB", "75.5%", "84.0%", "77.4%", "0.21", "25.7 GiB", "78 d", "2.09 ms", "28.72 ms", "1,234.56"]


@pytest.mark.parametrize("width", [30, 44, 60, 80, 200])
def test_every_shown_cell_is_whole(width: int) -> None:
    out = Console(file=io.StringIO(), width=width)
    out.print(fitting(COLUMNS, [("", CELLS)], out, LEFT_OUT_FIRST))
    shown = out.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in shown
    for always in ("1.09 GiB", "75.5%", "2.09 ms"):
        assert always in shown
    if width == 200:
        assert all(cell in shown for cell in CELLS)


@pytest.mark.parametrize("width", [30, 44, 60, 80])
def test_no_table_of_a_finding_is_wider_than_the_terminal_and_no_number_is_cut(width: int) -> None:
    name = "an-image-with-a-long-name"
    rows = [(*row[:4], name if row[4] == "loop" else "b") for row in loop_and_scan()]
    sizes = (4096, 16_384, 65_536, 262_144)
    with tempfile.TemporaryDirectory() as directory:
        trace = TraceFiles([write_csv(Path(directory) / "t.csv", rows)], by="image")
        points, report = curve_points(trace, line_bytes=sizes, budget_bytes=600 << 10)
    for target in ({"budget_bytes": 600 << 10}, {"target_hit": 0.3}):
        question = SizeQuestion(SizeSpec(by="image", line_bytes=sizes, **target), report)
        out = io.StringIO()
        render(build(to_table(CurvePoint, points), question), "table", out, width=width)
        lines = [line.rstrip() for line in out.getvalue().splitlines()]
        assert max(cell_len(line) for line in lines) <= width
        assert not [word for line in lines for word in line.split() if "…" in word]
        heads = [line.split()[1:] for line in lines if line.startswith("cache ")]
        assert [word for head in heads for word in head if word in {"4K", "16K", "64K", "256K"}] == [
            "4K", "16K", "64K", "256K",
        ]  # fmt: skip
