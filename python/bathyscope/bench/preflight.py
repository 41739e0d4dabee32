"""What must hold before a load begins, and what to know beside its numbers.

What makes the run impossible or dangerous is an error; what makes its numbers doubtful is a caveat of the whole run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from bathyscope.bench import cluster
from bathyscope.bench.cluster import Health, OsdNode, PgStates
from bathyscope.errors import ClusterError, EnvironmentError_, UnhealthyError, UsageError
from bathyscope.host import CephSession, Host, ProcessRequest
from bathyscope.layers import REGISTRY, LayerContext
from bathyscope.records import Caveat
from bathyscope.sources import rbd_usage
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.plan import Limits
from bathyscope.units import format_percent

_FULL_CHECKS = ("OSD_FULL", "POOL_FULL", "OSD_BACKFILLFULL", "FULL")
_SLOW_OSD_FACTOR = 3.0
_SLOW_OSD_MS = 10.0
_NOTED_CHECKS_MAX = 6


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterLook:
    """What was seen of the cluster before the run."""

    health: Health
    states: PgStates
    nodes: tuple[OsdNode, ...]


def look(session: CephSession) -> ClusterLook:
    """Return what the cluster says of itself now. Raises ClusterError."""
    return ClusterLook(cluster.health(session), cluster.pg_states(session), tuple(cluster.osd_nodes(session)))


def check_cluster(seen: ClusterLook, limits: Limits) -> None:
    """Raise UnhealthyError when the cluster is not fit for a load."""
    if not seen.nodes:
        raise UnhealthyError("the cluster has no OSD", hint="look at: ceph osd tree")
    for code in _FULL_CHECKS:
        if code in seen.health.checks:
            raise UnhealthyError(
                f"the cluster is full: {seen.health.checks[code]}", hint="a load would be stopped at its first write"
            )
    fullest = max(seen.nodes, key=lambda node: node.fullness)
    if fullest.fullness >= limits.max_fullness:
        raise UnhealthyError(
            f"osd.{fullest.osd} is {format_percent(fullest.fullness)} full, "
            f"the plan's limit is {format_percent(limits.max_fullness)}",
            hint="free space, or raise it: --set limits.max_fullness=0.9",
        )
    if seen.health.status == "HEALTH_ERR":
        worst = "; ".join(f"{code}: {text}" for code, text in seen.health.checks.items())
        raise UnhealthyError(f"the cluster is in HEALTH_ERR: {worst}", hint="a benchmark of it would mean nothing")
    if seen.states.troubled:
        raise UnhealthyError(
            f"placement groups are not whole: {seen.states.troubled}",
            hint="wait until recovery has ended: ceph status",
        )


def check_space(seen: ClusterLook, steps: Iterable[StepSpec], replicas: int, limits: Limits) -> None:
    """Raise UnhealthyError when the prefill would fill an OSD beyond the plan's limit."""
    bytes_by_class: dict[str, dict[tuple[str, int | None, int], int]] = {}
    for step in steps:
        if not REGISTRY[step.layer].needs_cluster:
            continue
        each = step.image_size_bytes if step.layer == "rbd" else step.working_set_bytes or (1 << 30)
        key = (step.layer, each, step.jobs if step.layer == "rbd" else 1)
        bytes_by_class.setdefault(step.device_class, {})[key] = (each or 0) * key[2]
    for device_class, parts in bytes_by_class.items():
        members = [n for n in seen.nodes if n.up and device_class in ("", n.device_class)]
        size = sum(node.size_bytes for node in members)
        used = sum(node.size_bytes * node.fullness for node in members)
        needed = sum(parts.values()) * replicas
        if size and (used + needed) / size > limits.max_fullness:
            raise UnhealthyError(
                f"the plan would fill the OSDs of class '{device_class or 'any'}' to "
                f"{format_percent((used + needed) / size)}; its limit is {format_percent(limits.max_fullness)}",
                hint="take smaller images: --set image_size=256M, or fewer replicas: --set replicas=2",
            )


def cluster_caveats(run_id: str, seen: ClusterLook, session: CephSession) -> list[Caveat]:
    """Return what to know of the cluster beside every number of the run."""
    found = []

    def note(code: str, text: str, severity: str = "note") -> None:
        found.append(Caveat(run_id, None, code, severity, text, "preflight"))

    if seen.health.status != "HEALTH_OK":
        texts = [f"{code}: {text}" for code, text in list(seen.health.checks.items())[:_NOTED_CHECKS_MAX]]
        note("health", f"the cluster was in {seen.health.status} before the run: {'; '.join(texts)}")
    if seen.states.scrubbing:
        note("scrubbing", f"{seen.states.scrubbing} placement groups were being scrubbed before the run", "doubt")
    down = [node.osd for node in seen.nodes if not node.up]
    if down:
        note("osds_down", f"{len(down)} of {len(seen.nodes)} OSDs were down before the run", "doubt")
    slow = slowest_osd(session)
    if slow is not None:
        osd, latency_ms, median_ms = slow
        note(
            "slow_osd",
            f"osd.{osd} commits in {latency_ms:.0f} ms where the median OSD takes {median_ms:.0f} ms: "
            "look at its device before you believe a comparison",
            "doubt",
        )
    return found


