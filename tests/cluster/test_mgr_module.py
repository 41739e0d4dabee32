"""The manager's module on a real Ceph: counts are exact, and nothing of it is left."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bathyscope import lab
from bathyscope.host import CephSession
from bathyscope.host.local import LocalHost
from bathyscope.host.mgr_install import STOCK_PATH
from bathyscope.lab.spec import ErasureCode
from bathyscope.recording.collect import collect
from bathyscope.records import ImageIo, OsdIo, RawAnswer, ZoneIo, from_table
from bathyscope.sources import cluster_map
from bathyscope.sources.mgr_counters import SOURCE
from bathyscope.spec.scope import Scope

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]

BLOCK, STEP = 4096, 64 << 10
# An image whose id has no letters, which no other one is likely to have: the pool of a header is a number too.
DIGITS_ID = "271828182845"

# A client of its own: writes and reads blocks of an image that it makes, without a cache, and says who it was.
_CLIENT = """
import json, sys, rados, rbd
conf, keyring, namespace, name, data_pool, writes, reads, first = sys.argv[1:]
options = {"keyring": keyring, "rbd_cache": "false", "admin_socket": "", "log_file": ""}
cluster = rados.Rados(conffile=conf, name="client.admin", conf=options)
cluster.connect()
ioctx = cluster.open_ioctx("rbd")
if namespace and not rbd.RBD().namespace_exists(ioctx, namespace):
    rbd.RBD().namespace_create(ioctx, namespace)
ioctx.set_namespace(namespace)
if name not in rbd.RBD().list(ioctx):
    rbd.RBD().create(ioctx, name, 256 << 20, old_format=False, data_pool=data_pool or None)
with rbd.Image(ioctx, name) as image:
    places = [int(first) + number * 65536 for number in range(int(writes))]
    for place in places:
        assert image.write(b"x" * 4096, place) == 4096
    for number in range(int(reads)):
        assert image.read(places[number % len(places)], 4096) == b"x" * 4096
    print(json.dumps({"client": "client.%d" % cluster.get_instance_id(), "image_id": image.id()}))
ioctx.close()
cluster.shutdown()
"""
# Writes objects, each by an OSD that chance picks.
_OBJECTS = """
import sys, rados
conf, keyring, *names = sys.argv[1:]
cluster = rados.Rados(conffile=conf, name="client.admin", conf={"keyring": keyring, "admin_socket": "", "log_file": ""})
cluster.connect()
ioctx = cluster.open_ioctx("rbd")
for name in names:
    ioctx.write_full(name, b"x")
cluster.shutdown()
"""

# A tenant's objects: any client that may write to the pool can give such names, which are no UTF-8. Python's binding
# takes text only, the library takes bytes.
_HOSTILE = """
import ctypes, sys
conf, keyring, image_id = (word.encode() for word in sys.argv[1:])
lib, cluster, ioctx = ctypes.CDLL("librados.so.2"), ctypes.c_void_p(), ctypes.c_void_p()
assert lib.rados_create2(ctypes.byref(cluster), b"ceph", b"client.admin", ctypes.c_uint64(0)) == 0
assert lib.rados_conf_read_file(cluster, conf) == 0
for name, value in ((b"keyring", keyring), (b"admin_socket", b""), (b"log_file", b"")):
    assert lib.rados_conf_set(cluster, name, value) == 0
assert lib.rados_connect(cluster) == 0
assert lib.rados_ioctx_create(cluster, b"rbd", ctypes.byref(ioctx)) == 0
whole = b"rbd_data.%s.%016x" % (image_id, 0)
for namespace in (b"\\xff\\xfe\\x80", b"tenant\\xff", b"a\\n\\xff", b""):
    lib.rados_ioctx_set_namespace(ioctx, namespace)
    for name in (b"\\xff", b"rbd_data.\\xff.0", b"rbd_data.\\xff." + whole, *([whole] if namespace else [])):
        assert lib.rados_write_full(ioctx, name, b"x", ctypes.c_size_t(1)) == 0
