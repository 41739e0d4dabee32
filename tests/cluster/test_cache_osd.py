"""Real OSDs whose directories are cached: they are made, loaded, killed, scrubbed, checked and repaired there.

BATHY_TORTURE_KILLS is the number of kills of OSDs, and of caches; `make torture` sets it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import cached_osds, daemons

from bathyscope.host.local import LocalHost
from bathyscope.lab import caches, simdisk, state
from bathyscope.spec.size import ADMISSION_OF_BATHYD

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not simdisk.possible(), reason="FUSE needs root and /dev/fuse"),
]

KILLS = int(os.environ.get("BATHY_TORTURE_KILLS", "1"))
OSDS = ("osd.0", "osd.1", "osd.2")
OPTIONS: dict[str, object] = {
    # BlueStore keeps nothing of what was read, so that reads reach the cache below it.
    "bluestore default buffered read": "false",
    "bluestore cache size": 8 << 20,
    "osd max scrubs": 8,
    "osd scrub sleep": 0,
    # A tick of an OSD begins scrubs that were asked for, and does not leave them to chance.
    "osd scrub backoff ratio": 0,
}
# FileStore keeps a journal, and names of objects in extended attributes, of which ext4 takes no long ones.
FILESTORE_OPTIONS: dict[str, object] = {
    "osd journal size": 100,
    "osd max object name len": 256,
    "osd max object namespace len": 64,
    # A quick end leaves the journal to be replayed at the next start, and what it rewrites would be in the cache.
    "osd fast shutdown": "false",
}


# What requests to a dead mount end with, and those that were under way when it died. FileStore does not end then, and
# takes what its database cannot read for something that is not there.
DEAD_MOUNT = (
    "Transport endpoint is not connected",
    "Software caused connection abort",
    "Operation canceled",
    "failed to retrieve initial metadata: (2) No such file or directory",
)
LINE_BYTES, FETCH_BYTES = 64 << 10, 4 << 10
IMAGE_BYTES, PREDICTED_SSD_BYTES = 192 << 20, 32 << 20
LOAD = (
    "--rw=randrw", "--rwmixread=80", f"--size={IMAGE_BYTES}", "--random_distribution=zipf:1.1", "--verify=0",
    "--number_ios=12000", "--randseed=1",
)  # fmt: skip


def on_caches(cluster: Any, store: str, journals: Path, recreated: Sequence[str]) -> None:
    """Put caches over all OSDs, and make some of them anew there, with this store."""
    cached_osds.configure(cluster, OPTIONS)
    caches.put_on(state.load(cluster.name), LocalHost(), cached_osds.SSD_BYTES)
    if store == "filestore":
        if state.load(cluster.name).record.release != "pacific":
            pytest.skip("this release of Ceph has no FileStore")
        cached_osds.configure(cluster, FILESTORE_OPTIONS | {"osd journal": journals / "journal.$id"})
    for osd in recreated:
        cached_osds.recreate(cluster, osd, store)
    with cluster.session() as session:
        assert {osd["osd_objectstore"] for osd in session.json("mon", "osd metadata")} == {store}


def counts(cluster: Any) -> list[dict[str, Any]]:
    """Return the counters of each cache's engine."""
    lab = state.load(cluster.name)
    return [cached_osds.ask(lab, osd)["cache"]["engine"] for osd in OSDS]


