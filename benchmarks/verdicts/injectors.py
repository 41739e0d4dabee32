"""What is injected: each is a context manager that changes one thing and, whatever happens inside, changes it back."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bed import ARCHIVE_POOL, Bed, tenant_fio

from bathyscope import lab
from bathyscope.lab import loop, network, nodes, throttle
from bathyscope.spec import DeviceLimit

Injector = Callable[[Bed], AbstractContextManager[None]]

_CPU = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 100_000
_SPIN = "while True: pass"


class UnsupportedError(Exception):
    """This machine or this release of Ceph cannot have the injection: the case is skipped, with the reason."""


@contextlib.contextmanager
def nothing(_bed: Bed) -> Iterator[None]:
    """Inject nothing."""
    yield


def together(*injectors: Injector) -> Injector:
    """Inject several things at once."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for injector in injectors:
                stack.enter_context(injector(bed))
            yield

    return inject


# --- devices


def slow_device(osd: str, **limit: float) -> Injector:
    """Limit an OSD's device by the lab's own control group; what is not named stays as the lab has it."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        record, device = bed.state.record, bed.daemon(osd).device
        if record.cgroup is None or record.cgroup_version is None or device is None or device.limit is None:
            raise UnsupportedError(f"the device of {osd} is not throttled in this lab")
        assert device.device is not None
        group, version, number = Path(record.cgroup), record.cgroup_version, loop.device_number(device.device)
        throttle.limit(group, version, number, DeviceLimit(**{**device.limit.model_dump(), **limit}))
        try:
            yield
        finally:
            throttle.limit(group, version, number, device.limit)

    return inject


def disk_fault(osd: str, *texts: str) -> Injector:
    """Give a simulated disk faults, as `bathy lab fault` does. None may have had any before."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        assert osd not in [fault.target for fault in lab.list_faults(bed.state)]
        try:
            for text in texts:
                lab.add_fault(bed.state, osd, text)
            yield
        finally:
            lab.clear_faults(bed.state, osd)

    return inject


# --- processors


@contextlib.contextmanager
def cpu_group(name: str, cores: float) -> Iterator[Path]:
    """Make a control group whose members together have at most `cores`. It must be empty at the end."""
    if not (_CPU / "cpu.cfs_quota_us").parent.joinpath("tasks").exists():
        raise UnsupportedError("processor quotas are set with control groups of version 1 here")
    group = _CPU / f"bathyscope-verdicts-{os.getpid()}-{name}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(cores * _PERIOD_US)))
        yield group
    finally:
        throttle.remove(group)


def cpu_quota(cores: float, *osds: str) -> Injector:
    """Give OSDs a processor quota, all of them together."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            group = stack.enter_context(cpu_group(osds[0], cores))
            for osd in osds:
                pid = bed.pid(osd)
                stack.callback(throttle.join, group_of(pid), pid)
                throttle.join(group, pid)
            yield

    return inject


def each(injector: Callable[[str], Injector], *osds: str) -> Injector:
    """Inject into each of several OSDs on its own."""
    return together(*map(injector, osds))


def group_of(pid: int) -> Path:
    """Return the control group of a process in the hierarchy of the controller `cpu`."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return _CPU / path.lstrip("/")
    raise UnsupportedError("the controller cpu is not mounted in version 1")


def client_quota(cores: float) -> Injector:
    """Give the load generator a processor quota: every fio that is started meanwhile joins the group before it runs."""

    @contextlib.contextmanager
    def inject(_bed: Bed) -> Iterator[None]:
        program, path = shutil.which("fio"), os.environ["PATH"]
        assert program is not None
        with cpu_group("client", cores) as group, tempfile.TemporaryDirectory(prefix="bathy-") as directory:
            wrapper = Path(directory) / "fio"
            wrapper.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs && exec {program} "$@"\n')
            wrapper.chmod(0o755)
            os.environ["PATH"] = f"{directory}{os.pathsep}{path}"
            try:
                yield
            finally:
                os.environ["PATH"] = path

    return inject


def hog(count: int) -> Injector:
    """Let processes that have nothing to do with the cluster use processors, at the priority of everything else."""

    @contextlib.contextmanager
    def inject(_bed: Bed) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                # The kernel shares processors between sessions first (autogroup): each is to count like a daemon.
                spinning = subprocess.Popen([sys.executable, "-c", _SPIN], start_new_session=True)
                stack.callback(spinning.wait, 30)
                stack.callback(spinning.kill)
            yield

    return inject


# --- the OSD itself


def pauses(osds: Sequence[str], stopped_s: float, running_s: float) -> Injector:
    """Stop OSDs again and again for a moment, as a machine does whose hypervisor or firmware takes it away."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        pids = [bed.pid(osd) for osd in osds]

        def send(number: int) -> None:
            for pid in pids:
                os.kill(pid, number)

        def turn() -> None:
            send(signal.SIGSTOP)
            time.sleep(stopped_s)
            send(signal.SIGCONT)

        with repeating(turn, running_s):
            try:
                yield
            finally:
                send(signal.SIGCONT)

    return inject


@contextlib.contextmanager
def repeating(turn: Callable[[], object], interval_s: float) -> Iterator[None]:
    """Call `turn` in a thread again and again until the end; the last call is waited for. Raises what it raised."""
    end, failed = threading.Event(), list[Exception]()

    def loop_() -> None:
        try:
            while not end.is_set():
                turn()
                end.wait(interval_s)
        except Exception as error:  # noqa: BLE001 - raised below, in the thread that can end the case
            failed.append(error)

    thread = threading.Thread(target=loop_, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
    if failed:
        raise failed[0]


def option(daemon: str, **options: object) -> Injector:
    """Set options of a daemon while it runs, and take them back."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, value in options.items():
                stack.callback(bed.run, "ceph", "tell", daemon, "config", "unset", name)
                answer = bed.ask("tell", daemon, "config", "set", name, str(value))
                if "success" not in answer:
                    raise UnsupportedError(f"{daemon} does not take {name}: {answer}")
            yield

    return inject


