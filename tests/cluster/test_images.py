"""Images of every kind on a real Ceph are what `rbd info` says they are, and who has one open is known."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost
from bathyscope.lab.spec import parse_ec
from bathyscope.recording.collect import collect
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import Attachment, Image, from_table
from bathyscope.sources import SOURCES
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

EC_POOL = "ec-2-1"
MADE = (
    ("namespace", "create", "rbd/tenant"),
    ("create", "rbd/plain", "--size", "64M"),
    ("create", "rbd/odd größe", "--size", "5000K", "--object-size", "64K"),
    ("create", "rbd/striped", "--size", "32M", "--object-size", "8M", "--stripe-unit", "64K", "--stripe-count", "5"),
    ("create", "rbd/coded", "--size", "1G", "--data-pool", EC_POOL),
    ("create", "rbd/tenant/inside", "--size", "16M", "--object-size", "1M"),
    ("snap", "create", "rbd/plain@s"),
    ("clone", "--rbd-default-clone-format", "2", "rbd/plain@s", "rbd/clone"),
    ("clone", "--rbd-default-clone-format", "2", "rbd/plain@s", "rbd/tenant/clone"),
    ("snap", "protect", "rbd/plain@s"),
    ("clone", "--rbd-default-clone-format", "1", "rbd/plain@s", "rbd/old-clone"),
    # Its snapshot still has a parent when it has none itself.
    ("clone", "--rbd-default-clone-format", "2", "rbd/plain@s", "rbd/flat"),
    ("snap", "create", "rbd/flat@s"),
    ("flatten", "--no-progress", "rbd/flat"),
    ("create", "rbd/base", "--size", "8M"),
    ("snap", "create", "rbd/base@s"),
    ("clone", "--rbd-default-clone-format", "2", "rbd/base@s", "rbd/of-trash"),
    ("trash", "mv", "rbd/base"),
)
OPEN = """
import sys, rados, rbd
cluster = rados.Rados(conffile=sys.argv[1])
cluster.connect()
with cluster.open_ioctx("rbd") as ioctx, rbd.Image(ioctx, "plain"):
    print("open", flush=True)
    sys.stdin.read()
"""


def there(target: Target, *words: str) -> list[str]:
    """Return a command line for where the cluster's own programs are."""
    return [*(("chroot", target.root) if target.root else ()), *words]


def run(target: Target, program: str, *words: str) -> str:
    argv = there(target, program, "--conf", str(target.conf), "--keyring", str(target.keyring), *words)
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def rbd(target: Target, *words: str) -> str:
    return run(target, "rbd", *words)


def info(target: Target, *image: str) -> dict[str, Any]:
    return dict(json.loads(rbd(target, "info", "--format", "json", *image)))


@pytest.fixture(
    scope="module",
    params=[None, *(pytest.param(release, marks=pytest.mark.releases) for release in ("reef", "tentacle"))],
)
def lab(borrowed_lab: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    with borrowed_lab("ssd=3", ec=parse_ec("2+1"), release=request.param) as cluster:
        for words in MADE:
            rbd(cluster.target, *words)
        yield cluster


@contextlib.contextmanager
def scoped(target: Target) -> Iterator[tuple[Any, Scope]]:
    with connect(LocalHost(), target) as session:  # type: ignore[attr-defined]
        keeper = ScopeKeeper(LocalHost(), session, target)
        keeper.refresh()
        yield session, keeper.scope


def expected(target: Target) -> dict[str, dict[str, Any]]:
    """Return what `rbd info` says of every image, by pool/namespace/name."""
    found = {}
    for namespace in ("", "tenant"):
        place = ("--pool", "rbd", *(("--namespace", namespace) if namespace else ()))
        for name in json.loads(rbd(target, "ls", "--format", "json", *place)):
            found[f"rbd/{namespace}/{name}"] = info(target, *place, "--image", name)
        for entry in json.loads(rbd(target, "trash", "ls", "--format", "json", *place)):
            found[f"rbd/{namespace}/{entry['name']} (trash)"] = info(target, *place, "--image-id", entry["id"])
    return found


def shape(info: dict[str, Any]) -> tuple[Any, ...]:
    parent = info.get("parent")
    parts = [parent["pool"], parent["pool_namespace"], parent["image"]] if parent else []
    in_trash = " (trash)" if parent and parent["trash"] else ""
    return (
        *(info["id"], info["size"], info["object_size"]),
        *(info.get("stripe_unit", info["object_size"]), info.get("stripe_count", 1), info.get("data_pool")),
        "/".join(filter(None, parts)) + in_trash if parts else None,
    )


def images(session: Any, scope: Scope) -> dict[str, tuple[Any, ...]]:
    source = SOURCES["images"]
    answers = collect(LocalHost(), session, source.plan(scope), source.timeout_s)
    assert [answer.exit_code for answer in answers] == [0] * len(answers), answers
    return {
        f"{row.pool}/{row.namespace}/{row.image}": (
            *(row.image_id, row.size_bytes, row.object_size_bytes),
            *(row.stripe_unit_bytes, row.stripe_count, row.data_pool, row.parent),
        )
        for row in from_table(Image, source.parse(answers, scope)[Image])
    }


def test_images_are_what_rbd_info_says_also_for_a_key_that_may_only_read(lab: Any) -> None:
    wanted = {name: shape(info) for name, info in expected(lab.target).items()}
    assert len(wanted) == 11
    with scoped(lab.target) as (session, scope):
        assert set(scope.rbd_pools) >= {"rbd", EC_POOL}
        assert not {".mgr", "device_health_metrics"}.intersection(scope.rbd_pools)
        assert images(session, scope) == wanted
    caps = ("mon", "allow r", "mgr", "allow r", "osd", "profile rbd-read-only")
    keyring = str(Path(lab.target.keyring).with_name("reader.keyring"))
    Path(lab.target.outside(keyring)).write_text(
        run(lab.target, "ceph", "auth", "get-or-create", "client.reader", *caps)
    )
    reader = lab.target.model_copy(update={"client": "client.reader", "keyring": keyring})
    with connect(LocalHost(), reader) as session:  # type: ignore[attr-defined]
        assert images(session, scope) == wanted


def test_who_has_an_image_open_is_known_and_asking_is_not_having_it_open(lab: Any) -> None:
    source = SOURCES["watchers"]
    watched = (("rbd", "", "plain"), ("rbd", "tenant", "inside"), ("rbd", "", "never-was"))
    with scoped(lab.target) as (session, whole):
        scope = whole.model_copy(update={"watched_images": watched})

        def clients() -> set[tuple[str, str | None]]:
            answers = collect(LocalHost(), session, source.plan(scope), source.timeout_s)
            assert [answer.exit_code for answer in answers] == [0]
            rows = from_table(Attachment, source.parse(answers, scope)[Attachment])
            return {(row.image, row.client_address) for row in rows}

        # An image that nobody has open is said to have no client; so is one that is not there any more.
        nobody = {("plain", None), ("inside", None), ("never-was", None)}
        assert clients() == nobody
        holder = subprocess.Popen(
            there(lab.target, "/usr/bin/python3", "-c", OPEN, str(lab.target.conf)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"open\n"
            (watcher,) = json.loads(rbd(lab.target, "status", "--format", "json", "rbd/plain"))["watchers"]
            assert clients() == {("plain", watcher["address"].partition(":")[0])} | (nobody - {("plain", None)})
        finally:
            holder.communicate(timeout=30)
        assert clients() == nobody