@pytest.mark.parametrize("store", ["bluestore", "filestore"])
def test_killed_under_load_and_nothing_is_wrong(own_lab: Any, tools: Any, store: str) -> None:
    with own_lab("cached", ["ssd=3"], osd_size_bytes=2 << 30) as cluster:
        recreated = OSDS if store == "filestore" else OSDS[-1:]
        on_caches(cluster, store, state.load(cluster.name).layout.data("osd.$id"), recreated)
        cached_osds.make_image(cluster)
        # BlueStore ends when it cannot read its device. FileStore ends for EIO alone, which a dead mount does not say.
        # Faster reads find no more between two kills; they take the processors from other tests.
        read_iops = 2000 if KILLS > 1 else 500
        load = cached_osds.Load(cluster, DEAD_MOUNT if store == "filestore" else (), read_iops)
        with load.running():
            for number in range(KILLS):
                cached_osds.kill_cache(cluster, OSDS[number % 3], tools)
                cached_osds.kill_osd(cluster, OSDS[(number + 1) % 3])
                if load.failures:
                    break
        assert not load.failures, load.failures[0]
        assert min(load.passes) > 0
        cached_osds.verify(cluster)
        if store == "bluestore":
            for osd in OSDS:
                cached_osds.run(cluster, "ceph", "tell", osd, "compact")
        cached_osds.deep_scrub(cluster, tools)
        killed = {OSDS[number % 3] for number in range(KILLS)}
        for osd, engine in zip(OSDS, counts(cluster), strict=True):
            assert engine["reads"]["requests_hit"] > 0
            assert engine["ssd_errors"] == 0
            assert not engine["is_bypassed"]
            # The table on the SSD is written every few seconds: after a kill, newer lines do not match it.
            assert engine["mismatches"] == 0 or osd in killed
        for osd in OSDS:
            check_at_rest(cluster, osd, store)


def check_at_rest(cluster: Any, osd: str, store: str) -> None:
    """Stop an OSD, and compare what is found through its cache with what is found without."""
    directory = state.load(cluster.name).layout.data(osd)
    daemons.kill(cluster, osd, signal.SIGTERM)
    if store == "bluestore":
        fsck(directory)
        assert "repair success" in bluestore_tool("repair", directory)
    through = None if store == "bluestore" else cached_osds.content(directory)
    daemons.kill(cluster, cached_osds.cache_of(osd), signal.SIGTERM)
    assert not directory.is_mount()
    if store == "bluestore":
        assert (directory / "block").is_symlink()
        fsck(directory)
    else:
        assert cached_osds.content(directory) == through


def fsck(directory: Path) -> None:
    assert "fsck success" in bluestore_tool("fsck", directory, "--deep", "1")


