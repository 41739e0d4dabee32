"""A run on a cluster that somebody else uses: the tenant is seen, protected, and told of; OSDs that others started."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bathyscope.lab.profile import BUILT_IN

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PLAN = """name: guest
layers: [rbd]
patterns: [randwrite-4K-qd1]
axes: {image_size: 16M}
repeats: 1
ramp: 1s
runtime: 60s
limits: {prolong: 0, max_tenant_share: 100, max_tenant_wait: 10s}
capture: {op_history: false}
"""
POOL, IMAGE = "customer", "vm"


def ceph(cluster: Any, *words: str) -> str:
    """Run one of Ceph's programs on the cluster."""
    target = cluster.target
    argv = [words[0], "--conf", target.conf, "--keyring", target.keyring, *words[1:]]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def fio(cluster: Any, *words: str) -> list[str]:
    argv = ["fio", "--name=tenant", "--ioengine=rbd", f"--pool={POOL}", f"--rbdname={IMAGE}", "--clientname=admin"]
    return ["env", f"CEPH_CONF={cluster.target.conf}", f"CEPH_ARGS=--keyring={cluster.target.keyring}", *argv, *words]


@pytest.fixture(scope="module")
def shared(borrowed_lab: Any) -> Iterator[Any]:
    """A lab with a customer's pool and image, whose OSDs report as often as those of any other cluster."""
    # Unlimited flash: what a load of 4 MiB has in flight when it is stopped is written within a second.
    with borrowed_lab("ssd=3", profiles=BUILT_IN) as cluster:
        ceph(cluster, "ceph", "tell", "mgr", "config", "set", "mgr_stats_period", "5")
        ceph(cluster, "ceph", "osd", "pool", "create", POOL, "32", "32")
        ceph(cluster, "ceph", "osd", "pool", "application", "enable", POOL, "rbd")
        ceph(cluster, "rbd", "create", f"{POOL}/{IMAGE}", "--size", "64M")
        # What the tenant measures is what the cluster does, not librbd's cache.
        ceph(cluster, "rbd", "config", "image", "set", f"{POOL}/{IMAGE}", "rbd_cache", "false")
        subprocess.run(
            fio(cluster, "--rw=write", "--bs=1M", "--size=64M"), capture_output=True, check=True, timeout=120
        )
        yield cluster


