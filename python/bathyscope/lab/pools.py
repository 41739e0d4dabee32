"""The pools of a lab, and its file system."""

from __future__ import annotations

import time
from typing import Any

from bathyscope.host import CephSession
from bathyscope.lab import rgw
from bathyscope.lab.bringup import Bringup, command_all
from bathyscope.lab.spec import RBD_POOL, ErasureCode

FS_NAME = "cephfs"
_MGR_POOLS = ("device_health_metrics", ".mgr")
_MGR_POOL_PATIENCE_S = 10.0


def make(bringup: Bringup, session: CephSession) -> None:
    """Make the pool for images, and what was asked for: an erasure-coded pool, a file system, an object gateway."""
    _create(session, {RBD_POOL: 32})
    if bringup.spec.ec is not None:
        _create_erasure_coded(session, bringup.spec.ec, bringup.spec.ec_failure_domain)
    if bringup.spec.fs:
        bringup.progress("making the file system")
        bringup.start("mds.a")
        _create(session, {"cephfs_metadata": 8, "cephfs_data": 32})
        command_all(
            session, [{"prefix": "fs new", "fs_name": FS_NAME, "metadata": "cephfs_metadata", "data": "cephfs_data"}]
        )
    bringup.progress("first write")
    # Writes the pool's first object, and so waits until its placement group takes writes.
    bringup.tools.run("rbd", "-c", str(bringup.layout.conf), "pool", "init", RBD_POOL)
    if bringup.spec.rgw:
        _create(session, rgw.POOLS)
        names = [{"pool": pool, "app": "rgw"} for pool in rgw.POOLS]
        command_all(session, [{"prefix": "osd pool application enable", **name} for name in names])
        rgw.make(bringup)


def wait_clean(bringup: Bringup, session: CephSession) -> None:
    """Wait until every placement group of every pool is active+clean, and the file system has its MDS."""
    bringup.progress("waiting for active+clean")
    patience_ends = time.monotonic() + _MGR_POOL_PATIENCE_S
    while True:
        pools = session.json("mon", "osd dump")["pools"]
        status = session.json("mon", "status")
        states = {state["state_name"]: state["count"] for state in status["pgmap"].get("pgs_by_state", [])}
        clean = states == {"active+clean": sum(pool["pg_num"] for pool in pools)}
        # The manager makes a pool of its own when it becomes active; a lab is not handed over before that.
        settled = any(pool["pool_name"] in _MGR_POOLS for pool in pools) or time.monotonic() > patience_ends
        if (
            clean
            and settled
            and status["mgrmap"]["available"]
            and (not bringup.spec.fs or _mds_active(status["fsmap"]))
        ):
            return
        bringup.tick(f"placement groups are not clean: {states or 'no report yet'}", pause_s=0.1)


def _create(session: CephSession, pools: dict[str, int]) -> None:
    """Make pools: name → number of placement groups."""
    command_all(session, [{"prefix": "osd pool create", "pool": p, "pg_num": n} for p, n in pools.items()])


def _create_erasure_coded(session: CephSession, code: ErasureCode, failure_domain: str) -> None:
    """Make a pool and its profile, both named after the code; images can have their data in it."""
    profile = [f"k={code.k}", f"m={code.m}", f"crush-failure-domain={failure_domain}"]
    command_all(session, [{"prefix": "osd erasure-code-profile set", "name": code.name, "profile": profile}])
    pool = {"prefix": "osd pool create", "pool": code.name, "pg_num": 32, "pool_type": "erasure"}
    command_all(session, [pool | {"erasure_code_profile": code.name}])
    command_all(
        session,
        [
            {"prefix": "osd pool set", "pool": code.name, "var": "allow_ec_overwrites", "val": "true"},
            {"prefix": "osd pool application enable", "pool": code.name, "app": "rbd"},
        ],
    )


def _mds_active(fsmap: dict[str, Any]) -> bool:
    return any(rank.get("status") == "up:active" for rank in fsmap.get("by_rank", []))