def bluestore_tool(*words: str | Path) -> str:
    verb, directory, *more = words
    ended = subprocess.run(
        ["ceph-bluestore-tool", verb, "--path", directory, *more],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@contextlib.contextmanager
def logged(cluster: Any) -> Iterator[None]:
    """Have OSDs log every operation."""
    for level in ("1/1", "0/0"):
        for osd in OSDS:
            cached_osds.run(cluster, "ceph", "tell", osd, "config", "set", "debug_ms", level)
        if level == "1/1":
            yield


def prediction(cluster: Any, workspace: Path, log: Path, flash_bytes: int) -> float:
    """Return the read hit ratio that is expected of a cache of this size for the operations in a log, now in a run."""
    imported = cluster.bathy("import", "osd-log", str(log), "-w", str(workspace))
    assert imported.returncode == 0, imported.stderr
    sized = cluster.bathy(
        "size", "last", "-w", str(workspace), "--exact", "--line", str(LINE_BYTES), "--fetch", str(FETCH_BYTES),
        "--policy", "s3-fifo", "--admission", ADMISSION_OF_BATHYD, "--budget", str(flash_bytes), "--output", "json",
    )  # fmt: skip
    assert sized.returncode == 0, sized.stderr
    (curve,) = json.loads(sized.stdout)["curves"]
    return float(curve["wanted"]["read_hit"]["value"])


def reads(cluster: Any, osd: str) -> dict[str, Counter[str]]:
    """Return what a cache counted of the reads of each file, by the file's handle."""
    (source,) = cached_osds.ask(state.load(cluster.name), osd, "files", limit=10_000)["sources"]
    return {file["handle"]: Counter(file["reads"]) for file in source["files"]}


def check_curve(lab: state.LabState, osd: str, counted: dict[str, int], error: float) -> None:
    """What the curve says of the present size is what the cache had, but for its policy, which is not LRU."""
    curve = cached_osds.ask(lab, osd, "curve")["curve"]
    (present,) = (point["hit_ratio"] for point in curve["points"] if point["size_ratio"] == 1)
    had = counted["requests_hit"] / counted["requests"]
    print(osd, f"{had:.4f} hits, {present:.4f} by the curve, {curve['sampled']} of {curve['requests']} reads")
    assert abs(had - present) < error


def objects(directory: Path) -> dict[str, str]:
    """Return the handle of each file of FileStore that is an object of an image, with the object's name."""
    found = (directory / "current").glob("*_head/**/rbd\\udata.*")
    return {cached_osds.handle_of(path): path.name.partition("__")[0].replace("\\u", "_") for path in found}


@pytest.mark.parametrize("store", ["filestore", "bluestore"])
def test_the_hit_ratio_is_as_predicted(own_lab: Any, tools: Any, tmp_path: Path, store: str) -> None:
    """What `bathy size` says of the logged reads of clients, and how many of them the caches sent to the disks.

    Operations are of objects. So are the files of FileStore, and each read of a client is one read of its file. Of
    BlueStore the cache sees blocks of a device, its log and its RocksDB too; what BlueStore has in memory never reaches
    the cache, so hits of the cache alone cannot be compared, and reads that need no disk can.
    """
    with own_lab("predict", ["ssd=3"], osd_size_bytes=2 << 30) as cluster:
        # A journal of FileStore is as a rule on a device of its own.
        on_caches(cluster, store, tmp_path, recreated=OSDS if store == "filestore" else ())
        # Replicas are written by the primary's word, which is not in a log of clients' operations.
        cached_osds.keep_one_copy(cluster, OSDS)
        # Of many small objects each OSD has about a third, which is more than its cache holds.
        cached_osds.make_image(cluster, IMAGE_BYTES, object_size="1M")
        lab = state.load(cluster.name)
        # A scrub reads objects through the cache, and is in no log of clients' operations.
        for flag in ("noscrub", "nodeep-scrub"):
            cached_osds.run(cluster, "ceph", "osd", "set", flag)
        # The caches begin empty, like the simulated ones.
        caches.take_off(lab, LocalHost(), remove=True)
        caches.put_on(state.load(cluster.name), LocalHost(), PREDICTED_SSD_BYTES, fetch=FETCH_BYTES)
        before = {osd: reads(cluster, osd) for osd in OSDS}
        with logged(cluster):
            cached_osds.fio(cluster, *LOAD)
        after = {osd: reads(cluster, osd) for osd in OSDS}
        requests, predicted, measured = 0, 0.0, 0
        for osd in OSDS:
            engine = cached_osds.ask(lab, osd)["cache"]["engine"]
            # A cache that left its SSD, or files that have no place in it, would be counted as misses.
            assert (engine["is_bypassed"], engine["ssd_errors"], engine["files_without_room"]) == (False, 0, 0)
            assert engine["evictions"] > 0
            # Small caches that BlueStore writes its log to differ most by their policy.
            check_curve(lab, osd, engine["reads"], 0.05 if store == "filestore" else 0.1)
            flash_bytes = engine["capacity_lines"] * LINE_BYTES - engine["stage_bytes"]
            log = lab.layout.log / f"{osd}.log"
            hit_ratio = prediction(cluster, tmp_path / osd, log, flash_bytes)
            ops = [op for op in tools.rows(tools.newest(tmp_path / osd), "op") if op["op"] == "read"]
            of_clients = Counter(op["object_name"] for op in ops if op["object_name"].startswith("rbd_data."))
            growth = {file: after[osd][file] - before[osd].get(file, Counter()) for file in after[osd]}
            if store == "filestore":
                daemons.kill(cluster, osd, signal.SIGTERM)
                daemons.kill(cluster, cached_osds.cache_of(osd), signal.SIGTERM)
                names = objects(lab.layout.data(osd))
                growth = {file: counts for file, counts in growth.items() if file in names}
                assert {names[file]: counts["requests"] for file, counts in growth.items() if counts} == of_clients
            total = sum(growth.values(), Counter())
            requests += of_clients.total()
            predicted += hit_ratio * of_clients.total()
            measured += of_clients.total() - (total["requests"] - total["requests_hit"])
            print(osd, f"{of_clients.total()} reads, {hit_ratio:.4f} predicted", total)
        print(f"{requests} reads, without a disk {predicted / requests:.4f} as predicted, {measured / requests:.4f}")
        # A BlueStore OSD also reads and writes its RocksDB there: 2 to 3 points, of caches as small as these.
        assert abs(predicted - measured) / requests <= (0.03 if store == "filestore" else 0.06)
