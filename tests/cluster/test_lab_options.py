"""What a lab has on request: block.db and block.wal elsewhere, an erasure-coded pool, an object gateway; on nodes."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import http.client
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.traces import PREFIX, traces

from bathyscope import lab
from bathyscope.host.local import LocalHost
from bathyscope.lab import simdisk
from bathyscope.lab.spec import ErasureCode
from bathyscope.recording.collect import collect
from bathyscope.records import DeviceSample, EnvironmentFact, from_table
from bathyscope.sources import cluster_map, proc
from bathyscope.spec.scope import Scope

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]

NAME = f"{PREFIX}-options"


@pytest.fixture(scope="module")
def everything(own_lab: Any) -> Iterator[Any]:
    """A lab with all options. Its SSD OSDs have block.wal on a hard disk, which nobody would want: it can be faulty."""
    code = ErasureCode(k=2, m=1)
    with own_lab(NAME, ["hdd=3", "ssd=3"], nodes=3, replicas=2, db="ssd", wal="hdd", ec=code, rgw=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(everything: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_STATE_HOME", str(everything.home))
    return everything


def client(cluster: Any, *words: str, stdin: bytes | None = None) -> bytes:
    argv = [words[0], "--conf", str(lab.load(NAME).layout.conf), *words[1:]]
    return subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=True).stdout


def test_rocksdb_is_on_the_devices_of_the_other_class(cluster: Any) -> None:
    with cluster.session() as session:
        metadata = {int(row["id"]): row for row in session.json("mon", "osd metadata")}
        assert session.json("mon", "status")["health"]["status"] == "HEALTH_OK"
    devices = {device.name: Path(device.path).name for device in lab.load(NAME).record.devices}
    for osd, about in metadata.items():
        hdd = osd < 3
        assert about["hostname"] == f"node{osd % 3 + 1}"
        assert (about["bluestore_bdev_rotational"], about["bluestore_bdev_devices"]) == (
            "1" if hdd else "0",
            devices[f"osd.{osd}"],
        )
        assert (about["bluefs_dedicated_db"], about["bluefs_dedicated_wal"]) == (("1", "0") if hdd else ("0", "1"))
        own = [(device.use, device.device) for device in cluster_map.bluefs_devices(about)]
        use, rotational = ("db", "0") if hdd else ("wal", "1")
        assert own == [(use, devices[f"osd.{osd}.{use}"])]
        assert about[f"bluefs_{use}_rotational"] == rotational
    rows = json.loads(cluster.bathy("lab", "status", "--name", NAME, "--output", "json").stdout)["daemons"]
    assert {row["daemon"]: row["db"] for row in rows if "db" in row} == {
        f"osd.{osd}": f"/dev/{devices[f'osd.{osd}.db']}" for osd in range(3)
    }


def test_what_goes_to_block_db_is_sampled_and_recorded(cluster: Any) -> None:
    scope, host = Scope(target=cluster.target), LocalHost()
    with cluster.session() as session:
        before = collect(host, session, proc.SOURCE.plan(scope))
        # Small writes would be deferred: kept in RocksDB, and written to the data's device later.
        client(cluster, "rados", "--pool", "rbd", "bench", "2", "write", "-b", "262144", "-t", "32")
        after = collect(host, session, proc.SOURCE.plan(scope))
        looks = collect(host, session, cluster_map.SOURCE.plan(scope))
    rows = from_table(DeviceSample, proc.SOURCE.parse([*before, *after], scope)[DeviceSample])
    written = {(row.role, row.device_class): row.write_bytes for row in rows if row.role.startswith("osd.")}
    assert min(written.values()) > 0
    assert sorted(written) == sorted(
        [(f"osd.{osd}", "hdd") for osd in range(3)]
        + [(f"osd.{osd}.db", "ssd") for osd in range(3)]
        + [(f"osd.{osd}", "ssd") for osd in range(3, 6)]
        + [(f"osd.{osd}.wal", "hdd") for osd in range(3, 6)]
    )
    facts = from_table(EnvironmentFact, cluster_map.SOURCE.parse(looks, scope)[EnvironmentFact])
    known = {(fact.subject, fact.name): fact.value for fact in facts}
    assert known["osd.0", "bluefs_db_size"] == str(1 << 30)
    assert known["osd.3", "bluefs_wal_rotational"] == "1"
    assert ("osd.3", "bluefs_db_size") not in known


def test_a_device_of_block_wal_can_have_faults(cluster: Any) -> None:
    def fault(*words: str) -> subprocess.CompletedProcess[str]:
        return cluster.bathy("lab", "fault", "--name", NAME, *words)

    if not simdisk.possible():
        assert "not simulated" in fault("osd.3.wal", "slow=2x").stderr
        return
    assert fault("osd.3.wal", "slow=2x").returncode == 0
    found = json.loads(fault("list", "--output", "json").stdout)
    assert [(row["target"], row["fault"]) for row in found] == [("osd.3.wal", "slow=2x")]
    assert "1 cleared" in fault("clear", "osd.3.wal").stderr
    assert "not simulated" in fault("osd.0.db", "slow=2x").stderr
    assert "osd.0.db" in fault("osd.9.db", "slow=2x").stderr


def test_the_erasure_coded_pool_holds_objects_and_images(cluster: Any) -> None:
    data = os.urandom(300_000)
    client(cluster, "rados", "--pool", "ec-2-1", "put", "coded", "-", stdin=data)
    assert client(cluster, "rados", "--pool", "ec-2-1", "get", "coded", "-") == data
    client(cluster, "rbd", "import", "--data-pool", "ec-2-1", "-", "rbd/wide", stdin=data)
    assert client(cluster, "rbd", "export", "rbd/wide", "-")[: len(data)] == data
    assert json.loads(client(cluster, "rbd", "info", "--format", "json", "rbd/wide"))["data_pool"] == "ec-2-1"
    with cluster.session() as session:
        (pool,) = (p for p in session.json("mon", "osd dump")["pools"] if p["pool_name"] == "ec-2-1")
        rules = {rule["rule_id"]: rule for rule in session.json("mon", "osd crush rule dump")}
    assert (pool["size"], pool["erasure_code_profile"]) == (3, "ec-2-1")
    assert "ec_overwrites" in pool["flags_names"]
    assert "host" in [step.get("type") for step in rules[pool["crush_rule"]]["steps"]]


def test_bench_says_that_it_needs_a_replicated_pool(cluster: Any, tmp_path: Path) -> None:
    ended = cluster.bathy("bench", "run", "--lab", NAME, "--pool", "ec-2-1", "-w", str(tmp_path / "ws"))
    assert ended.returncode == 2
    assert "the pool ec-2-1 is erasure-coded" in ended.stderr
    assert "--pool takes a replicated pool" in ended.stderr


def test_objects_go_through_the_gateway(cluster: Any) -> None:
    exports = cluster.bathy("lab", "env", "--name", NAME).stdout
    words = [word for line in exports.splitlines() for word in shlex.split(line) if word.startswith("AWS_")]
    variables = dict(word.split("=", 1) for word in words)
    content = os.urandom(100_000)
    assert s3(variables, "PUT", "/bucket")[0] == 200
    assert s3(variables, "PUT", "/bucket/object", content)[0] == 200
    assert s3(variables, "GET", "/bucket/object") == (200, content)
    assert b"<Key>object</Key>" in s3(variables, "GET", "/bucket")[1]
    assert s3(variables | {"AWS_SECRET_ACCESS_KEY": "wrong"}, "GET", "/bucket/object")[0] == 403
    status = cluster.bathy("lab", "status", "--name", NAME).stdout
    assert f"S3: {variables['AWS_ENDPOINT_URL']}" in status
    assert "rgw.a" in status


def s3(variables: dict[str, str], method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Return status and body of the answer to a request that is signed with AWS Signature Version 4."""
    host = variables["AWS_ENDPOINT_URL"].removeprefix("http://")
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    signed = ";".join(headers)
    canonical = [method, path, "", *(f"{name}:{value}" for name, value in headers.items()), "", signed, digest]
    scope = [now[:8], variables["AWS_DEFAULT_REGION"], "s3", "aws4_request"]
    hashed = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    key = f"AWS4{variables['AWS_SECRET_ACCESS_KEY']}".encode()
    for word in (*scope, "\n".join(["AWS4-HMAC-SHA256", now, "/".join(scope), hashed])):
        key = hmac.digest(key, word.encode(), "sha256")
    credential = f"{variables['AWS_ACCESS_KEY_ID']}/{'/'.join(scope)}"
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={key.hex()}"
    )
    with contextlib.closing(http.client.HTTPConnection(host, timeout=60)) as connection:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_down_leaves_nothing(cluster: Any) -> None:
    lab.down(NAME)
    assert traces(cluster.home) == []


# When the user and its zone are about to be made, and about when the gateway starts.
@pytest.mark.parametrize("later_s", [0.0, 1.5])
def test_down_after_kill_of_up_while_the_gateway_is_made(home: Path, later_s: float) -> None:
    name = f"{PREFIX}-gateway"
    argv = [sys.executable, "-m", "bathyscope.cli", "lab", "up", "--name", name, "-d", "ssd=1", "--rgw"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as up:
        assert up.stderr is not None
        assert any(b"making the object gateway" in line for line in up.stderr)
        time.sleep(later_s)
        up.kill()
    lab.down(name)
    assert traces(home) == []
