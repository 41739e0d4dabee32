"""What a dry run promises is what a run does: its commands, its changes, its bytes, and the time that is left."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.views import schemas
from typer.testing import CliRunner

from bathyscope import cli, views
from bathyscope.bench import prediction, preflight, session
from bathyscope.bench.conductor import context_of, enlarged_history
from bathyscope.bench.resources import Resources, make_context
from bathyscope.bench.settings import Settings, enlarging, switches
from bathyscope.commands import bench_progress
from bathyscope.errors import EnvironmentError_
from bathyscope.host import ProcessRequest
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.layers import needs_of, traits
from bathyscope.recording.journal import Journal
from bathyscope.records import ClusterStatus
from bathyscope.records.prediction_finding import PredictionFinding
from bathyscope.spec import DiskTarget, StepSpec, Target
from bathyscope.spec.plan import Phase, Plan, Quiesce, expand
from bathyscope.spec.plan_file import parse_plan, preset_names, preset_text
from bathyscope.spec.scope import Scope, ScopeOsd

GIB = 1 << 30
TARGET = Target(
    name="c",
    conf="/etc/ceph/ceph.conf",
    disks={"ssd": DiskTarget(path="/dev/sdx", size_bytes=8 * GIB, destructive=True)},
)
SCOPE = Scope(
    target=TARGET,
    osds=tuple(ScopeOsd(osd=i, host=f"node{i}", device_class="ssd", size_bytes=100 * GIB) for i in range(3)),
)
PLAN = """
name: t
layers: [disk, rados, rbd]
patterns: [randread-4K-qd1, randwrite-4K-qd16]
axes: {image_size: 1G}
repeats: 3
ramp: 2s
runtime: 10s
limits: {prolong: 2}
quiesce: {scrub: true, balancer: true}
"""


def plan(text: str = PLAN, *overrides: str) -> Plan:
    return parse_plan(text, name="t", layers=traits(), overrides=overrides)


def steps_of(wanted: Plan) -> list[StepSpec]:
    return expand(wanted, ("ssd",), traits())


def predict(session: Any, wanted: Plan, run_id: str = "00000000-000000-000000") -> PredictionFinding:
    steps = steps_of(wanted)
    return prediction.predict(
        wanted,
        steps,
        SCOPE,
        context_of(wanted, TARGET, run_id),
        make_context(session, SCOPE),
        replicas=preflight.replicas_of(session, TARGET, wanted),
        switches=switches(session, wanted.quiesce),
        history=enlarging(*enlarged_history(SCOPE, steps, wanted.capture.op_history_ops)),
    )


def test_every_change_that_a_run_makes_is_predicted(fake_cluster: Any, fake_session: Any, journal: Journal) -> None:
    """The run's own code changes a cluster; what it was asked for stands in the prediction, and nothing else does."""
    wanted, run_id = plan(), journal.run_id
    promised = predict(fake_session, wanted, run_id)
    asked_before = len(fake_cluster.log)
    assert fake_cluster.pools == {}, "a prediction changes nothing"
    host, context = FakeHost({"rbd": FakeAnswer()}, ceph=fake_session), context_of(wanted, TARGET, run_id)
    needs, settings = needs_of(steps_of(wanted), context), Settings(fake_session, journal)
    clean = ClusterStatus(1, "HEALTH_OK", 0, 64, 64, 0, 0, None, None)
    Resources(host, fake_session, journal).make(needs, SCOPE, status=lambda: clean)
    settings.quiesce(wanted.quiesce)
    settings.enlarge_history(host, *enlarged_history(SCOPE, steps_of(wanted), wanted.capture.op_history_ops))
    reads = ("osd tree", "osd dump", "mon dump", "config get", "config diff get", "config dump", "balancer status")
    made = {prefix for _, prefix in fake_cluster.log[asked_before:] if prefix not in reads}
    on_cluster = [change for change in promised.changes if change.where.startswith(("mon", "mgr", "osd."))]
    told = {next((prefix for prefix in made if c.change.startswith(prefix)), c.change) for c in on_cluster}
    assert told == made
    rbd = [change.change for change in promised.changes if change.change.startswith("rbd ")]
    assert rbd == [" ".join(r.argv) for r in host.requests if isinstance(r, ProcessRequest) and r.argv[0] == "rbd"]
    journaled = {
        kind: {c.details["name"] for c in journal.pending() if c.kind == kind} for kind in ("pool", "crush_rule")
    }
    pools = {pool.name for pool in promised.pools}
    assert journaled == {"pool": pools, "crush_rule": {f"{name}-rule" for name in pools}}
    assert (len(promised.pools), promised.rule_count, promised.image_count) == (2, 2, 1)
    assert {pool.failure_domain for pool in promised.pools} == {"host"}


