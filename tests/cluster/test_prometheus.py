"""A lab's OSDs as those of another machine that only a Prometheus knows, beside what is read here directly."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cut import cut

from bathyscope.analysis.columns import ints, total, where
from bathyscope.analysis.step_figures import figures
from bathyscope.host.local import LocalHost
from bathyscope.lab import ports
from bathyscope.recording.look import look_at
from bathyscope.recording.recorder import Job, Recorder
from bathyscope.recording.sinks import MemorySink
from bathyscope.records import DeviceSample, NetworkSample, ProcessSample, Step, from_table
from bathyscope.sources import SOURCES, node_exporter
from bathyscope.spec import PrometheusAccess, Target
from bathyscope.window.tables import of_steps

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
HERE = socket.gethostname()
PLAN = """\
name: with-prometheus
description: one write step on objects
layers: [rados]
patterns: [randwrite-16K-qd8]
axes: {image_size: 64M}
runtime: 8s
ramp: 2s
repeats: 1
limits: {prolong: 0, baseline: 1s}
"""


@dataclasses.dataclass
class Monitoring:
    """A Prometheus on loopback that scrapes a node_exporter of this machine every second."""

    url: str
    log: Path

    def query(self, expression: str) -> list[Any]:
        words = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=10) as answer:  # noqa: S310 - loopback
            found: list[Any] = json.load(answer)["data"]["result"]
        return found


@pytest.fixture(scope="module")
def monitoring(tmp_path_factory: pytest.TempPathFactory, tools: Any) -> Iterator[Monitoring]:
    programs = [shutil.which(name) for name in ("prometheus", "prometheus-node-exporter")]
    assert all(programs), "scripts/install-packages --dev installs them"
    home = tmp_path_factory.mktemp("prometheus")
    own, theirs = ports.choose(2, ())
    (home / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: node, static_configs: [{{targets: ['127.0.0.1:{theirs}']}}]}}]\n"
    )
    collectors = ("cpu", "diskstats", "netdev", "uname")
    exporter = [
        str(programs[1]), f"--web.listen-address=127.0.0.1:{theirs}", "--collector.disable-defaults",
        # A lab's devices are loop devices, which it leaves out by default.
        "--collector.diskstats.device-exclude=^(ram|fd)", *(f"--collector.{name}" for name in collectors),
    ]  # fmt: skip
    server = [
        str(programs[0]), f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data",
        f"--web.listen-address=127.0.0.1:{own}",
    ]  # fmt: skip
    found = Monitoring(f"http://127.0.0.1:{own}", home / "log")
    with contextlib.ExitStack() as stack, found.log.open("wb") as log:
        for argv in (exporter, server):
            process = subprocess.Popen(argv, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)

        def scraped() -> bool:
            with contextlib.suppress(OSError, ValueError, KeyError):
                return bool(found.query("node_uname_info"))
            return False

        tools.wait_for(scraped, what="the first scrape", timeout_s=120)
        yield found


def blind(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a machine that has no ceph-osd process."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pgrep").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "pgrep").chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}


def arguments(cluster: Any, tmp_path: Path, *more: str) -> list[str]:
    target = cluster.target
    (tmp_path / "plan.yaml").write_text(PLAN)
    words = ["bench", "run", str(tmp_path / "plan.yaml"), "--conf", target.conf, "--client", target.client]
    words += ["--keyring", target.keyring] if target.keyring else []
    return [*words, *more, "-w", str(tmp_path / "ws"), "--output", "csv"]


def test_a_run_has_the_figures_of_nodes_that_only_prometheus_knows(
    cluster: Any, monitoring: Monitoring, tmp_path: Path, tools: Any
) -> None:
    words = arguments(cluster, tmp_path, "--prometheus", monitoring.url, "--prometheus-match", "job=node")
    ended = cluster.bathy(*words, **blind(tmp_path), timeout_s=240)
    assert ended.returncode == 0, ended.stderr
    found = tools.newest(tmp_path / "ws")
    tables = found.tables()
    (step,) = from_table(Step, tables["step"])
    own = of_steps(tables)[step.step_index]
    seen = figures(step, own)
    assert {name for use in seen.devices for name in use.role.split()} == {f"osd.{n}" for n in str(step.osds).split()}
    assert seen.device_utilization is not None
    # Three copies, and what BlueStore writes besides.
    assert seen.write_amplification is not None
    assert 3 < seen.write_amplification < 60
    # node_exporter knows no processes.
    assert seen.osd_cpu_us_per_op is None
    (node,) = seen.nodes
    assert (node.name, node.processors, node.osd_cores) == (HERE, os.cpu_count(), None)
    assert own["network_sample"].num_rows
    codes = {row["code"]: row["text"] for row in tools.rows(found, "caveat") if row["code"].startswith("node_")}
    # Where others take the processors a scrape may come too late, which is said.
    assert set(codes) - {"node_not_sampled"} == {"node_resolution"}
    assert codes["node_resolution"].startswith(f"figures of {HERE} come from Prometheus: one scrape every 1.0 s")
    # The same from raw answers alone.
    before = {name: sorted(map(str, tables[name].to_pylist())) for name in ("process_sample", "device_sample")}
    again = cluster.bathy("runs", "reparse", found.id, "-w", str(tmp_path / "ws"))
    assert again.returncode == 0, again.stderr
    after = tools.newest(tmp_path / "ws").tables()
    assert {name: sorted(map(str, after[name].to_pylist())) for name in before} == before


def test_a_prometheus_that_cannot_be_read_is_refused_before_the_run(
    cluster: Any, monitoring: Monitoring, tmp_path: Path
) -> None:
    words = arguments(cluster, tmp_path, "--prometheus", f"{monitoring.url}/elsewhere")
    ended = cluster.bathy(*words, **blind(tmp_path))
    assert ended.returncode == 2
    assert f"the Prometheus {monitoring.url}/elsewhere cannot be used: HTTP 404" in ended.stderr
    assert not list((tmp_path / "ws" / "runs").glob("*"))


def test_figures_from_prometheus_are_those_of_this_machine(cluster: Any, monitoring: Monitoring, tools: Any) -> None:
    """One load, sampled both ways at the same time.

    Bound: 20 %. On a quiet machine they differ by 0.1 %; a scrape that is late, by a second at most, at an end
    of the 12 s or more that are compared, shifts them by 8 %.
    """
    here, host = cluster.target, LocalHost()
    access = PrometheusAccess(url=monitoring.url)
    there = Target(
        name="there", conf=here.conf, keyring=here.keyring, client=here.client, root=here.root, prometheus=access
    )
    with cluster.session() as session, contextlib.ExitStack() as stack:
        local = look_at(host, session, here)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bathyscope.recording.look.local_daemons", lambda *_: ())
            remote = look_at(host, session, there)
        assert [(e.name, e.job) for e in remote.scope.exporters] == [(HERE, "node")]
        sinks = {"proc": MemorySink(), "node_exporter": MemorySink()}
        recorders = [
            Recorder(host, None, local, [Job(SOURCES["proc"], period_s=0.2, budget_ratio=math.inf)], sinks["proc"]),
            Recorder(host, None, remote, [Job(SOURCES["node_exporter"], period_s=5.0)], sinks["node_exporter"]),
        ]
        pool = "bathy-test-prometheus"
        session.json("mon", "osd pool create", pool=pool, pg_num=8)
        try:
            for recorder in recorders:
                stack.enter_context(recorder)
            words = ["rados", "-c", str(here.conf), "-n", here.client, "-p", pool, "bench", "20", "write", "-b", "16K"]
            words += ["--keyring", here.keyring] if here.keyring else []
            begun_ns = host.now_ns()
            load = subprocess.run(words, capture_output=True, check=False, timeout=100)
            ended_ns = host.now_ns()
            assert load.returncode == 0, load.stderr
            # A scrape that was under way when the load ended is there soon.
            tools.wait_for(lambda: remains(remote.scope.target, ended_ns), what="the next scrape")
            for name, recorder in zip(sinks, recorders, strict=True):
                recorder.collect_now(name)
        finally:
            session.json("mon", "config set", who="mon", name="mon_allow_pool_delete", value="true")
            session.json("mon", "osd pool rm", pool=pool, pool2=pool, yes_i_really_really_mean_it=True)
            session.json("mon", "config rm", who="mon", name="mon_allow_pool_delete")
    answers = sinks["node_exporter"].answers("node_exporter")
    second = 10**9
    seen = node_exporter.in_window(answers, remote.scope, begun_ns + 2 * second, ended_ns - second)
    assert (seen.missing, len(seen.coarse)) == ((), 1)
    rows = seen.tables[ProcessSample]
    window = int((ints(rows, "at_ns") - ints(rows, "duration_ns")).min()), int(ints(rows, "at_ns").max())
    seconds = (window[1] - window[0]) / 1e9
    assert seconds > 12
    assert seen.tables[NetworkSample].num_rows
    own = SOURCES["proc"].parse(sinks["proc"].answers("proc"), local.scope)
    tables = [{record: own[record] for record in (DeviceSample, ProcessSample)}, seen.tables]
    cpu = []
    for table in tables:
        host_rows = where(cut(ProcessSample, table[ProcessSample], *window), process="host")
        cpu.append(total(host_rows, "cpu_user_s") + total(host_rows, "cpu_system_s"))
    assert cpu[1] == pytest.approx(cpu[0], rel=0.2)
    for osd in ("osd.0", "osd.1", "osd.2"):
        written, writes, busy = [], [], []
        for table in tables:
            devices = where(cut(DeviceSample, table[DeviceSample], *window), role=osd)
            written.append(total(devices, "write_bytes"))
            writes.append(total(devices, "write_count"))
            busy.append(sum(r["busy_ratio"] * r["duration_ns"] for r in devices.to_pylist()) / 1e9 / seconds)
        assert written[1] == pytest.approx(written[0], rel=0.2)
        assert writes[1] == pytest.approx(writes[0], rel=0.2)
        assert busy[1] == pytest.approx(busy[0], rel=0.2, abs=0.05)


def remains(target: Target, since_ns: int) -> bool:
    """Return whether Prometheus has a scrape after a moment."""
    assert target.prometheus is not None
    (found,) = Monitoring(target.prometheus.url, Path()).query("timestamp(node_uname_info)")
    return float(found["value"][1]) > since_ns / 1e9
