"""Facts, placement and the scope, from recorded answers of 16.2, 18.2 and of a 20.2 lab."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bathyscope.host import CephRequest
from bathyscope.records import EnvironmentFact, Placement, RawAnswer, from_table
from bathyscope.sources import cluster_map, facts
from bathyscope.sources.cluster_map import SOURCE, scope_of
from bathyscope.spec import SshAccess, Target
from bathyscope.spec.scope import Scope, ScopeOsd

Recorded = Callable[[str], list[RawAnswer]]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "environment"
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]
TARGET = Target(name="t")
SCOPE = Scope(target=TARGET)


def facts_of(answers: list[RawAnswer]) -> dict[tuple[str, str], str]:
    rows = from_table(EnvironmentFact, SOURCE.parse(answers, SCOPE)[EnvironmentFact])
    assert {row.moment for row in rows} <= {"before"}
    return {(row.subject, row.name): row.value for row in rows}


def placement_of(answers: list[RawAnswer], target: Target) -> list[Placement]:
    return from_table(Placement, SOURCE.parse(answers, Scope(target=target))[Placement])


def answered(label: str, value: object) -> RawAnswer:
    return RawAnswer(label, (), (), 0, json.dumps(value).encode(), b"", 0, 0)


@pytest.mark.parametrize(
    ("version", "release"),
    [("16.2.15", "16.2.15 pacific"), ("18.2.7", "18.2.7 reef"), ("20.2.4", "20.2.4 tentacle")],
)
def test_versions_health_and_settings(recorded: Recorded, version: str, release: str) -> None:
    found = facts_of(recorded(f"environment/{version}/answers"))
    assert found["cluster", "osd_version"] == release
    assert found["cluster", "health"].startswith("HEALTH_")
    assert found["cluster", "flags"]
    assert int(found["cluster", "pgs active+clean"]) > 0
    assert found["osd.0", "ceph_version_short"] == version
    assert found["osd.0", "osd_objectstore"] == "bluestore"
    assert float(found["osd.0", "commit_latency_ms"]) >= 0
    pool = next(subject for subject, name in found if subject.startswith("pool bathy-rec-") and name == "size")
    assert found[pool, "size"] == "3"
    assert any(name.startswith("config ") for subject, name in found if subject == "osd.0")


def test_a_pools_rule_is_what_it_does_not_its_number(recorded: Recorded) -> None:
    answers = recorded("environment/18.2.7/answers")
    pools = {key: value for key, value in facts_of(answers).items() if key[1] == "crush_rule"}
    choose = {"op": "chooseleaf_firstn", "num": 0, "type": "host"}
    steps = [{"op": "take", "item": -8, "item_name": "default~ssd"}, choose, {"op": "emit"}]
    rules = [{"rule_id": int(number), "steps": steps} for number in set(pools.values())]
    found = facts_of([*answers, answered("crush_rules", rules)])
    assert pools
    assert {found[key] for key in pools} == {"take default~ssd, chooseleaf_firstn 0 host, emit"}


def test_placement_of_a_lab_with_device_classes(recorded: Recorded) -> None:
    target = Target.model_validate_json((FIXTURES / "20.2.4" / "target.json").read_bytes())
    rows = placement_of(recorded("environment/20.2.4/answers"), target)
    assert [row.osd for row in rows] == [0, 1, 2]
    assert {row.host for row in rows} == {"node1", "node2", "node3"}
    assert {(row.device_class, row.rotational, row.objectstore) for row in rows} == {("ssd", False, "bluestore")}
    assert all(row.device is not None and row.device.startswith("loop") for row in rows)
    assert {f"osd.{row.osd}": row.osd_pid for row in rows}.items() <= {d.name: d.pid for d in target.daemons}.items()


@pytest.mark.parametrize(("version", "crush_weight", "pg_counts"), [
    ("16.2.15", 0.002899, [31, 37, 30]), ("18.2.7", 0.007812, [49, 49, 49]), ("20.2.4", 0.007812, [65, 65, 65]),
])  # fmt: skip
def test_placement_has_the_weights_and_the_placement_groups(
    recorded: Recorded, version: str, crush_weight: float, pg_counts: list[int]
) -> None:
    answers = recorded(f"environment/{version}/answers")
    rows = placement_of(answers, TARGET)
    assert [row.pg_count for row in rows] == pg_counts
    assert {(row.primary_affinity, row.reweight) for row in rows} == {(1.0, 1.0)}
    assert [row.crush_weight for row in rows] == pytest.approx([crush_weight] * 3, rel=1e-3)


def test_an_osd_that_is_no_primary_and_one_that_is_out() -> None:
    nodes = [{"id": osd, "type": "osd", "name": f"osd.{osd}", "reweight": 1 - osd, "pgs": 0} for osd in range(2)]
    dump = {"fsid": "f", "flags": "", "osds": [{"osd": 0, "primary_affinity": 0}, {"osd": 1, "primary_affinity": 0.5}]}
    first, second = placement_of([answered("osd_df_tree", {"nodes": nodes}), answered("osd_dump", dump)], TARGET)
    assert (first.primary_affinity, first.reweight, first.pg_count) == (0.0, 1.0, 0)
    assert (second.primary_affinity, second.reweight, second.crush_weight) == (0.5, 0.0, None)
    (alone,) = placement_of([answered("osd_df_tree", {"nodes": nodes[:1]})], TARGET)
    assert alone.primary_affinity is None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_scope_is_made_of_answers_alone(recorded: Recorded, version: str) -> None:
    answers = [
        *recorded(f"environment/{version}/answers"),
        *recorded(f"perf_dump/{version}/schema"),
        RawAnswer("clock_ticks", (), (), 0, b"250\n", b"", 0, 0),
    ]
    scope = scope_of(answers, TARGET)
    dump = next(answer for answer in answers if answer.label == "osd_dump").json()
    assert scope.fsid == dump["fsid"]
    assert scope.pools == {pool["pool_name"]: pool["pool"] for pool in dump["pools"]}
    assert [osd.osd for osd in scope.osds] == [0, 1, 2]
    assert all(osd.up and osd.host and 0 < osd.fullness < 1 and osd.size_bytes > 1 << 30 for osd in scope.osds)
    assert {osd.cache_bytes for osd in scope.osds} == {None}
    assert scope.counter_kinds["osd"]["op"] == "counter"
    assert scope.counter_kinds["osd"]["op_latency"] == "average"
    assert scope.counter_kinds["osd"]["numpg"] == "gauge"
    assert (scope.clock_ticks_per_s, scope.page_bytes) == (250, 4096)
    assert (scope.asked_osds, scope.own_pools, scope.op_history_ops) == ((), None, None)
    # These answers were recorded before anybody asked for the modules.
    assert scope.mgr_modules == ()
    listed = answered("mgr_modules", {"always_on_modules": ["crash"], "enabled_modules": ["restful", "bathyscope"]})
    assert scope_of([*answers, listed], TARGET).mgr_modules == ("bathyscope", "restful")
    assert Scope.model_validate_json(scope.model_dump_json()) == scope
    assert len(cluster_map.device_classes(scope)) == 1
    # Its own pools may hold images, those of the manager do not.
    assert set(scope.pools) - set(scope.rbd_pools) <= {".mgr", "device_health_metrics"}
    assert scope.machine_names == {"127.0.0.1": "vm"}


def test_pools_that_may_hold_images_and_machines_by_address() -> None:
    applications = {
        "a": {},
        "b": {"rbd": {}},
        "c": {"cephfs": {"data": "fs"}},
        "d": {"rgw": {}, "own": {}},
        "e": {"mgr": {}},
    }
    pools = [
        {"pool": number, "pool_name": name, "application_metadata": used}
        for number, (name, used) in enumerate(applications.items())
    ]
    machines = [
        ("one", "[v2:10.0.0.1:6800/1,v1:10.0.0.1:6801/1]"), ("one", "10.0.0.1:6810/2"),
        ("two", "[v2:[fd00::2]:6800/1]"), ("three", "10.0.0.3:6800/1"), ("four", "10.0.0.3:6800/1"),
    ]  # fmt: skip
    metadata = [{"id": osd, "hostname": name, "front_addr": at} for osd, (name, at) in enumerate(machines)]
    metadata[0]["back_addr"] = "[v2:198.51.100.1:6800/1]"
    dump = {"fsid": "f", "flags": "", "pools": pools}
    tree = {"nodes": [{"id": osd, "name": f"osd.{osd}", "type": "osd"} for osd in range(len(machines))]}
    answers = [answered("osd_dump", dump), answered("osd_metadata", [*metadata, {"id": 9}])]
    # How ssh knows them: by an address, by another name; and a machine without OSDs.
    access = SshAccess(names={"three": "192.0.2.3", "four": "node4", "five": "192.0.2.5"})
    scope = scope_of([*answers, answered("osd_df_tree", tree)], TARGET.model_copy(update={"ssh": access}))
    assert scope.rbd_pools == ("a", "b", "d")
    assert scope.machine_names == {"10.0.0.1": "one", "192.0.2.3": "three", "198.51.100.1": "one", "fd00::2": "two"}
    rows = from_table(Placement, cluster_map.SOURCE.parse([*answers, answered("osd_df_tree", tree)], scope)[Placement])
    assert [(row.machine, row.addresses) for row in rows] == [
        ("one", "10.0.0.1 198.51.100.1"), ("one", "10.0.0.1 198.51.100.1"), ("two", "fd00::2"), ("three", "192.0.2.3"),
        ("four", None),
    ]  # fmt: skip


def test_the_latest_answer_counts(recorded: Recorded) -> None:
    old = recorded("environment/20.2.4/answers")
    tree = next(answer for answer in old if answer.label == "osd_df_tree")
    value = tree.json()
    for node in value["nodes"]:
        if node["name"] == "osd.1":
            node["status"] = "down"
    new = dataclasses.replace(tree, stdout=json.dumps(value).encode())
    refused = dataclasses.replace(tree, exit_code=-13)
    scope = scope_of([*old, new, refused], TARGET)
    assert [osd.up for osd in scope.osds] == [True, False, True]


def test_device_classes_and_their_osds() -> None:
    osds = (
        ScopeOsd(osd=0, device_class="ssd"),
        ScopeOsd(osd=1, device_class="hdd"),
        ScopeOsd(osd=2, device_class="hdd", up=False),
        ScopeOsd(osd=3),
    )
    scope = Scope(target=TARGET, osds=osds)
    assert cluster_map.device_classes(scope) == ("hdd", "ssd")
    assert [osd.osd for osd in cluster_map.up_osds(scope, "hdd")] == [1]
    assert [osd.osd for osd in cluster_map.up_osds(scope)] == [0, 1, 3]


@pytest.mark.parametrize(
    ("autotune", "fixed", "memory", "expected"),
    [
        ("true", "0", "4294967296", 4 << 30),
        ("true", "1073741824", "4294967296", 4 << 30),
        ("false", "1073741824", "4294967296", 1 << 30),
        ("false", "0", "4294967296", 4 << 30),
        ("true", "0", "", None),
        (None, "1073741824", "4294967296", None),
    ],
)
def test_what_the_cache_of_an_osd_may_hold(autotune: str | None, fixed: str, memory: str, expected: int | None) -> None:
    values = {"bluestore_cache_autotune": autotune, "bluestore_cache_size": fixed, "osd_memory_target": memory}
    answers = [answered(f"{name}-osd.7", {name: value}) for name, value in values.items() if value is not None]
    tree = answered("osd_df_tree", {"nodes": [{"id": 7, "type": "osd", "name": "osd.7"}]})
    (osd,) = scope_of([tree, *answers], TARGET).osds
    assert osd.cache_bytes == expected


def test_no_secret_is_kept() -> None:
    options = [
        {"section": "mgr", "name": "mgr/dashboard/ssl_password", "value": "hunter2"},
        {"section": "client.rgw", "name": "rgw_keystone_admin_token", "value": "hunter2"},
        {"section": "global", "name": "osd_memory_target", "value": "1"},
    ]
    levels = {"default": "", "mon": "hunter2", "final": "hunter2"}
    difference = {"rgw_ldap_secret": levels, "osd_memory_target": {"default": "4", "final": "1"}}
    answers = [answered("config_dump", options), answered("config_diff-osd.0", {"diff": difference})]
    clean = [facts.redacted(answer) for answer in answers]
    assert b"hunter2" not in b"".join(answer.stdout for answer in clean)
    for kept in (answers, clean):
        found = facts_of(kept)
        assert "hunter2" not in str(found)
        assert found["config global", "osd_memory_target"] == "1"
        assert found["osd.0", "config rgw_ldap_secret"] == "(not kept)"
        assert found["osd.0", "config osd_memory_target"] == "1"


def test_only_settings_are_redacted_and_what_is_not_understood_is_dropped(recorded: Recorded) -> None:
    for answer in recorded("environment/20.2.4/answers"):
        clean = facts.redacted(answer)
        if answer.label.startswith("config_"):
            assert facts_of([clean]) == facts_of([answer])
        else:
            assert clean is answer
    for stdout in (b"password = hunter2", b'[{"value": "hunter2"}]', b'{"diff": ["hunter2"]}', b'["hunter2"]'):
        for label in ("config_dump", "config_diff-osd.0"):
            broken = dataclasses.replace(answered(label, []), stdout=stdout)
            assert b"hunter2" not in facts.redacted(broken).stdout


def test_facts_get_the_moment_of_their_segment(recorded: Recorded) -> None:
    table = SOURCE.parse(recorded("environment/20.2.4/answers"), SCOPE)[EnvironmentFact]
    after = facts.facts_at(table, "after")
    assert after.schema == table.schema
    assert after.column("moment").unique().to_pylist() == ["after"]
    assert after.drop(["moment"]) == table.drop(["moment"])
    assert facts.facts_at(table.slice(0, 0), "after").num_rows == 0


def test_what_is_refused_or_missing_is_left_out(recorded: Recorded) -> None:
    answers = [dataclasses.replace(a, exit_code=-13) for a in recorded("environment/16.2.15/answers")]
    for given_answers in (answers, []):
        assert facts_of(given_answers) == {}
        assert placement_of(given_answers, TARGET) == []
        assert scope_of(given_answers, TARGET) == SCOPE


def test_only_osds_that_are_up_and_asked_for_are_asked() -> None:
    labels = {request.label for request in SOURCE.plan(SCOPE)}
    assert {"versions", "status", "health", "osd_df_tree", "osd_dump", "osd_perf", "config_dump"} <= labels
    assert not any("-osd." in label for label in labels)
    osds = tuple(ScopeOsd(osd=osd, up=osd != 0) for osd in range(100))
    requests = SOURCE.plan(Scope(target=TARGET, osds=osds, asked_osds=tuple(range(40))))
    daemons: dict[str, list[str]] = {}
    for request in requests:
        assert isinstance(request, CephRequest)
        if "-osd." in request.label:
            daemons.setdefault(request.label.rpartition("-")[0], []).append(request.daemon)
    assert daemons["perf_schema"] == ["osd.1"]
    assert len(daemons["config_diff"]) == 16
    assert daemons["osd_memory_target"] == [f"osd.{osd}" for osd in range(1, 40)]
    assert len({request.label for request in requests}) == len(requests)


def test_a_disk_target_asks_no_cluster() -> None:
    assert list(SOURCE.plan(Scope(target=Target(name="t", kind="disk"), asked_osds=(1,)))) == []
