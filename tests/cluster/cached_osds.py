"""OSDs of a lab whose directories are cached: made anew, killed, under verified load, and looked at when down."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster import daemons

from bathyscope.cache.config import Places
from bathyscope.cache.daemon import Daemon
from bathyscope.host import CephRequest
from bathyscope.host.local import LocalHost
from bathyscope.lab import caches, state

POOL, IMAGE = "rbd", "image"
SSD_BYTES = 64 << 20
# Read all the time, and written anew all the time: together more than a cache holds.
READ_BYTES, WRITTEN_BYTES = 64 << 20, 8 << 20
_LABEL_BYTES = 1 << 20
_HANDLE_BYTES_MAX = 128


def ask(lab: state.LabState, osd: str, query: str = "status", **more: Any) -> Any:
    """Return what the cache of an OSD answers to a query."""
    return Daemon(LocalHost(), Places(lab.layout.caches), osd).ask(query=query, **more)


def configure(cluster: Any, options: Mapping[str, object]) -> None:
    """Set options of OSDs in ceph.conf; they hold from an OSD's next start on."""
    conf = Path(cluster.target.conf)
    # Of an option that is there twice, the last would hold.
    others = [line for line in conf.read_text().splitlines() if line.partition(" = ")[0] not in options]
    place = others.index("[osd]") + 1
    others[place:place] = [f"{name} = {value}" for name, value in options.items()]
    conf.write_text("\n".join(others) + "\n")


def environment(cluster: Any) -> dict[str, str]:
    """What leads the programs of Ceph and fio to the cluster; what a client caches would hide reads."""
    target = cluster.target
    return {**os.environ, "CEPH_CONF": target.conf, "CEPH_ARGS": f"--keyring={target.keyring} --rbd_cache=false"}


def run(cluster: Any, *words: str, timeout_s: float = 120) -> str:
    """Run a program on the cluster to its good end."""
    ended = subprocess.run(
        words, env=environment(cluster), capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def fio(cluster: Any, *words: str, timeout_s: float = 300) -> str:
    """Run fio on the image; what it reads is verified against the checksum in each block."""
    return run(
        cluster, "fio", "--name=load", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}", f"--rbdname={IMAGE}",
        "--bs=4k", "--iodepth=8", "--verify=crc32c", "--verify_state_save=0", *words, timeout_s=timeout_s,
    )  # fmt: skip


def keep_one_copy(cluster: Any, osds: Sequence[str]) -> None:
    """Have one copy of each object, and the same number of placement groups on each OSD.

    CRUSH can give an OSD of a small pool a tenth of the placement groups, and so of an image.
    """
    run(cluster, "ceph", "osd", "pool", "set", POOL, "size", "1", "--yes-i-really-mean-it")
    numbers = [int(osd.partition(".")[2]) for osd in osds]
    with cluster.session() as session:
        (pool,) = (pool for pool in session.json("mon", "osd dump")["pools"] if pool["pool_name"] == POOL)
        for group in range(pool["pg_num"]):
            where = {"pgid": f"{pool['pool']}.{group:x}", "id": [numbers[group % len(numbers)]]}
            session.command(CephRequest("pg-upmap", "mon", (("prefix", "osd pg-upmap"), *where.items())))


def make_image(cluster: Any, filled_bytes: int = READ_BYTES, object_size: str = "4M") -> None:
    """Make the image, fill what is read, and leave room for what is written."""
    size = f"{(filled_bytes + WRITTEN_BYTES) >> 20}M"
    run(cluster, "rbd", "create", f"{POOL}/{IMAGE}", "--size", size, "--object-size", object_size)
    fio(cluster, "--rw=write", f"--size={filled_bytes}", "--do_verify=0")


def verify(cluster: Any) -> None:
    """Read all of what is only read, and compare it with its checksums."""
    fio(cluster, "--rw=read", f"--size={READ_BYTES}")


class Load:
    """Reads all the time, and writes that are read back after each pass; `passes` says how many of both ended well.

    A pass that ends with one of the errors `forgiven`, and has not read wrong data, is begun anew.
    """

    def __init__(self, cluster: Any, forgiven: Collection[str], read_iops: int) -> None:
        self.passes = [0, 0]
        self.failures: list[str] = []
        self._forgiven = forgiven
        # Ten seconds of reads are a pass, as about eight of writes are.
        self._reads = [f"--rate_iops={read_iops}", f"--number_ios={10 * read_iops}"]
        self._cluster = cluster
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(kind,)) for kind in (0, 1)]

    def _repeat(self, kind: int) -> None:
        reads = ["--rw=randread", f"--size={READ_BYTES}", *self._reads]
        writes = ["--rw=randwrite", f"--size={WRITTEN_BYTES}", f"--offset={READ_BYTES}", "--rate_iops=250"]
        while not self._is_over.is_set() and not self.failures:
            try:
                # Another seed for each pass: other data, in another order.
                fio(self._cluster, *(writes if kind else reads), f"--randseed={self.passes[kind] + 1}")
                self.passes[kind] += 1
            except (AssertionError, subprocess.SubprocessError) as error:
                text = str(error)
                is_wrong = "verify failed" in text or "verify: bad" in text
                if is_wrong or not any(error in text for error in self._forgiven):
                    self.failures.append(text)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Load the image for as long as the context lasts, and to the end of the passes that are under way then."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in self._threads:
                thread.join()