def test_every_change_says_how_it_goes_back(fake_session: Any) -> None:
    changes = {
        change.change.split(" name=")[0].split(" pool=")[0]: change for change in predict(fake_session, plan()).changes
    }
    assert "osd pool delete" in changes["osd pool create"].undone_by
    assert "mon_allow_pool_delete" in changes["osd pool create"].undone_by
    assert "rule rm" in changes["osd crush rule create-replicated"].undone_by
    assert changes["osd set key=noscrub"].undone_by == "osd unset key=noscrub"
    assert "balancer on" in changes["balancer off"].undone_by
    history = changes["config set var=osd_op_history_size val=1000"]
    assert (history.where, bool(history.undone_by)) == ("osd.0 and 2 more", True)
    overwritten = changes["/dev/sdx: its first 1.00 GiB is overwritten"]
    assert "lost" in overwritten.undone_by


def test_what_is_switched_already_is_no_change(fake_cluster: Any, fake_session: Any) -> None:
    fake_cluster.flags |= {"noscrub", "nodeep-scrub"}
    fake_cluster.balancer = False
    assert not any("scrub" in c.change or "balancer" in c.change for c in predict(fake_session, plan()).changes)


def test_bytes_are_those_that_are_filled(fake_session: Any) -> None:
    found = predict(fake_session, plan()).cost
    assert found.fill_bytes == 3 * GIB, "the disk, the objects and the image"
    assert found.stored_bytes == (1 + 2 * 3) * GIB, "three replicas on the cluster, one on the disk"
    assert predict(fake_session, plan(PLAN, "replicas=2")).cost.stored_bytes == (1 + 2 * 2) * GIB
    assert predict(fake_session, plan(PLAN, "prefill=false")).cost.fill_bytes == 0
    # A load that is bounded writes no more than its bound: 100 writes of 4 KiB in each of 3 repeats.
    bounded = predict(fake_session, plan(PLAN, "io_count=100")).cost
    assert bounded.load_bytes == 100 * 4096 * 3 * (1 + 3 + 3)


def test_time_is_that_of_the_loads_and_more(fake_session: Any) -> None:
    found = predict(fake_session, plan()).cost
    loads_s = 18 * 12.0
    assert found.step_count == 18
    assert loads_s + 18 * prediction.OVERHEAD_S < found.expected_s < loads_s * 1.5
    assert found.worst_s > 18 * (2 + 3 * 10) + 2 * 60, "two prolongations of every step, and a slow preparation"
    shorter = predict(fake_session, plan(PLAN, "limits.prolong=0")).cost
    assert found.worst_s - shorter.worst_s == pytest.approx(18 * 2 * (10 + prediction.OVERHEAD_WORST_S))


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_predicted_and_shown(name: str, fake_session: Any) -> None:
    wanted = plan(preset_text(name))
    found = predict(fake_session, wanted)
    assert found.cost.step_count == len(steps_of(wanted))
    assert found.pg_count == sum(pool.pg_count for pool in found.pools) > 0
    assert 0 < found.cost.expected_s < found.cost.worst_s < math.inf
    shown = io.StringIO()
    views.render(found, "table", shown, width=80)
    assert "at worst" in shown.getvalue()
    assert "PGs" in shown.getvalue()
    plain = json.loads(views.as_text(found, "json"))
    assert schemas.check(json.dumps(plain)) == "prediction"
    assert plain["cost"]["fill_bytes"] == found.cost.fill_bytes
    assert len(plain["commands"]) == len(found.commands)
    assert views.as_text(found, "csv").count("\n") == len(found.commands) + 1
    changes = views.as_text(found, "csv", table="changes").splitlines()
    assert (changes[0], len(changes)) == ("where,change,undone_by,count,expected_s,worst_s", len(found.changes) + 1)
    # What is done is a line, however long.
    lines = shown.getvalue().splitlines()
    assert all(f"  {change.where}: {change.change}" in lines for change in found.changes)


