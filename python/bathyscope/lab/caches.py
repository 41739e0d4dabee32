"""A cache for each OSD of a lab: `bathyd` mounts over the OSD's data directory, and is taken off again.

An OSD is stopped while its directory is mounted over or unmounted. The SSD of a cache is a sparse file in the lab's
directory, as quick as this machine's disk. Every cache is a process in the lab's journal, so that `down` ends it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from bathyscope import files
from bathyscope.errors import EnvironmentError_, LabError, UsageError
from bathyscope.fields import last_line, last_lines, load_json
from bathyscope.host import CephRequest, CephSession, Host, SocketRequest, outliving
from bathyscope.host.ceph import connect
from bathyscope.host.local import FOREIGN_VARIABLES, LocalHost
from bathyscope.host.process import ProcessIdentity, is_alive, own_program
from bathyscope.lab import daemons, journal, loop, nodes, simdisk, throttle
from bathyscope.lab.layout import Layout
from bathyscope.lab.run import system
from bathyscope.lab.state import DaemonState, LabState, load, locked
from bathyscope.spec.cache import DEFAULT_MODE, Mode

PROCESS = "bathyd"

_TIMEOUT_S = 60.0
# A thread of bathyd waits for the disk: as many requests as an OSD has on its disk need as many threads.
_THREADS = 32


def check_machine() -> None:
    """Raise EnvironmentError_ when no OSD can have a cache on this machine, as far as can be known without trying."""
    if not simdisk.possible():
        raise EnvironmentError_("a cache needs root and /dev/fuse", hint="run it as root on a machine with FUSE")


def put_on(
    state: LabState,
    host: Host,
    size_bytes: int,
    mode: Mode = DEFAULT_MODE,
    osds: Sequence[str] = (),
    *,
    fetch: int | Literal["adaptive"] = "adaptive",
) -> None:
    """Give the OSDs ("osd.0"; none named: all) caches of this size each, and wait until all is active+clean.

    The SSD of an earlier cache of the same OSD is used again as it is, whatever its size. `fetch` is what a miss
    fetches, in bytes: with a fixed size hits are those of a simulation, which does not know what reads cost the disk.
    Raises EnvironmentError_, UsageError, LabError, BusyError.
    """
    check_machine()

    def serve(state: LabState, osd: DaemonState) -> None:
        if osd.name in cached(state):
            raise LabError(f"{osd.name} has a cache already", hint="take it off first")
        _serve(state, osd, size_bytes, mode, fetch)

    _while_down(state, host, osds, serve)


def take_off(state: LabState, host: Host, osds: Sequence[str] = (), *, remove: bool = False) -> None:
    """Stop the caches of OSDs (none named: all) and leave their plain directories; wait until all is active+clean.

    Their SSDs stay, and `put_on` finds them warm, unless they are to be removed. Raises LabError, BusyError.
    """

    def leave(state: LabState, osd: DaemonState) -> None:
        if osd.name in cached(state):
            _stop(state, osd.name)
        journal.Journal(state.layout.journal).ended(_process(osd.name))
        if remove:
            shutil.rmtree(state.layout.cache(osd.name), ignore_errors=True)

    _while_down(state, host, osds or list(cached(state)), leave)


def restart_osds(state: LabState, host: Host, osds: Sequence[str] = ()) -> None:
    """Stop and start OSDs (none named: all), so that nothing is in their memory; wait until all is active+clean."""
    _while_down(state, host, osds, lambda _state, _osd: None)


def cached(state: LabState) -> dict[str, ProcessIdentity]:
    """Return the process of the cache of each OSD ("osd.3") that has one now."""
    return {
        f"osd.{daemon.name.partition('.')[2]}": daemon.identity
        for daemon in state.daemons()
        if daemon.kind == PROCESS and daemon.alive
    }


def ask(layout: Layout, osd: str, query: str = "status", **more: Any) -> Any:
    """Return what the cache of an OSD answers to a query with `more`. Raises LabError when it does not."""
    request = SocketRequest(PROCESS, str(layout.cache_socket(osd)), json.dumps({"query": query, **more}))
    try:
        answer = load_json(LocalHost().exchange(request).line)
    except (OSError, ValueError) as error:
        raise LabError(f"the cache of {osd} does not answer ({error})", hint="bathy lab status") from error
    if not answer["ok"]:
        raise LabError(f"the cache of {osd} refuses: {answer['error']}", hint=answer["hint"])
    return answer["answer"]


def _while_down(
    state: LabState, host: Host, osds: Sequence[str], change: Callable[[LabState, DaemonState], None]
) -> None:
    """Stop OSDs, change something of each, start them, and wait until the cluster is whole again."""
    with locked(state.layout), contextlib.closing(connect(host, state.target())) as session:
        state = load(state.name)
        chosen = [daemon for daemon in state.daemons() if daemon.kind == "osd" and (not osds or daemon.name in osds)]
        if unknown := set(osds) - {osd.name for osd in chosen}:
            raise UsageError(f"the lab '{state.name}' has no {', '.join(sorted(unknown))}")
        with contextlib.ExitStack() as restarts:
            # Each of them starts again, whatever happens to another one.
            for osd in chosen:
                restarts.callback(_start_if_down, state, host, osd)
            _end([osd.identity for osd in chosen], ", ".join(osd.name for osd in chosen))
            # An OSD ends without a word; who is down must be known before it is waited for.
            ids = [osd.name.partition(".")[2] for osd in chosen]
            session.command(CephRequest("osd down", "mon", (("prefix", "osd down"), ("ids", ids))))
            for osd in chosen:
                change(state, osd)
        wait_whole(session)


def wait_whole(session: CephSession) -> None:
    """Wait until all OSDs are up and all placement groups active+clean. Raises LabError."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (problem := _unwhole(session.json("mon", "status"))) is not None:
        if time.monotonic() > deadline:
            raise LabError(f"the cluster is not whole after {_TIMEOUT_S:.0f} s: {problem}", hint="bathy lab status")
        time.sleep(0.2)