def recreate(cluster: Any, osd: str, store: str) -> None:
    """Make an OSD anew in its cached directory, through the mount; return when it has its data again."""
    lab = state.load(cluster.name)
    daemons.kill(cluster, osd, signal.SIGTERM)
    directory = lab.layout.data(osd)
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name == "block" and store == "bluestore":
            with path.open("r+b", buffering=0) as block:
                block.write(bytes(_LABEL_BYTES))
        else:
            path.unlink()
    (uuid,) = (device.uuid for device in lab.record.devices if device.name == osd)
    with tempfile.NamedTemporaryFile() as monmap:
        run(cluster, "ceph", "mon", "getmap", "-o", monmap.name)
        conf = ("-c", str(lab.layout.conf), "--no-mon-config")
        run(
            cluster, "ceph-osd", "--mkfs", "-f", "-i", osd.partition(".")[2], *conf,
            "--osd-uuid", uuid, "--monmap", monmap.name, "--osd-objectstore", store,
        )  # fmt: skip
    caches.restart_osds(lab, LocalHost(), [osd])


def kill_osd(cluster: Any, osd: str) -> None:
    """Kill an OSD and start it again; return when all is clean."""
    daemons.kill(cluster, osd)
    caches.restart_osds(state.load(cluster.name), LocalHost(), [osd])


def kill_cache(cluster: Any, osd: str, tools: Any) -> None:
    """Kill the cache of an OSD, which loses its disk and ends by itself; start the cache again, then the OSD."""
    daemons.kill(cluster, cache_of(osd))

    def has_ended() -> bool:
        return not any(daemon.alive for daemon in state.load(cluster.name).daemons() if daemon.name == osd)

    tools.wait_for(has_ended, 60, f"the end of {osd}")
    caches.put_on(state.load(cluster.name), LocalHost(), SSD_BYTES, osds=[osd])


def cache_of(osd: str) -> str:
    """Name of the process that is the cache of an OSD."""
    return f"{state.CACHE}.{osd.partition('.')[2]}"


def deep_scrub(cluster: Any, tools: Any) -> None:
    """Have all replicas of all objects compared; nothing may be found."""
    with cluster.session() as session:

        def groups() -> dict[str, dict[str, Any]]:
            dump = session.json("mgr", "pg dump", dumpcontents=["pgs"])["pg_stats"]
            return {group["pgid"]: group for group in dump}

        before = groups()

        def are_scrubbed() -> bool:
            now = groups()
            left = [pg for pg in now if now[pg]["last_deep_scrub_stamp"] == before[pg]["last_deep_scrub_stamp"]]
            # An OSD that scrubs another group does not remember that it was asked.
            session.commands(
                [CephRequest("deep-scrub", "mgr", (("prefix", "pg deep-scrub"), ("pgid", pg))) for pg in left]
            )
            return not left

        tools.wait_for(are_scrubbed, 180, "deep scrubs")
        for pg, group in groups().items():
            assert "inconsistent" not in group["state"], pg
            assert group["stat_sum"]["num_scrub_errors"] == 0, pg


def content(directory: Path) -> dict[str, tuple[str, dict[str, bytes]]]:
    """Return path → checksum and extended attributes of all files below a directory."""
    found = {}
    for path in sorted(directory.rglob("*")):
        attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path)}
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(path.open("rb")) if path.is_file() else None
            checksum = hashlib.file_digest(file, "sha256").hexdigest() if file else ""
        found[str(path.relative_to(directory))] = checksum, attributes
    return found


def handle_of(path: Path) -> str:
    """Return the handle of a file as the cache names it: a zero, the handle's type, and its bytes, in hexadecimal."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.create_string_buffer(8 + _HANDLE_BYTES_MAX)
    ctypes.c_uint.from_buffer(handle).value = _HANDLE_BYTES_MAX
    at_current_directory, mount = -100, ctypes.c_int()
    failed = libc.name_to_handle_at(at_current_directory, os.fsencode(path), handle, ctypes.byref(mount), 0)
    assert failed == 0, os.strerror(ctypes.get_errno())
    length = ctypes.c_uint.from_buffer(handle).value
    return (b"\0" + handle.raw[4 : 8 + length]).hex()
