"""Which sources a watch asks, and how often."""

from __future__ import annotations

import math
from collections.abc import Callable

from bathyscope.errors import DeniedError
from bathyscope.host import CephSession, mgr_install
from bathyscope.recording.look import may_tell
from bathyscope.recording.recorder import Job
from bathyscope.sources import SOURCES
from bathyscope.spec.collect import CollectSpec
from bathyscope.spec.scope import Scope

# The statistics of placement groups are megabytes on a large cluster, and change every 5 s at most.
_PG_STATS_S = 10.0
_STATUS_S = 10.0
_NO_IMAGE_COUNTS = (
    "I/O is not counted by image and client: `bathy mgr install` installs the manager's module for it. Without it "
    "--image-statistics asks Ceph's own statistics; while they are asked, a client that may write to a pool can end "
    "the manager (SECURITY.md)"
)
# What images are, where they lie and who has them, as far as the target says where to ask.
_LOOKED_UP = ("images", "pg_map", "libvirt", "csi", "attachment_file")


def jobs(spec: CollectSpec, scope: Scope, *, may_tell: bool) -> list[Job]:
    """Return the jobs of a watch on the cluster of `scope`; `may_tell`: its OSDs answer our commands."""
    interval_s = spec.interval_s
    jobs = [
        Job(SOURCES["cluster_status"], period_s=max(_STATUS_S, interval_s)),
        Job(SOURCES["pg_stats"], period_s=max(_PG_STATS_S, interval_s)),
        # Reports of the OSDs come every 5 s.
        # One of the two asks, also when the manager's module comes or goes meanwhile: both count the same I/O.
        *(Job(SOURCES[name], period_s=max(5.0, interval_s), budget_ratio=0.25) for name in _of_images(spec, scope)),
        # They ask rarely, and mostly wait for other machines. One without anything to ask may have it later.
        *(Job(SOURCES[name], budget_ratio=0.25) for name in _LOOKED_UP),
    ]
    if spec.depth == "light":
        return jobs
    # The manager's own statistics do not tell the images' clients.
    jobs.append(Job(SOURCES["watchers"]))
    if may_tell and scope.asked_osds:
        # An OSD that is slow answers slowly, and then its counters matter most.
        jobs.append(Job(SOURCES["perf_counters"], period_s=interval_s, budget_ratio=0.5))
        jobs.append(Job(SOURCES["osd_latency_histograms"], period_s=max(10.0, interval_s)))
    jobs.append(Job(SOURCES["proc"], period_s=interval_s))
    jobs.append(Job(SOURCES["cgroups"], period_s=interval_s))
    if scope.target.disk_control:
        jobs.append(Job(SOURCES["simulated_disks"], period_s=interval_s))
    if scope.target.cache_sockets:
        jobs.append(Job(SOURCES["caches"], period_s=interval_s))
    if scope.nodes:
        # A reading waits for the network; that costs nobody anything.
        jobs.append(Job(SOURCES["node_proc"], period_s=interval_s, budget_ratio=math.inf))
    if scope.exporters:
        jobs.append(Job(SOURCES["node_exporter"], budget_ratio=math.inf))
    return jobs


def _of_images(spec: CollectSpec, scope: Scope) -> list[str]:
    return ["mgr_counters", "image_counters"] if _asks_statistics(spec, scope) else ["mgr_counters"]


def _asks_statistics(spec: CollectSpec, scope: Scope) -> bool:
    return spec.image_statistics or scope.target.kind == "lab"


def allowed_jobs(session: CephSession, spec: CollectSpec, scope: Scope, note: Callable[[str], None]) -> list[Job]:
    """Return the jobs of a watch that its key may carry out; `note` is told what is missing or out of date.

    Raises DeniedError for a deep one whose key may not change options of OSDs; ClusterError.
    """
    refused = None if spec.depth == "light" else may_tell(session)
    if refused is not None and spec.depth == "deep":
        raise DeniedError(
            f"{refused}, and --depth deep enlarges the op histories of OSDs",
            hint="bathy caps collect --tell prints the caps for it; --depth normal records without",
        )
    if refused is not None:
        note(f"{refused}: no latencies of OSDs (`bathy caps collect --tell` prints the caps for them)")
    version = scope.mgr_module_version
    if version is not None and (difference := mgr_install.difference(version)) is not None:
        note(difference)
    if mgr_install.MODULE not in scope.mgr_modules and not _asks_statistics(spec, scope):
        note(_NO_IMAGE_COUNTS)
    return jobs(spec, scope, may_tell=refused is None)
