"""Which images' single objects a recording counts: their names as the operator has them, their ids as OSDs see them."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.errors import UsageError
from bathyscope.host import CephSession, Host
from bathyscope.recording.collect import collect
from bathyscope.records import Image
from bathyscope.sources import SOURCES, mgr_counters
from bathyscope.spec.scope import Scope
from bathyscope.spec.values import did_you_mean


def image_ids(host: Host, session: CephSession, scope: Scope, names: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of images, named as POOL/[NAMESPACE/]IMAGE.

    Raises UsageError for a name that no image has, and where nothing counts single objects.
    """
    if mgr_counters.MODULE not in scope.mgr_modules:
        raise UsageError(
            "single objects of images are counted by the manager module bathyscope, which is not enabled",
            hint="bathy mgr install",
        )
    source = SOURCES["images"]
    rows = source.parse(collect(host, session, source.plan(scope)), scope)[Image].to_pylist()
    known = {
        "/".join(part for part in (row["pool"], row["namespace"], row["image"]) if part): str(row["image_id"])
        for row in rows
    }
    for name in names:
        if name not in known:
            raise UsageError(
                f"the cluster has no image '{name}'",
                hint=did_you_mean(name, known, "name it as POOL/[NAMESPACE/]IMAGE"),
            )
    return tuple(dict.fromkeys(known[name] for name in names))
