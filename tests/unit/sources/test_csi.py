"""Volumes of ceph-csi and the pods that use them. The answers have the form of Kubernetes' API reference, v1."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bathyscope.errors import ParseError
from bathyscope.host import ProcessRequest
from bathyscope.host.base import Completed
from bathyscope.recording.collect import to_raw
from bathyscope.records import Attachment, RawAnswer, from_table
from bathyscope.sources.csi import SOURCE, compact
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

UUID = "5c2f3a8e-0f0b-11ef-9f4b-0242ac120002"
CLUSTER = "b9127830-b0cc-4e34-aa47-9d1a2e9949a8"
SCOPE = Scope(target=Target(name="t", kubectl=("kubectl", "--context", "prod")), pools={"block": 0x1F})


def volume(claim: str, *, driver: str = "rook-ceph.rbd.csi.ceph.com", **attributes: str) -> dict[str, Any]:
    handle = attributes.pop("handle", f"0001-0024-{CLUSTER}-000000000000001f-{UUID}")
    namespace, name = claim.split("/")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{name}"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name, "namespace": namespace},
            "csi": {
                "driver": driver,
                "fsType": "ext4",
                "nodeStageSecretRef": {"name": "rook-csi-rbd-node", "namespace": "rook-ceph"},
                "volumeAttributes": {"clusterID": CLUSTER, "imageFeatures": "layering", **attributes},
                "volumeHandle": handle,
            },
            "persistentVolumeReclaimPolicy": "Delete",
        },
        "status": {"phase": "Bound"},
    }


def pod(name: str, *volumes: dict[str, Any], node: str | None = "node1", phase: str = "Running") -> dict[str, Any]:
    specification = {
        "containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "hunter2"}]}],
        "volumes": [*volumes, {"name": "token", "projected": {"sources": []}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "annotations": {"secret": "hunter2"}},
        "spec": specification | ({"nodeName": node} if node else {}),
        "status": {"phase": phase},
    }


def claimed(claim: str) -> dict[str, Any]:
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


def answer(*items: dict[str, Any], code: int = 0) -> RawAnswer:
    """Return the answer as it is kept."""
    (request,) = SOURCE.plan(SCOPE)
    listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    return to_raw(Completed(request, code, json.dumps(listed).encode(), b"", 1, 2))


def one_pod() -> RawAnswer:
    return answer(volume("shop/db", imageName="csi-vol-1", pool="block"), pod("db-0", claimed("db")))


def uses(*items: dict[str, Any]) -> list[tuple[str, str, str, str | None, str | None]]:
    found = from_table(Attachment, SOURCE.parse([answer(*items)], SCOPE)[Attachment])
    assert {row.resolver for row in found} <= {"csi"}
    return [(row.pool, row.namespace, row.image, row.host, row.vm) for row in found]


def test_only_a_kubectl_that_is_named_is_run() -> None:
    assert SOURCE.plan(Scope(target=Target(name="t"))) == []
    (request,) = SOURCE.plan(SCOPE)
    assert isinstance(request, ProcessRequest)
    assert request.argv[:5] == ("kubectl", "--context", "prod", "get", "pv,pods")
    assert request.timeout_s is not None
    assert request.timeout_s <= 10


def test_a_pod_has_the_image_of_its_claim() -> None:
    named = volume("shop/db", imageName=f"csi-vol-{UUID}", pool="block", radosNamespace="team")
    assert uses(named, pod("db-0", claimed("db")), pod("web", claimed("other"))) == [
        ("block", "team", f"csi-vol-{UUID}", "node1", "shop/db-0")
    ]
    # A volume that several pods have, one of which has ended and one of which has no node yet.
    pods = [pod("a", claimed("db")), pod("b", claimed("db"), phase="Succeeded"), pod("c", claimed("db"), node=None)]
    assert [use[-1] for use in uses(named, *pods)] == ["shop/a"]
    assert uses(named) == []


def test_a_generic_ephemeral_volume_is_known_by_the_name_of_its_claim() -> None:
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    made = volume("shop/job-1-scratch", imageName="csi-vol-1", pool="block")
    assert uses(made, pod("job-1", scratch)) == [("block", "", "csi-vol-1", "node1", "shop/job-1")]


def test_volumes_that_do_not_name_their_image() -> None:
    user = pod("db-0", claimed("db"))
    assert uses(volume("shop/db"), user) == [("block", "", f"csi-vol-{UUID}", "node1", "shop/db-0")]
    assert uses(volume("shop/db", volumeNamePrefix="team-"), user)[0][2] == f"team-{UUID}"
    by_hand = volume("shop/db", handle="legacy", staticVolume="true", pool="old")
    assert uses(by_hand, user) == [("old", "", "legacy", "node1", "shop/db-0")]
    unknown_pool = volume("shop/db", handle=f"0001-0024-{CLUSTER}-0000000000000099-{UUID}")
    assert uses(unknown_pool, user)[0][0] == "*"


def test_volumes_of_other_drivers_are_none_of_ours() -> None:
    other = volume("shop/db", driver="ebs.csi.aws.com", imageName="x", pool="y")
    assert uses(other, pod("db-0", claimed("db"))) == []
    assert uses(volume("shop/db", driver="cephfs.csi.ceph.com"), pod("db-0", claimed("db"))) == []


def test_nothing_else_that_pods_say_is_kept() -> None:
    kept = answer(volume("shop/db", imageName="x", pool="block"), pod("db-0", claimed("db")))
    assert b"hunter2" not in kept.stdout
    assert b"rook-csi" not in kept.stdout
    assert compact(kept) == kept
    broken = RawAnswer(kept.label, (), (), 0, b'{"items": [{"kind": "Pod", "x": "hunter2"}]}', b"", 1, 2)
    assert compact(broken).stdout == b""
    with pytest.raises(ParseError):
        SOURCE.parse([compact(broken)], SCOPE)
    assert SOURCE.parse([answer(code=1)], SCOPE)[Attachment].num_rows == 0
