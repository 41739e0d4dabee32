"""Which pods have an image as a volume, in a Kubernetes that uses the cluster by ceph-csi.

A persistent volume names its image and its claim, a pod names its claims and the node that it runs on. Pods say much
more, passwords among it, so all that is not read is taken out before an answer is kept (`compact`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bathyscope.errors import ParseError
from bathyscope.fields import as_dict, as_list, parsing
from bathyscope.host import ProcessRequest, Request
from bathyscope.records import Attachment, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source
from bathyscope.spec.scope import Scope

_LABEL = "kubernetes_volumes"
_DRIVER = "rbd.csi.ceph.com"
_ATTRIBUTES = ("imageName", "pool", "radosNamespace", "staticVolume", "volumeNamePrefix")
_ENDED = ("Succeeded", "Failed")
# A handle ends with the pool's number and the volume's UUID: 0001-0024-CLUSTER-0000000000000002-UUID.
_UUID_CHARACTERS = 36
_POOL_DIGITS = 16


class Csi:
    """`kubectl get` of all persistent volumes and pods."""

    name = "csi"
    records: tuple[type[Record], ...] = (Attachment,)
    period_s = 300.0
    timeout_s = 10.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request, when the target names a kubectl."""
        if not scope.target.kubectl:
            return []
        words = ("get", "pv,pods", "--all-namespaces", "--output", "json", f"--request-timeout={self.timeout_s:g}s")
        return [ProcessRequest(_LABEL, (*scope.target.kubectl, *words), timeout_s=self.timeout_s)]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each image and pod that uses it."""
        columns = Columns(Attachment)
        for answer in answers:
            if answer.exit_code != 0:
                continue
            with parsing(answer.label):
                for use in as_list(as_dict(compact(answer).json())["uses"]):
                    volume, pod, node = as_list(use)
                    pool, namespace, image = _image(as_dict(volume), scope.pools)
                    columns.add(
                        at_ns=answer.ended_ns,
                        pool=pool,
                        namespace=namespace,
                        image=image,
                        client_address=None,
                        host=str(node),
                        vm=str(pod),
                        resolver="csi",
                    )
        return {Attachment: columns.table()}


SOURCE: Source = Csi()


def compact(answer: RawAnswer) -> RawAnswer:
    """Return an answer of kubectl with only what is read of it, any other as it is.

    {"uses": [[what the volume says of its image, NAMESPACE/POD, node]]}. An answer that is not understood loses its
    content: what cannot be read cannot be cleared of secrets.
    """
    if answer.label != _LABEL or not answer.stdout.strip():
        return answer
    try:
        with parsing(answer.label):
            read = as_dict(answer.json())
            kept = {"uses": read["uses"]} if "uses" in read else {"uses": list(_uses(as_list(read["items"])))}
            content = json.dumps(kept).encode()
    except ParseError:
        content = b""
    return dataclasses.replace(answer, stdout=content)


def _uses(items: Sequence[Any]) -> Iterator[tuple[dict[str, str], str, str]]:
    """Yield (what the volume says of its image, pod, node) of each volume that a pod uses."""
    volumes: dict[str, dict[str, str]] = {}
    for item in items:
        specification = as_dict(as_dict(item).get("spec", {}))
        csi, claim = as_dict(specification.get("csi", {})), as_dict(specification.get("claimRef", {}))
        if item.get("kind") == "PersistentVolume" and claim and str(csi.get("driver", "")).endswith(_DRIVER):
            attributes = as_dict(csi.get("volumeAttributes", {}))
            about = {"handle": str(csi.get("volumeHandle", ""))}
            about |= {name: str(attributes[name]) for name in _ATTRIBUTES if name in attributes}
            volumes[f"{claim['namespace']}/{claim['name']}"] = about
    for item in items:
        if item.get("kind") == "Pod":
            for claim_name, pod, node in _claims(item):
                if claim_name in volumes:
                    yield volumes[claim_name], pod, node


def _claims(item: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (claim, pod, node) of each volume of a pod that runs on a node."""
    about, specification = as_dict(item["metadata"]), as_dict(item["spec"])
    space = str(about["namespace"])
    if "nodeName" not in specification or as_dict(item.get("status", {})).get("phase") in _ENDED:
        return
    for volume in map(as_dict, as_list(specification.get("volumes", []))):
        claim = as_dict(volume.get("persistentVolumeClaim", {})).get("claimName")
        if claim is None and "ephemeral" in volume:
            # The claim that is made for it has this name.
            claim = f"{about['name']}-{volume['name']}"
        if claim is not None:
            yield f"{space}/{claim}", f"{space}/{about['name']}", str(specification["nodeName"])


def _image(volume: Mapping[str, Any], pools: Mapping[str, int]) -> tuple[str, str, str]:
    """Return (pool, namespace, image) by what a volume says of it."""
    handle = str(volume["handle"])
    image = volume.get("imageName")
    if image is None:
        # Old volumes do not name it. Of a volume that was made by hand the handle is its name.
        prefix = volume.get("volumeNamePrefix", "csi-vol-")
        image = handle if volume.get("staticVolume") == "true" else f"{prefix}{handle[-_UUID_CHARACTERS:]}"
    pool = volume.get("pool")
    if pool is None:
        digits = handle[: -_UUID_CHARACTERS - 1][-_POOL_DIGITS:]
        pool = next((name for name, number in pools.items() if f"{number:0{_POOL_DIGITS}x}" == digits), "*")
    return str(pool), str(volume.get("radosNamespace", "")), str(image)
