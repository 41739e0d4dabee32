"""bathy-load on a real Ceph: what it sends arrives, and a cluster that dies does not hold it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import daemons

from bathyscope.host.process import own_program

OSDS = ("osd.0", "osd.1", "osd.2")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def images(cluster: Any, *names: str) -> None:
    with cluster.session() as session:
        session.json("mon", "osd pool create", pool="load", pg_num=8)
    for words in [("pool", "init", "load"), *(("create", f"load/{name}", "--size", "16M") for name in names)]:
        subprocess.run(["rbd", *ceph(cluster), *words], check=True, capture_output=True, timeout=60)


def ceph(cluster: Any) -> list[str]:
    return ["--conf", str(cluster.target.conf), "--keyring", str(cluster.target.keyring), "--name", "client.admin"]


def plan(cluster: Any, *names: str, **more: Any) -> dict[str, Any]:
    target = {"conf": str(cluster.target.conf), "keyring": str(cluster.target.keyring), "pool": "load"}
    return {
        "target": {"rbd": {**target, "images": names, "connect_timeout_s": 20}},
        "arrival": {"open": {"process": "poisson", "rate_iops": 100}},
        "requests": [{"direction": "read", "block_bytes": 4096}, {"direction": "write", "block_bytes": 4096}],
        "duration_s": 2,
        **more,
    }


@contextlib.contextmanager
def loading(what: dict[str, Any], out: Path) -> Any:
    with out.open("wb") as file:
        argv = own_program("bathyscope.bathy_load")
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.PIPE)
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(what).encode())
            process.stdin.close()
            yield process
        finally:
            process.kill()
            process.wait()


def total(out: Path) -> dict[str, Any]:
    return dict(json.loads(out.read_text().splitlines()[-1]))


def a_corrupted_object_is_found(lab: Any, out: Path) -> None:
    def checked(direction: str, verify: str) -> tuple[int, dict[str, Any]]:
        each = {"pattern": "sequential", "request_count": 256, "duration_s": 60, "verify": verify}
        requests = [{"direction": direction, "block_bytes": 64 << 10}]
        closed = plan(lab, "a", arrival={"closed": {"queue_depth": 16}}, requests=requests, **each)
        with loading(closed, out) as process:
            return process.wait(60), total(out)["verified"]

    assert checked("write", "on") == (0, {"blocks": 0, "mismatches": 0, "named": []})
    assert checked("read", "filled") == (0, {"blocks": 4096, "mismatches": 0, "named": []})
    info = subprocess.run(
        ["rbd", *ceph(lab), "info", "load/a", "--format=json"], check=True, capture_output=True, timeout=60
    )
    damaged = f"{json.loads(info.stdout)['block_name_prefix']}.{2:016x}"
    garbage = out.with_suffix(".garbage")
    garbage.write_bytes(b"garbage " * 1024)
    subprocess.run(["rados", *ceph(lab), "-p", "load", "put", damaged, str(garbage)], check=True, timeout=60)
    code, verified = checked("read", "filled")
    assert (code, verified["blocks"], verified["mismatches"]) == (1, 4096, 1024)
    # The object is as short as what was put; the rest of it is zero.
    assert {place["offset"] >> 22 for place in verified["named"]} == {2}
    assert {place["image"] for place in verified["named"]} == {0}
    assert {place["object"] for place in verified["named"]} == {damaged}
    faults = {place["offset"] - (8 << 20): place["fault"] for place in verified["named"]}
    assert [faults[0], faults[4096], faults[8192]] == ["no_stamp", "no_stamp", "zero"]


def a_plan_that_does_not_fit_leaves_nothing_open(lab: Any, out: Path) -> None:
    with loading(plan(lab, "a", "b", working_set_bytes=32 << 20), out) as process:
        assert process.wait(60) == 2
        said = process.stderr.read()
    assert b"must lie in the image" in said
    assert b"left open" not in said
    for name in ("a", "b"):
        status = subprocess.run(
            ["rbd", *ceph(lab), "status", f"load/{name}", "--format=json"], check=True, capture_output=True, timeout=60
        )
        assert json.loads(status.stdout)["watchers"] == []


def with_op_timeout(lab: Any, path: Path) -> str:
    path.write_text(Path(lab.target.conf).read_text() + "\n[client]\nrados_osd_op_timeout = 1\n")
    return str(path)


def test_requests_arrive_corruption_is_found_and_a_dead_cluster_ends_requests_by_their_deadline(
    borrowed_lab: Any, tmp_path: Path, tools: Any
) -> None:
    with borrowed_lab("ssd=3") as lab:
        images(lab, "a", "b")
        out = tmp_path / "out"
        a_corrupted_object_is_found(lab, out)
        a_plan_that_does_not_fit_leaves_nothing_open(lab, out)

        with loading(plan(lab, "a", "b"), out) as process:
            assert process.wait(60) == 0, process.stderr.read()
        alive = total(out)
        assert alive["requests"]["sent"] == alive["requests"]["scheduled"] > 150
        for direction, block_bytes in (("read", 4096), ("write", 4096)):
            figures = alive["directions"][direction]
            assert figures["failed"] == {}
            assert figures["bytes"] == figures["count"] * block_bytes > 0
        assert alive["never_completed"] == 0

        dying = plan(lab, "a", duration_s=3, deadline_s=2)
        # No option of the configuration ends a request before its deadline.
        dying["target"]["rbd"]["conf"] = with_op_timeout(lab, tmp_path / "ceph.conf")
        with loading(dying, out) as process:
            tools.wait_for(lambda: '"second"' in out.read_text(), what="a second of load")
            for osd in OSDS:
                daemons.kill(lab, osd)
            began_s = time.monotonic()
            assert process.wait(60) == 0
            assert b"images are left open" in process.stderr.read()
            # Two more seconds of load, and the deadline of its last request.
            assert time.monotonic() - began_s < 30
        dead = total(out)
        assert {fault for figures in dead["directions"].values() for fault in figures["failed"]} == {"deadline"}
        failed = sum(figures["failed"].get("deadline", 0) for figures in dead["directions"].values())
        assert failed == dead["never_completed"] > 0
        assert dead["requests"]["sent"] == dead["requests"]["scheduled"]

        # An image that cannot be opened does not hold it, either.
        late = plan(lab, "a")
        late["target"]["rbd"]["connect_timeout_s"] = 1
        with loading(late, out) as process:
            assert process.wait(60) == 2
            assert b"could not be opened within 1 s" in process.stderr.read()
        for osd in OSDS:
            daemons.start(lab, osd)
