"""The benchmark of the manager's module at a size that runs in a second, so that it does not rot."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


def test_every_key_is_drained_and_answered_and_nothing_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks" / "mgr_poll"))
    poll = importlib.import_module("poll")
    try:
        found = poll.measure(300, polls=3)
    finally:
        sys.modules.pop("poll", None)
    assert found["rows"] == 300
    assert found["answer_mb"] > 300 * 50 / 1e6
    assert min(found["drain_ms"], found["answer_ms"]) > 0
    assert found["grown_mb"] < 0.1 * found["held_mb"]
