"""Killed with -9 at any moment and resumed: every step exactly once, nothing of ours on the cluster.

Four kills here; benchmarks/kill_loop.py makes thirty and more with the same function.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]


def test_four_kills(cluster: Any, tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "kill_loop.py"
    spec = importlib.util.spec_from_file_location("kill_loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up by name.
    sys.modules["kill_loop"] = module
    spec.loader.exec_module(module)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    story = module.kill_loop(cluster.name, cluster.environment(), tmp_path / "ws", kills=4, seed=seed)
    assert story.kills == 4
    assert story.problems == []
