"""Compares text with a file in tests/golden; BATHY_REFRESH_GOLDEN=1 writes the files anew, the diff is for review."""

from __future__ import annotations

import os
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parents[2] / "golden"


def check(name: str, text: str) -> None:
    file = DIRECTORY / name
    if os.environ.get("BATHY_REFRESH_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert file.exists(), f"{file} is missing; BATHY_REFRESH_GOLDEN=1 writes it"
    assert text == file.read_text(encoding="utf-8"), f"{name} differs; BATHY_REFRESH_GOLDEN=1 refreshes it"
