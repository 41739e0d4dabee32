"""Known operations of known clients on a real Ceph, recorded with the manager's module: every view shows exactly these.

All images have their data in pools of their own, which hold nothing else, so that counts of pools are exact as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bathyscope.lab.spec import ErasureCode

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]

POOL, DATA_POOL, EC_POOL, NAMESPACE = "rbd", "data", "ec-2-1", "tenant"
KIB, MIB = 1 << 10, 1 << 20
BLOCK = 4 * KIB

# A client of its own: does what is written on its input, one operation after the other and without a cache, and says
# who it was and which ids its images have.
_CLIENT = """
import json, sys, rados, rbd
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
    ended = subprocess.run(argv, input=json.dumps(steps), capture_output=True, text=True, timeout=120, check=False)
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
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def loaded(private_lab: Any) -> Iterator[Any]:
    """A lab with the manager's module and a pool for data beside the one with the headers."""
    with private_lab("truth", ["ssd=3"], ec=ErasureCode(k=2, m=1)) as cluster:
        ceph(cluster, "ceph", "osd", "pool", "create", DATA_POOL, "16", "16")
        ceph(cluster, "ceph", "osd", "pool", "application", "enable", DATA_POOL, "rbd")
        assert cluster.bathy("mgr", "install", "--lab", cluster.name).returncode == 0
        yield cluster


class Watched:
    """A recording that goes on."""

    def __init__(self, cluster: Any, workspace: Path, tools: Any, *words: str, duration_s: float) -> None:
        self._cluster, self._workspace, self._said = cluster, workspace, workspace / "said"
        self.process = cluster.start(
            "collect", "--lab", cluster.name, "-w", str(workspace), "--duration", f"{duration_s:g}s", *words,
            stderr=self._said,
        )  # fmt: skip
        tools.wait_for(lambda: "recording" in self._said.read_text(), what="the recording")
        # OSDs need some seconds to begin to count what the module was just asked for.
        time.sleep(8)

    def end(self) -> None:
        """Wait for its end: what was done before must have been done some seconds before it."""
        assert self.process.poll() is None, self._said.read_text()
        assert self.process.wait(120) == 0, self._said.read_text()

    def view(self, name: str, *words: str) -> dict[str, Any]:
        found = self._cluster.bathy("analyze", "last", "-w", str(self._workspace), "--view", name, "-o", "json", *words)
        assert found.returncode == 0, found.stderr
        return dict(json.loads(found.stdout))

    def rows(self, name: str, *words: str) -> dict[str, dict[str, Any]]:
        """Return first column → column → value of a view's first table."""
        table = self.view(name, *words)["tables"][0]
        names = [column["name"] for column in table["columns"]]
        return {str(row[0]): dict(zip(names, row, strict=True)) for row in table["rows"]}


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
    zoomed = [
        word
        for name in ("small", "large", "coded", "striped", "base", "clone")
        for word in ("--image", f"{POOL}/{name}")
    ]
    watched = Watched(loaded, tmp_path, tools, *zoomed, duration_s=50)
    began = time.monotonic()
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
    print("loads took", time.monotonic() - began)
    watched.end()
    for view in ("devices", "clients", "pools", "osds", "nodes"):
        found = watched.view(view)
        print(view, found["sentence"], found["unseen"])
        for row in found["tables"][0]["rows"]:
            print("   ", row)
    for image in ("small", "large", "coded", "striped", "base", "clone"):
        for view in ("objects", "zones", "image"):
            found = watched.view(view, f"{POOL}/{image}")
            print(image, view, found["sentence"], found["facts"], found["unseen"])
            for row in found["tables"][0]["rows"][:12]:
                print("   ", row)
