"""A cluster of a thousand OSDs: what is asked of it before and around a step grows no faster than it does."""

from __future__ import annotations

from typing import Any

from bathyscope.analysis.environment_caveats import environment_caveats
from bathyscope.bench import preflight
from bathyscope.bench.preflight import ClusterLook
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.layers import LayerContext
from bathyscope.recording.collect import collect
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.sources import cluster_map, cluster_status, op_history, perf_counters
from bathyscope.sources.cluster_map import device_classes
from bathyscope.spec import Pattern, StepSpec, Target
from bathyscope.spec.plan import Limits

OSDS = 1000
FILES: dict[str, Any] = {"/proc/loadavg": b"0.10 0.10 0.10 1/100 1\n"}


def answers() -> dict[str, Any]:
    nodes: list[dict[str, Any]] = [
        {"id": -1 - h, "type": "host", "name": f"node{h}", "children": list(range(h * 20, h * 20 + 20))}
        for h in range(OSDS // 20)
    ]
    nodes += [{"id": -1 - h, "type": "host", "name": f"node{h}~ssd", "children": []} for h in range(50, 100)]
    nodes += [
        {"id": i, "type": "osd", "device_class": "ssd" if i % 2 else "hdd", "utilization": 40.0, "kb": 1 << 30,
         "status": "up"}
        for i in range(OSDS)
    ]  # fmt: skip
    slow = {"commit_latency_ms": 80.0, "apply_latency_ms": 80.0}
    usual = {"commit_latency_ms": 2.0, "apply_latency_ms": 2.0}
    perf = [{"id": i, "perf_stats": slow if i == 123 else usual} for i in range(OSDS)]
    return {
        "health": {"status": "HEALTH_OK", "checks": {}},
        "status": {"pgmap": {"pgs_by_state": [{"state_name": "active+clean", "count": 32768}]}},
        "osd df": {"nodes": nodes},
        "osd dump": {"fsid": "f-s-i-d", "pools": [{"pool_name": "theirs", "pool": 1, "pg_num": 32768}], "flags": ""},
        "osd perf": {"osdstats": {"osd_perf_infos": perf}},
        "config get": lambda request: {
            dict(request.command)["var"]: "false" if "autotune" in str(request.command) else "1073741824"
        },
    }


def test_the_look_before_a_run_asks_little() -> None:
    session = FakeCephSession(answers())
    host = FakeHost(files=FILES, ceph=session)
    step = StepSpec(
        layer="rbd", device_class="ssd", pattern=Pattern(op="randread", block_size_bytes=4096, queue_depth=1),
        image_size_bytes=1 << 30, ramp_s=0, runtime_s=1,
    )  # fmt: skip
    keeper = ScopeKeeper(host, session, Target(name="c"))
    keeper.refresh()
    scope = keeper.scope
    source = cluster_status.SOURCE
    tables = source.parse(collect(host, session, source.plan(scope)), scope)
    preflight.check_cluster(scope, ClusterLook.of(tables), Limits())
    context = LayerContext(scope.target, "bathy-x", "/tmp/x")
    preflight.check_space(scope, [step] * 100, context, Limits(), default_replicas=3)
    known = {**tables, **cluster_map.SOURCE.parse(keeper.answers["cluster_map"], scope)}
    codes = {caveat.code for caveat in environment_caveats({record.TABLE: table for record, table in known.items()})}
    # A few questions for the monitors and the manager, whatever the size, and few for each OSD.
    of_osds = [request for request in session.requests if request.daemon.startswith("osd.")]
    assert len(session.requests) - len(of_osds) < 20
    assert len(of_osds) <= 4 * OSDS
    assert len(scope.osds) == OSDS
    assert {osd.host for osd in scope.osds} == {f"node{h}" for h in range(50)}
    assert device_classes(scope) == ("hdd", "ssd")
    assert codes == {"slow_osd"}
    assert {osd.cache_bytes for osd in scope.osds} == {1 << 30}
    assert scope.pools == {"theirs": 1}


def test_the_op_history_is_asked_of_some_osds_all_over_the_cluster() -> None:
    some = op_history.asked(range(OSDS))
    assert len(some) == len(set(some)) == op_history.ASKED_MAX
    assert some[0] < OSDS / op_history.ASKED_MAX
    assert some[-1] >= OSDS - 2 * OSDS / op_history.ASKED_MAX
    assert op_history.asked([4, 5, 9]) == [4, 5, 9]
    session = FakeCephSession(answers())
    keeper = ScopeKeeper(FakeHost(files=FILES, ceph=session), session, Target(name="c"))
    keeper.refresh()
    assert len(op_history.SOURCE.plan(keeper.scope)) == op_history.ASKED_MAX
    assert len(perf_counters.SOURCE.plan(keeper.scope)) == OSDS
