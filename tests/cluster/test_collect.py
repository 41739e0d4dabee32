"""A recording of known loads on a real Ceph: every view shows their counts, or says how far it can be off."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bathyscope.analysis.activity import VIEWS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

POOL, EC_POOL, NAMESPACE = "vms", "vms-data", "tenant"
# Image → (pattern, operations): primes, so that no sum is another one's by chance.
LOADS = {
    f"{POOL}/a": ("randread", 4021),
    f"{POOL}/b": ("randwrite", 1009),
    f"{POOL}/ec": ("randread", 2003),
    f"{POOL}/{NAMESPACE}/n": ("randwrite", 503),
}
MIB = 1 << 20
# Of the manager's own image counters; see sources/image_counters.
IMAGES_OFF = 0.03


def ceph(cluster: Any, *words: str) -> str:
    """Run one of Ceph's programs on the cluster."""
    target = cluster.target
    argv = [words[0], "--conf", target.conf, "--keyring", target.keyring, *words[1:]]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def fio(cluster: Any, image: str, pattern: str, *words: str) -> None:
    """Load an image to the end of its operations."""
    pool, name = image.split("/")
    subprocess.run(
        ["env", f"CEPH_CONF={cluster.target.conf}", f"CEPH_ARGS=--keyring={cluster.target.keyring} --rbd_cache=false",
         "fio", "--name=load", "--ioengine=rbd", "--clientname=admin", f"--pool={pool}", f"--rbdname={name}",
         f"--rw={pattern}", "--iodepth=8", *words],
        capture_output=True, check=True, timeout=180,
    )  # fmt: skip


def load(cluster: Any, image: str, pattern: str, count: int) -> None:
    """Do so many operations of 4 KiB on an image. fio knows no namespaces."""
    if image.count("/") == 1:
        fio(cluster, image, pattern, "--bs=4k", "--size=64M", f"--io_size={count * 4}k")
        return
    words = ("--io-type", pattern.removeprefix("rand"), "--io-pattern", "rand", "--io-size", "4096")
    ceph(cluster, "rbd", "--rbd_cache=false", "bench", image, *words, "--io-total", str(count * 4096))


@pytest.fixture(scope="module")
def loaded(borrowed_lab: Any) -> Iterator[Any]:
    """A lab with images in a replicated pool, a namespace and an erasure-coded data pool, all written once."""
    with borrowed_lab("ssd=3") as cluster:
        for pool, *more in ((POOL,), (EC_POOL, "erasure")):
            ceph(cluster, "ceph", "osd", "pool", "create", pool, "16", "16", *more)
            ceph(cluster, "ceph", "osd", "pool", "application", "enable", pool, "rbd")
        ceph(cluster, "ceph", "osd", "pool", "set", EC_POOL, "allow_ec_overwrites", "true")
        ceph(cluster, "rbd", "namespace", "create", f"{POOL}/{NAMESPACE}")
        for image in LOADS:
            data = ["--data-pool", EC_POOL] if image.endswith("/ec") else []
            ceph(cluster, "rbd", "create", image, "--size", "64M", *data)
            if "/n" not in image:
                fio(cluster, image, "write", "--bs=1M", "--size=64M")
        yield cluster


def collect(cluster: Any, workspace: Path, *words: str, duration: str = "40s") -> subprocess.Popen[bytes]:
    return cluster.start(
        "collect", "--lab", cluster.name, "-w", str(workspace), "--duration", duration, *words,
        stderr=workspace / "said",
    )  # fmt: skip


def view(cluster: Any, workspace: Path, name: str, *words: str) -> dict[str, Any]:
    found = cluster.bathy("analyze", "last", "-w", str(workspace), "--view", name, "-o", "json", *words)
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))


