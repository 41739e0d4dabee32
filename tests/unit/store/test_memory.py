"""Memory stays bounded: the benchmark of the store at a smoke size. Its full size is ten million rows within 1 GiB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "store" / "ops.py"


@pytest.mark.slow
def test_a_million_ops_are_written_joined_and_queried(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--rows", "1000000", "--directory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # As much as a segment, a row group and the query's share may take; the rows are some 250 MiB in memory.
    assert max(value for name, value in found.items() if name.endswith("_mib")) < 640
