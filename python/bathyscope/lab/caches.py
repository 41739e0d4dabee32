"""OSDs of a lab that are stopped and started again, as they are or with a cache over their data directory.

The caches are those of `bathyscope.cache`, below the lab's directory as they are below / elsewhere. What a lab adds is
that an OSD is down while its directory is mounted over or unmounted, its node and its control group, and the lab's
journal, so that `down` ends them. The SSD of a cache is a sparse file, as quick as this machine's disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from bathyscope.cache import ssd as ssds
from bathyscope.cache.config import Places, Source
from bathyscope.cache.daemon import Daemon, Launch
from bathyscope.errors import EnvironmentError_, LabError, UsageError
from bathyscope.host import CephRequest, CephSession, Host, outliving
from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost
from bathyscope.host.process import ProcessIdentity, is_alive
from bathyscope.lab import daemons, journal, loop, nodes, simdisk, throttle
from bathyscope.lab.bringup import UP_TIMEOUT_S
from bathyscope.lab.state import CACHE, DaemonState, LabState, load, locked
from bathyscope.spec.cache import DEFAULT_MODE, Mode

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
        if osd.name in state.cached():
            raise LabError(f"{osd.name} has a cache already", hint="take it off first")
        _serve(state, osd, size_bytes, mode, fetch)

    _while_down(state, host, osds, serve)


def take_off(state: LabState, host: Host, osds: Sequence[str] = (), *, remove: bool = False) -> None:
    """Stop the caches of OSDs (none named: all) and leave their plain directories; wait until all is active+clean.

    Their SSDs stay, and `put_on` finds them warm, unless they are to go. Raises LabError, CacheError, BusyError.
    """

    def leave(state: LabState, osd: DaemonState) -> None:
        places = Places(state.layout.caches)
        if osd.name in state.cached():
            Daemon(LocalHost(), places, osd.name).stop(lambda _: None)
        journal.Journal(state.layout.journal).ended(_process(osd.name))
        if remove and osd.name in places.names():
            places.remove(osd.name)
            state.layout.ssd(osd.name).unlink(missing_ok=True)

    _while_down(state, host, osds or list(state.cached()), leave)


def restart_osds(state: LabState, host: Host, osds: Sequence[str] = ()) -> None:
    """Stop and start OSDs (none named: all), so that nothing is in their memory; wait until all is active+clean."""
    _while_down(state, host, osds, lambda _state, _osd: None)


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
        _wait_whole(session)


def _wait_whole(session: CephSession) -> None:
    """Wait until all OSDs are up and all placement groups active+clean. Raises LabError."""
    deadline = time.monotonic() + UP_TIMEOUT_S
    while (problem := _unwhole(session.json("mon", "status"))) is not None:
        if time.monotonic() > deadline:
            raise LabError(f"the cluster is not whole after {UP_TIMEOUT_S:.0f} s: {problem}", hint="bathy lab status")
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
    firsts = (daemon for daemon in state.daemons() if daemon.kind == nodes.PROCESS and daemon.node == osd.node)
    return next((first.identity for first in firsts), None)


def _limit(state: LabState, identity: ProcessIdentity) -> None:
    """Put a process into the lab's control group: the limits of devices count for those who do their I/O."""
    if state.record.cgroup is not None:
        throttle.join(Path(state.record.cgroup), identity.pid)


def _serve(state: LabState, osd: DaemonState, size_bytes: int, mode: Mode, fetch: int | Literal["adaptive"]) -> None:
    """Mount a cache over the directory of an OSD that is down; return when it answers."""
    layout, node, book = state.layout, _node(state, osd), journal.Journal(state.layout.journal)
    source = layout.data(osd.name)
    if state.record.root is not None:
        # As the OSD sees it: a mount on the directory itself is not seen in its root file system.
        source = layout.root / source.relative_to("/")
    places, ssd = Places(layout.caches), layout.ssd(osd.name)
    places.make_directories(osd.name)
    config = places.new(osd.name, str(ssd), fetch=fetch).with_source(Source(osd.name, str(source), mode))
    config = dataclasses.replace(config, rest=config.rest | {"threads": _THREADS})
    places.save(config)
    if not ssd.exists():
        loop.create_file(ssd, size_bytes, preallocate=False)
        ssds.create(LocalHost(), places.config(osd.name), ssd, None, force=False)

    def announce(identity: ProcessIdentity) -> None:
        book.process(_process(osd.name), identity)
        _limit(state, identity)

    book.mount(source)
    launch = Launch(nodes.inside(node.pid) if node is not None else (), announce, book.helper)
    Daemon(LocalHost(), places, osd.name, launch).start(lambda _: None)


def _process(osd: str) -> str:
    """Name of the process that is the cache of an OSD."""
    return f"{CACHE}.{osd.partition('.')[2]}"


def _end(identities: Sequence[ProcessIdentity], what: str) -> None:
    """Ask processes to end, and wait. Raises LabError when they do not."""
    if outliving.end_all(identities, timeout_s=UP_TIMEOUT_S, signal_number=signal.SIGTERM):
        raise LabError(f"{what}: still running {UP_TIMEOUT_S:.0f} s after SIGTERM", hint="bathy lab down ends it")
