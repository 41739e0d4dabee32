"""A number that is cut off is a wrong number: a narrow terminal shows fewer columns, never parts of them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bathyscope.views.size import _fitting

COLUMNS = ["cache", "reads", "bytes", "writes", "fetch", "flash/day", "life", "mean", "p99", "cost"]
CELLS = ["1.09 GiB", "75.5%", "84.0%", "77.4%", "0.21", "25.7 GiB", "78 d", "2.09 ms", "28.72 ms", "1,234.56"]


@pytest.mark.parametrize("width", [30, 44, 60, 80, 200])
def test_every_shown_cell_is_whole(width: int) -> None:
    out = Console(file=io.StringIO(), width=width)
    out.print(_fitting(COLUMNS, [("", CELLS)], out))
    shown = out.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in shown
    for always in ("1.09 GiB", "75.5%", "2.09 ms"):
        assert always in shown
    if width == 200:
        assert all(cell in shown for cell in CELLS)
