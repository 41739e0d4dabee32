"""A workspace: the directory under which the runs of one user or project lie."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bathyscope import files
from bathyscope.errors import BathyscopeError, StoreError, UsageError
from bathyscope.store.errors import store_errors
from bathyscope.store.info import RunInfo, info_bytes, is_run_id
from bathyscope.store.run_directory import RunDirectory

DEFAULT_NAME = "bathy-runs"
ENVIRONMENT_VARIABLE = "BATHY_WORKSPACE"


@dataclasses.dataclass(frozen=True, slots=True)
class RunEntry:
    """One run as `bathy runs list` shows it. A run that cannot be read has status "unreadable" and a problem."""

    id: str
    path: Path
    kind: str
    status: str
    name: str
    target: str
    started_ns: int
    ended_ns: int | None
    steps_finished: int
    step_count: int | None
    problem: str | None


class Workspace:
    """Runs below `path`/runs. The directory is made when the first run is created.

    `path` None: $BATHY_WORKSPACE, else ./bathy-runs.
    """

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = Path(path or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_NAME).expanduser().absolute()

    @property
    def runs_directory(self) -> Path:
        """Directory that holds one directory per run."""
        return self.path / "runs"

    def create_run(
        self,
        *,
        kind: str,
        started_ns: int,
        name: str = "",
        spec_text: str = "",
        target: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        context: Mapping[str, Any] | None = None,
        step_count: int | None = None,
    ) -> RunDirectory:
        """Make a run and return it locked; the workspace is locked with it until the run is closed.

        Two loads in one workspace would disturb each other, so the second gets BusyError. Raises StoreError
        when the directory cannot be made; then nothing is left of it.
        """
        run_id = new_run_id(started_ns)
        info = RunInfo(
            id=run_id,
            kind=kind,
            name=name,
            spec_text=spec_text,
            target=dict(target or {}),
            versions=dict(versions or {}),
            environment=dict(environment or {}),
            context=dict(context or {}),
            started_ns=started_ns,
            step_count=step_count,
        )
        final = self.runs_directory / run_id
        with store_errors("make", self.runs_directory):
            files.own_directory(self.path, make=True)
            files.own_directory(self.runs_directory, make=True)
        if final.exists():
            raise StoreError(f"run {run_id} exists already")
        locks = contextlib.ExitStack()
        try:
            _lock_workspace(locks, self.path)
            with store_errors("make", final):
                files.sweep(self.runs_directory)
                with files.making_directory(final) as partial:
                    (partial / "segments").mkdir()
                    files.write_file(partial / "run.json", info_bytes(info))
                    # The lock is on the inode: it stays with the file through the rename.
                    _lock_run(locks, partial, run_id)
            return RunDirectory(final, locks=locks)
        except BaseException:
            locks.close()
            raise

    def open_run(self, ref: str | Path, *, exclusive: bool = False) -> RunDirectory:
        """Return a run by id, unique prefix of an id, path of its directory, or "last".

        With `exclusive` it is locked for writing (resume, reparse), and leftovers of a killed writer are swept.
        Raises UsageError when no or several runs fit, BusyError, StoreError, FormatVersionError.
        """
        path = self.find(ref)
        if not exclusive:
            return RunDirectory(path)
        # Before anything is made in it.
        _must_be_own(path)
        locks = contextlib.ExitStack()
        try:
            _lock_run(locks, path, path.name)
            if path.parent.name == self.runs_directory.name:  # a run that was moved elsewhere has no workspace
                _must_be_own(path.parent.parent)
                _lock_workspace(locks, path.parent.parent)
            run = RunDirectory(path, locks=locks)
            run.sweep()
        except BaseException:
            locks.close()
            raise
        return run

    def find(self, ref: str | Path) -> Path:
        """Return the directory of a run. Raises UsageError when no or several runs fit."""
        text = str(ref)
        as_path = Path(text).expanduser()
        if (as_path / "run.json").is_file():
            return as_path.resolve()
        names = self._names()
        if text == "last":
            if not names:
                raise UsageError(f"there is no run in {self.path}", hint=_NO_RUN_HINT)
            return self.runs_directory / self._newest(names)
        fitting = [text] if text in names else [name for name in names if text and name.startswith(text)]
        if len(fitting) == 1:
            return self.runs_directory / fitting[0]
        if fitting:
            raise UsageError(
                f"{len(fitting)} runs begin with '{text}'", hint=f"write more of the id: {', '.join(fitting[:5])}"
            )
        raise UsageError(f"there is no run '{text}' in {self.path}", hint=_NO_RUN_HINT)

    def runs(self) -> list[RunEntry]:
        """Return every run, the newest last; one that cannot be read is listed with its problem."""
        return sorted((self._entry(name) for name in self._names()), key=lambda entry: (entry.started_ns, entry.id))

    def remove_run(self, ref: str | Path) -> Path:
        """Delete a run and return where it was. Raises BusyError while it is being written.

        What is deleted is the caller's own and has the name of a run, whatever is in its run.json; else UsageError,
        StoreError.
        """
        path = self.find(ref)
        if path.is_symlink() or not is_run_id(path.name):
            raise UsageError(f"{path} is not the directory of a run", hint="its name would be the run's id")
        _must_be_own(path)
        with contextlib.ExitStack() as locks:
            _lock_run(locks, path, path.name)
            with store_errors("remove", path):
                files.remove_directory(path)
        return path

    def _entry(self, name: str) -> RunEntry:
        path = self.runs_directory / name
        try:
            run = RunDirectory(path)
            info, count = run.info, len(run.step_segments())
        except BathyscopeError as error:
            return RunEntry(name, path, "", "unreadable", "", "", 0, None, 0, None, error.message)
        target = info.target.get("name", "")
        return RunEntry(
            id=info.id,
            path=path,
            kind=info.kind,
            status=run.status,
            name=info.name,
            target=target if isinstance(target, str) else "",
            started_ns=info.started_ns,
            ended_ns=info.ended_ns,
            steps_finished=count,
            step_count=info.step_count,
            problem=None,
        )

    def _names(self) -> list[str]:
        if not self.runs_directory.is_dir():
            return []
        with store_errors("read", self.runs_directory):
            _must_be_own(self.path)
            _must_be_own(self.runs_directory)
            return sorted(e.name for e in self.runs_directory.iterdir() if e.is_dir() and is_run_id(e.name))

    def _newest(self, names: list[str]) -> str:
        readable = [entry for entry in map(self._entry, names) if entry.problem is None]
        return max(readable, key=lambda e: (e.started_ns, e.id)).path.name if readable else names[-1]


def new_run_id(started_ns: int) -> str:
    """Return an identifier that sorts by time and does not repeat: 20260823-141502-3fa9c1 (UTC)."""
    moment = datetime.datetime.fromtimestamp(started_ns / 1e9, tz=datetime.UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _must_be_own(directory: Path) -> None:
    """Raise UntrustedError when another user owns the directory or can write it."""
    with store_errors("open", directory):
        files.own_directory(directory)


def _lock_workspace(locks: contextlib.ExitStack, path: Path) -> None:
    _lock(locks, path / ".lock", f"workspace {path}")


def _lock_run(locks: contextlib.ExitStack, path: Path, run_id: str) -> None:
    _lock(locks, path / "lock", f"run {run_id}")


def _lock(locks: contextlib.ExitStack, path: Path, what: str) -> None:
    with store_errors("lock", path):
        locks.enter_context(files.FileLock(path, what, hint=_BUSY_HINT))


_BUSY_HINT = "wait until it has ended, or use another workspace with --workspace"
_NO_RUN_HINT = "`bathy runs list` shows the runs; --workspace or BATHY_WORKSPACE chooses another workspace"
