"""Studies and caches on real OSDs: killed in each phase and resumed, on a lab of its own, data under a cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import cached_osds
from tests.cluster.traces import traces

from bathyscope import lab
from bathyscope.host.local import LocalHost
from bathyscope.lab import caches, mount, simdisk
from bathyscope.lab.spec import LabSpec, parse_device
from bathyscope.store import Workspace

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not simdisk.possible(), reason="FUSE needs root and /dev/fuse"),
]
# Parts larger than what is read of them in a second, so that nothing of the first phase is read twice.
SHORT = (
    "images=2",
    "part_size=64M",
    "runtime=1s",
    "ramp=0s",
    "cache_size=2G",
    "patterns=randread-4K-qd8,write-64K-qd64",
)
READ, WRITE = "randread-4K-qd8", "write-64K-qd64"


def bathy(*words: str, **environment: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "bathyscope.cli", *words]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def study(*words: str) -> tuple[str, ...]:
    return ("study", "vm-fleet", *(word for change in SHORT for word in ("--set", change)), *words)


def kill_at(line: str, running: subprocess.Popen[str]) -> None:
    """Kill a `bathy` when it has said a line that begins so."""
    assert running.stderr is not None
    said = []
    for text in running.stderr:
        said.append(text)
        if text.strip().startswith(line):
            running.kill()
            running.communicate(timeout=60)
            return
    pytest.fail(f"it never said {line}: {said}")


def test_a_study_that_is_killed_in_each_phase_is_resumed_and_leaves_the_lab_as_it_was(
    pool: Any, tmp_path: Path
) -> None:
    shape = LabSpec(devices=(parse_device("hdd=3"),))
    with pool.borrow(shape, "a study on a lab", tidies=False) as cluster:
        state, workspace = {"XDG_STATE_HOME": str(cluster.home)}, ("-w", str(tmp_path))
        # While all OSDs are down; while caches are put on; while they are warmed.
        kill_at("no-cache: all start again", bathy(*study("--lab", cluster.name), *workspace, **state))
        kill_at("first: each gets a cache", bathy("bench", "resume", "last", *workspace, **state))
        kill_at("repeated: all that the phase reads", bathy("bench", "resume", "last", *workspace, **state))
        kept = len(Workspace(tmp_path).open_run("last").step_segments())
        assert kept == 4
        running = bathy("bench", "resume", "last", *workspace, "--output", "json", **state)
        said, complained = running.communicate(timeout=300)
        # A second on a busy machine says nothing of the expectations.
        assert running.returncode in (0, 1), complained
        assert "undoing" in complained
    found = json.loads(said)
    assert found["phases"] == ["no-cache", "first", "repeated"]
    cells = {(row["pattern"], cell["phase"]): cell for row in found["rows"] for cell in row["cells"]}
    assert len(cells) == 6
    hits = [cells[READ, phase]["read_hit_ratio"] for phase in found["phases"]]
    assert hits[0] is None
    # A miss fetches its neighbours, of which some are asked for in the same phase.
    assert hits[1] < hits[2]
    assert hits[2] > 0.8
    run = Workspace(tmp_path).open_run("last")
    steps = run.tables()["step"].to_pylist()
    keys = [f"rbd/hdd/{pattern}-j2-{phase}" for phase in found["phases"] for pattern in (READ, WRITE)]
    assert [step["step_key"] for step in steps] == keys
    # Each phase has what its steps stand on, and the caches are seen where they are.
    assert {sample["osd"] for sample in run.tables()["cache_sample"].to_pylist()} == {0, 1, 2}
    done = [cell for cell in cells.values() if cell["iops"]["value"]]
    assert done
    # A read from the cache needs no arm: whatever else the machine does, it is faster than one that does.
    ratio = cells[READ, "repeated"]["ratio"]["value"]
    assert ratio is None or ratio > 2
    assert found["is_judged"]
    assert running.returncode == (0 if all(e["met"] for e in found["expectations"]) else 1)
    for verb in (("explain", "last"), ("compare", "last", "last"), ("analyze", "last", "--view", "caches")):
        ended = bathy(*verb, *workspace)
        said, complained = ended.communicate(timeout=60)
        assert ended.returncode == 0, complained
        assert said
    assert "vm-fleet" in (run.path / "report.html").read_text()


def test_a_lab_of_its_own_is_left_by_a_kill_alone(home: Path, tmp_path: Path) -> None:
    words = (*study("--set", f"patterns={READ}", "--set", "phases=first"), "-w", str(tmp_path))
    kill_at("[1/1", bathy(*words))
    assert lab.list_labs() == ["bathy-study"]
    assert len(lab.load("bathy-study").cached()) == 3
    ended = bathy("bench", "resume", "last", "-w", str(tmp_path))
    _, complained = ended.communicate(timeout=300)
    assert "taking the cluster down" in complained
    assert Workspace(tmp_path).open_run("last").info.status == "done"
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
        assert sorted(on.cached()) == ["osd.0", "osd.1", "osd.2"]
        assert len(mount.below(on.layout.directory / "data")) == 3
        rados("put", "cached", str(tmp_path / "cached"))
        for name, data in content.items():
            rados("get", name, str(tmp_path / "got"))
            assert (tmp_path / "got").read_bytes() == data
        assert cached_osds.ask(on, "osd.0")["cache"]["engine"]["lines"] > 0
        # One is taken off, the others stay.
        caches.take_off(on, host, ["osd.1"])
        assert sorted(lab.load("caches").cached()) == ["osd.0", "osd.2"]
        caches.take_off(lab.load("caches"), host)
        assert lab.load("caches").cached() == {}
        assert mount.below(on.layout.directory / "data") == []
        for name, data in content.items():
            rados("get", name, str(tmp_path / "got"))
            assert (tmp_path / "got").read_bytes() == data
        # A lab goes down with its caches on.
        caches.put_on(lab.load("caches"), host, 1 << 30, osds=["osd.2"])
    assert mount.below(cluster.home) == []
