"""What caches have of the objects that clients used: a recording, its OSDs and the daemons of caches asked in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bathyscope.cache.bluestore import (
    BlockDevice,
    PlacedObject,
    RecordedObject,
    block_devices,
    cached_bytes,
    onode_name,
    places,
    plain_name,
)
from bathyscope.cache.snapshots import source_name
from bathyscope.commands.talk import status_line
from bathyscope.errors import CacheError, ClusterError, DeniedError, ParseError, UsageError

if TYPE_CHECKING:
    from bathyscope.cache.daemon import Daemon
    from bathyscope.host import CephSession, Host
    from bathyscope.records.activity_finding import ActivityFinding
    from bathyscope.spec import Target
    from bathyscope.store import RunDirectory

# An image is named by all operations on its data, or by none.
_BUSIEST = """
SELECT pool_id, pg, object_name AS name, max(nullif(image_id, '')) AS image_id,
  count(*) FILTER (op = 'read') AS read_count, count(*) FILTER (op = 'write') AS write_count,
  coalesce(sum(length_bytes) FILTER (op = 'read'), 0)::BIGINT AS read_bytes
FROM op
WHERE osd = {osd:d} AND object_name IS NOT NULL AND pool_id IS NOT NULL
  AND op IN ('read', 'write') AND {good}
GROUP BY pool_id, pg, object_name
ORDER BY read_count + write_count DESC, pool_id, name, pg
LIMIT {limit:d}
"""
_SPAN = """
SELECT count(*) AS count, count(*) FILTER (NOT complete_sample) AS slowest_count,
  min(started_ns) AS start_ns, max(started_ns + duration_ns) AS end_ns
FROM op
"""


def cached_objects(
    daemons: Sequence[Daemon],
    answers: Mapping[str, dict[str, Any]],
    run: RunDirectory,
    target: Target,
    *,
    limit: int,
    remarks: Sequence[str] = (),
) -> ActivityFinding:
    """Return what is cached of the busiest objects of a run on block devices, at most `limit` of each.

    `answers` are what the daemons said of their files.

    What goes wrong with one OSD or cache becomes a remark. Raises UsageError for a run without operations or of another
    cluster, DeniedError, and what connecting raises.
    """
    from bathyscope.analysis.activity.ops import GOOD
    from bathyscope.cache.placement import placed_objects
    from bathyscope.host.ceph import connect
    from bathyscope.host.local import LocalHost
    from bathyscope.recording.look import fsid_of
    from bathyscope.store.duck import query

    (span,) = query([run], _SPAN).to_pylist()
    if not span["count"]:
        hint = "record some: bathy collect --depth deep"
        raise UsageError(f"run {run.id} has no operations, so it names no objects", hint=hint)
    devices = block_devices(answers)
    remarks = [
        *remarks,
        f"Reads and writes are those of run {run.id}; placement and cached bytes are the present ones.",
    ]
    others = {name for answer in answers.values() for name in map(source_name, answer["sources"])}
    if others := others - {device.source for device in devices}:
        remarks.append(f"{', '.join(sorted(others))}: not shown: no running BlueStore OSD has its device open.")
    if run.info.kind == "collect":
        remarks.append(
            "The run recorded operations in bursts only, so reads and writes are those of a part of its time."
        )
    if span["slowest_count"]:
        remarks.append("Of some OSDs the run has only the slowest operations.")
    found: list[PlacedObject] = []
    host = LocalHost()
    with status_line() as show, contextlib.closing(connect(host, target)) as session:
        fsid = fsid_of(session)
        pg_counts = {pool["pool"]: pool["pg_num"] for pool in session.json("mon", "osd dump")["pools"]}
        of_run = run.info.versions.get("fsid")
        if of_run is None:
            remarks.append(f"The run does not say of which cluster it is; {target.name} was asked.")
        elif of_run != fsid:
            hint = "name its cluster with --conf or --lab"
            raise UsageError(f"run {run.id} is of another cluster than {target.name}", hint=hint)
        for device in devices:
            osd = _osd_of(host, device.directory, fsid)
            if osd is None:
                remarks.append(f"{device.source}: {device.directory} is not of an OSD of this cluster.")
                continue
            rows = query([run], _BUSIEST.format(osd=osd, good=GOOD, limit=limit)).to_pylist()
            recorded = [RecordedObject(**row) for row in rows]
            (daemon,) = (each for each in daemons if each.name == device.cache)
            try:
                placed = _placed(session, daemon, device, osd, _names(recorded, pg_counts), show)
            except DeniedError:
                raise
            except (CacheError, ClusterError, ParseError) as error:
                remarks.append(f"{device.source}: {error.message}" + (f"; {error.hint}." if error.hint else "."))
                continue
            found += placed
            if missing := len(recorded) - len(placed):
                remarks.append(
                    f"{device.source}: osd.{osd} does not know {missing:,} of {len(recorded):,} objects: removed, in a "
                    "namespace, or of an erasure-coded pool."
                )
    return placed_objects(
        found, caches=[daemon.name for daemon in daemons], run_id=run.id, span_ns=(span["start_ns"], span["end_ns"]),
        remarks=remarks,
    )  # fmt: skip


def _placed(  # noqa: PLR0917 - who is asked, for what
    session: CephSession,
    daemon: Daemon,
    device: BlockDevice,
    osd: int,
    names: Mapping[RecordedObject, str],
    show: Callable[[str], None],
) -> list[PlacedObject]:
    """Ask an OSD where objects lie and a cache what it has of them; leave out those that the OSD does not have."""
    extents = places(session, osd, list(names.values()), show)
    located = [recorded_object for recorded_object, name in names.items() if name in extents]
    located_extents = [extents[names[recorded_object]] for recorded_object in located]
    cached = cached_bytes(daemon.ask, device.source, device.handle, located_extents)
    return [
        PlacedObject(device.source, recorded_object, sum(length for _, length in lies), count)
        for recorded_object, lies, count in zip(located, located_extents, cached, strict=True)
    ]


def _names(recorded: Sequence[RecordedObject], pg_counts: Mapping[int, int]) -> dict[RecordedObject, str]:
    """Return what an OSD calls the objects that are in the placement group of their name.

    One of a namespace is in that of both names, and would else be shown with what is cached of its namesake.
    """
    from bathyscope.analysis.pg_mapping import name_hash, seed_of

    names = {}
    for recorded_object in recorded:
        hashed, pg_count = name_hash(plain_name(recorded_object.name)), pg_counts.get(recorded_object.pool_id)
        is_plain = (
            pg_count is not None and recorded_object.pg == f"{recorded_object.pool_id}.{seed_of(hashed, pg_count):x}"
        )
        if recorded_object.pg is None or is_plain:
            names[recorded_object] = onode_name(recorded_object.pool_id, recorded_object.name, hashed)
    return names


def _osd_of(host: Host, directory: str, fsid: str) -> int | None:
    """Return the number of the OSD whose data directory this is; None for others, and for OSDs of other clusters."""
    try:
        number, of = (host.read(str(Path(directory, name))).decode().strip() for name in ("whoami", "ceph_fsid"))
        return int(number) if of == fsid else None
    except (OSError, ValueError):
        return None