# --- the cluster


def client_option(**options: object) -> Injector:
    """Set options of all clients in the cluster's configuration, and take them back."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, value in options.items():
                stack.callback(bed.run, "ceph", "config", "rm", "client", name)
                bed.run("ceph", "config", "set", "client", name, str(value))
            yield

    return inject


def primary_affinity(osd: str, value: float) -> Injector:
    """Let an OSD be primary more rarely than its weight says."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        number = int(osd.partition(".")[2])
        (before,) = [o["primary_affinity"] for o in bed.ask("osd", "dump")["osds"] if o["osd"] == number]
        bed.run("ceph", "osd", "primary-affinity", osd, str(value))
        try:
            bed.settle()
            yield
        finally:
            bed.run("ceph", "osd", "primary-affinity", osd, str(before))

    return inject


def crush_weight(osd: str, factor: float) -> Injector:
    """Let CRUSH give an OSD a multiple of the data that its device would get."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        # With two copies on three OSDs, half of it would have to move, and back again.
        bed.drop_archive()
        (before,) = [n["crush_weight"] for n in bed.ask("osd", "df")["nodes"] if n["name"] == osd]
        bed.run("ceph", "osd", "crush", "reweight", osd, str(before * factor))
        try:
            bed.settle()
            yield
        finally:
            bed.run("ceph", "osd", "crush", "reweight", osd, str(before))

    return inject


def tenant(operation: str, rate: int, block_size: str = "4k") -> Injector:
    """Let a customer do I/O on an image in a pool of its own, at a steady rate."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        load = (f"--rw={operation}", f"--bs={block_size}", f"--rate_iops={rate}", "--iodepth=16")
        image = bed.tenant_image()
        with bed.background(*tenant_fio(image), *load, "--time_based", "--runtime=3600"):
            time.sleep(2)
            yield

    return inject


def scrub() -> Injector:
    """Deep-scrub all placement groups of a full pool again and again."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        bed.archive()
        # OSDs look for scrubs to do once a second, and let two of three such moments pass.
        eager = each(lambda osd: option(osd, osd_scrub_backoff_ratio=0, osd_max_scrubs=4), *bed.osds())
        order = ("ceph", "osd", "pool", "deep-scrub", ARCHIVE_POOL)
        with eager(bed), repeating(lambda: bed.run(*order), 1.0):
            bed.wait(lambda: "scrubbing" in _states(bed), "scrubs are under way")
            yield

    return inject


def _states(bed: Bed) -> str:
    return " ".join(entry["state_name"] for entry in bed.ask("status")["pgmap"]["pgs_by_state"])


def recovery() -> Injector:
    """Give a full pool a third copy, which is made meanwhile; afterwards it has two again."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        pool = bed.archive()
        bed.run("ceph", "osd", "pool", "set", pool, "size", "3")
        try:
            bed.wait(lambda: "backfilling" in _states(bed) or "recovering" in _states(bed), "recovery is under way")
            yield
        finally:
            bed.run("ceph", "osd", "pool", "set", pool, "size", "2")

    return inject


def snap_trim(objects: int) -> Injector:
    """Delete a snapshot of an image of small objects that were all written since."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        pool, image = "snapped", "snapped/vm"
        with bed.pool(pool, 16):
            bed.run("rbd", "create", image, "--size", f"{objects * 16}K", "--object-size", "16K")
            write = (*tenant_fio("vm", pool), "--rw=write", "--bs=16k", "--iodepth=64")
            bed.run(*write)
            bed.run("rbd", "snap", "create", f"{image}@then")
            bed.run(*write)
            bed.run("rbd", "snap", "rm", f"{image}@then")
            bed.wait(lambda: "snaptrim" in _states(bed), "snapshots are trimmed")
            yield

    return inject


# --- the network


def slow_link(node: str, rate: str) -> Injector:
    """Limit the link of a node, in both directions, with a token bucket."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        inside = nodes.inside(bed.pid(f"{nodes.PROCESS}.{node}"))
        cable = network.cable_name(bed.state.record.fsid, node)
        bucket = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "100ms")
        with contextlib.ExitStack() as stack:
            for where, device in (((), cable), (inside, network.IN_NODE)):
                change = (*where, "tc", "qdisc")
                try:
                    bed.run(*change, "add", "dev", device, *bucket)
                except subprocess.CalledProcessError as error:
                    raise UnsupportedError(f"no token bucket in this kernel: {error.stderr.strip()}") from error
                stack.callback(bed.run, *change, "del", "dev", device, "root")
            yield

    return inject
