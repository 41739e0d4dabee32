"""Known operations of known clients on a real Ceph, recorded with the manager's module: every view shows exactly these.

All images have their data in pools of their own, which hold nothing else, so that counts of pools are exact as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import daemons

from bathyscope.commands.analyze import finding_of_view
from bathyscope.lab.spec import ErasureCode
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.store import Workspace

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]

POOL, DATA_POOL, EC_POOL, NAMESPACE = "rbd", "data", "ec-2-1", "tenant"
KIB, MIB = 1 << 10, 1 << 20
BLOCK = 4 * KIB
ZOOMED = ("small", "large", "coded", "striped", "base", "clone")
# OSDs of a lab report every second, and the manager looks at that as often; the recorder looks at its counts every 5 s,
# and at those of placement groups and the health every 10 s.
REPORT_S, LOOK_S, SLOW_LOOK_S = 1.0, 5.0, 10.0

# A client of its own: does what is written on its input, one operation after the other and without a cache, and says
# who it was and which ids its images have.
_CLIENT = """
import json, sys, time, rados, rbd
conf, keyring = sys.argv[1:]
options = {"keyring": keyring, "rbd_cache": "false", "rbd_skip_partial_discard": "false", "admin_socket": "",
           "log_file": ""}
cluster = rados.Rados(conffile=conf, name="client.admin", conf=options)
cluster.connect()
ioctx = cluster.open_ioctx("rbd")
ids = {}
for step in json.load(sys.stdin):
    what, name = step.pop("do"), step.pop("image")
    namespace, _, name = name.rpartition("/")
    ioctx.set_namespace(namespace)
    if what == "create":
        if namespace and not rbd.RBD().namespace_exists(ioctx, namespace):
            rbd.RBD().namespace_create(ioctx, namespace)
        rbd.RBD().create(ioctx, name, step.pop("size"), old_format=False, **step)
    elif what == "clone":
        rbd.RBD().clone(ioctx, name, step["snapshot"], ioctx, step["clone"], data_pool=step["data_pool"])
    elif what == "remove":
        rbd.RBD().remove(ioctx, name)
    elif what == "rename":
        rbd.RBD().rename(ioctx, name, step["to"])
    else:
        with rbd.Image(ioctx, name, snapshot=step.get("snapshot")) as image:
            ids[name] = image.id()
            for place in step.get("places", []):
                time.sleep(step.get("pause", 0))
                if what == "write":
                    assert image.write(b"x" * step["length"], place) == step["length"]
                elif what == "read":
                    assert len(image.read(place, step["length"])) == step["length"]
                elif what == "discard":
                    image.discard(place, step["length"])
            if what == "snap":
                image.create_snap(step["name"])
                image.protect_snap(step["name"])
            elif what == "resize":
                image.resize(step["size"])
print(json.dumps({"client": "client.%d" % cluster.get_instance_id(), "ids": ids}))
ioctx.close()
cluster.shutdown()
"""


def client(cluster: Any, *steps: Mapping[str, Any]) -> dict[str, Any]:
    """Have a client do these steps, and return who it was."""
    argv = ["/usr/bin/python3", "-c", _CLIENT, cluster.target.conf, cluster.target.keyring]
    ended = subprocess.run(argv, input=json.dumps(steps), capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def create(image: str, size: int, **more: Any) -> dict[str, Any]:
    return {"do": "create", "image": image, "size": size, "data_pool": DATA_POOL, **more}


def does(what: str, image: str, places: list[int], length: int = BLOCK, **more: Any) -> dict[str, Any]:
    return {"do": what, "image": image, "places": places, "length": length, **more}


def blocks(count: int, first: int = 0, step: int = BLOCK) -> list[int]:
    """Return the offsets of so many operations."""
    return [first + number * step for number in range(count)]


def ceph(cluster: Any, *words: str) -> str:
    """Run one of Ceph's programs on the cluster."""
    target = cluster.target
    argv = [words[0], "--conf", target.conf, "--keyring", target.keyring, *words[1:]]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=180).stdout


