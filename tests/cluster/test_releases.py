"""The same short plan and recording on every release: what is measured and counted does not depend on the version.

Each release gets a lab of two OSDs of each class and one run of the three layers; what the run left in its tables is
compared with itself: client bytes with the OSDs' counters, I/Os with the OSDs' op history, stages with durations.
Tentacle is part of every test run, since most names and formats differ between it and the installed Pacific; the
others run with `make test-releases`. Roots are built once and stay in the user's cache.
"""

from __future__ import annotations

import json
import os
import time
import unittest.mock
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.unit.analysis.builders import ladder_of

from bathyscope.bench import session as bench
from bathyscope.bench.conductor import Watcher
from bathyscope.host import ProcessRequest
from bathyscope.host.local import LocalHost
from bathyscope.lab import requirements
from bathyscope.layers import traits, views
from bathyscope.records.finding import LadderFinding
from bathyscope.spec.plan_file import parse_plan
from bathyscope.store import RunDirectory, Workspace

pytestmark = [
    pytest.mark.cluster,
    # Once, the root file system has to be built.
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices, control groups and chroot need root"),
]
MAJOR = {"pacific": 16, "reef": 18, "tentacle": 20}
DEVICES = ("hdd=2", "ssd=2")
PLAN = """
name: release
layers: [disk, rados, rbd]
patterns: [randread-4K-qd16, randwrite-4K-qd16]
axes: {image_size: 64M, temperature: cold}
repeats: 1
ramp: 0s
runtime: 0.8s
limits: {prolong: 0, baseline: 1s}
capture: {sample_interval: 0.1s, op_history_ops: 20000}
"""
THIN = """
name: thin
layers: [rbd]
device_classes: [ssd]
patterns: [randread-4K-qd4]
axes: {image_size: 64M}
prefill: false
repeats: 1
ramp: 0s
runtime: 0.3s
limits: {prolong: 0, baseline: 1s}
"""
# Primes, so that no sum is another one's by chance.
WRITES = {"rbd/a": 211, "rbd/b": 101}
STAGES = ("queue_ns", "prepare_ns", "store_ns", "replica_wait_ns", "reply_ns")
Rows = list[dict[str, Any]]


class Measured(NamedTuple):
    """A release's lab after its run."""

    release: str
    cluster: Any
    run: RunDirectory
    tables: dict[str, Rows]
    of_step: dict[int, dict[str, Rows]]
    before: dict[str, Any]
    after: dict[str, Any]

    def steps(self, *, reads: bool | None = None) -> Rows:
        """Return the steps that load the cluster."""
        return [
            step
            for step in self.tables["step"]
            if step["layer"] != "disk" and reads in (None, step["op"] == "randread")
        ]

    def of(self, table: str, step: dict[str, Any]) -> Rows:
        return self.of_step[step["step_index"]][table]

    def counted(self, step: dict[str, Any], *names: str) -> float:
        """Return what the OSDs counted, whatever prefix the release gives the name."""
        forms = {form for name in names for form in (name, f"bluestore_{name}")}
        return float(sum(row["delta"] for row in self.of("perf_counter", step) if row["name"] in forms))


def start(cluster: Any, text: str, workspace: Path) -> RunDirectory:
    plan = parse_plan(text, name="test", layers=traits(), overrides=[])
    return bench.begin(LocalHost(), Workspace(workspace), plan, cluster.target, Watcher())


