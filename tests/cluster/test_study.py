"""Studies and caches on real OSDs: a short study, one that is interrupted, data under a cache that comes and goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.traces import traces

from bathyscope import lab
from bathyscope.host.local import LocalHost
from bathyscope.lab import caches, mount, simdisk
from bathyscope.store import Workspace

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not simdisk.possible(), reason="FUSE needs root and /dev/fuse"),
]
# Parts larger than what is read of them in a second, so that nothing of the first phase is read twice.
SHORT = ("images=2", "part_size=64M", "runtime=1s", "ramp=0s", "cache_size=2G")


def study(workspace: Path, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "bathyscope.cli", "study", "vm-fleet", "-w", str(workspace), "--output", "json"]
    for change in SHORT:
        argv += ["--set", change]
    return subprocess.Popen([*argv, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_short_study_measures_every_cell_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    running = study(tmp_path, "--report", str(tmp_path / "study.html"))
    said, complained = running.communicate(timeout=500)
    # A second on a busy machine says nothing of the expectations.
    assert running.returncode in (0, 1), complained
    found = json.loads(said)
    assert found["phases"] == ["no-cache", "first", "repeated"]
    cells = {(row["pattern"], cell["phase"]): cell for row in found["rows"] for cell in row["cells"]}
    assert len(cells) == 12
    assert all(cell["iops"]["value"] > 0 for cell in cells.values())
    for pattern in ("randread-4K-qd8", "read-64K-qd64"):
        hits = [cells[pattern, phase]["read_hit_ratio"] for phase in found["phases"]]
        assert hits[0] is None
        # A miss fetches its neighbours, of which some are asked for in the same phase.
        assert hits[1] < hits[2]
        assert hits[2] > 0.8
        print(pattern, hits)
    # A read from the cache needs no arm: whatever else the machine does, it is faster than one that does.
    assert cells["randread-4K-qd8", "repeated"]["ratio"]["value"] > 2
    steps = Workspace(tmp_path).open_run("last").tables()["study_step"].to_pylist()
    assert all(0 <= step["cpu_steal_ratio"] < 1 for step in steps)
    assert found["is_judged"]
    assert running.returncode == (0 if all(e["met"] for e in found["expectations"]) else 1)
    assert "vm-fleet" in (tmp_path / "study.html").read_text()
    assert lab.list_labs() == []
    assert traces(home) == []


def test_an_interrupted_study_takes_its_caches_down(home: Path, tmp_path: Path) -> None:
    running = study(tmp_path)
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("first: "):
            break
    else:
        pytest.fail("the caches were never put on")
    assert len(caches.cached(lab.load("bathy-study"))) == 3
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode not in (0, 1)
    assert lab.list_labs() == []
    assert traces(home) == []


def test_data_outlives_a_cache_that_comes_and_goes(own_lab: Any, tmp_path: Path) -> None:
    host = LocalHost()
    with own_lab("caches", ["hdd=3"]) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(cluster.home))

        def rados(*words: str) -> None:
            own = ("-c", cluster.target.conf, "--keyring", cluster.target.keyring, "-p", "rbd")
            subprocess.run(["rados", *own, *words], check=True, timeout=60, capture_output=True)

        content = {name: os.urandom(1 << 20) for name in ("bare", "cached")}
        for name, data in content.items():
            (tmp_path / name).write_bytes(data)
        rados("put", "bare", str(tmp_path / "bare"))
        caches.put_on(lab.load("caches"), host, 1 << 30)
        on = lab.load("caches")
        assert sorted(caches.cached(on)) == ["osd.0", "osd.1", "osd.2"]
        assert len(mount.below(on.layout.directory / "data")) == 3
        rados("put", "cached", str(tmp_path / "cached"))
        for name, data in content.items():
            rados("get", name, str(tmp_path / "got"))
            assert (tmp_path / "got").read_bytes() == data
        assert caches.ask(on.layout, "osd.0")["cache"]["engine"]["lines"] > 0
        # One is taken off, the others stay.
        caches.take_off(on, host, ["osd.1"])
        assert sorted(caches.cached(lab.load("caches"))) == ["osd.0", "osd.2"]
        caches.take_off(lab.load("caches"), host)
        assert caches.cached(lab.load("caches")) == {}
        assert mount.below(on.layout.directory / "data") == []
        for name, data in content.items():
            rados("get", name, str(tmp_path / "got"))
            assert (tmp_path / "got").read_bytes() == data
        # A lab goes down with its caches on.
        caches.put_on(lab.load("caches"), host, 1 << 30, osds=["osd.2"])
    assert mount.below(cluster.home) == []
