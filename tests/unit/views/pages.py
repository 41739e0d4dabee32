"""Reads a page of ours: the data that is packed into it, and what a browser makes of it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: no page is loaded in a browser")


def unpacked(html: str, name: str) -> Any:
    """Return the data `name` of a page: charts-data, finding-data or csv-data."""
    found = re.search(rf'<script type="application/gzip" id="{name}">([A-Za-z0-9+/=]*)</script>', html)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def loaded(path: Path, scratch: Path, *options: str) -> tuple[str, list[str]]:
    """Return the document after loading, and what the page said on its console."""
    command = [CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={scratch}", "--enable-logging=stderr", "--virtual-time-budget=20000", *options]
    command += ["--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
