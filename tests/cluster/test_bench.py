"""`bathy bench` on a real Ceph: what was asked for is what runs, is counted, and is taken away again."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bathyscope.bench import session as bench
from bathyscope.bench.conductor import Watcher
from bathyscope.bench.run_records import commands_of
from bathyscope.errors import BathyscopeError
from bathyscope.host.local import LocalHost
from bathyscope.layers import traits
from bathyscope.spec import FioClient, StepSpec
from bathyscope.spec.plan import Plan, expand
from bathyscope.spec.plan_file import parse_plan, preset_text
from bathyscope.store import RunDirectory, Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
HOST = LocalHost()
SMOKE = ("bench", "run", "--preset", "smoke")
TABLES = (
    *("run", "step", "result", "interval", "histogram", "perf_counter", "op", "device_sample", "process_sample"),
    *("environment", "placement", "cluster_status", "osd_latency", "collection", "caveat"),
)


def plan(text: str, *overrides: str) -> Plan:
    return parse_plan(text, name="test", layers=traits(), overrides=list(overrides))


def small(patterns: str, *, layers: str = "rbd", more: str = "") -> str:
    return (
        f"name: small\nlayers: [{layers}]\npatterns: [{patterns}]\naxes: {{image_size: 32M}}\n"
        f"repeats: 1\nramp: 0s\nruntime: 1s\nlimits: {{prolong: 0, baseline: 1s}}\n"
        f"capture: {{sample_interval: 0.2s}}\n{more}"
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "ws"


def run(cluster: Any, text: str, workspace: Path, watcher: Watcher | None = None, *overrides: str) -> RunDirectory:
    """Run a plan in this process."""
    wanted = plan(text, *overrides)
    return bench.begin(HOST, Workspace(workspace), wanted, cluster.target, watcher or Watcher())


# --- the whole path


def test_the_smoke_preset_fills_every_table_and_leaves_nothing(cluster: Any, workspace: Path, tools: Any) -> None:
    dry = cluster.bathy(*SMOKE, "--lab", cluster.name, "--dry-run", "--output", "json")
    assert dry.returncode == 0, dry.stderr
    ended = cluster.bathy(*SMOKE, "--lab", cluster.name, "-w", str(workspace), "--output", "json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)
    assert "Traceback" not in ended.stderr
    found = tools.newest(workspace)
    assert found.status == "done"
    for table in TABLES:
        assert tools.rows(found, table), f"the table {table} is empty"
    steps = expand(plan(preset_text("smoke")), ["ssd"], traits())
    assert [
        (r["step_index"], r["step_key"]) for r in sorted(tools.rows(found, "step"), key=lambda r: r["step_index"])
    ] == [(index, step.key) for index, step in enumerate(steps)]
    assert {r["status"] for r in tools.rows(found, "step")} == {"done"}
    assert (found.path / "report.html").stat().st_size > 50_000
    _equals_the_dry_run(found, json.loads(dry.stdout))
    for step, rows in tools.steps(found):
        total = sum(row["io_count"] for row in rows["result"])
        assert sum(row["count"] for row in rows["histogram"] if row["kind"] == "lat") == total > 0
        assert {"client", "osd.0", "osd.1", "osd.2", "host"} <= {row["process"] for row in rows["process_sample"]}
        assert {"osd.0", "osd.1", "osd.2", "disk"} <= {row["role"] for row in rows["device_sample"]}
        assert bool(rows["perf_counter"]) == bool(rows["op"]) == (step.layer != "disk")
        # What is cut to the window fills it, and nothing else.
        length_ns = step.measured_end_ns - step.measured_start_ns
        for name in ("osd.0", "host"):
            sampled = [row["duration_ns"] for row in rows["process_sample"] if row["process"] == name]
            assert sum(sampled) == pytest.approx(length_ns, rel=0.01)
    assert len(tools.rows(found, "placement")) == 3
    assert {row["moment"] for row in tools.rows(found, "environment")} == {"before", "after"}


def _equals_the_dry_run(found: RunDirectory, dry: dict[str, Any]) -> None:
    """Every load ran with exactly the printed words and environment, but for the run's random suffix."""
    suffix = found.id.rpartition("-")[2]

    def own(word: str) -> str:
        return word.replace("00000000-000000-000000", found.id).replace("bathy-000000", f"bathy-{suffix}")

    promised = [
        (row["step_key"], [own(word) for word in row["argv"]], row["environment"])
        for row in dry["commands"]
        if row["step_key"] != "prefill"
    ]
    ran = [
        (f"{c.step_key}#{c.repeat_index}", list(c.argv), [list(pair) for pair in c.environment])
        for c in commands_of(found)
    ]
    assert ran == promised