def slowest_osd(session: CephSession) -> tuple[int, float, float] | None:
    """Return (osd, commit latency in ms, median of all) of an OSD that stands out, or None."""
    with contextlib.suppress(ClusterError):
        latencies = cluster.commit_latencies_ms(session)
        if len(latencies) >= 3:
            osd = max(latencies, key=latencies.__getitem__)
            median = statistics.median(latencies.values())
            if latencies[osd] >= _SLOW_OSD_MS and latencies[osd] >= _SLOW_OSD_FACTOR * max(median, 1.0):
                return osd, latencies[osd], median
    return None


def host_caveats(run_id: str, host: Host) -> list[Caveat]:
    """Return what to know of this machine, the load's client."""
    found = []
    with contextlib.suppress(OSError):
        governor = host.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").decode().strip()
        if governor not in ("performance", ""):
            text = f"this machine's CPU governor is '{governor}': latencies at low queue depth are higher than need be"
            found.append(Caveat(run_id, None, "cpu_governor", "note", text, "preflight"))
    with contextlib.suppress(OSError, ValueError, IndexError):
        load = float(host.read("/proc/loadavg").split()[0])
        processors = host.read("/proc/cpuinfo").count(b"processor\t:")
        if processors and load > processors:
            text = f"this machine's load average was {load:.1f} on {processors} processors before the run"
            found.append(Caveat(run_id, None, "client_busy", "doubt", text, "preflight"))
    return found


def check_tools(host: Host, target: Target, steps: Sequence[StepSpec]) -> str:
    """Return fio's version. Raises EnvironmentError_ when fio or one of the engines that the plan needs is missing."""
    version = ""
    for root in dict.fromkeys(target.root if REGISTRY[s.layer].needs_cluster else None for s in steps):
        where = f" in {root}" if root else ""
        version = _output(host, ("fio", "--version"), root).strip()
        engines = set(_output(host, ("fio", "--enghelp"), root).split())
        needed = {_engine(s) for s in steps if (target.root if REGISTRY[s.layer].needs_cluster else None) == root}
        for engine in sorted(needed - {""}):
            if engine not in engines:
                raise EnvironmentError_(
                    f"fio{where} ({version}) has no engine '{engine}'",
                    hint="install a fio that is built with it (Debian's is): apt install fio",
                )
    return version


def _engine(step: StepSpec) -> str:
    if step.layer == "disk":
        return "io_uring" if step.witness == "io_uring" else "libaio"
    return "" if step.witness == "rados_bench" else step.layer


def _output(host: Host, argv: tuple[str, ...], root: str | None) -> str:
    completed = host.run(ProcessRequest(argv[-1].lstrip("-"), argv, timeout_s=10.0, root=root))
    if completed.exit_code != 0:
        text = completed.stderr.decode(errors="replace").strip()
        raise EnvironmentError_(f"{' '.join(argv)} failed: {text}", hint="does fio run at all?")
    return completed.stdout.decode(errors="replace")


def check_layers(steps: Iterable[StepSpec], context: LayerContext) -> None:
    """Raise UsageError when a layer cannot run one of its steps; nothing has been changed then."""
    for step in {step.key: step for step in steps}.values():
        reason = REGISTRY[step.layer].check(step, context)
        if reason is not None:
            hint = "take another layer with --layer, or change the plan with --set"
            if "destructive" in reason:
                hint = "if what is on it may be lost: --destroy-disk-content; else leave the writes out of the plan"
            raise UsageError(f"{step.key} cannot be run: {reason}", hint=hint)


def check_disks(host: Host, target: Target, steps: Iterable[StepSpec]) -> None:
    """Raise UsageError when a disk that would be written is mounted, in use, or not there."""
    mounts = ""
    with contextlib.suppress(OSError):
        mounts = host.read("/proc/self/mounts").decode(errors="replace")
    for device_class in {step.device_class for step in steps if step.layer == "disk"}:
        disk = target.disks.get(device_class)
        if disk is None:
            continue
        if not Path(disk.path).exists():
            raise UsageError(f"the disk {disk.path} does not exist", hint="name a file or a block device")
        if disk.destructive and any(line.split(" ")[0] == disk.path for line in mounts.splitlines()):
            raise UsageError(f"{disk.path} is mounted; it will not be overwritten", hint="unmount it first")


def rbd_written(host: Host, target: Target, images: Sequence[tuple[str, str]]) -> dict[tuple[str, str], bool]:
    """Return for each (pool, image) whether all of it exists. Raises ToolError, ParseError."""
    found = {}
    for (pool, image), request in zip(images, rbd_usage.plan(target, images), strict=True):
        from bathyscope.sources.base import to_raw  # noqa: PLC0415 - only here is a process's answer needed raw

        found[pool, image] = rbd_usage.parse(pool, to_raw(host.run(request))).written_ratio >= 0.999
    return found
