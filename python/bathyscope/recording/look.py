"""The first look at a cluster and at this machine: what every verb begins with."""

from __future__ import annotations

import math
from collections.abc import Callable

from bathyscope.errors import ParseError
from bathyscope.host import CephRequest, CephSession, Host, is_denied
from bathyscope.recording.daemons import local_daemons
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.sources import cluster_map
from bathyscope.spec import Target


def fsid_of(session: CephSession) -> str:
    """Return the cluster's identity. Raises ClusterError, ParseError."""
    try:
        return str(session.json("mon", "fsid")["fsid"])
    except (KeyError, TypeError) as error:
        raise ParseError("the answer to 'fsid' is not understood") from error


def check_reading(session: CephSession) -> None:
    """Raise DeniedError when the key may not ask the monitors or the manager."""
    session.json("mon", "osd dump")
    session.json("mgr", "osd df")


def may_tell(session: CephSession) -> str | None:
    """Return None when the key may send commands to OSDs, else who may not do what, in words. Raises ClusterError."""
    osds = (session.json("mon", "osd dump") or {}).get("osds", [])
    up = [int(osd["osd"]) for osd in osds if osd.get("up")][:1]
    words = (("prefix", "config get"), ("var", "osd_op_history_size"), ("format", "json"))
    for request in (CephRequest("try tell", f"osd.{osd}", words) for osd in up):
        if is_denied(session.command(request)):
            return f"{session.client} may not use `ceph tell osd.N`"
    return None


def look_at(
    host: Host, session: CephSession | None, target: Target, *, target_now: Callable[[], Target] | None = None
) -> ScopeKeeper:
    """Return the map of a cluster and this machine as it is now. Raises DeniedError, ClusterError, ParseError.

    `target_now` as in ScopeKeeper.
    """
    if session is not None:
        check_reading(session)
    # Which OSDs are elsewhere is known when those on this machine are.
    others = {"ssh": None, "prometheus": None, "client_host": None}
    without = target.model_copy(update=others)
    keeper = ScopeKeeper(host, session, without, asked_osds=(), refresh_s=math.inf, target_now=target_now)
    keeper.refresh()
    if target.kind == "cluster" and not target.daemons:
        daemons = local_daemons(host, keeper.answers.get(cluster_map.SOURCE.name, ()), keeper.scope)
        target = target.model_copy(update={"daemons": daemons})
        keeper.narrow(target=target.model_copy(update=others))
    if any(getattr(target, name) is not None for name in others):
        keeper.narrow(target=target)
        keeper.refresh()
    return keeper
