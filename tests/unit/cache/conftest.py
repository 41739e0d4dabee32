from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bathyscope.cache.config import Places
from bathyscope.cli import app


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Return places below a directory of this test, which the verbs use as well."""
    monkeypatch.setenv("BATHY_CACHE_ROOT", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Places(tmp_path)


@pytest.fixture
def bathy(places: Places) -> Callable[..., Result]:
    """Return a function that runs `bathy cache …`; an error of ours is the result's exception."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["cache", *map(str, words)])

    return run