def table(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return first column → column → value of a view's first table."""
    first, *_ = found["tables"]
    return {str(row[first["columns"][0]["key"]]): row for row in first["rows"]}


def test_every_view_shows_the_operations_that_were_done(loaded: Any, tmp_path: Path, tools: Any) -> None:
    process = collect(loaded, tmp_path)
    tools.wait_for(lambda: "recording" in (tmp_path / "said").read_text(), what="the recording")
    # The OSDs begin to count for the manager some 10 s after its first question.
    time.sleep(11)
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(load, loaded, image, pattern, count) for image, (pattern, count) in LOADS.items()]:
            done.result()
    assert process.poll() is None, (tmp_path / "said").read_text()
    assert process.wait(120) == 0, (tmp_path / "said").read_text()

    found = view(loaded, tmp_path, "devices")
    images = table(found)
    for image, (pattern, count) in LOADS.items():
        kind, other = ("reads", "writes") if pattern == "randread" else ("writes", "reads")
        assert images[image][kind] == pytest.approx(count, rel=IMAGES_OFF), image
        assert images[image][other] == 0
    assert images[f"{POOL}/a"]["read_bytes"] == pytest.approx(LOADS[f"{POOL}/a"][1] * 4096, rel=IMAGES_OFF)
    assert images[f"{POOL}/a"]["read_latency_ns"] > 0

    # Pools and OSDs are complete: also what is no image's data (headers, watches) is counted, so never less.
    reads = sum(count for pattern, count in LOADS.values() if pattern == "randread")
    writes = sum(count for pattern, count in LOADS.values() if pattern == "randwrite")
    pools = table(view(loaded, tmp_path, "pools"))
    assert LOADS[f"{POOL}/ec"][1] <= pools[EC_POOL]["reads"] <= LOADS[f"{POOL}/ec"][1] + 20
    osds = table(view(loaded, tmp_path, "osds"))
    assert set(osds) == {"osd.0", "osd.1", "osd.2"}
    assert reads <= sum(row["reads"] for row in osds.values()) <= 1.1 * reads
    assert writes <= sum(row["writes"] for row in osds.values()) <= 1.1 * writes
    assert all(row["read_latency_ns"] > 0 for row in osds.values())
    nodes = table(view(loaded, tmp_path, "nodes"))
    assert sum(row["reads"] for row in nodes.values()) == sum(row["reads"] for row in osds.values())
    # The load was over 10 s before the recording was: nothing of it is late.
    of_pools = view(loaded, tmp_path, "osd_pools")
    rows = of_pools["tables"][0]["rows"]
    for pool in (POOL, EC_POOL):
        mine = [row for row in rows if row["pool"] == pool]
        counted = tuple(sum(row[kind] for row in mine) for kind in ("reads", "writes"))
        assert counted == tuple(pools[pool][kind] for kind in ("reads", "writes"))
    health = view(loaded, tmp_path, "health")
    assert health["sentence"].startswith("HEALTH_")
    image = (f"{POOL}/a",)
    said = {
        "devices": ("own image statistics", "up to 3 % too small", "`bathy mgr install`"),
        "clients": ("Clients are not counted", "`bathy mgr install`"),
        "timeline": ("Which client moved with a shift is not known", "`bathy mgr install`"),
        "osd_pools": ("up to 5 s late and without latencies", "`bathy mgr install`"),
        "pools": ("they are that much late",),
        "image": ("Single objects are not counted", "`bathy collect --image`"),
        "zones": ("Single objects are not counted", "`bathy collect --image`"),
        "objects": ("Single objects are not counted", "`bathy collect --image`"),
        "slow": ("No operations were recorded", "`bathy collect --depth deep`"),
        "ops": ("No operations were recorded", "`bathy collect --depth deep`"),
        "caches": ("No cache over an OSD of this machine was asked",),
        # What the OSDs and the monitors count and say themselves is complete.
        "osds": (), "nodes": (), "balance": (), "health": (),
    }  # fmt: skip
    assert said.keys() == VIEWS.keys()
    for name, words in said.items():
        seen = view(loaded, tmp_path, name, *(image if VIEWS[name].of_image else ()))
        assert bool(seen["unseen"]) == bool(words), name
        assert any(all(word in remark for word in words) for remark in seen["unseen"] or [""]), (name, seen["unseen"])
        # Where nothing looked there are no zeros, which would be counts.
        if words and words[0].startswith(("Nothing", "No ")):
            assert seen["tables"][0]["rows"] == [], name
            assert "touched" not in dict(seen["facts"]).get("Objects", ""), name


def test_placement_groups_alone_tell_where_the_load_lands(loaded: Any, tmp_path: Path, tools: Any) -> None:
    process = collect(loaded, tmp_path, "--depth", "light", duration="32s")
    tools.wait_for(lambda: "recording" in (tmp_path / "said").read_text(), what="the recording")
    time.sleep(2)
    load(loaded, f"{POOL}/a", "randread", 2003)
    assert process.wait(120) == 0, (tmp_path / "said").read_text()
    osds = table(view(loaded, tmp_path, "osds"))
    assert 2003 <= sum(row["reads"] for row in osds.values()) <= 2003 * 1.1
    pools = table(view(loaded, tmp_path, "pools"))
    assert 2003 <= pools[POOL]["reads"] <= 2003 + 60


def test_a_killed_recording_can_be_read_to_its_last_segment(loaded: Any, tmp_path: Path, tools: Any) -> None:
    process = collect(loaded, tmp_path, "--interval", "1s", duration="200s")
    tools.wait_for_counters(tmp_path)
    time.sleep(3)
    process.kill()
    process.wait(10)
    run = tools.newest(tmp_path)
    assert run.status == "interrupted"
    osds = table(view(loaded, tmp_path, "osds"))
    assert set(osds) == {"osd.0", "osd.1", "osd.2"}


def test_an_interruption_ends_a_recording_as_its_time_does(loaded: Any, tmp_path: Path, tools: Any) -> None:
    process = loaded.start("collect", "--lab", loaded.name, "-w", str(tmp_path), "--follow", stderr=tmp_path / "said")
    tools.wait_for(lambda: "recording" in (tmp_path / "said").read_text(), what="the recording")
    time.sleep(7)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0, (tmp_path / "said").read_text()
    run = tools.newest(tmp_path)
    assert run.status == "done"
    assert run.info.ended_ns is not None
    # What was recorded until then is there.
    assert set(table(view(loaded, tmp_path, "osds"))) == {"osd.0", "osd.1", "osd.2"}


