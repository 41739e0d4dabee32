"""The benchmark of the views at a smoke size: every view of many operations and their page, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bathyscope.analysis.activity import VIEWS

ROOT = Path(__file__).parents[3]


def test_every_view_of_many_operations_is_made_in_bounded_memory(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.activity",
        "--check",
        "ops",
        "--ops",
        "50000",
        "--directory",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {f"{name}_s" for name in VIEWS} <= set(found)
    assert 0 < found["page_file_mib"] < 20
    assert max(value for name, value in found.items() if name.endswith("_mib")) < 640