def counters(cluster: Any) -> dict[str, Any]:
    """Return what the manager's module has counted, by query; empty while it does not answer."""
    target = cluster.target
    argv = ["ceph", "--conf", target.conf, "--keyring", target.keyring, "bathyscope", "counters"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=180)
    return dict(json.loads(answer.stdout)["queries"]) if answer.returncode == 0 else {}


def counted(cluster: Any, *image_ids: str) -> int:
    """Return how many operations on these images the module has counted."""
    # Client, address, pool, namespace, pool of the header, image; age; writes, reads, ...
    rows = counters(cluster).get("image_client", {}).get("rows", [])
    return sum(row[7] + row[8] for row in rows if row[5] in image_ids)


def counting_osds(cluster: Any, pool: int) -> set[int]:
    """Return the OSDs that have counted for the module what was done in a pool."""
    return {row[0] for row in counters(cluster).get("osd_pool", {}).get("rows", []) if row[1] == pool}


@contextlib.contextmanager
def fio(cluster: Any, image: str, pattern: str, runtime_s: float, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Load an image, one operation after the other: librbd joins neighbours that are in flight together."""
    target = cluster.target
    argv = [
        "env", f"CEPH_CONF={target.conf}", f"CEPH_ARGS=--keyring={target.keyring} --rbd_cache=false",
        "fio", "--name=load", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}", f"--rbdname={image}",
        f"--rw={pattern}", "--iodepth=1", "--time_based", f"--runtime={runtime_s:g}", "--output-format=json", *words,
    ]  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def loaded(borrowed_lab: Any) -> Iterator[Any]:
    """A lab with the manager's module and a pool for data beside the one with the headers."""
    with borrowed_lab("ssd=3", ec=ErasureCode(k=2, m=1)) as cluster:
        ceph(cluster, "ceph", "osd", "pool", "create", DATA_POOL, "16", "16")
        ceph(cluster, "ceph", "osd", "pool", "application", "enable", DATA_POOL, "rbd")
        assert cluster.bathy("mgr", "install", "--lab", cluster.name, timeout_s=300).returncode == 0
        yield cluster


class Watched:
    """A recording that goes on until it is ended."""

    def __init__(self, cluster: Any, workspace: Path, tools: Any, *words: str) -> None:
        self._workspace, self._said = workspace, workspace / "said"
        # What was done before is reported up to two periods late: it must not be in the first interval.
        time.sleep(3 * REPORT_S)
        self.process = cluster.start(
            "collect", "--lab", cluster.name, "-w", str(workspace), "--follow", *words, stderr=self._said
        )
        tools.wait_for(lambda: "recording" in self._said.read_text(), timeout_s=180, what="the recording")
        # OSDs need some seconds to begin to count what the module was just asked for.
        time.sleep(8)

    def end(self) -> None:
        """End it when what was done before has been reported, and looked at."""
        time.sleep(3 * REPORT_S + SLOW_LOOK_S)
        assert self.process.poll() is None, self._said.read_text()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(300) == 0, self._said.read_text()

    def view(self, name: str, image: str | None = None, **question: Any) -> ActivityFinding:
        run = Workspace(self._workspace).open_run("last")
        return finding_of_view(run, name, image=image and f"{POOL}/{image}", **question)

    def rows(self, name: str, image: str | None = None, **question: Any) -> dict[Any, dict[str, Any]]:
        """Return first column → column → value of a view's table; images without their pool."""
        table = self.view(name, image, **question).tables[0]
        names = [column.heading for column in table.columns]
        rows = [dict(zip(names, row, strict=True)) for row in table.rows]
        return {key.removeprefix(f"{POOL}/") if isinstance(key := row[names[0]], str) else key: row for row in rows}

    def counts(self, name: str, image: str | None = None, **question: Any) -> dict[Any, tuple[int, int]]:
        """Return first column → reads and writes."""
        return {key: (row["reads"], row["writes"]) for key, row in self.rows(name, image, **question).items()}


def test_every_view_shows_exactly_what_was_done(loaded: Any, tmp_path: Path, tools: Any) -> None:
    striping = {"order": 20, "stripe_unit": 64 * KIB, "stripe_count": 4, "features": 1 | 2 | 4 | 8 | 16 | 32}
    client(
        loaded,
        create("small", 32 * MIB, order=19),
        create("large", 256 * MIB, order=25),
        create("coded", 64 * MIB) | {"data_pool": EC_POOL},
        create(f"{NAMESPACE}/spaced", 32 * MIB),
        create("striped", 32 * MIB, **striping),
        create("base", 32 * MIB),
        create("snapped", 32 * MIB),
        create("gone", 32 * MIB),
        *(
            does("write", image, blocks(32, 0, MIB), MIB)
            for image in ("small", "large", "coded", f"{NAMESPACE}/spaced", "striped", "base", "snapped", "gone")
        ),
        {"do": "snap", "image": "base", "name": "s"},
        {"do": "clone", "image": "base", "snapshot": "s", "clone": "clone", "data_pool": DATA_POOL},
        {"do": "snap", "image": "snapped", "name": "s"},
    )
    zoomed = [word for image in ZOOMED for word in ("--image", f"{POOL}/{image}")]
    watched = Watched(loaded, tmp_path, tools, *zoomed)
    client(
        loaded,
        # Of zones of 16 objects the second, and of the last object its end.
        does("write", "small", blocks(101, 8 * MIB, 64 * KIB)),
        does("read", "small", blocks(17, 32 * MIB - 17 * BLOCK)),
        does("write", "large", blocks(13, 32 * MIB)),
        does("read", "large", blocks(211, 3 * BLOCK)),
        does("read", f"{NAMESPACE}/spaced", blocks(307)),
    )
    client(loaded, does("write", "coded", blocks(103, 5 * MIB)), does("read", "coded", blocks(401, 8 * MIB, 16 * KIB)))
    # One unit of 64 KiB after the other goes to another object: these lie in the objects 5 and 6.
    client(
        loaded, does("write", "striped", blocks(32, 4 * MIB + 64 * KIB)), does("read", "striped", blocks(7, 31 * MIB))
    )
    # What a clone has not written is read from its parent.
    client(loaded, does("read", "clone", blocks(223, 4 * MIB)))
    # The first write to an object of a clone copies it from the parent.
    client(loaded, does("write", "clone", [0, 12 * MIB, 12 * MIB + BLOCK]))
    client(
        loaded,
        does("read", "snapped", blocks(53), snapshot="s"),
        does("write", "snapped", blocks(59)),
        does("read", "snapped", blocks(61), snapshot="s"),
    )
    client(
        loaded,
        does("read", "gone", blocks(71)),
        does("discard", "gone", [0, 4 * MIB], 4 * MIB),
        does("discard", "gone", [8 * MIB], BLOCK),
        {"do": "remove", "image": "gone"},
    )
    watched.end()

    # What each image did. A clone's first write to an object reads the object from the parent; of the image that was
    # removed two objects were discarded, a block of a third one, and the six that were left.
    devices = watched.rows("devices")
    assert {image: (row["reads"], row["writes"]) for image, row in devices.items()} == {
        "small": (17, 101), "large": (211, 13), f"{NAMESPACE}/spaced": (307, 0), "coded": (401, 103),
        "striped": (7, 32), "base": (223 + 2, 0), "clone": (0, 3), "snapped": (53 + 61, 59), "gone": (71, 2 + 1 + 6),
    }  # fmt: skip
    for image in ("small", "large", "coded", "striped", "snapped"):
        assert devices[image]["read"] == devices[image]["reads"] * BLOCK
        assert devices[image]["written"] == devices[image]["writes"] * BLOCK
    # Reads of the parent: two by the client that wrote to the clone, the others by one that did nothing else.
    assert devices["base"]["for clones"] == "reads: 2 for its clone rbd/clone, 223 its own or for a clone (rbd/clone)"
    reads, writes = (sum(row[kind] for row in devices.values()) for kind in ("reads", "writes"))
    (everybody,) = watched.rows("clients").values()
    assert (everybody["reads"], everybody["writes"], everybody["images"]) == (reads, writes, len(devices))
    assert everybody["instances"] == 7

    # Groups count each operation of a message: three writes to a clone ask first whether their object is there, and two
    # of them copy it before.
    pools = watched.counts("pools")
    assert pools[EC_POOL] == (401, 103)
    assert pools[DATA_POOL] == (reads - 401 + 3, writes - 103 + 2)
    # OSDs count what is no image's data, too: headers, and the watches on them.
    osds, nodes = watched.counts("osds"), watched.counts("nodes")
    for place, least in ((0, reads), (1, writes)):
        assert least <= sum(row[place] for row in osds.values()) <= 1.5 * least
        assert sum(row[place] for row in nodes.values()) == sum(row[place] for row in osds.values())

    # Where in the images it landed.
    landed = {
        "small": {
            **{8 * MIB + 512 * KIB * number: (0, 8) for number in range(12)},
            14 * MIB: (0, 5),
            32 * MIB - 512 * KIB: (17, 0),
        },
        "large": {0: (211, 0), 32 * MIB: (0, 13)},
        "coded": {4 * MIB: (0, 103), 8 * MIB: (256, 0), 12 * MIB: (145, 0)},
        "striped": {4 * MIB + 64 * KIB: (0, 16), 4 * MIB + 128 * KIB: (0, 16), 28 * MIB: (7, 0)},
        "base": {0: (1, 0), 4 * MIB: (223, 0), 12 * MIB: (1, 0)},
        "clone": {0: (0, 1), 12 * MIB: (0, 2)},
    }
    for image in ZOOMED:
        assert watched.counts("objects", image) == landed[image], image
        facts = dict(watched.view("image", image).facts)
        assert f", touched {len(landed[image])} (" in facts["Objects"], image
    # Zones of a striped image are whole rounds of its four objects.
    for image, width in (("small", 8 * MIB), ("large", 64 * MIB), ("coded", 16 * MIB), ("striped", 8 * MIB)):
        expected = dict.fromkeys(range(0, 4 * width, width), (0, 0))
        for offset, counts in landed[image].items():
            zone = offset // width * width
            expected[zone] = (expected[zone][0] + counts[0], expected[zone][1] + counts[1])
        assert watched.counts("zones", image, zones=4) == expected, image
    assert any("64.0 KiB of every 256 KiB" in remark for remark in watched.view("objects", "striped").unseen)


def test_counts_agree_with_fio(loaded: Any, tmp_path: Path, tools: Any) -> None:
    """With what fio says it did, exactly."""
    client(loaded, create("paced", 32 * MIB), does("write", "paced", blocks(32, 0, MIB), MIB))
    watched = Watched(loaded, tmp_path, tools)
    with fio(loaded, "paced", "randrw", 10, "--rwmixread=70", "--bs=4k", "--rate_iops=140,60") as process:
        (job,) = json.loads(process.communicate(timeout=180)[0])["jobs"]
    watched.end()
    assert watched.counts("devices")["paced"] == tuple(job[kind]["total_ios"] for kind in ("read", "write"))


# Image → fio's pattern and options. Little enough, and with room for waits, that a busy machine does it steadily.
STEADY = {
    "reading": ("randread", "--bs=4k", "--rate_iops=150", "--iodepth=16"),
    "writing": ("randwrite", "--bs=4k", "--rate_iops=50", "--iodepth=16"),
    "both": ("randrw", "--bs=16k", "--rate_iops=50,50", "--iodepth=16"),
}
# Image → what fio does of it each second.
PACED = {
    "reading": {"read_ops": 150, "read_bytes": 150 * 4096, "write_ops": 0, "write_bytes": 0},
    "writing": {"read_ops": 0, "read_bytes": 0, "write_ops": 50, "write_bytes": 50 * 4096},
    "both": {"read_ops": 50, "read_bytes": 50 * 16384, "write_ops": 50, "write_bytes": 50 * 16384},
}
# Over forty seconds.
ASK_S, ASKED = 1.6, 25
# iostat was 4 % below a load of known rate where the machine was busy.
PACED_OFF, IOSTAT_OFF = 0.02, 0.06


def test_rates_agree_with_rbd_perf_image_iostat(loaded: Any, tmp_path: Path, tools: Any) -> None:
    """Means over the same time of a steady load on three images: within 2 % of fio's rate, within 6 % of iostat's.

    An answer of iostat has the rates between the manager's last two looks at the OSDs' reports. So the mean of the
    answers is compared with what was recorded from one look before the first answer to the last one. The load began
    long before and goes on after: that a report is some seconds late does not matter.
    """
    for image in STEADY:
        client(loaded, create(image, 32 * MIB), does("write", image, blocks(32, 0, MIB), MIB))
    target = loaded.target
    iostat = ["rbd", "--conf", target.conf, "--keyring", target.keyring, "perf", "image", "iostat", "--format", "json"]
    answers: list[tuple[float, dict[str, dict[str, float]]]] = []
    with contextlib.ExitStack() as stack:
        for image, (pattern, *words) in STEADY.items():
            stack.enter_context(fio(loaded, image, pattern, 300, *words))
        # The first answer takes 10 s.
        first = stack.enter_context(subprocess.Popen(iostat, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        watched = Watched(loaded, tmp_path, tools)
        assert first.wait(30) == 0
        time.sleep(2 * REPORT_S)
        began = time.monotonic()
        for number in range(ASKED):
            time.sleep(max(0.0, began + number * ASK_S - time.monotonic()))
            told = subprocess.run(iostat, capture_output=True, check=True, timeout=30).stdout
            answers.append((time.time(), {row["image"]: row for row in json.loads(told)}))
        watched.end()

    begins_s, ends_s = (at_s - tools.newest(tmp_path).info.started_ns / 1e9 for at_s in (answers[0][0], answers[-1][0]))
    assert ends_s - begins_s > 35
    devices = watched.rows("devices", since=f"{begins_s - LOOK_S}s", until=f"{ends_s}s")
    columns = {
        "read_ops": "read IOPS", "write_ops": "write IOPS",
        "read_bytes": "read bandwidth", "write_bytes": "write bandwidth",
    }  # fmt: skip
    for image in STEADY:
        for theirs, ours in columns.items():
            mean = sum(rates.get(image, {theirs: 0.0})[theirs] for _, rates in answers) / len(answers)
            found = devices[image][ours]
            paced = PACED[image][theirs]
            print(f"{image} {ours}: fio {paced}, iostat {mean:.1f}, recorded {found:.1f}")
            assert found == pytest.approx(paced, rel=PACED_OFF), (image, ours)
            # iostat prints whole numbers and cuts off fractions.
            assert (1 - IOSTAT_OFF) * mean <= found <= (1 + IOSTAT_OFF) * (mean + 1), (image, ours)
            assert bool(mean) == bool(paced)


def test_what_changes_during_a_recording_is_counted_or_said(loaded: Any, tmp_path: Path, tools: Any) -> None:
    """Another manager, twice as many placement groups, an OSD that goes and comes, and images that change."""
    pool = "changed"
    ceph(loaded, "ceph", "osd", "pool", "create", pool, "8", "8")
    ceph(loaded, "ceph", "osd", "pool", "application", "enable", pool, "rbd")
    fresh = [create(name, 32 * MIB) | {"data_pool": pool} for name in ("steady", "named", "grown")]
    everywhere = does("write", "everywhere", blocks(64, 0, 4 * MIB))
    client(loaded, *fresh, create("everywhere", 256 * MIB))
    ids = dict(client(loaded, does("write", "named", blocks(8, 0, 4 * MIB)))["ids"])
    (data_pool,) = [found["poolnum"] for found in json.loads(ceph(loaded, "ceph", "osd", "lspools", "-f", "json"))
                    if found["poolname"] == DATA_POOL]  # fmt: skip
    watched = Watched(loaded, tmp_path, tools)
    total, pause_s = 1201, 0.02
    before = counted(loaded, *ids.values())

    def others_do(*steps: Mapping[str, Any]) -> None:
        ids.update(client(loaded, *steps)["ids"])

    with ThreadPoolExecutor() as threads:
        steady = threads.submit(client, loaded, does("write", "steady", blocks(total), pause=pause_s))
        others_do(does("read", "named", blocks(101)), {"do": "rename", "image": "named", "to": "renamed"})
        others_do(does("read", "renamed", blocks(13)), {"do": "resize", "image": "grown", "size": 64 * MIB})
        others_do(does("write", "grown", blocks(17, 40 * MIB)), create("late", 32 * MIB) | {"data_pool": pool})
        others_do(does("write", "late", blocks(19)), create("brief", 32 * MIB) | {"data_pool": pool})
        others_do(does("write", "brief", blocks(29)), {"do": "remove", "image": "brief"})
        others_do(everywhere)
        ceph(loaded, "ceph", "osd", "pool", "set", pool, "pg_num", "16")
        # The one object of an image that was removed was removed, too. What was not reported goes with the OSD.
        by_others = before + 101 + 13 + 17 + 19 + 29 + 1 + len(everywhere["places"])
        tools.wait_for(lambda: counted(loaded, *ids.values()) == by_others, what="the counts of the others")
        primaries = counting_osds(loaded, data_pool)
        daemons.kill(loaded, "osd.2")
        # Which OSD was down is what a look at the cluster's health sees of it, while it is.
        tools.wait_for(lambda: "osd.2" in ceph(loaded, "ceph", "health", "detail"), what="osd.2 in the health")
        time.sleep(SLOW_LOOK_S + 2)
        daemons.start(loaded, "osd.2")
        steady.result()
        # What was done until now is known to the module, and to the recorder, when its manager goes.
        time.sleep(3 * REPORT_S + 2 * LOOK_S)
        daemons.kill(loaded, "mgr.x")
        daemons.start(loaded, "mgr.x")

        def all_count() -> bool:
            client(loaded, everywhere)
            return counting_osds(loaded, data_pool) == primaries

        tools.wait_for(all_count, what="the OSDs that count for another manager")
        # An OSD may have begun to count in the middle of the last round; this one it counts whole.
        client(loaded, everywhere, does("write", "late", blocks(23)))
    watched.end()

    rows = watched.rows("devices")
    counts = {name: (row["reads"], row["writes"]) for name, row in rows.items()}
    reads, writes = counts.pop("steady")
    reads_everywhere, writes_everywhere = counts.pop("everywhere")
    assert reads_everywhere == 0
    assert writes_everywhere >= 2 * len(everywhere["places"])
    # An image that came and went between two listings has its id for a name; one of them may have seen it.
    brief = f"(id {ids['brief']})" if "brief" not in counts else "brief"
    assert counts == {"renamed": (101 + 13, 0), "grown": (0, 17), "late": (0, 19 + 23), brief: (0, 29 + 1)}
    assert rows["grown"]["size"] == 64 * MIB
    # An OSD that goes has not reported at most the last seconds.
    assert reads == 0
    assert total - 5 * REPORT_S / pause_s <= writes <= total
    print(f"{total - writes} of {total} writes were lost with the OSD")
    for view in ("devices", "clients", "osds", "nodes", "osd_pools", "pools"):
        unseen = watched.view(view).unseen
        assert any("Not all is counted from" in remark and "down then: osd.2" in remark for remark in unseen), view
        of_module = any("Not counted from" in remark and "took over" in remark for remark in unseen)
        assert of_module == (view in ("devices", "clients", "osd_pools")), view
    # A group that loses its OSD, or is moved after a split, may lose what it counted; how much is not known.
    done = total + 17 + 19 + 23 + 29 + 1
    _, writes = watched.counts("pools")[pool]
    assert writes <= done
    assert writes == done or any("smaller than before" in remark for remark in watched.view("pools").unseen)
