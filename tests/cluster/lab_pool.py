"""Labs that the tests of all workers borrow by their shape and hand back clean.

To bring a lab up takes more processor time than most tests do with it. So labs outlive the tests: a worker takes an
idle one of the wanted shape, or brings one up. What a borrower has left on it is tidied as an operator would, and the
lab must then be what it was when it came up; one that is not is named with its borrower and taken down.

The pool is a directory. A lab is borrowed by whoever holds the lock of its file, so that the kernel gives back what a
killed worker held. Each lab has a state directory of its own, so journals belong to one lab.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from tests.cluster.cluster import Cluster

from bathyscope import lab
from bathyscope.errors import BathyscopeError
from bathyscope.lab.spec import LabSpec

NAME = "pooled"
_VARIABLE = "BATHY_TEST_LABS"
# Labs that stay up while nobody has them: memory and idle daemons are the price.
IDLE_MAX = 4


def announce() -> None:
    """Choose the pool's directory for this process and the workers that it starts; nothing is made yet."""
    os.environ.setdefault(_VARIABLE, f"/var/tmp/bathy-{os.getpid()}")


def directory() -> Path:
    """Return the pool's directory, which exists afterwards."""
    path = Path(os.environ[_VARIABLE])
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def close() -> None:
    """Take down what the pool has, if it was ever used."""
    path = Path(os.environ[_VARIABLE])
    if path.is_dir():
        LabPool(path).close()


class LabPool:
    """The labs below `directory`, which all workers of a run share. Raises LabError when a lab cannot be brought up."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextlib.contextmanager
    def borrow(self, spec: LabSpec, borrower: str, *, tidies: bool) -> Iterator[Cluster]:
        """Lend a lab of this shape, clean. `borrower` is the test or module that answers for it.

        `tidies`: the pool removes what was made on it. Otherwise raises AssertionError for what was left.
        """
        shape = spec.model_copy(update={"name": NAME})
        with self._taken(shape) as place:
            entry = self._entry(place)
            cluster = Cluster(NAME, place)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("XDG_STATE_HOME", str(place))
                # Whoever finds this entry after a kill finds a lab that is not clean.
                self._write(place, shape, None, borrower)
                if entry is None:
                    lab.up(shape)
                    before = cluster.whole()
                else:
                    before = entry["before"]
                try:
                    yield cluster
                finally:
                    patch.setenv("XDG_STATE_HOME", str(place))
                    left = _left(cluster, before, tidies=tidies)
                    if left:
                        self._take_down(place)
                        print(f"{borrower} left its lab changed, so the lab is replaced: {left}")
                    else:
                        self._write(place, shape, before, borrower)
                assert tidies or not left, left

    def close(self) -> None:
        """Take all labs down."""
        for place in self._places():
            self._take_down(place)
        shutil.rmtree(self._directory, ignore_errors=True)

    # --- entries

    @contextlib.contextmanager
    def _taken(self, shape: LabSpec) -> Iterator[Path]:
        """Hold a place of the pool: one with an idle lab of this shape, or an empty one."""
        with contextlib.ExitStack() as stack, contextlib.ExitStack() as others:
            with _locked(self._directory / "pool.lock"):
                place, evicted = self._choose(shape, stack, others)
            for other in evicted:
                self._take_down(other)
            others.close()
            yield place

    def _choose(
        self, shape: LabSpec, stack: contextlib.ExitStack, others: contextlib.ExitStack
    ) -> tuple[Path, list[Path]]:
        """Return a place that `stack` holds, and places that `others` holds, whose labs are to go."""
        wanted = shape.model_dump(mode="json")
        idle: list[Path] = []
        lost: list[Path] = []
        for place in self._places():
            with contextlib.ExitStack() as taken:
                if not _try_lock(taken.enter_context(_open(place.with_suffix(".lock")))):
                    continue
                entry = self._entry(place)
                is_clean = entry is not None and entry["before"] is not None
                if is_clean and entry is not None and entry["shape"] == wanted:
                    stack.push(taken.pop_all())
                    return place, []
                (idle if is_clean else lost).append(place)
                others.push(taken.pop_all())
        numbers = [int(place.name) for place in self._places()]
        place = self._directory / str(max(numbers, default=0) + 1)
        assert _try_lock(stack.enter_context(_open(place.with_suffix(".lock"))))
        place.mkdir()
        # What a worker that died had borrowed is nobody's; too many idle labs take the others' memory.
        return place, [*lost, *idle[: max(0, len(idle) - IDLE_MAX + 1)]]

    def _places(self) -> list[Path]:
        return sorted(path for path in self._directory.iterdir() if path.name.isdecimal())

    def _entry(self, place: Path) -> dict[str, Any] | None:
        path = place.with_suffix(".json")
        return dict(json.loads(path.read_text())) if path.exists() else None

    def _write(self, place: Path, shape: LabSpec, before: dict[str, Any] | None, borrower: str) -> None:
        entry = {"shape": shape.model_dump(mode="json"), "before": before, "borrower": borrower}
        place.with_suffix(".json").write_text(json.dumps(entry))

    def _take_down(self, place: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(place))
            lab.down_all()
        place.with_suffix(".json").unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)


def _left(cluster: Cluster, before: dict[str, Any], *, tidies: bool) -> str:
    """Return what is other than it was, after `tidies` has tidied: empty for a clean lab."""
    try:
        if NAME not in lab.list_labs():
            return "it was taken down"
        ended = [daemon.name for daemon in lab.load(NAME).daemons() if not daemon.alive]
        if ended:
            return f"{', '.join(ended)} ended"
        if cluster.journals():
            return f"journals {cluster.journals()}"
        after = cluster.whole()
        if tidies and after != before:
            cluster.tidy(before, after)
            after = cluster.whole()
        # A directory of images stays in a pool that ever had one. Images of others would be in the next borrower's way.
        compared = before if tidies else set(before) - {"objects"}
        return "; ".join(f"{key}: {before[key]} became {after[key]}" for key in compared if before[key] != after[key])
    except (BathyscopeError, OSError) as error:
        return str(error)


def _open(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with _open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