@pytest.fixture(
    scope="module",
    params=[
        "tentacle",
        pytest.param("reef", marks=pytest.mark.releases),
        pytest.param("pacific", marks=pytest.mark.releases),
    ],
)
def released(request: pytest.FixtureRequest, own_lab: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield a release and a lab of it."""
    name: str = request.param
    # As if no Ceph were installed: the release comes from a root file system even where it is the machine's own.
    elsewhere = unittest.mock.patch.object(requirements, "installed_major", return_value=None)
    with elsewhere, own_lab(f"release-{name}", DEVICES, replicas=2, release=name) as cluster:
        assert cluster.target.root is not None
        yield name, cluster


@pytest.fixture(scope="module")
def measured(released: tuple[str, Any], tools: Any, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Run the plan on the lab. Monitors forbid deletion, and one OSD's history is the operator's own."""
    name, cluster = released
    with cluster.session() as session:
        session.json("osd.1", "config set", var="osd_op_history_size", val=["77"])
        session.json("mon.a", "config set", var="mon_allow_pool_delete", val=["false"])
    before = cluster.snapshot()
    run = start(cluster, PLAN, tmp_path_factory.mktemp(name) / "ws")
    after = cluster.snapshot()
    tables = {table: list(rows.to_pylist()) for table, rows in run.tables().items()}
    of_step = {step.step_index: rows for step, rows in tools.steps(run)}
    return Measured(name, cluster, run, tables, of_step, before, after)


def test_every_step_has_a_number_and_the_cluster_is_as_before(measured: Measured) -> None:
    assert measured.run.status == "done"
    assert len(measured.tables["step"]) == 12
    for step in measured.tables["step"]:
        (result,) = measured.of("result", step)
        assert result["io_count"] > 0
        assert result["error_count"] == 0
        buckets = [row for row in measured.of("histogram", step) if row["kind"] == "lat"]
        assert sum(row["count"] for row in buckets) == result["io_count"]
        # A cold step may be refused, but only because the counters say that its caches were not.
        assert step["status"] == "done" or "claims cold caches, but" in step["reason"], step["reason"]
        assert step["status"] == "done" or step["op"] == "randread"
    codes = {row["code"] for row in measured.tables["caveat"]}
    assert codes.isdisjoint({"capture", "cold_unchecked", "cache_unknown", "thin_image", "other_load", "load_failed"})
    assert json.dumps(measured.after, sort_keys=True, indent=1) == json.dumps(measured.before, sort_keys=True, indent=1)
    assert measured.after["osds"][1]["osd_op_history_size"]["override"] in (77, "77")
    assert measured.cluster.journals() == []


def test_the_osds_counted_what_the_client_moved(measured: Measured) -> None:
    for step in measured.steps():
        (result,) = measured.of("result", step)
        (other_way, this_way) = ("op_w_in_bytes", "op_r_out_bytes")
        if step["op"] == "randwrite":
            other_way, this_way = this_way, other_way
        # Beside the load there is what librbd reads of its headers.
        assert result["io_bytes"] <= measured.counted(step, this_way) <= result["io_bytes"] * 1.02 + 65_536
        assert measured.counted(step, other_way) <= 65_536
        if step["op"] == "randread":
            hit, miss = measured.counted(step, "buffer_hit_bytes"), measured.counted(step, "buffer_miss_bytes")
            assert hit + miss >= result["io_bytes"]
        counters = measured.of("perf_counter", step)
        assert {row["section"] for row in counters} >= {"osd", "bluestore", "bluefs"}
        assert {row["kind"] for row in counters} == {"counter", "average", "gauge"}
        assert [row["name"] for row in counters if row["kind"] == "counter" and row["delta"] < 0] == []


def test_the_op_history_holds_every_io_and_its_stages_add_up(measured: Measured) -> None:
    for step in measured.steps():
        (result,) = measured.of("result", step)
        kind = "read" if step["op"] == "randread" else "write"
        everything = measured.of("op", step)
        ops = [op for op in everything if op["op"] == kind]
        if all(op["complete_sample"] for op in everything):
            assert len(ops) >= 0.95 * result["io_count"]
        assert ops
        for op in everything:
            assert op["store_ns"] is not None, op
            assert sum(op[stage] or 0 for stage in STAGES) == op["duration_ns"]
            assert min(op[stage] or 0 for stage in STAGES) >= 0
        assert all(op["object_name"] and op["client_address"] for op in ops)
        # What librbd reads of an image's header may fall into the window; everything else is the load's.
        other = [op for op in ops if op["length_bytes"] != 4096]
        assert len(other) <= max(3, 0.02 * len(ops)), other[:3]
        if kind == "write":
            assert all(op["replica_wait_ns"] is not None for op in ops)
            waited = [op for op in ops if op["replica_wait_ns"]]
            assert waited
            assert all(op["slowest_peer"] not in (None, op["osd"]) for op in waited)


def test_the_ladder_has_amplification_cache_share_and_processor_time(measured: Measured) -> None:
    found = ladder_of(measured.run.tables(), layers=views())
    assert isinstance(found, LadderFinding)
    points = [point for group in found.groups for point in group.points if point.layer != "disk"]
    assert len(points) == 8
    for point in [point for point in points if point.status == "done"]:
        assert (point.osd_cpu_us_per_op.value or 0) > 0
        if point.op == "randwrite":
            # Two replicas, each with its log.
            assert (point.write_amplification.value or 0) > 1.8
            assert {stage.stage: stage.share for stage in point.stages}["replica_wait"] > 0
        else:
            assert point.read_from_cache_ratio.value is not None
            assert 0 <= point.read_from_cache_ratio.value <= 0.05


def test_the_environment_names_the_release(measured: Measured) -> None:
    facts = measured.tables["environment"]
    values = {(row["subject"], row["name"]): row["value"] for row in facts if row["moment"] == "before"}
    for kind in ("mon", "mgr", "osd"):
        assert measured.release in values["cluster", f"{kind}_version"]
    assert values["cluster", "health"] == "HEALTH_OK"
    assert values["osd.0", "osd_objectstore"] == "bluestore"
    assert values["osd.0", "config bluestore_cache_size"] == "50331648"
    assert {row["moment"] for row in facts} == {"before", "after"}
    pools = [value for (subject, name), value in values.items() if subject.startswith("pool bathy-") and name == "size"]
    assert pools == ["2"] * 4
    placement = measured.tables["placement"]
    assert sorted((row["device_class"], row["rotational"]) for row in placement) == [
        ("hdd", True), ("hdd", True), ("ssd", False), ("ssd", False)
    ]  # fmt: skip
    assert {row["host"] for row in placement} == {"node1", "node2"}
    for row in placement:
        assert row["ceph_version"].startswith(f"{MAJOR[measured.release]}.")
        assert Path(f"/proc/{row['osd_pid']}").exists()


def test_reads_of_an_image_that_was_not_written_are_refused(measured: Measured, tools: Any, tmp_path: Path) -> None:
    run = start(measured.cluster, THIN, tmp_path / "ws")
    (step,) = tools.rows(run, "step")
    assert step["status"] == "refused"
    assert "not written in full" in step["reason"]
    # The counters know it as well: nothing was returned for what the client has read.
    answered = sum(row["delta"] for row in tools.rows(run, "perf_counter") if row["name"] == "op_r_out_bytes")
    (result,) = tools.rows(run, "result")
    assert answered < 0.05 * result["io_bytes"]


def test_the_module_counts_every_write_for_the_least_key(released: tuple[str, Any], tools: Any, tmp_path: Path) -> None:
    """`mgr install`, `caps`, `collect`, `top` and `analyze`, as on any other release."""
    _, cluster = released
    target, said = cluster.target, tmp_path / "said"
    keyring = Path(target.conf).with_name("watch.keyring")

    def run(*argv: str) -> bytes:
        words = (("CEPH_CONF", target.conf), ("CEPH_KEYRING", target.keyring))
        done = LocalHost().run(ProcessRequest(argv[0], argv, environment=words, timeout_s=120, root=target.root))
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def shown(*words: str) -> dict[str, int]:
        done = cluster.bathy(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        (table,) = json.loads(done.stdout)["tables"]
        return {str(row[table["columns"][0]["key"]]): row["writes"] for row in table["rows"]}

    for image in WRITES:
        run("rbd", "create", "--size", "64M", image)
    installed = cluster.bathy("mgr", "install", "--lab", cluster.name)
    assert installed.returncode == 0, installed.stderr
    try:
        printed = json.loads(cluster.bathy("caps", "collect", "-o", "json").stdout)
        caps = [word for row in printed for word in (row["daemon"], row["caps"])]
        keyring.write_bytes(run("ceph", "auth", "get-or-create", "client.watch", *caps))
        access = ("--lab", cluster.name, "--client", "client.watch", "--keyring", str(keyring))
        process = cluster.start(
            "collect", *access, "--depth", "light", "-w", str(tmp_path), "--duration", "40s", stderr=said
        )
        tools.wait_for(lambda: "recording" in said.read_text(), 180, what="the recording")
        # The OSDs begin to count some seconds after they are asked.
        time.sleep(14)
        for image, count in WRITES.items():
            words = ("--io-type", "write", "--io-pattern", "rand", "--io-size", "4096", "--io-threads", "1")
            run("rbd", "--rbd_cache=false", "bench", image, *words, "--io-total", str(count * 4096))
        assert set(shown("top", *access, "--once", "--interval", "2s")) <= set(WRITES)
        assert process.wait(180) == 0, said.read_text()
        assert shown("analyze", "last", "-w", str(tmp_path)) == WRITES
        assert sum(shown("analyze", "last", "-w", str(tmp_path), "--view", "clients").values()) == sum(WRITES.values())
    finally:
        removed = cluster.bathy("mgr", "remove", "--lab", cluster.name)
    assert removed.returncode == 0, removed.stderr
