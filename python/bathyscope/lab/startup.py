"""Bringing a lab up.

What takes time runs side by side: the monitor and the OSDs are made at once, the manager starts as soon as the
monitor answers, and an OSD starts as soon as it is made and known to the monitor. All keys are made beforehand and
imported by the monitor's own mkfs; the cluster is commanded over one persistent session.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bathyscope.errors import BathyscopeError, EnvironmentError_, LabError, UsageError
from bathyscope.host import CephRequest, CephSession, Host
from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost
from bathyscope.lab import conf, journal, keys, loop, ports, process, requirements, throttle
from bathyscope.lab.layout import Layout, labs_directory
from bathyscope.lab.profile import THROTTLE_SENTENCE
from bathyscope.lab.run import FOREIGN_VARIABLES, Tools
from bathyscope.lab.spec import SPARE_SIZE_BYTES, LabSpec
from bathyscope.lab.state import LabDevice, LabRecord, LabState, list_labs, load, locked, read_record, write_record
from bathyscope.lab.teardown import delete_files, forget, release
from bathyscope.spec import DeviceLimit, Target

Progress = Callable[[str], None]

POOL = "rbd"
UP_TIMEOUT_S = 180.0


def up(spec: LabSpec, progress: Progress = lambda _: None, host: Host | None = None) -> LabState:
    """Bring a lab up and return it: all OSDs in, every placement group active+clean, a write acknowledged.

    Whatever stops it (an error, Ctrl-C) takes the lab down again. Raises UsageError, EnvironmentError_, LabError.
    """
    spec.check()
    layout = Layout(_directory(spec))
    layout.check_length()
    with _claimed(spec, layout):
        try:
            _Builder(spec, layout, progress, host or LocalHost()).build()
        except BaseException as error:
            progress("taking the unfinished lab down")
            hint = _last_words(layout) if isinstance(error, LabError) else None
            release(layout)
            delete_files(layout)
            forget(spec.name, layout.directory)
            if isinstance(error, LabError) and error.hint is None and hint:
                raise LabError(error.message, hint=hint) from error
            raise
    return load(spec.name)


def _directory(spec: LabSpec) -> Path:
    return Path(os.path.abspath(spec.directory)) if spec.directory is not None else labs_directory() / spec.name  # noqa: PTH100


@contextlib.contextmanager
def _claimed(spec: LabSpec, layout: Layout) -> Iterator[None]:
    """Hold the lab's directory, made and entered in the list. Raises UsageError, LabError when it is in use."""
    entry = labs_directory() / spec.name
    labs_directory().mkdir(parents=True, exist_ok=True)
    if read_record(Layout(Path(os.path.realpath(entry)))) is not None:
        raise LabError(
            f"there is a lab '{spec.name}' already",
            hint=f"take it down with `bathy lab down --name {spec.name}`, or choose another --name",
        )
    if spec.directory is not None:
        if layout.directory.exists() and (not layout.directory.is_dir() or any(layout.directory.iterdir())):
            raise UsageError(f"{layout.directory} is not empty", hint="a lab needs a directory of its own")
        if entry.is_symlink():
            entry.unlink()
        if entry.exists():
            raise LabError(f"there are remains of a lab '{spec.name}'", hint=f"bathy lab down --name {spec.name}")
        # The entry comes first: what has an entry can be taken down.
        entry.symlink_to(layout.directory)
    layout.directory.mkdir(parents=True, exist_ok=True)
    with locked(layout):
        yield


def _last_words(layout: Layout) -> str | None:
    """Return the last line that looks like an error in the daemons' logs, before they are deleted."""
    for log in sorted(layout.log.glob("*.out"), key=lambda path: path.stat().st_mtime, reverse=True):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return f"{log.stem} said: {lines[-1][:300]}"
    return None