def test_a_prime_number_of_ios_is_counted_exactly(cluster: Any, workspace: Path, tools: Any) -> None:
    prime = 1009
    text = small("randread-4K-qd16, randwrite-16K-qd4", layers="disk, rados, rbd", more=f"io_count: {prime}\n")
    found = run(cluster, text, workspace, None, "runtime=60s")
    results = tools.rows(found, "result")
    assert len(results) == 6
    assert {row["io_count"] for row in results} == {prime}
    assert {row["io_bytes"] for row in results} == {prime * 4096, prime * 16384}
    counted: dict[tuple[int, str], int] = {}
    for row in tools.rows(found, "histogram"):
        key = row["step_index"], row["kind"]
        counted[key] = counted.get(key, 0) + row["count"]
    assert {total for (_, kind), total in counted.items() if kind == "lat"} == {prime}
    # The OSDs have counted the same reads: on RADOS one operation each.
    (own,) = [rows for step, rows in tools.steps(found) if step.step_key == "rados/ssd/randread-4K-qd16"]
    assert sum(row["delta"] for row in own["perf_counter"] if row["name"] == "op_r_out_bytes") == prime * 4096


def test_a_cold_step_is_cold_or_refused(cluster: Any, workspace: Path, tools: Any) -> None:
    text = small("randread-4K-qd16", more="").replace("image_size: 32M", "image_size: 32M, temperature: cold")
    found = run(cluster, text, workspace)
    (step,) = tools.rows(found, "step")
    counters = [row for row in tools.rows(found, "perf_counter") if row["section"] == "bluestore"]
    hit = sum(row["delta"] for row in counters if row["name"] == "bluestore_buffer_hit_bytes")
    miss = sum(row["delta"] for row in counters if row["name"] == "bluestore_buffer_miss_bytes")
    # 32 MiB fit into three caches of 48 MiB: 16.2 does not drop what its cache holds.
    if step["status"] == "refused":
        assert "claims cold caches, but" in step["reason"]
    else:
        assert hit <= 0.05 * (hit + miss)


# --- settings


