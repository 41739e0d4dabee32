"""What the daemons of caches say now, and what is known of a cache whose daemon says nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.cache import directory
from bathyscope.cache.daemon import Daemon
from bathyscope.cache.snapshots import Snapshot
from bathyscope.errors import BathyscopeError, CacheDownError


def snapshots_of(
    daemons: Sequence[Daemon], *, may_be_down: bool, may_all_be_down: bool = False
) -> tuple[list[Snapshot], list[str]]:
    """Ask all daemons; return what they said, and a remark for each that is not there. Raises the first problem."""
    snapshots: list[Snapshot] = []
    problems: list[BathyscopeError] = []
    for daemon in daemons:
        try:
            snapshots.append(_snapshot(daemon))
        except CacheDownError as error:
            problems.append(directory.problem_of(daemon) or error)
        except BathyscopeError as error:
            problems.append(error)
    if (problems and not may_be_down) or (not snapshots and not may_all_be_down):
        raise problems[0]
    return snapshots, [sentence(problem) for problem in problems]


def _snapshot(daemon: Daemon) -> Snapshot:
    return Snapshot(daemon.name, daemon.host.now_ns(), daemon.status())


def snapshots_of_all(daemons: Sequence[Daemon]) -> list[Snapshot]:
    """Ask all daemons; return what they said, or what is known of a cache whose daemon says nothing."""
    snapshots: list[Snapshot] = []
    for daemon in daemons:
        now_ns, config, problem = daemon.host.now_ns(), None, None
        try:
            # As bathyd does: a source that is not understood is not served, and the others are.
            config = daemon.places.load(daemon.name)
        except BathyscopeError as error:
            problem = error
        try:
            snapshot = _snapshot(daemon)
            snapshot = snapshot if config is None else snapshot.with_sources_of(config)
        except CacheDownError as error:
            killed = directory.problem_of(daemon)
            state = "unusable" if config is None else "stopped" if killed is None else "killed"
            snapshots.append(Snapshot.of_down(daemon.name, now_ns, state, sentence(problem or killed or error), config))
            continue
        except BathyscopeError as error:
            snapshot = Snapshot.of_down(daemon.name, now_ns, "no answer", sentence(error), config)
        snapshots.append(snapshot if problem is None else snapshot.with_bad_configuration(sentence(problem)))
    return snapshots


def sentence(error: BathyscopeError) -> str:
    """Return an error and its hint as a sentence."""
    return f"{error.message[:1].upper()}{error.message[1:]}; {error.hint or 'look at its log'}."
