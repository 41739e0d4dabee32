from __future__ import annotations

import pytest

from bathyscope.errors import UsageError
from bathyscope.lab.spec import DeviceGroup, LabSpec, check_name, parse_device


def spec(*groups: str, **fields: object) -> LabSpec:
    return LabSpec(devices=tuple(parse_device(text) for text in groups), **fields)


@pytest.mark.parametrize(
    ("text", "expected"), [("hdd=3", ("hdd", 3)), ("ssd", ("ssd", 1)), ("fast_1=64", ("fast_1", 64))]
)
def test_device_group_is_parsed(text: str, expected: tuple[str, int]) -> None:
    assert parse_device(text) == DeviceGroup(device_class=expected[0], count=expected[1])


@pytest.mark.parametrize(
    "text", ["", "=3", "hdd=", "hdd=0", "hdd=65", "hdd=-1", "HDD=3", "hdd=3=4", "hdd=٣٣", "../x=1", "hdd=9999999"]
)
def test_bad_device_group_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_device(text)


def test_each_class_is_dealt_over_the_nodes() -> None:
    osds = spec("hdd=3", "ssd=3").osds()
    assert [osd_id for osd_id, _, _ in osds] == [0, 1, 2, 3, 4, 5]
    assert [node for _, device_class, node in osds if device_class == "hdd"] == ["node1", "node2", "node3"]
    assert [node for _, device_class, node in osds if device_class == "ssd"] == ["node1", "node2", "node3"]


@pytest.mark.parametrize(
    ("groups", "fields", "replicas", "nodes", "domain"),
    [
        (("hdd=3",), {}, 3, 3, "host"),
        (("hdd=1",), {}, 1, 1, "host"),
        (("hdd=3", "ssd=2"), {}, 2, 3, "host"),
        (("hdd=3",), {"nodes": 2}, 3, 2, "osd"),
        (("hdd=4",), {"nodes": 2, "replicas": 2}, 2, 2, "host"),
        (("hdd=6",), {"nodes": 1}, 3, 1, "osd"),
    ],
)
def test_replicas_nodes_and_failure_domain(
    groups: tuple[str, ...], fields: dict[str, object], replicas: int, nodes: int, domain: str
) -> None:
    wanted = spec(*groups, **fields)
    wanted.check()
    assert (wanted.replica_count, wanted.node_count, wanted.failure_domain) == (replicas, nodes, domain)


@pytest.mark.parametrize(
    ("groups", "fields", "part"),
    [
        (("hdd=3", "hdd=1"), {}, "twice"),
        (("tape=3",), {}, "no profile"),
        (("hdd=2",), {"replicas": 3}, "replicas"),
        (("hdd=3", "ssd=1"), {"replicas": 2}, "replicas"),
        (("hdd=2",), {"nodes": 3}, "empty"),
        (("hdd=40", "ssd=40"), {}, "more than"),
        ((), {}, "at least one"),
        (("hdd=1",), {"name": "../etc"}, "cannot name"),
    ],
)
def test_what_does_not_fit_is_refused(groups: tuple[str, ...], fields: dict[str, object], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        spec(*groups, **fields).check()


@pytest.mark.parametrize("name", ["", "-a", "A", "a b", "a/b", "..", "x" * 32, "a\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name)