def test_a_disk_alone_changes_no_cluster() -> None:
    wanted = plan(PLAN, "layers=disk")
    found = prediction.predict(
        wanted, steps_of(wanted), Scope(target=TARGET), context_of(wanted, TARGET, "0-0-0"), None
    )
    assert (found.pools, found.pg_count, found.rule_count) == ((), 0, 0)
    assert [change.where for change in found.changes] == ["this machine"]
    assert found.cost.stored_bytes == found.cost.fill_bytes == GIB


def test_the_time_left_follows_the_steps_that_are_done() -> None:
    steps = steps_of(plan())
    pace = prediction.Pace(steps, 0.0)
    whole = pace.left_s
    assert whole == pytest.approx(18 * prediction.step_s(steps[0]))
    for _ in range(9):
        pace.ended(2 * prediction.step_s(steps[0]))
    assert pace.left_s == pytest.approx(whole), "half of the steps are left, and they take twice as long"
    for _ in range(9):
        pace.ended(1.0)
    assert pace.left_s == 0


def test_the_time_left_has_what_leads_to_the_phases_that_are_left() -> None:
    phased = plan().model_copy(update={"phases": (Phase(name="a"), Phase(name="b")), "repeats": 3})
    steps = steps_of(phased)
    pace = prediction.Pace(steps, 10.0)
    loads_s = sum(map(prediction.step_s, steps))
    # The first of six has been entered.
    assert pace.left_s == pytest.approx(loads_s + 50.0)
    while steps[0].phase == "a":
        pace.ended(prediction.step_s(steps.pop(0)))
    assert pace.left_s == pytest.approx(sum(map(prediction.step_s, steps)) + 40.0)


def test_progress_shows_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with bench_progress.watching() as watcher:
        watcher.time_left(3725.0)
        watcher.step_begins(3, 18, steps_of(plan())[0])
    assert capsys.readouterr().err == "[3/18, 1 h 2 min left] disk/ssd/randread-4K-qd1 #1\n"


def test_nothing_is_switched_that_a_plan_does_not_name(fake_session: Any) -> None:
    assert switches(fake_session, Quiesce()) == []
    silent: Sequence[str] = ("quiesce.scrub=false", "quiesce.balancer=false", "capture.op_history=false")
    wanted = plan(PLAN, *silent)
    found = prediction.predict(
        wanted, steps_of(wanted), SCOPE, context_of(wanted, TARGET, "0-0-0"), make_context(fake_session, SCOPE)
    )
    assert not any("config set" in c.change or "osd set" in c.change for c in found.changes)


def test_the_operators_pool_is_used_and_what_is_put_into_it_goes_back(fake_session: Any) -> None:
    given = TARGET.model_copy(update={"pool": "theirs"})
    scope, wanted = SCOPE.model_copy(update={"target": given}), plan(PLAN, "layers=rados,rbd")
    context, make = context_of(wanted, given, "0-0-abc"), make_context(fake_session, SCOPE)
    make = dataclasses.replace(make, scope=scope)
    found = prediction.predict(wanted, steps_of(wanted), scope, context, make, replicas=2)
    assert (found.pools, found.rule_count, found.image_count) == ((), 0, 1)
    assert found.cost.stored_bytes == 2 * found.cost.fill_bytes == 4 * GIB
    assert not any("pool create" in change.change or "rule create" in change.change for change in found.changes)
    undone = [change.undone_by for change in found.changes if change.undone_by]
    assert any(text.startswith("image rm") and "bathy-abc-" in text for text in undone)
    assert any(text.startswith("objects rm") and "bathy-abc-" in text for text in undone)


@pytest.mark.parametrize("kind", ["cluster", "lab", "disk"])
def test_a_plan_of_a_disk_alone_asks_no_cluster_whatever_is_named_beside_it(kind: Any) -> None:
    """A ceph.conf that leads nowhere is no obstacle to the disk layer."""
    target = TARGET.model_copy(update={"kind": kind, "conf": "/none"})
    found = session.predict(FakeHost(files={"/etc/os-release": b"ID=debian\n"}), plan(PLAN, "layers=disk"), target)
    assert (found.cost.step_count, found.pools) == (6, ())