lib.rados_ioctx_destroy(ioctx)
lib.rados_shutdown(cluster)
"""


def start(cluster: Any, script: str, *words: object) -> subprocess.Popen[str]:
    argv = ["/usr/bin/python3", "-c", script, cluster.target.conf, cluster.target.keyring, *map(str, words)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> dict[str, str]:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(out) if out else {}


class Watch:
    """Looks at the counters, one after the other."""

    def __init__(self, session: CephSession, cluster: Any) -> None:
        self._session = session
        answers = collect(LocalHost(), session, cluster_map.SOURCE.plan(Scope(target=cluster.target)))
        self.scope = cluster_map.scope_of(answers, cluster.target)
        self.answers: list[RawAnswer] = []

    def look(self) -> dict[str, Any]:
        """Return the last answer."""
        (answer,) = collect(LocalHost(), self._session, SOURCE.plan(self.scope))
        self.answers.append(answer)
        assert answer.exit_code == 0, answer.stderr
        return dict(answer.json())

    def settle(self) -> None:
        """Look until what has been done has been reported by every OSD: nothing new in four reports, a second each."""
        seen: list[dict[str, Any]] = []
        while len(seen) < 4 or any(look != seen[-1] for look in seen[-4:]):
            time.sleep(1)
            queries = self.look()["queries"]
            # Without the ages, which go on.
            seen.append({name: sorted(row[-6:] for row in query["rows"]) for name, query in queries.items()})

    def rows(self, record: Any) -> Sequence[Any]:
        return from_table(record, SOURCE.parse(self.answers, self.scope)[record])


def ready(watch: Watch, cluster: Any) -> None:
    """Wait until every OSD counts: each of them has reported a write."""
    for attempt in range(30):
        said(start(cluster, _OBJECTS, *(f"probe-{attempt}-{number}" for number in range(32))))
        time.sleep(1)
        if {row[0] for row in watch.look()["queries"]["osd_pool"]["rows"]} == {0, 1, 2}:
            watch.settle()
            return
    raise AssertionError("not every OSD counts")


def test_counts_are_exact_and_nothing_is_left(
    borrowed_lab: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with borrowed_lab("ssd=3", ec=ErasureCode(k=2, m=1)) as cluster:
        before, modules = cluster.snapshot(), lab.load(cluster.name).layout.mgr_modules
        stock = sorted(modules.iterdir())
        assert "not enabled" in cluster.bathy("mgr", "status", "--lab", cluster.name).stdout
        installed = cluster.bathy("mgr", "install", "--lab", cluster.name)
        assert installed.returncode == 0, installed.stderr
        assert f"bathy mgr remove --lab {cluster.name}" in installed.stderr
        with cluster.session() as session:
            watch = Watch(session, cluster)
            assert "bathyscope" in watch.scope.mgr_modules
            ready(watch, cluster)

            # Two clients at once: one in the default namespace, one in another with its data in an erasure-coded pool.
            del watch.answers[:-1]
            clients = [
                start(cluster, _CLIENT, "", "plain", "", 211, 101, 0),
                start(cluster, _CLIENT, "tenant", "coded", "ec-2-1", 157, 307, 0),
            ]
            plain, coded = map(said, clients)
            said(start(cluster, _OBJECTS, *(f"rbd_data.{DIGITS_ID}.{number:016x}" for number in range(13))))
            said(start(cluster, _HOSTILE, DIGITS_ID))
            # A manager that cannot make text of a name ends here.
            watch.settle()
            _store(watch, tmp_path)
            images = watch.rows(ImageIo)
            for who, namespace, writes, reads in ((plain, "", 211, 101), (coded, "tenant", 157, 307)):
                own = [row for row in images if row.image_id == who["image_id"]]
                assert {(row.client, row.client_address) for row in own} == {(who["client"], "127.0.0.1")}
                assert {(row.pool, row.namespace) for row in own} == {("rbd", namespace)}
                assert (sum(row.write_count for row in own), sum(row.read_count for row in own)) == (writes, reads)
                assert sum(row.write_bytes for row in own) == writes * BLOCK
                assert sum(row.read_bytes for row in own) == reads * BLOCK
                assert all((row.write_latency_ns_sum or 0) >= 1000 * row.write_count for row in own)
            # Without what was written in the namespaces whose names cannot be shown.
            assert sum(row.write_count for row in images if row.image_id == DIGITS_ID) == 13
            assert {row.image_id for row in images} == {plain["image_id"], coded["image_id"], DIGITS_ID}
            osds = watch.rows(OsdIo)
            assert {row.osd for row in osds} == {0, 1, 2}
            of_coded = [row for row in osds if row.pool == "ec-2-1"]
            assert sum(row.read_count for row in of_coded) >= 307
            # The headers of images are read and written too.
            assert sum(row.write_count for row in osds if row.pool == "rbd") >= 211 + 13

            # Zones of one object each: 97 blocks from the fourth object on.
            zoom = {"images": plain["image_id"], "digits": 16, "within": "0" * 14}
            assert session.json("mgr", "bathyscope zoom", **zoom)["zoom"]["digits"] == 16
            time.sleep(2)
            del watch.answers[:]
            watch.look()
            said(start(cluster, _CLIENT, "", "plain", "", 97, 0, 3 * (4 << 20)))
            watch.settle()
            zones = watch.rows(ZoneIo)
            assert {row.object_count for row in zones} == {1}
            assert {row.pool for row in zones} == {"rbd"}
            counts = dict.fromkeys((3, 4), 0)
            for row in zones:
                counts[row.first_object] += row.write_count
                place = session.json(
                    "mon", "osd map", pool="rbd", object=f"rbd_data.{plain['image_id']}.{row.first_object:016x}"
                )
                assert row.osd == place["acting_primary"]
            assert counts == {3: 64, 4: 33}

        status = json.loads(cluster.bathy("mgr", "status", "--lab", cluster.name, "-o", "json").stdout)["status"]
        assert (status["refused"], status["keys_dropped"]) == (None, 0)
        assert status["get_duration_s"] > 0

        removed = cluster.bathy("mgr", "remove", "--lab", cluster.name)
        assert removed.returncode == 0, removed.stderr
        assert sorted(modules.iterdir()) == stock
        assert not Path(STOCK_PATH, "bathyscope").exists()
        with cluster.session() as session:
            assert "bathyscope" not in session.json("mon", "mgr module ls")["enabled_modules"]
            assert "MGR" not in json.dumps(session.json("mon", "health"))
        assert {**cluster.snapshot(), "options": before["options"]} == before


def _store(watch: Watch, directory: Path) -> None:
    """Keep the answers as tests/fixtures/mgr_counters has them, where BATHY_RECORD says so."""
    if place := os.environ.get("BATHY_RECORD"):
        for number, answer in enumerate(watch.answers):
            about = {"label": answer.label, "argv": answer.argv, "environment": [], "exit_code": 0}
            about |= {"started_ns": answer.started_ns, "ended_ns": answer.ended_ns, "files": []}
            path = Path(place, f"{number}-mgr_counters.json")
            path.write_text(json.dumps(about, indent=1) + "\n")
            path.with_suffix(".stdout").write_bytes(answer.stdout)