def test_the_caps_that_are_printed_are_enough_for_each_depth(loaded: Any, tmp_path: Path, tools: Any) -> None:
    keyring = tmp_path / "watch.keyring"
    printed = json.loads(loaded.bathy("caps", "collect", "-o", "json").stdout)
    caps = [word for row in printed for word in (row["daemon"], row["caps"])]
    keyring.write_text(ceph(loaded, "ceph", "auth", "get-or-create", "client.watch", *caps))
    process = loaded.start(
        "collect", "--conf", loaded.target.conf, "--client", "client.watch", "--keyring", str(keyring),
        "--image-statistics", "-w", str(tmp_path), "--duration", "26s", stderr=tmp_path / "said",
    )  # fmt: skip
    tools.wait_for(lambda: "recording" in (tmp_path / "said").read_text(), what="the recording")
    time.sleep(11)
    load(loaded, f"{POOL}/b", "randwrite", 307)
    assert process.wait(120) == 0, (tmp_path / "said").read_text()
    assert "client.watch may not use `ceph tell osd.N`" in (tmp_path / "said").read_text()
    images = table(view(loaded, tmp_path, "devices"))
    assert images[f"{POOL}/b"]["writes"] == pytest.approx(307, rel=IMAGES_OFF)
    found = view(loaded, tmp_path, "osds")
    assert sum(row["writes"] for row in table(found).values()) >= 307
    assert any("osd 'allow *'" in remark for remark in found["unseen"])
    finding = tools.newest(tmp_path)
    assert "perf_counters" not in {row["source"] for row in tools.rows(finding, "collection")}


def test_the_objects_of_a_chosen_image_are_counted_one_by_one(loaded: Any, tmp_path: Path, tools: Any) -> None:
    """17 writes to the first object of an image, 29 to the last: exactly these, on the OSDs that the map names."""
    refused = loaded.bathy("collect", "--lab", loaded.name, "--image", f"{POOL}/b", "-w", str(tmp_path))
    assert refused.returncode == 2
    assert "bathy mgr install" in refused.stderr
    assert loaded.bathy("mgr", "install", "--lab", loaded.name).returncode == 0
    try:
        process = collect(loaded, tmp_path, "--image", f"{POOL}/b", "--depth", "light", duration="36s")
        tools.wait_for(lambda: "recording" in (tmp_path / "said").read_text(), what="the recording")
        time.sleep(10)
        for offset, count in ((0, 17), (60 * MIB, 29)):
            # One at a time: librbd joins neighbours that are in flight together.
            words = ("--bs=4k", f"--offset={offset}", f"--size={count * 4}k", "--iodepth=1")
            fio(loaded, f"{POOL}/b", "write", *words)
        assert process.wait(120) == 0, (tmp_path / "said").read_text()
    finally:
        assert loaded.bathy("mgr", "remove", "--lab", loaded.name).returncode == 0
    found = view(loaded, tmp_path, "objects", f"{POOL}/b")
    rows = found["tables"][0]["rows"]
    assert [(row["offset_bytes"], row["writes"], row["written_bytes"]) for row in rows] == [
        (60 * MIB, 29, 29 * 4096),
        (0, 17, 17 * 4096),
    ]
    image_id = json.loads(ceph(loaded, "rbd", "info", f"{POOL}/b", "--format", "json"))["id"]
    for row in rows:
        mapped = ceph(
            loaded, "ceph", "osd", "map", POOL, f"rbd_data.{image_id}.{row['object_number']:016x}", "-f", "json"
        )
        assert row["osd"] == f"osd.{json.loads(mapped)['acting_primary']}"
    zones = table(view(loaded, tmp_path, "zones", f"{POOL}/b", "--zones", "4"))
    assert [row["writes"] for row in zones.values()] == [17, 0, 0, 29]
    assert table(view(loaded, tmp_path, "devices"))[f"{POOL}/b"]["writes"] == 46
    assert table(view(loaded, tmp_path, "clients"))


def test_one_sample_of_the_live_view_shows_the_load_of_now(loaded: Any, tools: Any) -> None:
    with ThreadPoolExecutor() as pool:
        going = pool.submit(
            fio,
            loaded,
            f"{POOL}/a",
            "randread",
            "--bs=4k",
            "--size=64M",
            "--time_based",
            "--runtime=45",
            "--rate_iops=200",
        )
        time.sleep(3)
        found = loaded.bathy("top", "--lab", loaded.name, "--once", "-o", "json", "--interval", "2s")
        going.result()
    assert found.returncode == 0, found.stderr
    images = table(json.loads(found.stdout))
    assert images[f"{POOL}/a"]["iops"] == pytest.approx(200, rel=0.4)
