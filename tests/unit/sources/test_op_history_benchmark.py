"""The benchmark of op histories at a size that runs in a second, so that it does not rot."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


def test_every_reader_reads_every_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks" / "op_history"))
    rate = importlib.import_module("rate")
    try:
        found = rate.measure("20.2.4", ops=2000, runs=1)
    finally:
        sys.modules.pop("rate", None)
    assert list(found) == ["as the OSD answers", "as it is kept"]
    whole, short = found.values()
    assert 500 < whole.pop("rows") == short.pop("rows")
    assert whole.pop("mb") > 1.2 * short.pop("mb")
    assert min(*whole.values(), *short.values()) > 0
