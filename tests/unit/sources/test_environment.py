"""Facts and placement from recorded answers of 16.2 and of a 20.2 lab."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bathyscope.errors import ParseError
from bathyscope.host import CephRequest
from bathyscope.host.fake import FakeAnswer, FakeCephSession, FakeHost
from bathyscope.records import EnvironmentFact, Placement, to_table
from bathyscope.sources import environment
from bathyscope.sources.base import RawAnswer
from bathyscope.spec import Target

Recorded = Callable[[str], list[RawAnswer]]
Mutate = Callable[[bytes, st.DataObject], bytes]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "environment"


def facts_of(answers: list[RawAnswer]) -> dict[tuple[str, str], str]:
    return {(fact.subject, fact.name): fact.value for fact in environment.parse("r", "before", answers)}


@pytest.mark.parametrize(
    ("version", "release", "fio"),
    [
        ("16.2.15", "16.2.15 pacific", "fio-3.33"),
        ("18.2.7", "18.2.7 reef", "fio-3.39"),
        ("20.2.4", "20.2.4 tentacle", "fio-3.41"),
    ],
)
def test_versions_health_and_machine(recorded: Recorded, version: str, release: str, fio: str) -> None:
    answers = recorded(f"environment/{version}/answers")
    facts = facts_of(answers)
    assert facts["cluster", "osd_version"] == release
    assert facts["cluster", "health"].startswith("HEALTH_")
    assert facts["cluster", "flags"]
    host = next(subject for subject, name in facts if name == "kernel" and subject.startswith("host "))
    assert facts[host, "fio_version"] == fio
    assert facts[host, "cpu_count"] == "2"
    assert facts["osd.0", "ceph_version_short"] == version
    assert facts["osd.0", "osd_objectstore"] == "bluestore"
    pool = next(subject for subject, name in facts if subject.startswith("pool bathy-rec-") and name == "size")
    assert facts[pool, "size"] == "3"
    assert any(name.startswith("config ") for subject, name in facts if subject == "osd.0")
    assert environment.osds_of(answers) == [0, 1, 2]
    assert to_table(EnvironmentFact, environment.parse("r", "after", answers)).num_rows == len(facts)


def test_placement_of_a_lab_with_device_classes(recorded: Recorded) -> None:
    target = Target.model_validate_json((FIXTURES / "20.2.4" / "target.json").read_bytes())
    rows = environment.parse_placement("r", recorded("environment/20.2.4/answers"), target)
    assert [row.osd for row in rows] == [0, 1, 2]
    assert {row.host for row in rows} == {"node1", "node2", "node3"}
    assert {(row.device_class, row.rotational, row.objectstore) for row in rows} == {("ssd", False, "bluestore")}
    assert all(row.device is not None and row.device.startswith("loop") for row in rows)
    assert {f"osd.{row.osd}": row.osd_pid for row in rows}.items() <= {d.name: d.pid for d in target.daemons}.items()
    assert to_table(Placement, rows).num_rows == 3


def test_no_secret_is_kept() -> None:
    options = [
        {"section": "mgr", "name": "mgr/dashboard/ssl_password", "value": "hunter2"},
        {"section": "client.rgw", "name": "rgw_keystone_admin_token", "value": "hunter2"},
        {"section": "global", "name": "osd_memory_target", "value": "1"},
    ]
    answer = RawAnswer("config_dump", (), (), 0, json.dumps(options).encode(), b"", 0, 0)
    facts = facts_of([answer])
    assert "hunter2" not in str(facts)
    assert facts["config global", "osd_memory_target"] == "1"


def test_what_is_refused_or_missing_is_left_out(recorded: Recorded) -> None:
    answers = [dataclasses.replace(a, exit_code=-13) for a in recorded("environment/16.2.15/answers")]
    assert environment.parse("r", "before", answers) == []
    assert environment.parse_placement("r", answers, Target(name="t")) == []
    assert environment.osds_of(answers) == []


def test_collect_asks_cluster_program_and_files() -> None:
    session = FakeCephSession({"versions": {"osd": {"ceph version 16.2.15 (x) pacific (stable)": 3}}})
    host = FakeHost({"fio": FakeAnswer(b"fio-3.33\n")}, {"/proc/sys/kernel/osrelease": b"6.1\n"}, ceph=session)
    answers = environment.collect(host, session, Target(name="t"), [4])
    labels = {answer.label for answer in answers}
    assert {"versions", "fio_version", "file-kernel", "config_diff-osd.4"} <= labels
    assert "file-governor" not in labels
    facts = facts_of(answers)
    assert facts["host localhost", "kernel"] == "6.1"
    assert facts["cluster", "osd_version"] == "16.2.15 pacific"


def test_a_disk_target_asks_no_cluster() -> None:
    requests = environment.plan(Target(name="t", kind="disk"), [1])
    assert not any(isinstance(request, CephRequest) for request in requests)
    host = FakeHost()
    assert environment.collect(host, None, Target(name="t", kind="disk")) == []


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_broken_answers_are_parse_errors_and_nothing_else(
    recorded: Recorded, mutate: Mutate, data: st.DataObject
) -> None:
    answers = recorded("environment/20.2.4/answers")
    index = data.draw(st.integers(0, len(answers) - 1))
    try:
        content = json.dumps(json.loads(answers[index].stdout), indent=1).encode()
    except ValueError:
        content = answers[index].stdout
    answers[index] = dataclasses.replace(answers[index], stdout=mutate(content, data))
    try:
        environment.parse("r", "before", answers)
        environment.parse_placement("r", answers, Target(name="t"))
    except ParseError:
        return
