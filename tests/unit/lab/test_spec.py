from __future__ import annotations

import pytest

from bathyscope.errors import UsageError
from bathyscope.lab.spec import DeviceGroup, ErasureCode, LabSpec, check_name, parse_device, parse_ec

EC_2_1 = ErasureCode(k=2, m=1)


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
        (("hdd=6",), {"nodes": 0}, 3, 3, "host"),
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
        (("hdd=2",), {"nodes": 3}, "--nodes must be at most"),
        (("hdd=2",), {"nodes": -1}, "--nodes must be between 0"),
        (("hdd=40", "ssd=40"), {}, r"at most 64 OSDs \(got 80\)"),
        ((), {}, "no device"),
        (("hdd=2",), {"db": "hdd"}, "--db must be another class than that of all OSDs, hdd"),
        (("hdd=2",), {"wal": "tape"}, "no profile for the device class 'tape'"),
        (("hdd=2",), {"db": "ssd", "db_size_bytes": 1 << 20}, r"--db-size must be at least 256 MiB \(got 1.00 MiB\)"),
        (("hdd=2",), {"ec": EC_2_1}, r"--ec 2\+1 needs 3 OSDs, one for each chunk \(got 2\)"),
        (("hdd=1",), {"name": "../etc"}, "not a name for a lab"),
    ],
)
def test_what_does_not_fit_is_refused(groups: tuple[str, ...], fields: dict[str, object], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        spec(*groups, **fields).check()


@pytest.mark.parametrize(
    ("fields", "of_hdd", "of_ssd"),
    [
        ({}, {"block": "hdd"}, {"block": "ssd"}),
        ({"db": "ssd"}, {"block": "hdd", "db": "ssd"}, {"block": "ssd"}),
        ({"db": "nvme", "wal": "ssd"}, {"block": "hdd", "db": "nvme", "wal": "ssd"}, {"block": "ssd", "db": "nvme"}),
    ],
)
def test_an_osd_has_its_metadata_on_another_class_than_its_data(
    fields: dict[str, object], of_hdd: dict[str, str], of_ssd: dict[str, str]
) -> None:
    wanted = spec("hdd=3", "ssd=3", **fields)
    wanted.check()
    assert (wanted.device_classes("hdd"), wanted.device_classes("ssd")) == (of_hdd, of_ssd)


@pytest.mark.parametrize(("text", "name", "chunks"), [("2+1", "ec-2-1", 3), ("8+3", "ec-8-3", 11)])
def test_erasure_code_is_parsed(text: str, name: str, chunks: int) -> None:
    code = parse_ec(text)
    assert code is not None
    assert (code.name, code.chunks) == (name, chunks)


@pytest.mark.parametrize("text", ["", "2", "1+1", "2+0", "2+", "+1", "2+1+1", "a+b", "200+1", "65+1", "2+65", "2 +1"])
def test_bad_erasure_code_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--ec must be"):
        parse_ec(text)


@pytest.mark.parametrize(
    ("groups", "nodes", "domain"), [("hdd=6", 3, "host"), ("hdd=6", 2, "osd"), ("hdd=3", 0, "host")]
)
def test_chunks_lie_on_nodes_of_their_own_where_there_are_enough(groups: str, nodes: int, domain: str) -> None:
    assert spec(groups, nodes=nodes, ec=EC_2_1).ec_failure_domain == domain


@pytest.mark.parametrize("name", ["", "-a", "A", "a b", "a/b", "..", "x" * 32, "a\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name)
