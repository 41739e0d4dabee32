"""What caches have of the objects that clients used: a recording, its OSDs and the daemons of caches asked in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bathyscope.commands.talk import status_line
from bathyscope.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from bathyscope.cache.bluestore import BlockDevice, Extents, PlacedObject, RecordedObject
    from bathyscope.cache.daemon import Daemon
    from bathyscope.host import CephSession, Host
    from bathyscope.spec import Target
    from bathyscope.store import RunDirectory

_BUSIEST = """
SELECT pool_id, object_name AS name, max(nullif(image_id, '')) AS image_id,
  count(*) FILTER (op = 'read') AS read_count, count(*) FILTER (op = 'write') AS write_count,
  coalesce(sum(length_bytes) FILTER (op = 'read'), 0)::BIGINT AS read_bytes
FROM op
WHERE osd = {osd:d} AND object_name IS NOT NULL AND pool_id IS NOT NULL AND coalesce(result, 0) >= 0
GROUP BY pool_id, object_name
ORDER BY read_count + write_count DESC, pool_id, name
LIMIT {limit:d}
"""
_SAMPLE = "SELECT count(*) AS count, count(*) FILTER (NOT complete_sample) AS slowest_count FROM op"


def placed(
    daemons: Sequence[Daemon], devices: Sequence[BlockDevice], run: RunDirectory, target: Target, *, limit: int
) -> tuple[list[PlacedObject], list[str]]:
    """Return the busiest objects of a run on block devices, at most `limit` of each, and what is not known of them.

    Raises UsageError for a run without operations or of another cluster, and what asking the cluster raises.
    """
    from bathyscope.cache import bluestore
    from bathyscope.host.ceph import connect
    from bathyscope.host.local import LocalHost
    from bathyscope.recording.look import fsid_of
    from bathyscope.store.duck import query

    (sample,) = query([run], _SAMPLE).to_pylist()
    if not sample["count"]:
        hint = "record some: bathy collect --depth deep"
        raise UsageError(f"run {run.id} has no operations, so it names no objects", hint=hint)
    remarks = [f"Operations are those of run {run.id}; where objects lie, and what is cached of them, is as of now."]
    if sample["slowest_count"]:
        remarks.append("Of some OSDs the run has only the slowest operations: their counts are too low.")
    found: list[PlacedObject] = []
    host = LocalHost()
    with status_line() as show, contextlib.closing(connect(host, target)) as session:
        fsid = fsid_of(session)
        if run.info.versions.get("fsid", fsid) != fsid:
            hint = "name its cluster with --conf or --lab"
            raise UsageError(f"run {run.id} is of another cluster than {target.name}", hint=hint)
        for device in devices:
            osd = _osd_of(host, device.directory, fsid)
            if osd is None:
                remarks.append(f"{device.source}: {device.directory} is not of an OSD of this cluster.")
                continue
            rows = query([run], _BUSIEST.format(osd=osd, limit=limit)).to_pylist()
            recorded = [bluestore.RecordedObject(**row) for row in rows]
            try:
                extents = _extents(session, osd, recorded, show)
            except ClusterError as error:
                remarks.append(f"{device.source}: {error.message}.")
                continue
            (daemon,) = (one for one in daemons if one.name == device.cache)
            cached = bluestore.cached_bytes(daemon.ask, device.source, device.handle, list(extents.values()))
            found += [
                bluestore.PlacedObject(device.source, one, sum(length for _, length in own), count)
                for (one, own), count in zip(extents.items(), cached, strict=True)
            ]
            if missing := len(recorded) - len(extents):
                remarks.append(
                    f"{device.source}: osd.{osd} does not know {missing:,} of {len(recorded):,} objects: removed, "
                    "in a namespace, or of an erasure-coded pool."
                )
    return found, remarks


def _extents(
    session: CephSession, osd: int, recorded: Sequence[RecordedObject], show: Callable[[str], None]
) -> dict[RecordedObject, Extents]:
    """Return where the objects lie that an OSD has."""
    from bathyscope.analysis.pg_mapping import name_hash
    from bathyscope.cache.bluestore import onode_name, places

    names = {one: onode_name(one.pool_id, one.name, name_hash(one.name)) for one in recorded}
    found = places(session, osd, list(names.values()), show)
    return {one: found[name] for one, name in names.items() if name in found}


def _osd_of(host: Host, directory: str, fsid: str) -> int | None:
    """Return the number of the OSD whose data directory this is; None for others, and for OSDs of other clusters."""
    try:
        number, of = (host.read(str(Path(directory, name))).decode().strip() for name in ("whoami", "ceph_fsid"))
        return int(number) if of == fsid else None
    except (OSError, ValueError):
        return None
