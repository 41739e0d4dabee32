"""A cluster of a thousand OSDs: what is asked of it before and around a step stays a matter of seconds."""

from __future__ import annotations

import time
from typing import Any

from bathyscope.bench import cluster, preflight
from bathyscope.bench.capture import HISTORY, HISTORY_OSDS_MAX, PERF_AFTER, StepCapture, history_osds
from bathyscope.bench.guard import Guard
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.spec import Pattern, StepSpec, Target
from bathyscope.spec.plan import Capture, Limits

OSDS = 1000


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
    perf = [{"id": i, "perf_stats": {"commit_latency_ms": 80.0 if i == 123 else 2.0}} for i in range(OSDS)]
    return {
        "health": {"status": "HEALTH_OK", "checks": {}},
        "status": {"pgmap": {"pgs_by_state": [{"state_name": "active+clean", "count": 32768}]}},
        "osd df": {"nodes": nodes},
        "osd perf": {"osdstats": {"osd_perf_infos": perf}},
        "config get": lambda request: {
            dict(request.command)["var"]: "false" if "autotune" in str(request.command) else "1073741824"
        },
    }


def test_the_look_before_a_run_takes_a_second() -> None:
    session = FakeCephSession(answers())
    step = StepSpec(
        layer="rbd", device_class="ssd", pattern=Pattern(op="randread", block_size_bytes=4096, queue_depth=1),
        image_size_bytes=1 << 30, ramp_s=0, runtime_s=1,
    )  # fmt: skip
    began = time.monotonic()
    seen = preflight.look(session)
    preflight.check_cluster(seen, Limits())
    preflight.check_space(seen, [step] * 100, 3, Limits())
    codes = {caveat.code for caveat in preflight.cluster_caveats("r", seen, session)}
    assert Guard(session, Limits(), seen).check() is None
    sizes = cluster.cache_sizes(session, range(OSDS))
    assert time.monotonic() - began < 2
    assert len(seen.nodes) == OSDS
    assert {node.host for node in seen.nodes} == {f"node{h}" for h in range(50)}
    assert cluster.classes_of(seen.nodes) == ("hdd", "ssd")
    assert codes == {"slow_osd"}
    assert sizes == dict.fromkeys(range(OSDS), 1 << 30)


def test_the_op_history_is_asked_of_some_osds_all_over_the_cluster() -> None:
    some = history_osds(range(OSDS))
    assert len(some) == len(set(some)) == HISTORY_OSDS_MAX
    assert some[0] < OSDS / HISTORY_OSDS_MAX
    assert some[-1] >= OSDS - 2 * OSDS / HISTORY_OSDS_MAX
    assert history_osds([4, 5, 9]) == [4, 5, 9]
    session = FakeCephSession({"dump_historic_ops": {"ops": []}, "perf dump": {"osd": {"op": 1}}})
    host = FakeHost(ceph=session)
    capture = StepCapture(host, session, Target(name="c"), Capture(processes=False), range(OSDS))
    capture.begin()
    captured = capture.end()
    assert len(captured.raw[HISTORY]) == HISTORY_OSDS_MAX
    assert len(captured.raw[PERF_AFTER]) == OSDS
