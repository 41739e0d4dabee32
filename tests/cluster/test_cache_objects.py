"""Objects of a BlueStore OSD behind a cache: where Ceph 20 says that they lie, and what is cached of them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import cached_osds

from bathyscope.analysis.pg_mapping import name_hash
from bathyscope.cache import bluestore
from bathyscope.errors import ClusterError
from bathyscope.host.local import LocalHost
from bathyscope.lab import caches, simdisk, state

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not simdisk.possible(), reason="FUSE needs root and /dev/fuse"),
]

# Names as clients give them; an OSD prints the first as odd%3a%25.
READ, WRITTEN, IDLE = "odd:%", "written", "idle"
OBJECT_BYTES, LINE_BYTES, UNIT_BYTES = 1 << 20, 1 << 16, 4096
SSD_BYTES = 128 << 20
OPTIONS: dict[str, object] = {"bluestore default buffered read": "false", "bluestore cache size": 8 << 20}


def rados(lab: Any, *words: str, data: bytes | None = None) -> bytes:
    """Run the release's own `rados`."""
    argv = [str(lab.layout.directory / "bin/rados"), "-c", str(lab.layout.conf), "-k", lab.target().keyring, *words]
    return subprocess.run(argv, input=data, capture_output=True, check=True, timeout=60).stdout


@contextlib.contextmanager
def used(lab: Any, pool: str) -> Iterator[None]:
    """Read half of one object and write another all the time."""
    is_over = threading.Event()

    def use() -> None:
        while not is_over.is_set():
            rados(lab, "-p", pool, "get", READ, "-", "--offset", str(OBJECT_BYTES // 2))
            rados(lab, "-p", pool, "put", WRITTEN, "-", data=os.urandom(OBJECT_BYTES))
            is_over.wait(0.05)

    with concurrent.futures.ThreadPoolExecutor(1) as pool_of_one:
        load = pool_of_one.submit(use)
        try:
            yield
        finally:
            is_over.set()
        load.result()


def test_what_is_cached_of_the_objects_of_a_recording(own_lab: Any, tmp_path: Path) -> None:
    with own_lab("objects", ["ssd=1"], osd_size_bytes=4 << 30, release="tentacle") as cluster:
        cached_osds.configure(cluster, OPTIONS)
        lab = state.load(cluster.name)
        pool, data = "rbd", os.urandom(OBJECT_BYTES)
        # The first lies at the device's first MiB, of which whoever looks for file systems reads something.
        for name in (WRITTEN, READ, IDLE):
            rados(lab, "-p", pool, "put", name, "-", data=data if name == READ else os.urandom(OBJECT_BYTES))
        # It begins empty: what it has of an object was read or written since.
        caches.put_on(lab, LocalHost(), SSD_BYTES)
        workspace = tmp_path / "runs"
        with used(lab, pool):
            done = cluster.bathy(
                "collect", "--lab", cluster.name, "-w", str(workspace), "--depth", "deep", "--duration", "20s"
            )
        assert done.returncode == 0, done.stderr
        where = {"BATHY_CACHE_ROOT": str(lab.layout.caches)}
        asked = (
            "cache",
            "objects",
            "osd.0",
            "--recording",
            "last",
            "-w",
            str(workspace),
            "--lab",
            cluster.name,
            "-o",
            "json",
        )
        shown = cluster.bathy(*asked, **where)
        assert shown.returncode == 0, shown.stderr
        (table,) = json.loads(shown.stdout)["tables"]
        rows = {row["object_name"]: row for row in table["rows"]}
        # Nobody used the third one, and the cluster's own objects are perhaps there.
        assert {"odd%3a%25", WRITTEN} <= rows.keys()
        assert IDLE not in rows
        read, written = rows["odd%3a%25"], rows[WRITTEN]
        assert read["reads"] > 0
        assert (read["read_bytes"], read["writes"]) == (read["reads"] * OBJECT_BYTES // 2, 0)
        # Where the half that is read begins within a line, the cache may have fetched the line's beginning with it.
        assert 0 <= read["cached_bytes"] - OBJECT_BYTES // 2 < LINE_BYTES
        assert (read["allocated_bytes"], read["share_ratio"]) == (OBJECT_BYTES, read["cached_bytes"] / OBJECT_BYTES)
        assert written["writes"] > 0
        assert written["reads"] == 0
        # Of a run of writes the beginning enters the cache, and it may continue the one before.
        assert 0 <= written["cached_bytes"] <= written["allocated_bytes"] == OBJECT_BYTES
        assert written["share_ratio"] == written["cached_bytes"] / written["allocated_bytes"]

        # And the extents have the bytes of the object, in whatever order.
        with cluster.session() as session:
            pool_id = next(one["pool"] for one in session.json("mon", "osd dump")["pools"] if one["pool_name"] == pool)
            called = bluestore.onode_name(pool_id, "odd%3a%25", name_hash(READ.encode()))
            extents = bluestore.places(session, 0, [called], lambda _: None)[called]
        device = (lab.layout.data("osd.0") / "block").resolve()
        found: Counter[bytes] = Counter()
        with device.open("rb", buffering=0) as file:
            for at, length in extents:
                file.seek(at)
                found.update(units(file.read(length)))
        assert found == Counter(units(data))
        # Mounts lie in the other release's root file system, and go as they came.
        caches.take_off(state.load(cluster.name), LocalHost())
        assert rados(lab, "-p", pool, "get", READ, "-") == data


def units(data: bytes) -> list[bytes]:
    return [data[at : at + UNIT_BYTES] for at in range(0, len(data), UNIT_BYTES)]


def test_an_older_ceph_says_that_it_cannot_tell(cluster: Any) -> None:
    if state.load(cluster.name).record.release == "tentacle":
        pytest.skip("this Ceph can tell")
    with cluster.session() as session, pytest.raises(ClusterError, match="cannot say where objects lie"):
        bluestore.places(session, 0, ["#1:00000000:::x:head#"], lambda _: None)