@contextlib.contextmanager
def tenant(cluster: Any, result: Path, *words: str) -> Iterator[None]:
    """Do I/O on the customer's image meanwhile; what fio measured is in `result` at the end."""
    more = ("--bs=4k", "--time_based", "--runtime=900", f"--output={result}", "--output-format=json", *words)
    process = subprocess.Popen(fio(cluster, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(3)
        assert process.poll() is None
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def bench(cluster: Any, tmp_path: Path, *words: str, conf: bool = False, timeout_s: float = 300) -> Any:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    target = cluster.target
    named = ["--conf", target.conf, "--keyring", target.keyring] if conf else ["--lab", cluster.name]
    return cluster.bathy(
        "bench", "run", str(plan), *named, "-w", str(tmp_path / "ws"), "--output", "json", *words, timeout_s=timeout_s
    )


def test_a_tenant_of_50_iops_is_seen_within_5_percent_and_told_of(shared: Any, tmp_path: Path) -> None:
    result = tmp_path / "fio.json"
    # Many I/Os at once keep the rate steady also while each of them is slow.
    with tenant(shared, result, "--rw=randrw", "--iodepth=16", "--rate_iops=25,25"):
        ended = bench(shared, tmp_path)
    assert ended.returncode == 0, ended.stderr
    said = result.read_text()
    job = json.loads(said[said.index("{") :])["jobs"][0]
    did = job["read"]["iops"] + job["write"]["iops"]
    assert did == pytest.approx(50, rel=0.02), "the tenant itself was not steady"
    finding = json.loads(ended.stdout)
    (point,) = finding["groups"][0]["points"]
    assert point["tenant_iops"]["value"] == pytest.approx(did, rel=0.05)
    assert any(caveat["code"] == "tenant_load" and POOL in caveat["text"] for caveat in point["caveats"])
    # The manager may have written to its own pool.
    who = rf"(The pool {POOL}|\d other pools)"
    assert re.match(rf"{who} did about \d+(\.\d)? before the load, \d+(\.\d)? during", finding["tenants"])
    # On a quick machine it can be that no look at the OSDs finds one of 50 short operations a second in flight.
    wait_ns = point["tenant_wait_ns"]["value"]
    assert ("None of their operations was in flight" if wait_ns is None else "had waited") in finding["tenants"]
    assert wait_ns is None or wait_ns > 0


def test_a_run_that_is_mostly_tenants_is_refused(shared: Any, tmp_path: Path) -> None:
    words = ("--runtime", "15s", "--set", "limits.max_tenant_share=0.1", "--set", "limits.baseline=1s")
    with tenant(shared, tmp_path / "fio.json", "--rw=randread", "--iodepth=16", "--rate_iops=200"):
        ended = bench(shared, tmp_path, *words)
    (point,) = json.loads(ended.stdout)["groups"][0]["points"]
    assert point["status"] == "refused"
    assert "limits.max_tenant_share" in point["reason"]


def test_a_tenant_that_is_hurt_stops_the_load_within_5_s(shared: Any, tmp_path: Path, tools: Any) -> None:
    """By what the tenant itself measured: from when its operations in flight had waited for longer than the limit."""
    said, plan = tmp_path / "said", tmp_path / "plan.yaml"
    plan.write_text(PLAN.replace("randwrite-4K-qd1", "randwrite-4M-qd32").replace("16M", "256M"))
    limits = ("--set", "limits.max_tenant_wait=100ms", "--set", "limits.max_tenant_wait_factor=1")
    words = ("bench", "run", str(plan), "--lab", shared.name, "-w", str(tmp_path / "ws"), "--set", "prefill=false")
    log = ("--write_lat_log=" + str(tmp_path / "tenant"), "--log_unix_epoch=1")
    with tenant(shared, tmp_path / "fio.json", "--rw=randwrite", "--iodepth=16", "--rate_iops=50", *log):
        process = shared.start(*words, *limits, stderr=said)
        try:
            tools.wait_for(lambda: "[1/1" in said.read_text() and tools.fio_of(process.pid), what="the load")
            began_s = time.time()
            tools.wait_for(lambda: not tools.fio_of(process.pid), timeout_s=60, what="the end of the load")
            ended_s = time.time()
            assert process.wait(120) == 2
        finally:
            process.kill()
    (line,) = [line for line in said.read_text().splitlines() if line.startswith("bathy: ")]
    assert f"the load was stopped: operations of the pool {POOL} had waited" in line
    # Completion in milliseconds since the Unix epoch, latency in nanoseconds.
    rows = [line.split(",")[:2] for line in (tmp_path / "tenant_lat.1.log").read_text().splitlines()]
    done_s = np.array([int(at_ms) / 1e3 for at_ms, _ in rows])
    issued_s = done_s - np.array([int(latency_ns) / 1e9 for _, latency_ns in rows])
    instants_s = np.arange(began_s, ended_s + 2, 0.1)
    ages_s = [(at_s - issued_s[(issued_s <= at_s) & (done_s > at_s)]) for at_s in instants_s]
    hurt = np.array([ages.size > 0 and ages.mean() > 0.1 for ages in ages_s])
    # Three instants in a row: one slow operation hurts nobody.
    (first, *_) = np.flatnonzero(hurt[:-2] & hurt[1:-1] & hurt[2:])
    assert ended_s - instants_s[first] < 5


def test_osds_that_bathy_did_not_start_are_known(shared: Any, tmp_path: Path) -> None:
    ended = bench(shared, tmp_path, "--runtime", "3s", "--set", "limits.baseline=1s", conf=True)
    assert ended.returncode == 0, ended.stderr
    finding = json.loads(ended.stdout)
    (point,) = finding["groups"][0]["points"]
    for figure in ("osd_cpu_us_per_op", "device_utilization", "write_amplification"):
        assert point[figure]["value"] is not None, figure
    assert {series["subject"] for series in finding["series"]} >= {"osd.0", "osd.1", "osd.2"}