class _Looks(Watcher):
    """Looks at the cluster while a step runs."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.seen: list[dict[str, Any]] = []

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        self.seen.append(self.cluster.snapshot())


def test_quiesce_switches_and_restores_exactly(cluster: Any, workspace: Path) -> None:
    before = cluster.snapshot()
    with cluster.session() as session:
        session.json("mon", "osd set", key="noscrub")
        override = {"prefix": "config set", "var": "osd_op_history_size", "val": ["77"]}
        session.json("osd.1", **override)
    try:
        looks = _Looks(cluster)
        started = cluster.snapshot()
        run(cluster, small("randread-4K-qd4", more="quiesce: {scrub: true, balancer: true}\n"), workspace, looks)
        (during,) = looks.seen
        assert {"noscrub", "nodeep-scrub"} <= set(during["flags"])
        assert during["balancer"] is False
        assert during["osds"][0]["osd_op_history_size"]["override"] in (1000, "1000")
        ended = cluster.snapshot()
        # What the operator had set stays set: the flag, and the override of one OSD.
        assert ended == started
        assert "noscrub" in ended["flags"]
        assert "nodeep-scrub" not in ended["flags"]
        assert ended["osds"][1]["osd_op_history_size"]["override"] in (77, "77")
        assert ended["balancer"] == before["balancer"]
    finally:
        with cluster.session() as session:
            session.json("mon", "osd unset", key="noscrub")
            session.json("osd.1", "config unset", var="osd_op_history_size")


# --- interruption and resumption


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_fio_and_the_run_goes_on(
    cluster: Any, tools: Any, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    workspace = tmp_path / "ws"
    file = tmp_path / "plan.yaml"
    file.write_text(small("randread-4K-qd4, randwrite-4K-qd4"))
    words = ("bench", "run", str(file), "--lab", cluster.name, "-w", str(workspace), "--set", "runtime=3s")
    said = tmp_path / "said"
    process = cluster.start(*words, stderr=said)
    try:
        tools.wait_for(lambda: "[2/2," in said.read_text() and tools.fio_of(process.pid), what="the second step")
        loads = tools.fio_of(process.pid)
        process.send_signal(number)
        tools.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in loads), what="the end of fio")
        assert process.wait(150) == code
    finally:
        process.kill()
        process.wait()
    text = said.read_text()
    assert "Traceback" not in text
    assert "bathy bench resume" in text
    # The switches are back at once; the filled image waits for the run.
    left = cluster.snapshot()
    assert not any("osd_op_history_size" in diff for diff in left["osds"].values())
    assert [pool for pool in left["pools"] if pool.startswith("bathy-")]
    found = tools.newest(workspace)
    assert found.status == "interrupted"
    # The load of the second step was stopped, and did not end by itself.
    assert [row["step_index"] for row in tools.rows(found, "step") if row["status"] == "done"] == [0]
    first = (found.path / "segments" / "step-00000").stat()
    if number is signal.SIGINT:
        resumed = cluster.bathy("bench", "resume", "last", "-w", str(workspace), "--output", "csv")
        assert resumed.returncode == 0, resumed.stderr
        assert "writing in full" not in resumed.stderr
        assert (found.path / "segments" / "step-00000").stat().st_mtime_ns == first.st_mtime_ns
        found = tools.newest(workspace)
        assert sorted(row["step_index"] for row in tools.rows(found, "step")) == [0, 1]
        assert found.status == "done"
    else:
        cleaned = cluster.bathy("bench", "cleanup")
        assert cleaned.returncode == 0, cleaned.stderr
        assert "nothing of it is left on the cluster" in cleaned.stderr


# --- load from elsewhere


@contextlib.contextmanager
def fio_server(conf: str, keyring: str, home: Path) -> Iterator[FioClient]:
    """`fio --server` on a free port of the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        ["fio", f"--server=127.0.0.1,{port}"],
        env={"PATH": "/usr/bin:/bin", "CEPH_CONF": conf, "CEPH_KEYRING": keyring},
        cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield FioClient(host="127.0.0.1", port=port)
    finally:
        process.terminate()
        process.wait(10)


def test_load_from_two_remote_servers(cluster: Any, workspace: Path, tools: Any, tmp_path: Path) -> None:
    text = small("randread-4K-qd4", layers="rados, rbd").replace("image_size: 32M", "image_size: 32M, jobs: 2")
    with (
        fio_server(cluster.target.conf, cluster.target.keyring, tmp_path) as one,
        fio_server(cluster.target.conf, cluster.target.keyring, tmp_path) as two,
    ):
        target = cluster.target.model_copy(update={"clients": (one, two)})
        found = bench.begin(HOST, Workspace(workspace), plan(text), target, Watcher())
    steps = tools.rows(found, "step")
    assert [(row["status"], row["reason"]) for row in steps] == [("done", None)] * 2
    names = {f"127.0.0.1:{one.port}", f"127.0.0.1:{two.port}"}
    for index in (0, 1):
        results = [row for row in tools.rows(found, "result") if row["step_index"] == index]
        assert {row["client"] for row in results} == names
        assert all(row["io_count"] > 0 for row in results)
        histograms = [r for r in tools.rows(found, "histogram") if r["step_index"] == index and r["kind"] == "lat"]
        assert sum(r["count"] for r in histograms) == sum(r["io_count"] for r in results)
        assert {r["client"] for r in tools.rows(found, "interval") if r["step_index"] == index} == names