def looked_at(cluster: Any, **status: Any) -> FakeHost:
    """A machine with fio, and the fake cluster with all that is asked for the map and for the look before a run."""
    nodes = [
        {"id": i, "type": "osd", "device_class": "ssd", "utilization": 40.0, "kb": 100 << 20, "status": "up", "pgs": 0}
        for i in range(3)
    ]
    hosts = [{"id": -2 - i, "type": "host", "name": f"node{i}", "children": [i]} for i in range(3)]
    root = {"id": -1, "type": "root", "name": "default", "children": [host["id"] for host in hosts]}
    states = [{"state_name": "active+clean", "count": 8}]
    osds = [{"osd": i, "up": 1} for i in range(3)]
    pools = [{"pool_name": "theirs", "pool": 1, "pg_num": 8}]
    answers = {
        "osd_dump": {"fsid": "f-s-i-d", "pools": pools, "flags": "", "osds": osds},
        "osd_df": {"nodes": [root, *hosts, *nodes]},
        "osd_tree": {"nodes": [root, *hosts, *nodes]},
        "osd_perf": {"osdstats": {"osd_perf_infos": []}},
        "health": {"status": status.get("health", "HEALTH_OK"), "checks": {}},
        "status": {"pgmap": {"pgs_by_state": states}},
    }
    for name, answer in answers.items():
        setattr(cluster, f"do_{name}", lambda *_, answer=answer: answer)

    def fio(request: ProcessRequest) -> FakeAnswer:
        return FakeAnswer(b"fio-3.33\n" if "--version" in request.argv else b"rbd rados\n")

    return FakeHost({"fio": fio}, {"/etc/os-release": b"ID=debian\n"}, ceph=cluster.session())


def test_a_dry_run_says_what_the_run_would_be_refused_for_and_changes_nothing(fake_cluster: Any) -> None:
    wanted, before = plan(PLAN, "layers=rados,rbd"), copy.deepcopy(fake_cluster.state())
    host = looked_at(fake_cluster)
    found = session.predict(host, wanted, TARGET)
    assert (found.refusal, found.notes) == ("", ())
    assert "refused" not in views.as_text(found, "table")
    # Without the caps for the OSDs it would run, with less to say.
    fake_cluster.denied = {"osd."}
    found = session.predict(host, wanted, TARGET)
    assert (found.refusal, len(found.notes)) == ("", 1)
    assert "no counters" in views.as_text(found, "table")
    # The switches themselves are not tried: what undoes them would undo those of somebody else.
    assert not {"osd set", "osd unset", "balancer on"} & {prefix for _, prefix in fake_cluster.log}
    fake_cluster.denied = {"osd pool delete"}
    found = session.predict(host, wanted, TARGET)
    assert "osd pool delete" in found.refusal
    assert found.refusal_hint
    assert len(found.changes) > 10
    shown = " ".join(views.as_text(found, "table").split())
    assert f"the run would be refused: {found.refusal}" in shown
    assert json.loads(views.as_text(found, "json"))["refusal"] == found.refusal
    fake_cluster.denied = set()
    sick = session.predict(looked_at(fake_cluster, health="HEALTH_ERR"), wanted, TARGET)
    assert "HEALTH_ERR" in sick.refusal
    assert fake_cluster.state() == before


def test_a_dry_run_that_would_be_refused_ends_with_exit_code_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    words = ["bench", "run", "--disk", str(disk), "--destroy-disk-content", "--layer", "disk", "--preset", "smoke"]
    words += ["--conf", str(tmp_path / "none"), "--dry-run"]
    monkeypatch.setattr(preflight, "check_tools", lambda *_: None)
    assert CliRunner().invoke(cli.app, words).exit_code == 0

    def missing(*_: object) -> None:
        raise EnvironmentError_("no fio here", hint="install it")

    monkeypatch.setattr(preflight, "check_tools", missing)
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 1
    assert "no fio here" in done.stdout
    assert "install it" in done.stdout
