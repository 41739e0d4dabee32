"""The directory for what does not fit in memory goes with the query, whatever ends it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.signals import ended_by_a_signal

from bathyscope import files
from bathyscope.store import duck


def test_a_signal_while_it_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = files.partial_directory

    def interrupted(target: Path) -> Path:
        made = make(target)
        os.kill(os.getpid(), signal.SIGINT)
        return made

    monkeypatch.setattr(files, "partial_directory", interrupted)
    run: Any = SimpleNamespace(status="done", path=tmp_path)
    with ended_by_a_signal(), duck._spilling([run]):
        pytest.fail("the signal was lost")
    assert list(tmp_path.iterdir()) == []