# --- what is on the cluster already


def test_two_labs_do_not_know_each_other(cluster: Any, workspace: Path, tmp_path: Path) -> None:
    """A run that was killed on one cluster is neither tidied nor resumed on another."""
    ended = cluster.bathy(
        *SMOKE, "--lab", cluster.name, "-w", str(workspace), "--layer", "rbd", "--keep", "--output", "csv"
    )
    assert ended.returncode == 0, ended.stderr
    (journal,) = cluster.journals()
    content = journal.read_text()
    other = journal.with_name("20200101-000000-ffffff.jsonl")
    other.write_text(
        re.sub(rf'"name":"{cluster.name}"', '"name":"elsewhere"', content).replace(journal.stem, other.stem)
    )
    other.chmod(0o600)
    try:
        again = cluster.bathy("bench", "cleanup")
        # Ours is cleaned; a lab that is gone has nothing left on it.
        assert again.returncode == 0, again.stderr
        assert "elsewhere" in again.stderr
        assert not journal.exists()
        assert not other.exists()
    finally:
        other.unlink(missing_ok=True)


def test_a_pool_that_somebody_else_deleted_is_made_and_filled_anew(
    cluster: Any, workspace: Path, tools: Any, tmp_path: Path
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(small("randread-4K-qd4, randwrite-4K-qd4"))
    said = tmp_path / "said"
    words = ("bench", "run", str(file), "--lab", cluster.name, "-w", str(workspace), "--set", "runtime=3s")
    process = cluster.start(*words, stderr=said)
    tools.wait_for(lambda: "[2/2," in said.read_text(), what="the second step")
    process.kill()
    process.wait()
    with cluster.session() as session:
        for pool in [name for name in cluster.snapshot()["pools"] if name.startswith("bathy-")]:
            session.json("mon", "osd pool delete", pool=pool, pool2=pool, yes_i_really_really_mean_it=True)
    resumed = cluster.bathy("bench", "resume", "last", "-w", str(workspace), "--output", "csv")
    assert resumed.returncode == 0, resumed.stderr
    assert "writing in full" in resumed.stderr
    found = tools.newest(workspace)
    assert [row["status"] for row in tools.rows(found, "step")] == ["done", "done"]


def test_pools_are_deleted_where_the_monitors_forbid_it(cluster: Any, workspace: Path) -> None:
    with cluster.session() as session:
        session.json("mon.a", "config set", var="mon_allow_pool_delete", val=["false"])
        try:
            session.json("mon", "osd pool create", pool="theirs", pg_num=1)
            with pytest.raises(BathyscopeError, match="mon_allow_pool_delete"):
                session.json("mon", "osd pool delete", pool="theirs", pool2="theirs", yes_i_really_really_mean_it=True)
            before = session.json("mon.a", "config diff")["diff"]
            run(cluster, small("randwrite-4K-qd4"), workspace)
            assert session.json("mon.a", "config diff")["diff"] == before
        finally:
            session.json("mon.a", "config unset", var="mon_allow_pool_delete")
            session.json("mon", "osd pool delete", pool="theirs", pool2="theirs", yes_i_really_really_mean_it=True)


def test_a_run_without_replicas_in_its_plan_has_those_of_the_cluster(cluster: Any, workspace: Path, tools: Any) -> None:
    found = run(cluster, small("randwrite-4K-qd4"), workspace)
    sizes = [row["value"] for row in tools.rows(found, "environment") if row["subject"].startswith("pool bathy-") and row["name"] == "size"]  # fmt: skip  # noqa: E501
    assert sizes
    assert set(sizes) == {"3"}
    shutil.rmtree(workspace)