class _Builder:
    """One bring-up. Steps are methods in the order of `build`."""

    def __init__(self, spec: LabSpec, layout: Layout, progress: Progress, host: Host) -> None:
        self.spec = spec
        self.layout = layout
        self.progress = progress
        self.host = host
        self.journal = journal.Journal(layout.journal)
        self.root: str | None = None
        self.cgroup: Path | None = None
        self.children: dict[str, process.Started] = {}
        self.deadline = time.monotonic() + UP_TIMEOUT_S

    def build(self) -> None:
        """Bring everything up; leaves lab.json with status `running`."""
        self._check_machine()
        self.record = self._first_record()
        for directory in self.layout.made():
            directory.mkdir(mode=0o755)
        self.tools = Tools(self.host, self.root)
        with concurrent.futures.ThreadPoolExecutor(max_workers=16, thread_name_prefix="bathy-lab") as pool:
            self.progress("making keys and maps")
            self._write_configuration(pool)
            self.progress(f"making the monitor and {self.spec.osd_count} OSDs")
            made = {device.osd_id: pool.submit(self._make_osd, device) for device in self.record.devices}
            try:
                self._make_monitor()
                with contextlib.closing(self._connect()) as session:
                    self._start("mgr.x", ["ceph-mgr"])
                    self._register_osds(session)
                    self._start_osds(session, made)
                    self._make_pools(session)
                    self._wait_clean(session)
            except BaseException:
                for future in made.values():
                    future.cancel()
                # What is under way ends when its process is gone; that is the clean-up's work.
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self._apply_throttles()
        self.record = self.record.model_copy(update={"status": "running"})
        write_record(self.layout, self.record)

    def _check_machine(self) -> None:
        programs = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "ceph-authtool", "monmaptool"]
        requirements.require(programs + (["ceph-mds"] if self.spec.fs else []))
        self.major = requirements.installed_major()
        free = _free_bytes(self.layout.directory)
        needed = self.spec.osd_count * (1 << 30)
        if self.spec.preallocate:
            needed = self.spec.osd_count * self.spec.osd_size_bytes
        if free < needed:
            raise EnvironmentError_(
                f"{self.layout.directory} has {free >> 30} GiB free, the OSDs need {needed >> 30} GiB",
                hint="choose another place with --directory, or fewer devices",
            )

    def _first_record(self) -> LabRecord:
        """Choose ports, ids and the kind of emulation, and write lab.json. Every device is listed before it is made."""
        spec = self.spec
        with _ports_locked():
            taken = {port for name in list_labs() for port in _ports_of(name)}
            chosen = ports.choose_pair(taken)
            kind = throttle.available() if spec.throttle else None
            loops = spec.throttle and requirements.loop_devices_usable()
            record = LabRecord(
                name=spec.name,
                directory=str(self.layout.directory),
                created_ns=time.time_ns(),
                status="starting",
                spec=spec,
                fsid=str(uuid.uuid4()),
                ports=chosen,
                release=requirements.release_name(self.major),
                root=self.root,
                devices=tuple(self._devices()),
            )
            write_record(self.layout, record)
        self.loops = loops
        self.cgroup_version = kind if loops else None
        return record

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
            *("ceph-mon", "--mkfs", "-i", "a", "-c", str(self.layout.conf), "--monmap", str(self.monmap)),
            *("--keyring", str(self.layout.keyrings / "all.keyring")),
        )
        self._start("mon.a", ["ceph-mon"])

    def _make_osd(self, device: LabDevice) -> LabDevice:
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
        self.tools.run(
            *("ceph-osd", "--mkfs", "-i", str(device.osd_id), "-c", str(self.layout.conf), "--no-mon-config"),
            *("--osd-uuid", device.uuid, "--monmap", str(self.monmap)),
        )
        return device

    def _start(self, name: str, program: list[str]) -> None:
        """Start a daemon in the foreground of a session of its own; journaled before it runs."""
        self.layout.data(name).mkdir(parents=True, exist_ok=True)
        kind, _, daemon_id = name.partition(".")

        def announce(identity: process.Identity) -> None:
            self.journal.process(name, identity, daemon=True)
            if kind == "osd" and self.cgroup is not None:
                throttle.join(self.cgroup, identity.pid)

        self.children[name] = process.start(
            [*program, "-f", "-i", daemon_id, "-c", str(self.layout.conf)],
            log=self.layout.log / f"{name}.out",
            announce=announce,
            root=Path(self.root) if self.root else None,
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
            name=self.spec.name, conf=str(self.layout.conf), keyring=str(self.layout.admin_keyring), root=self.root
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

    def _start_osds(self, session: CephSession, made: dict[int | None, concurrent.futures.Future[LabDevice]]) -> None:
        """Start each OSD when it is made; return when all are up and in."""
        self._make_cgroup()
        devices = []
        for future in concurrent.futures.as_completed(made.values(), timeout=UP_TIMEOUT_S):
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
        self._commands(session, [{"prefix": "osd pool create", "pool": POOL, "pg_num": 32}])
        self.progress("first write")
        # Writes the pool's first object, and so waits until its placement group takes writes.
        self.tools.run("rbd", "-c", str(self.layout.conf), "pool", "init", POOL)

    def _wait_clean(self, session: CephSession) -> None:
        self.progress("waiting for active+clean")
        while True:
            summary = session.json("mon", "status")["pgmap"]
            states = {state["state_name"]: state["count"] for state in summary.get("pgs_by_state", [])}
            if summary["num_pgs"] >= 32 and states == {"active+clean": summary["num_pgs"]}:
                return
            self._tick(f"placement groups are not clean: {states}", pause_s=0.1)

    def _make_cgroup(self) -> None:
        """Make the lab's control group; without one the lab goes on, unthrottled."""
        if self.cgroup_version is None:
            return
        path = throttle.group_path(f"bathyscope-{self.spec.name}-{self.record.fsid[:8]}", self.cgroup_version)
        self.journal.cgroup(path)
        try:
            throttle.create(path, self.cgroup_version)
        except OSError:
            self.cgroup_version = None
            return
        self.cgroup = path

    def _apply_throttles(self) -> None:
        """Limit every device by its profile, and write down what a reader of results must know."""
        devices, caveats = [], [("lab_shared_cpu", _SHARED_CPU)]
        for device in self.record.devices:
            limit: DeviceLimit | None = None
            if self.cgroup is not None and self.cgroup_version is not None and device.device is not None:
                limit = self.spec.profiles[device.device_class].limit
                throttle.limit(self.cgroup, self.cgroup_version, loop.device_number(device.device), limit)
            devices.append(device.model_copy(update={"limit": limit}))
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


_SHARED_CPU = "All daemons and the load share this machine's CPUs; CPU-bound figures are lower than on real nodes."
_UNTHROTTLED = (
    "Devices are not throttled (no root, no loop devices or no I/O control group): device classes differ in name only, "
    "and disk figures are this machine's."
)
_BUFFERED = "The file system beneath the lab has no direct I/O: device figures include this machine's page cache."


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def _ports_of(name: str) -> tuple[int, ...]:
    try:
        return load(name).record.ports
    except BathyscopeError:
        return ()


@contextlib.contextmanager
def _ports_locked() -> Iterator[None]:
    """Labs that come up at the same time choose their ports one after the other, each seeing the others' records."""
    descriptor = os.open(labs_directory() / ".ports.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
