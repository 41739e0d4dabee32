"""Runs the load processes of a step side by side, and ends them at once when it must."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from bathyscope import interruption
from bathyscope.errors import UnhealthyError
from bathyscope.host import Completed, Host, ProcessRequest, Running
from bathyscope.load import output_paths
from bathyscope.recording.collect import to_raw
from bathyscope.records import RawAnswer

_POLL_S = 0.05


@interruption.held()
def run_load(
    host: Host,
    requests: Sequence[ProcessRequest],
    *,
    started: Callable[[int], None] = lambda _: None,
    tick: Callable[[float], None] = lambda _: None,
    violation: Callable[[], str | None] = lambda: None,
) -> list[Completed]:
    """Start all of `requests`, wait for all, and return their answers in the order of the requests.

    `started(pid)` is called for each process; `tick(seconds)` about twenty times a second. When one process fails the
    others are stopped: a part of a load is another load. Whatever interrupts the waiting (Ctrl-C above all) stops
    every process within two seconds; a signal that is held off comes here. Raises UnhealthyError when `violation` gives
    a sentence.
    """
    running: list[Running] = []
    ends: dict[int, Completed] = {}
    began_ns = host.monotonic_ns()
    try:
        for request in requests:
            running.append(host.start(request))
            if request.elsewhere is None:
                started(running[-1].pid)
        # The process id of one on another machine is known when its login is done, and all log in at once.
        for request, process in zip(requests, running, strict=True):
            if request.elsewhere is not None:
                started(process.pid)
        while len(ends) < len(running):
            waiting = next(i for i in range(len(running)) if i not in ends)
            completed = running[waiting].wait(_POLL_S)
            for index, process in enumerate(running):
                end = completed if index == waiting else process.wait(0)
                if end is not None:
                    ends[index] = end
            interruption.check()
            tick((host.monotonic_ns() - began_ns) / 1e9)
            raise_if_broken(violation())
            if any(end.exit_code != 0 for end in ends.values()) and len(ends) < len(running):
                break
    finally:
        _stop_all(running, ends)
    return [ends[i] for i in range(len(running))]


def answer_of(host: Host, completed: Completed) -> RawAnswer:
    """Return what a load process answered, with every file that it wrote. Files that are not there are left out."""
    request = completed.request
    files = []
    for path in output_paths(request) if isinstance(request, ProcessRequest) else ():
        # A client that obeyed a hostile server may have left a link or a pipe in its own directory.
        if os.path.lexists(path) and not stat.S_ISREG(Path(path).lstat().st_mode):
            continue
        with contextlib.suppress(OSError):
            files.append((PurePosixPath(path).name, host.read(path)))
    return to_raw(completed, files)


def raise_if_broken(violation: str | None) -> None:
    """Raise UnhealthyError when a limit of the plan is broken; `violation` says which."""
    if violation is not None:
        raise UnhealthyError(
            f"the load was stopped: {violation}", hint="when the cluster is healthy again: bathy bench resume last"
        )


def _stop_all(running: Sequence[Running], ends: dict[int, Completed]) -> None:
    """End what still runs, side by side: one that does not listen must not delay the others' signal."""
    left = [index for index in range(len(running)) if index not in ends]
    if left:
        with ThreadPoolExecutor(len(left)) as pool:
            ends.update(zip(left, pool.map(lambda index: running[index].stop(), left), strict=True))
