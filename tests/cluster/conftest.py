"""One small lab for all cluster tests that can share it, and the command line to use on it.

The state directory (labs, journals) is a temporary one with a short path (sockets) on a disk with direct I/O, so that
nothing of the user's is seen or touched. Everything is taken down at the end, also after a failure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.traces import traces

from bathyscope import lab
from bathyscope.analysis.windows import Windows
from bathyscope.host import CephSession
from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost
from bathyscope.lab import state
from bathyscope.lab.spec import LabSpec, parse_device
from bathyscope.records import Step, from_table
from bathyscope.spec import Target
from bathyscope.store import RunDirectory, Workspace

LAB = "shared"


@dataclasses.dataclass
class Cluster:
    """A lab under test and the ways to use it."""

    name: str
    home: Path

    @property
    def target(self) -> Target:
        return state.load(self.name).target()

    @contextlib.contextmanager
    def session(self) -> Iterator[CephSession]:
        session = connect(LocalHost(), self.target)
        try:
            yield session
        finally:
            session.close()

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.home), "NO_COLOR": "1", **more}

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "bathyscope.cli", *words]

    def bathy(
        self, *words: str, timeout_s: float = 120, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `bathy` to its end."""
        return subprocess.run(
            self.argv(*words), env=self.environment(**environment), capture_output=True, text=True,
            timeout=timeout_s, check=False, cwd=cwd,
        )  # fmt: skip

    def start(self, *words: str, stderr: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start `bathy` in the background; what it says goes to a file that can be waited on.

        A signal that these tests ignore themselves (run by nohup or as a background job) would be ignored by it too.
        """
        argv = ["env", "--default-signal=INT,HUP,TERM", *self.argv(*words)]
        with stderr.open("wb") as file:
            return subprocess.Popen(argv, env=self.environment(**environment), stdout=subprocess.DEVNULL, stderr=file)

    def snapshot(self) -> dict[str, Any]:
        """Return everything that a run could have changed: pools, rules, flags, options, images' OSD overrides."""
        with self.session() as session:
            dump = session.json("mon", "osd dump")
            osds = [int(osd["osd"]) for osd in dump["osds"] if osd["up"]]
            return {
                "pools": sorted(str(pool["pool_name"]) for pool in dump["pools"]),
                "rules": sorted(session.json("mon", "osd crush rule ls")),
                "flags": sorted(dump["flags"].split(",")),
                "ratios": [dump[f"{kind}_ratio"] for kind in ("full", "backfillfull", "nearfull")],
                "options": session.json("mon", "config dump"),
                "balancer": session.json("mgr", "balancer status")["active"],
                "osds": {osd: session.json(f"osd.{osd}", "config diff")["diff"] for osd in osds},
            }

    def journals(self) -> list[Path]:
        return sorted((self.home / "bathyscope" / "journal").glob("*"))


def wait_for(condition: Callable[[], Any], timeout_s: float = 60, what: str = "it") -> Any:
    """Return the first true value of `condition`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s} s for {what}")
        time.sleep(0.02)
    return value


def wait_for_counters(workspace: Path) -> None:
    """Wait until a recording has a segment with counters: the first may have nothing but the look before it."""
    pattern = "runs/*/segments/2*/perf_counter.parquet"
    wait_for(lambda: list(workspace.glob(pattern)), timeout_s=200, what="a segment with counters")


def children(pid: int) -> dict[int, str]:
    """Return every living descendant of a process with its command line."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry.name)] = int(fields[1])
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child in [c for c, p in parents.items() if p == parent and c not in found]:
            with contextlib.suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            waiting.append(child)
    return found


def fio_of(pid: int) -> dict[int, str]:
    """Return the load processes of a `bathy`."""
    return {child: words for child, words in children(pid).items() if words.startswith("fio ")}


def newest(workspace: Path) -> RunDirectory:
    return Workspace(workspace).open_run("last")


def rows(run: RunDirectory, table: str) -> list[dict[str, Any]]:
    return list(run.tables()[table].to_pylist())


def steps(run: RunDirectory) -> list[tuple[Step, dict[str, list[dict[str, Any]]]]]:
    """Return every step in order, with the rows of its window: as the ladder sees them."""
    tables = run.tables()
    windows = Windows(tables)
    found = []
    for step in sorted(from_table(Step, tables["step"]), key=lambda step: step.step_index):
        own = windows.of_step(step)
        found.append((step, {name: own[name].to_pylist() if name in own else [] for name in tables}))
    return found


class Tools:
    """The helpers above: test modules are imported by path and cannot import each other."""

    wait_for = staticmethod(wait_for)
    wait_for_counters = staticmethod(wait_for_counters)
    children = staticmethod(children)
    fio_of = staticmethod(fio_of)
    newest = staticmethod(newest)
    rows = staticmethod(rows)
    steps = staticmethod(steps)


@contextlib.contextmanager
def running_lab(name: str, devices: Sequence[str], **fields: Any) -> Iterator[Cluster]:
    """Bring a lab up in a state directory of its own, and take it down whatever happens."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="bathy-", dir="/var/tmp") as home:
        patch.setenv("XDG_STATE_HOME", home)
        lab.up(LabSpec(name=name, devices=tuple(parse_device(device) for device in devices), **fields))
        try:
            yield Cluster(name, Path(home))
        finally:
            # A test may have left the variable changed.
            patch.setenv("XDG_STATE_HOME", home)
            if name in lab.list_labs():
                lab.down(name)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory with a short path (sockets) on a disk with direct I/O; afterwards nothing may be left."""
    with tempfile.TemporaryDirectory(prefix="bathy-", dir="/var/tmp") as directory:
        monkeypatch.setenv("XDG_STATE_HOME", directory)
        try:
            yield Path(directory)
            assert traces(Path(directory)) == []
        finally:
            lab.down_all()


@pytest.fixture(scope="session")
def tools() -> Tools:
    return Tools()


@pytest.fixture(scope="session")
def private_lab() -> Callable[..., contextlib.AbstractContextManager[Cluster]]:
    """For what damages its cluster."""
    return running_lab


@pytest.fixture(scope="session")
def _shared() -> Iterator[Cluster]:
    if os.geteuid() != 0:
        pytest.skip("loop devices and control groups need root")
    with running_lab(LAB, ["ssd=3"]) as cluster:
        yield cluster


@pytest.fixture
def cluster(_shared: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The shared lab; a test that leaves anything on it fails."""
    monkeypatch.setenv("XDG_STATE_HOME", str(_shared.home))
    before = _shared.snapshot()
    yield _shared
    left = _shared.journals()
    if left:
        # One test's remains must not be the next one's failure.
        _shared.bathy("bench", "cleanup")
    after = _shared.snapshot()
    assert left == []
    assert json.dumps(after, sort_keys=True, indent=1) == json.dumps(before, sort_keys=True, indent=1)
