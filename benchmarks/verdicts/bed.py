"""The labs that the cases run in, and what an injector needs to know and to do there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bathyscope import lab
from bathyscope.lab.spec import LabSpec, parse_device
from bathyscope.lab.state import DaemonState, LabState
from bathyscope.spec import SshAccess, Target

TENANT_POOL, TENANT_IMAGE, ARCHIVE_POOL = "customer", "vm", "archive"
SETTLE_S = 240.0
# Longer than the OSDs' reports to the manager take in a lab.
STABLE_S = 3.0
"""Deep scrubs of slow disks take minutes to end."""


@dataclasses.dataclass(frozen=True, slots=True)
class LabGroup:
    """A lab that a group of cases shares: its devices and how many nodes it has (0: one machine)."""

    name: str
    devices: tuple[str, ...]
    nodes: int = 0


LABS = {
    group.name: group
    for group in (
        LabGroup("ssd", ("ssd=3",)),
        LabGroup("hdd", ("hdd=3",)),
        # Each node has an OSD of each class: osd.0 to osd.2 are hard disks, osd.3 to osd.5 SSDs.
        LabGroup("nodes", ("hdd=3", "ssd=3"), nodes=3),
        # Two SSDs on each node.
        LabGroup("pairs", ("ssd=6",), nodes=3),
    )
}


class Bed:
    """A running lab as injectors use it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._made: set[str] = set()

    @property
    def state(self) -> LabState:
        """The lab as it is now: an OSD that was started again has another process."""
        return lab.load(self.name)

    @property
    def target(self) -> Target:
        """What a bench of the lab measures, as `--lab NAME` gives it, with `--ssh @` where there are nodes."""
        lab.restore_throttle(self.state)
        state = self.state
        target = state.target()
        if not state.record.nodes:
            return target
        return target.model_copy(update={"ssh": SshAccess(config=str(state.ssh_config.resolve()))})

    def daemon(self, name: str) -> DaemonState:
        """Return a daemon ("osd.0") with its process. Raises KeyError."""
        return {daemon.name: daemon for daemon in self.state.daemons()}[name]

    def pid(self, name: str) -> int:
        return self.daemon(name).identity.pid

    def osds(self) -> list[str]:
        return [daemon.name for daemon in self.state.daemons() if daemon.kind == "osd"]

    def environment(self) -> dict[str, str]:
        """Return the environment of a client of the lab."""
        layout = self.state.layout
        return {**os.environ, "CEPH_CONF": str(layout.conf), "CEPH_ARGS": f"--keyring={layout.admin_keyring}"}

    def run(self, *argv: str, timeout_s: float = 120.0) -> str:
        """Run a client program and return its stdout. Raises subprocess.CalledProcessError."""
        ended = subprocess.run(
            argv, env=self.environment(), capture_output=True, text=True, check=True, timeout=timeout_s
        )
        return ended.stdout

    def ask(self, *words: str) -> Any:
        """Return what `ceph WORDS` answers."""
        return json.loads(self.run("ceph", *words, "--format", "json"))

    @contextlib.contextmanager
    def background(self, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program meanwhile. Raises RuntimeError when it has ended by itself."""
        process = subprocess.Popen(
            argv, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            yield process
            if process.poll() is not None:
                assert process.stderr is not None
                raise RuntimeError(f"{argv[0]} has ended by itself: {process.stderr.read()[-500:]!r}")
        finally:
            process.terminate()
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def settle(self) -> None:
        """Wait until every OSD is up and in and every placement group is active and clean. Raises TimeoutError.

        For some seconds: what the manager says of the groups is older than a change that was made a moment ago.
        """
        clean_since_s: float | None = None

        def settled() -> bool:
            nonlocal clean_since_s
            if not clean():
                clean_since_s = None
            elif clean_since_s is None:
                clean_since_s = time.monotonic()
            return clean_since_s is not None and time.monotonic() - clean_since_s >= STABLE_S

        def clean() -> bool:
            status = self.ask("status")
            osds, groups = status["osdmap"], status["pgmap"]
            states = {entry["state_name"]: entry["count"] for entry in groups["pgs_by_state"]}
            return bool(
                osds["num_osds"] == osds["num_up_osds"] == osds["num_in_osds"]
                and set(states) <= {"active+clean"}
                and sum(states.values()) == groups["num_pgs"]
            )

        self.wait(settled, "all placement groups are active and clean")

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = SETTLE_S) -> None:
        """Wait until the condition holds. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {timeout_s:.0f} s: {what}")
            time.sleep(0.3)

    def tenant_image(self) -> str:
        """Return the image of another pool, filled; it is made when it is first asked for and stays until the end."""
        image = f"{TENANT_POOL}/{TENANT_IMAGE}"
        if TENANT_POOL not in self._made:
            self.make_pool(TENANT_POOL, 32)
            self.run("rbd", "create", image, "--size", "256M")
            # What the tenant does is seen by the OSDs, not by librbd's cache.
            self.run("rbd", "config", "image", "set", image, "rbd_cache", "false")
            with lab.unthrottled(self.state):
                self.run(*tenant_fio(TENANT_IMAGE), "--rw=write", "--bs=1M", "--iodepth=8")
        self._made.add(TENANT_POOL)
        return TENANT_IMAGE

    def archive(self) -> str:
        """Return a pool of two copies that holds many objects, for recovery and scrub; made as `tenant_image` is."""
        if ARCHIVE_POOL not in self._made:
            self.make_pool(ARCHIVE_POOL, 8, size=2)
            with lab.unthrottled(self.state):
                self.run(
                    *("rados", "bench", "-p", ARCHIVE_POOL, "15", "write", "--no-cleanup", "-t", "32"),
                    *("-b", "65536", "-O", "65536"),
                )
            self.settle()
        self._made.add(ARCHIVE_POOL)
        return ARCHIVE_POOL

    def drop_archive(self) -> None:
        """Remove the pool of `archive`, if it is there."""
        if ARCHIVE_POOL in self._made:
            self.remove_pool(ARCHIVE_POOL)
            self._made.remove(ARCHIVE_POOL)

    def remove_pool(self, pool: str) -> None:
        self.run("ceph", "osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it")

    def make_pool(self, pool: str, groups: int, *, size: int | None = None) -> None:
        self.run("ceph", "osd", "pool", "create", pool, str(groups), str(groups))
        self.run("ceph", "osd", "pool", "application", "enable", pool, "rbd")
        if size is not None:
            self.run("ceph", "osd", "pool", "set", pool, "size", str(size))

    @contextlib.contextmanager
    def pool(self, pool: str, groups: int) -> Iterator[None]:
        """Make a pool and remove it with all that is in it."""
        self.make_pool(pool, groups)
        try:
            self.settle()
            yield
        finally:
            self.remove_pool(pool)


def tenant_fio(image: str, pool: str = TENANT_POOL) -> list[str]:
    return ["fio", "--name=tenant", "--ioengine=rbd", "--clientname=admin", f"--pool={pool}", f"--rbdname={image}"]


@contextlib.contextmanager
def running(group: LabGroup, fields: Mapping[str, Any] | None = None) -> Iterator[Bed]:
    """Bring a lab up in a state directory of its own, and take it down whatever happens."""
    name, before = f"verdicts-{group.name}", os.environ.get("XDG_STATE_HOME")
    # Where no other place is wanted: a disk with direct I/O, and a short path because of the sockets below it.
    place = os.environ.get("TMPDIR", "/var/tmp")  # noqa: S108 - in a directory of its own
    with tempfile.TemporaryDirectory(prefix="bathy-", dir=place) as home:
        os.environ["XDG_STATE_HOME"] = home
        try:
            devices = tuple(parse_device(device) for device in group.devices)
            lab.up(LabSpec(name=name, devices=devices, nodes=group.nodes or None, **(fields or {})))
            try:
                yield Bed(name)
            finally:
                lab.down(name)
        finally:
            os.environ.pop("XDG_STATE_HOME")
            if before is not None:
                os.environ["XDG_STATE_HOME"] = before
