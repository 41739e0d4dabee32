"""Labs for cluster tests, borrowed or their own, and the command line to use on them.

State directories (labs, journals) are temporary ones with short paths (sockets) on a disk with direct I/O, so that
nothing of the user's is seen or touched. Everything is taken down at the end, also after a failure.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import lab_pool
from tests.cluster.cluster import Cluster
from tests.cluster.lab_pool import LabPool
from tests.cluster.traces import traces

from bathyscope import lab
from bathyscope.lab.profile import BUILT_IN
from bathyscope.lab.spec import LabSpec, parse_device
from bathyscope.records import Step, from_table
from bathyscope.store import RunDirectory, Workspace
from bathyscope.window.tables import of_steps


def wait_for(condition: Callable[[], Any], timeout_s: float = 150, what: str = "it") -> Any:
    """Return the first true value of `condition`, which is asked more rarely the longer it takes."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.02
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s} s for {what}")
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.5)
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
    windows = of_steps(tables)
    found = []
    for step in sorted(from_table(Step, tables["step"]), key=lambda step: step.step_index):
        own = windows[step.step_index]
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
def own_lab() -> Callable[..., contextlib.AbstractContextManager[Cluster]]:
    """For what must have a name of its own, or is about bringing up and taking down."""
    return running_lab


@pytest.fixture(scope="session")
def pool() -> LabPool:
    if os.geteuid() != 0:
        pytest.skip("loop devices and control groups need root")
    return LabPool(lab_pool.directory())


# Writes to flash wait for the device, as those of a step would otherwise take all of both processors from other tests.
_PACED = BUILT_IN | {"ssd": BUILT_IN["ssd"].model_copy(update={"read_iops": 500.0, "write_iops": 500.0})}


def _shape(*devices: str, **fields: Any) -> LabSpec:
    return LabSpec(devices=tuple(parse_device(device) for device in devices), **{"profiles": _PACED} | fields)


def _current_test() -> str:
    return os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]


@pytest.fixture(scope="session")
def borrowed_lab(pool: LabPool) -> Callable[..., contextlib.AbstractContextManager[Cluster]]:
    """For what changes its cluster: what is left on it is tidied, or the lab is replaced."""
    return lambda *devices, **fields: pool.borrow(_shape(*devices, **fields), _current_test(), tidies=True)


@pytest.fixture
def cluster(pool: LabPool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A lab of three OSDs on flash, unlimited for a test marked `fast`; a test that leaves anything on it fails."""
    profiles = BUILT_IN if request.node.get_closest_marker("fast") else _PACED
    with pool.borrow(_shape("ssd=3", profiles=profiles), _current_test(), tidies=False) as lent:
        monkeypatch.setenv("XDG_STATE_HOME", str(lent.home))
        yield lent
