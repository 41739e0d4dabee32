"""The benchmark of the reader at a smoke size: it counts what `grep | awk` counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "osd_log" / "osd_log.py"


def test_the_reader_counts_what_grep_and_awk_count(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--megabytes", "4", "--directory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["operations"] > 100
    assert found["reader_mb_per_s"] > 0
