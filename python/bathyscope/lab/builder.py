"""Making and starting the parts of a lab, in the order in which they need each other.

What takes time runs side by side: the monitor and the OSDs are made at once, the manager starts as soon as the
monitor answers, and an OSD starts as soon as it is made and known to the monitor. All keys are made beforehand and
imported by the monitor's own mkfs; the cluster is commanded over one persistent session.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bathyscope.errors import EnvironmentError_, LabError
from bathyscope.host import CephRequest, CephSession, Host
from bathyscope.host.ceph import connect
from bathyscope.lab import conf, journal, keys, loop, ports, process, releases, requirements, throttle
from bathyscope.lab.layout import Layout
from bathyscope.lab.profile import THROTTLE_SENTENCE
from bathyscope.lab.run import FOREIGN_VARIABLES, Tools
from bathyscope.lab.spec import SPARE_SIZE_BYTES, LabSpec
from bathyscope.lab.state import LabDevice, LabRecord, write_record
from bathyscope.spec import DeviceLimit, Target

Progress = Callable[[str], None]

RBD_POOL = "rbd"
FS_NAME = "cephfs"
UP_TIMEOUT_S = 180.0
_MGR_POOLS = ("device_health_metrics", ".mgr")
_MGR_POOL_PATIENCE_S = 10.0
_SHARED_CPU = "All daemons and the load share this machine's CPUs; CPU-bound figures are lower than on real nodes."
_UNTHROTTLED = (
    "Devices are not throttled (no root, no loop devices or no I/O control group): device classes differ in name only, "
    "and disk figures are this machine's."
)
_BUFFERED = "The file system beneath the lab has no direct I/O: device figures include this machine's page cache."


class Builder:
    """One bring-up: `prepare`, then `build`. Steps are methods in the order in which they are done."""

    def __init__(self, spec: LabSpec, layout: Layout, progress: Progress, host: Host) -> None:
        self.spec = spec
        self.layout = layout
        self.progress = progress
        self.host = host
        self.journal = journal.Journal(layout.journal)
        self.root: releases.Root | None = None
        self.cgroup: Path | None = None
        self.children: dict[str, process.Started] = {}
        self.deadline = 0.0

    def prepare(self, port_lock: Callable[[], AbstractContextManager[None]], taken: Callable[[], set[int]]) -> None:
        """Check the machine, get the release, and write lab.json: every device is listed before it is made.

        Ports are chosen under `port_lock`, outside `taken`. Raises EnvironmentError_, LabError.
        """
        spec = self.spec
        self._get_release()
        # Building a root file system takes minutes on a busy machine; the time is for the daemons.
        self.deadline = time.monotonic() + UP_TIMEOUT_S
        self._check_space()
        with port_lock():
            self.record = LabRecord(
                name=spec.name,
                directory=str(self.layout.directory),
                created_ns=time.time_ns(),
                status="starting",
                spec=spec,
                fsid=str(uuid.uuid4()),
                ports=ports.choose_pair(taken()),
                release=requirements.release_name(self.major),
                root=str(self.layout.root) if self.root else None,
                devices=tuple(self._devices()),
            )
            write_record(self.layout, self.record)
        self.tools = Tools(self.host, self.record.root, self._announce_helper)

    def build(self) -> None:
        """Bring everything up; leaves lab.json with status `running`. Raises LabError."""
        for directory in self.layout.made():
            directory.mkdir(mode=0o755)
        if self.root is not None:
            releases.mount_view(self.root, self.layout, self.journal)
            releases.write_wrappers(self.layout)
        probe = self.layout.scratch / "loop-probe"
        self.loops = self.spec.throttle and requirements.loop_devices_usable(probe, self.journal)
        self.cgroup_version = throttle.available() if self.loops else None
        with concurrent.futures.ThreadPoolExecutor(max_workers=16, thread_name_prefix="bathy-lab") as pool:
            self.progress("making keys and maps")
            self._write_configuration(pool)
            self.progress(f"making the monitor and {self.spec.osd_count} OSDs")
            made = [pool.submit(self._make_device, device) for device in self.record.devices]
            try:
                self._make_monitor()
                with contextlib.closing(self._connect()) as session:
                    self._start("mgr.x", ["ceph-mgr"])
                    self._register_osds(session)
                    self._start_osds(session, made)
                    self._make_pools(session)
                    self._wait_clean(session)
            except BaseException:
                # Nothing may be made once the clean-up begins; leaving the pool waits for what is under way.
                self.tools.cancel()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self._apply_throttles()
        self.record = self.record.model_copy(update={"status": "running"})
        write_record(self.layout, self.record)

    def _announce_helper(self, pid: int) -> None:
        if (identity := process.read_identity(pid)) is not None:
            self.journal.helper(identity)

    def _get_release(self) -> None:
        """Find the Ceph to run: the installed one, or that of a root file system."""
        installed = requirements.installed_major()
        if self.spec.release is not None and releases.needed(self.spec.release, installed):
            self.root = releases.ensure(self.spec.release, self.progress)
            self.major = self.root.major
            return
        programs = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "rbd", "ceph-authtool", "monmaptool"]
        requirements.require(programs + (["ceph-mds"] if self.spec.fs else []))
        assert installed is not None  # noqa: S101 - ceph-osd was required above
        self.major = installed

    def _check_space(self) -> None:
        status = os.statvfs(self.layout.directory)
        free = status.f_bavail * status.f_frsize
        # A sparse OSD needs about 0.3 GiB at first; a bench on it needs more.
        each = self.spec.osd_size_bytes if self.spec.preallocate else 1 << 30
        needed = self.spec.osd_count * each
        if free < needed:
            raise EnvironmentError_(
                f"{self.layout.directory} has {free >> 30} GiB free, the OSDs need {needed >> 30} GiB",
                hint="choose another place with --directory, or fewer devices",
            )

    def _devices(self) -> Iterator[LabDevice]:
        for osd_id, device_class, node in self.spec.osds():
            backing = str(self.layout.devices / f"osd.{osd_id}.{device_class}")
            yield LabDevice(
                osd_id=osd_id, device_class=device_class, node=node, backing=backing, uuid=str(uuid.uuid4())
            )
        for group in self.spec.devices:
            backing = str(self.layout.devices / f"spare.{group.device_class}")
            yield LabDevice(
                osd_id=None, device_class=group.device_class, node=None, backing=backing, uuid=str(uuid.uuid4())
            )

    def _write_configuration(self, pool: concurrent.futures.ThreadPoolExecutor) -> None:
        layout, record = self.layout, self.record
        text = conf.render(self.spec, layout, fsid=record.fsid, ports=record.ports, newer_than_pacific=self.major > 16)
        layout.conf.write_text(text, encoding="utf-8")
        capabilities = keys.entities(self.spec)
        made = {entity: pool.submit(self.tools.run, "ceph-authtool", "--gen-print-key") for entity in capabilities}
        self.monmap = layout.scratch / "monmap"
        addresses = f"[v2:127.0.0.1:{record.ports[0]},v1:127.0.0.1:{record.ports[1]}]"
        self.tools.run("monmaptool", "--create", "--fsid", record.fsid, "--addv", "a", addresses, str(self.monmap))
        keyring = {entity: future.result().decode().strip() for entity, future in made.items()}
        _write_private(layout.keyrings / "all.keyring", keys.keyring_text(keyring, capabilities))
        for entity, key in keyring.items():
            _write_private(layout.keyrings / f"{entity}.keyring", keys.keyring_text({entity: key}, {}))

    def _make_monitor(self) -> None:
        data = self.layout.data("mon.a")
        data.mkdir(parents=True)
        self.tools.run(
            *("ceph-mon", "--mkfs", "-f", "-i", "a", "-c", str(self.layout.conf), "--monmap", str(self.monmap)),
            *("--keyring", str(self.layout.keyrings / "all.keyring")),
        )
        self._start("mon.a", ["ceph-mon"])

    def _make_device(self, device: LabDevice) -> LabDevice:
        """Make the device, and for an OSD its file systems; return the device as it is."""
        size = self.spec.osd_size_bytes if device.osd_id is not None else SPARE_SIZE_BYTES
        backing = Path(device.backing)
        loop.create_file(backing, size, preallocate=self.spec.preallocate)
        if self.loops:
            self.journal.loop(backing)
            path = loop.attach(backing)
            loop.set_rotational(path, rotational=self.spec.profiles[device.device_class].rotational)
            device = device.model_copy(update={"device": path})
        if device.osd_id is None:
            return device
        data = self.layout.data(f"osd.{device.osd_id}")
        data.mkdir(parents=True)
        (data / "block").symlink_to(device.path)
        # Without -f it forks, and the child that does the work would outlive both its parent and this program.
        self.tools.run(
            *("ceph-osd", "--mkfs", "-f", "-i", str(device.osd_id), "-c", str(self.layout.conf), "--no-mon-config"),
            *("--osd-uuid", device.uuid, "--monmap", str(self.monmap)),
        )
        return device

    def _start(self, name: str, program: list[str]) -> None:
        """Start a daemon in the foreground of a session of its own; journaled before it runs."""
        self.layout.data(name).mkdir(parents=True, exist_ok=True)
        kind, _, daemon_id = name.partition(".")

        def announce(identity: process.Identity) -> None:
            self.journal.process(name, identity)
            if kind == "osd" and self.cgroup is not None:
                try:
                    throttle.join(self.cgroup, identity.pid)
                except OSError:
                    # An OSD outside the group is unthrottled; then none may claim to be throttled.
                    self.cgroup = None

        self.children[name] = process.start(
            [*program, "-f", "-i", daemon_id, "-c", str(self.layout.conf)],
            log=self.layout.log / f"{name}.out",
            announce=announce,
            root=self.layout.root if self.root else None,
            without=FOREIGN_VARIABLES,
        )

    def _connect(self) -> CephSession:
        """Return a session once the monitor listens. Raises LabError when it ends or stays silent."""
        port = self.record.ports[0]
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            self._tick("the monitor does not listen")
        target = Target(
            name=self.spec.name,
            conf=str(self.layout.conf),
            keyring=str(self.layout.admin_keyring),
            root=self.record.root,
        )
        return connect(self.host, target, timeout_s=30)

    def _tick(self, problem: str, pause_s: float = 0.05) -> None:
        """Wait a little. Raises LabError when a daemon has ended or the time is up."""
        for name, started in self.children.items():
            if started.child.poll() is not None:
                raise LabError(f"{name} ended with exit code {started.child.returncode}")
        if time.monotonic() > self.deadline:
            raise LabError(f"{problem} after {UP_TIMEOUT_S:.0f} s")
        time.sleep(pause_s)

    def _commands(self, session: CephSession, commands: list[dict[str, Any]]) -> None:
        """Send monitor commands side by side. Raises LabError with the first refusal."""
        requests = [CephRequest(c["prefix"], "mon", tuple(c.items()), timeout_s=60) for c in commands]
        for answer in session.commands(requests):
            if answer.exit_code != 0:
                what = answer.request.label
                raise LabError(f"'{what}' was refused: {answer.stderr.decode(errors='replace').strip()}")

    def _register_osds(self, session: CephSession) -> None:
        """Make the OSDs known, on their nodes and with their classes."""
        osds = [device for device in self.record.devices if device.osd_id is not None]
        self._commands(session, [{"prefix": "osd new", "uuid": d.uuid, "id": d.osd_id} for d in osds])
        weight = self.spec.osd_size_bytes / (1 << 40)
        self._commands(
            session,
            [
                {
                    "prefix": "osd crush add",
                    "id": d.osd_id,
                    "weight": weight,
                    "args": [f"host={d.node}", "root=default"],
                }
                for d in osds
            ],
        )
        for group in self.spec.devices:
            ids = [str(d.osd_id) for d in osds if d.device_class == group.device_class]
            command = {"prefix": "osd crush set-device-class", "class": group.device_class, "ids": ids}
            self._commands(session, [command])

    def _start_osds(self, session: CephSession, made: list[concurrent.futures.Future[LabDevice]]) -> None:
        """Start each OSD when it is made; return when all are up and in."""
        self._make_cgroup()
        devices = []
        for future in concurrent.futures.as_completed(made, timeout=UP_TIMEOUT_S):
            device = future.result()
            devices.append(device)
            if device.osd_id is not None:
                self._start(f"osd.{device.osd_id}", ["ceph-osd"])
        order = {device.backing: index for index, device in enumerate(self.record.devices)}
        devices.sort(key=lambda device: order[device.backing])
        self.record = self.record.model_copy(update={"devices": tuple(devices)})
        write_record(self.layout, self.record)
        self.progress("waiting for the OSDs")
        while True:
            stat = session.json("mon", "osd stat")
            if stat["num_up_osds"] == stat["num_in_osds"] == self.spec.osd_count:
                return
            self._tick(f"only {stat['num_up_osds']} of {self.spec.osd_count} OSDs are up")

    def _make_pools(self, session: CephSession) -> None:
        """Make the pool for images, and the file system if asked."""
        self._commands(session, [{"prefix": "osd pool create", "pool": RBD_POOL, "pg_num": 32}])
        if self.spec.fs:
            self.progress("making the file system")
            self._start("mds.a", ["ceph-mds"])
            pools = {"cephfs_metadata": 8, "cephfs_data": 32}
            creations = [{"prefix": "osd pool create", "pool": p, "pg_num": n} for p, n in pools.items()]
            self._commands(session, creations)
            self._commands(
                session,
                [{"prefix": "fs new", "fs_name": FS_NAME, "metadata": "cephfs_metadata", "data": "cephfs_data"}],
            )
        self.progress("first write")
        # Writes the pool's first object, and so waits until its placement group takes writes.
        self.tools.run("rbd", "-c", str(self.layout.conf), "pool", "init", RBD_POOL)

    def _wait_clean(self, session: CephSession) -> None:
        """Wait until every placement group of every pool is active+clean, and the file system has its MDS."""
        self.progress("waiting for active+clean")
        patience_ends = time.monotonic() + _MGR_POOL_PATIENCE_S
        while True:
            pools = session.json("mon", "osd dump")["pools"]
            status = session.json("mon", "status")
            summary = status["pgmap"]
            states = {state["state_name"]: state["count"] for state in summary.get("pgs_by_state", [])}
            expected = sum(pool["pg_num"] for pool in pools)
            clean = states == {"active+clean": expected}
            # The manager makes a pool of its own when it becomes active; a lab is not handed over before that.
            settled = any(pool["pool_name"] in _MGR_POOLS for pool in pools) or time.monotonic() > patience_ends
            if clean and settled and (not self.spec.fs or _mds_active(status["fsmap"])):
                return
            self._tick(f"placement groups are not clean: {states or 'no report yet'}", pause_s=0.1)

    def _make_cgroup(self) -> None:
        """Make the lab's control group; without one the lab goes on, unthrottled."""
        if self.cgroup_version is None:
            return
        path = throttle.group_path(f"bathyscope-{self.spec.name}-{self.record.fsid[:8]}", self.cgroup_version)
        self.journal.cgroup(path)
        with contextlib.suppress(OSError):
            throttle.create(path, self.cgroup_version)
            self.cgroup = path

    def _limit_devices(self) -> dict[str, DeviceLimit]:
        """Limit every device; return the limits by backing file. All or none: half a throttle is a wrong result."""
        limits: dict[str, DeviceLimit] = {}
        if self.cgroup is None or self.cgroup_version is None:
            return limits
        try:
            for device in self.record.devices:
                if device.device is not None:
                    limit = self.spec.profiles[device.device_class].limit
                    throttle.limit(self.cgroup, self.cgroup_version, loop.device_number(device.device), limit)
                    limits[device.backing] = limit
        except OSError:
            throttle.lift(self.cgroup)
            self.cgroup = None
            return {}
        return limits

    def _apply_throttles(self) -> None:
        """Limit every device by its profile, and write down what a reader of results must know."""
        limits = self._limit_devices()
        devices = [device.model_copy(update={"limit": limits.get(device.backing)}) for device in self.record.devices]
        caveats = [("lab_shared_cpu", _SHARED_CPU)]
        if self.cgroup is not None:
            classes = [group.device_class for group in self.spec.devices]
            figures = "; ".join(f"{name}: {self.spec.profiles[name].sentence()}" for name in classes)
            caveats.append(("throttle_profile", f"{THROTTLE_SENTENCE} {figures}."))
        else:
            caveats.append(("unthrottled", _UNTHROTTLED))
        if any(device.device and not loop.direct(device.device) for device in devices):
            caveats.append(("buffered_devices", _BUFFERED))
        self.record = self.record.model_copy(
            update={
                "devices": tuple(devices),
                "cgroup": str(self.cgroup) if self.cgroup else None,
                "cgroup_version": self.cgroup_version,
                "caveats": tuple(caveats),
            }
        )


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _mds_active(fsmap: dict[str, Any]) -> bool:
    return any(rank.get("status") == "up:active" for rank in fsmap.get("by_rank", []))