def _unwhole(status: dict[str, Any]) -> str | None:
    osdmap, pgmap = status["osdmap"], status["pgmap"]
    if osdmap["num_up_osds"] < osdmap["num_osds"]:
        return f"{osdmap['num_up_osds']} of {osdmap['num_osds']} OSDs are up"
    states = {state["state_name"]: state["count"] for state in pgmap.get("pgs_by_state", [])}
    return None if set(states) == {"active+clean"} else f"placement groups are {states}"


def _start_if_down(state: LabState, host: Host, osd: DaemonState) -> None:
    # One that does not end in time still runs.
    if not is_alive(host, osd.identity):
        _start(state, osd)


def _start(state: LabState, osd: DaemonState) -> None:
    daemons.start(
        osd.name,
        state.layout,
        journal.Journal(state.layout.journal),
        root=state.record.root,
        node=_node(state, osd),
        before=lambda identity: _limit(state, identity),
    )


def _node(state: LabState, osd: DaemonState) -> ProcessIdentity | None:
    """Return the first process of the OSD's node, if nodes are more than names: only there its mounts are seen."""
    firsts = (one for one in state.daemons() if one.kind == nodes.PROCESS and one.node == osd.node)
    return next((first.identity for first in firsts), None)


def _limit(state: LabState, identity: ProcessIdentity) -> None:
    """Put a process into the lab's control group: the limits of devices count for those who do their I/O."""
    if state.record.cgroup is not None:
        throttle.join(Path(state.record.cgroup), identity.pid)


def _serve(state: LabState, daemon: DaemonState, size_bytes: int, mode: Mode, fetch: int | Literal["adaptive"]) -> None:
    """Mount a cache over the directory of an OSD that is down; return when it answers."""
    layout, osd, node = state.layout, daemon.name, _node(state, daemon)
    directory, book = layout.cache(osd), journal.Journal(layout.journal)
    source = layout.data(osd)
    if state.record.root is not None:
        # As the OSD sees it: a mount on the directory itself is not seen in its root file system.
        source = layout.root / source.relative_to("/")
    directory.mkdir(mode=0o700, exist_ok=True)
    ssd, config, apart = directory / "ssd", directory / "bathyd.json", directory / "state"
    apart.mkdir(mode=0o700, exist_ok=True)
    is_new = not ssd.exists()
    if is_new:
        loop.create_file(ssd, size_bytes, preallocate=False)
    socket = layout.cache_socket(osd)
    content = {
        "socket": str(socket),
        "state": str(apart),
        "cache": {"ssd": str(ssd), "fetch": fetch},
        "sources": [{"dir": str(source), "mode": mode}],
        "threads": _THREADS,
    }
    config.write_text(json.dumps(content, indent=2), encoding="utf-8")
    if is_new:
        made = system(*own_program("bathyscope.bathyd", "create", str(config)))
        if made.exit_code != 0:
            raise LabError(f"the cache of {osd} was not made: {last_line(made.stderr)}", hint=f"look at {ssd}")
    name = _process(osd)
    log = layout.log / f"{name}.out"

    def announce(identity: ProcessIdentity) -> None:
        book.process(name, identity)
        _limit(state, identity)

    book.mount(source)
    started = outliving.start(
        own_program("bathyscope.bathyd", str(config)),
        log=log,
        announce=announce,
        wrapper=nodes.inside(node.pid) if node is not None else (),
        announce_wrapper=book.helper,
        without=FOREIGN_VARIABLES,
    )
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        with contextlib.suppress(LabError):
            ask(layout, osd)
            return
        if started.child.poll() is not None or time.monotonic() > deadline:
            lines = last_lines(files.read_end(log))
            raise LabError(f"the cache of {osd} did not start: {lines[-2:]}", hint=f"look into {log}")
        time.sleep(0.05)


def _process(osd: str) -> str:
    """Name of the process that is the cache of an OSD."""
    return f"{PROCESS}.{osd.partition('.')[2]}"


def _stop(state: LabState, osd: str) -> None:
    _end([cached(state)[osd]], f"the cache of {osd}")


def _end(identities: Sequence[ProcessIdentity], what: str) -> None:
    """Ask processes to end, and wait. Raises LabError when they do not."""
    if outliving.end_all(identities, timeout_s=_TIMEOUT_S, signal_number=signal.SIGTERM):
        raise LabError(f"{what}: still running {_TIMEOUT_S:.0f} s after SIGTERM", hint="bathy lab down ends it")
