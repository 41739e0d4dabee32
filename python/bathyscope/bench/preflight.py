"""What must hold before a load begins. What makes a run impossible or dangerous is an error.

What limits the use of its figures is a caveat of the whole run: see `analysis.environment_caveats`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bathyscope.bench.resources import default_replicas, may_tell_monitors, monitor_option
from bathyscope.errors import EnvironmentError_, PolicyError, UnhealthyError, UsageError
from bathyscope.host import CephSession, Host, ProcessRequest
from bathyscope.host.ceph import DEFAULT_CONF
from bathyscope.layers import LAYERS, LayerContext, MakeContext, Need, needs_of
from bathyscope.layers.needs import PoolNeed
from bathyscope.records import ClusterStatus, HealthCheck, Tables, from_table
from bathyscope.sources.cluster_map import up_osds
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.plan import Limits, Plan
from bathyscope.spec.scope import Scope
from bathyscope.spec.values import did_you_mean
from bathyscope.units import format_bytes, format_percent

_FULL_CHECKS = ("OSD_FULL", "POOL_FULL", "OSD_BACKFILLFULL", "FULL")


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterLook:
    """What the source cluster_status saw at one moment."""

    status: ClusterStatus
    checks: tuple[HealthCheck, ...] = ()

    @classmethod
    def of(cls, tables: Tables) -> ClusterLook:
        """Return the last look in the tables of cluster_status. Raises UnhealthyError when there is none."""
        looks = from_table(ClusterStatus, tables[ClusterStatus])
        if not looks:
            raise UnhealthyError("the cluster did not report its status", hint="look at: ceph status")
        last = max(looks, key=lambda look: look.at_ns)
        checks = from_table(HealthCheck, tables[HealthCheck]) if HealthCheck in tables else []
        return cls(last, tuple(check for check in checks if check.at_ns == last.at_ns))

    @property
    def not_clean(self) -> str | None:
        """The placement groups that are not clean ("12 PGs active+undersized"), or None.

        Those that the manager does not know yet count: pools that were made or deleted a moment ago show so.
        """
        unknown = self.status.pg_unknown_count
        return self.status.pg_not_clean or (f"{unknown} PGs unknown" if unknown else None)


def check_cluster(scope: Scope, look: ClusterLook, limits: Limits) -> None:
    """Raise UnhealthyError when the cluster is not fit for a load."""
    if not scope.osds:
        raise UnhealthyError("the cluster has no OSD", hint="look at: ceph osd tree")
    for check in look.checks:
        if check.code in _FULL_CHECKS:
            raise UnhealthyError(f"the cluster is full: {check.message}", hint="free space first: ceph osd df")
    fullest = max(scope.osds, key=lambda osd: osd.fullness)
    if fullest.fullness >= limits.max_fullness:
        raise UnhealthyError(
            f"osd.{fullest.osd} is {format_percent(fullest.fullness)} full, "
            f"the plan's limit is {format_percent(limits.max_fullness)}",
            hint="free space, or raise it: --set limits.max_fullness=0.9",
        )
    if look.status.health == "HEALTH_ERR":
        errors = "; ".join(f"{check.code}: {check.message}" for check in look.checks)
        raise UnhealthyError(f"the cluster is in HEALTH_ERR: {errors}", hint="repair it first: ceph health detail")
    if look.not_clean is not None:
        raise UnhealthyError(
            f"placement groups are not clean: {look.not_clean}",
            hint="wait until recovery has ended: ceph status",
        )


def check_space(
    scope: Scope, steps: Sequence[StepSpec], context: LayerContext, limits: Limits, *, default_replicas: int
) -> None:
    """Raise UnhealthyError when what the steps write would fill the OSDs of a class beyond the plan's limit."""
    for device_class in dict.fromkeys(step.device_class for step in steps):
        of_class = [step for step in steps if step.device_class == device_class]
        stored = sum(need.cluster_bytes for need in needs_of(of_class, context))
        stored += sum(LAYERS[step.layer].left_bytes(step, context) for step in of_class)
        members = up_osds(scope, device_class)
        size = sum(osd.size_bytes for osd in members)
        used = sum(osd.size_bytes * osd.fullness for osd in members)
        needed = stored * (context.replicas or default_replicas)
        if needed and size and (used + needed) / size > limits.max_fullness:
            raise UnhealthyError(
                f"the plan would fill the OSDs of class '{device_class or 'any'}' to "
                f"{format_percent((used + needed) / size)}; its limit is {format_percent(limits.max_fullness)}",
                hint="take smaller images: --set image_size=256M, or fewer replicas: --set replicas=2",
            )


def check_policies(
    session: CephSession,
    needs: Sequence[Need],
    context: MakeContext,
    note: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = lambda _: None,
) -> None:
    """Raise PolicyError or UnhealthyError when the cluster's settings forbid to make or remove the pools of `needs`.

    Nothing has been changed then. An option that nobody says is not checked; the cluster will refuse by itself. What
    the manager says of the monitors' options may be some seconds old, so a refusal rests on a second look.
    """
    pools = [need for need in needs if isinstance(need, PoolNeed) and need.name not in context.scope.pools]
    if not pools:
        return
    client = session.client
    if is_false(monitor_option(session, _DELETE)):
        told = may_tell_monitors(session)
        if not told:
            sleep(_REPORT_S)
        if not told and is_false(monitor_option(session, _DELETE)):
            raise PolicyError(
                f"the cluster forbids to delete pools ({_DELETE} is false), and {client} may not allow it for a moment",
                hint=f"ceph tell 'mon.*' config set {_DELETE} true, or name a pool of yours: --pool NAME",
            )
        if told:
            note(f"{_DELETE} is false: it will be switched on while the run's pools are removed, and back")
    sizes = [need.placement(context)[1] for need in pools]
    if 1 in sizes and is_false(monitor_option(session, _SIZE_ONE)):
        raise PolicyError(
            f"the cluster forbids pools with one replica ({_SIZE_ONE} is false)",
            hint=f"take --set replicas=2, or allow it: ceph tell 'mon.*' config set {_SIZE_ONE} true",
        )
    _check_placement_groups(session, pools, context)


_DELETE, _SIZE_ONE, _PGS = "mon_allow_pool_delete", "mon_allow_pool_size_one", "mon_max_pg_per_osd"

# A daemon reports its options to the manager every 5 s (mgr_stats_period).
_REPORT_S = 6.0


def is_false(value: str | None) -> bool:
    """Return whether an option is known to be off."""
    return value is not None and value.lower() in ("false", "0", "no")


def _check_placement_groups(session: CephSession, pools: Sequence[PoolNeed], context: MakeContext) -> None:
    """Raise UnhealthyError when the pools would give the OSDs more placement groups than the cluster allows."""
    limit = monitor_option(session, _PGS)
    held = {int(node["id"]): int(node.get("pgs", 0)) for node in (session.json("mgr", "osd df") or {}).get("nodes", [])}
    if limit is None or not limit.isdigit():
        return
    for need in pools:
        members, size, pgs = need.placement(context)
        for osd in members:
            held[osd.osd] = held.get(osd.osd, 0) + math.ceil(pgs * size / len(members))
        mean = sum(held[osd.osd] for osd in members) / len(members)
        if mean > int(limit):
            raise UnhealthyError(
                f"with the pool {need.name} each OSD of class '{need.device_class or 'any'}' would hold {mean:.0f} "
                f"placement groups; {_PGS} is {limit}",
                hint="take fewer layers: --layer rbd, or name a pool of yours: --pool NAME",
            )


@dataclasses.dataclass(frozen=True, slots=True)
class GivenPool:
    """What must be known of the operator's pool: its replicas, and the device class that its rule takes ("": any)."""

    replicas: int
    device_class: str


def given_pool(session: CephSession, name: str) -> GivenPool:
    """Return the pool that a run is to use. Raises UsageError when there is none of this name, or it does not fit."""
    pools = {str(pool["pool_name"]): pool for pool in (session.json("mon", "osd dump") or {}).get("pools", [])}
    if name not in pools:
        raise UsageError(
            f"the cluster has no pool '{name}'",
            hint=did_you_mean(name, sorted(pools), f"make it first: ceph osd pool create {name}"),
        )
    pool = pools[name]
    if int(pool.get("type", 1)) != _REPLICATED:
        raise UsageError(f"the pool {name} is erasure-coded", hint="--pool takes a replicated pool")
    rules = session.json("mon", "osd crush rule dump") or []
    steps: list[dict[str, Any]] = next(
        (rule["steps"] for rule in rules if rule.get("rule_id") == pool.get("crush_rule")), []
    )
    classes = {str(step["item_name"]).partition("~")[2] for step in steps if step.get("op") == "take"}
    return GivenPool(int(pool["size"]), classes.pop() if len(classes) == 1 else "")


_REPLICATED = 1


def replicas_of(session: CephSession, target: Target, plan: Plan) -> int:
    """Return how many replicas a run writes. Raises UsageError when the operator's pool is not there."""
    if target.pool is not None:
        return given_pool(session, target.pool).replicas
    return plan.replicas or default_replicas(session)


def check_quota(session: CephSession, name: str, needed_bytes: int) -> None:
    """Raise UnhealthyError when the run would go beyond the quota of the operator's pool."""
    # `osd pool get-quota` fails for a pool that was made a moment ago: it wants its statistics as well.
    pools = (session.json("mon", "osd dump") or {}).get("pools", [])
    limit = next((int(pool.get("quota_max_bytes", 0)) for pool in pools if pool.get("pool_name") == name), 0)
    used = next(
        (
            int(pool["stats"].get("stored", 0))
            for pool in (session.json("mon", "df") or {}).get("pools", [])
            if pool["name"] == name
        ),
        0,
    )
    if limit and used + needed_bytes > limit:
        raise UnhealthyError(
            f"the run writes {format_bytes(needed_bytes)} into the pool {name}, "
            f"which holds {format_bytes(used)} of the {format_bytes(limit)} that its quota allows",
            hint=f"take smaller images: --set image_size=256M, or: ceph osd pool set-quota {name} max_bytes 0",
        )


def check_tools(host: Host, target: Target, steps: Sequence[StepSpec]) -> None:
    """Raise EnvironmentError_ when fio, one of the engines or another program that `steps` load with is missing.

    A prefix is for Ceph's own commands: loads run on this machine, which ends them with itself. Raises UsageError when
    they would find no cluster here.
    """
    engines_by_root: dict[str | None, set[str]] = {}
    for step in steps:
        layer = LAYERS[step.layer]
        # What a layer needs is filled by fio, whichever of its load generators a step uses.
        if any(layer.load_generators.values()):
            root = target.root if layer.needs_cluster else None
            engines_by_root.setdefault(root, set()).add(layer.load_generators[step.load_generator])
    for root, needed in engines_by_root.items():
        where = f" in {root}" if root else ""
        version = _output(host, ("fio", "--version"), root).strip()
        check_engines(needed - {""}, _output(host, ("fio", "--enghelp"), root), f"fio{where} ({version})")
        if "" in needed:
            _output(host, ("rados", "--version"), root)
    if target.ceph_prefix and any(LAYERS[step.layer].needs_cluster for step in steps):
        _check_here(host, target)


def _check_here(host: Host, target: Target) -> None:
    """Raise UsageError when the load, which runs on this machine, has no configuration or key of the cluster."""
    conf = target.conf or DEFAULT_CONF
    for name in filter(None, (conf, target.keyring)):
        try:
            host.read(name)
        except OSError as error:
            raise UsageError(
                f"fio runs on this machine and cannot read {name} here: {error.strerror}",
                hint="the prefix is for Ceph's commands only; copy ceph.conf and the key to this machine, at the path "
                "that they have behind the prefix",
            ) from error


def check_engines(needed: Iterable[str], help_text: str, where: str) -> None:
    """Raise EnvironmentError_ when `fio --enghelp` does not list an engine. `where` names the fio."""
    engines = set(help_text.split())
    for engine in sorted(needed):
        if engine not in engines:
            raise EnvironmentError_(
                f"{where} has no engine '{engine}'",
                hint="install a fio that is built with it (Debian's is): apt install fio",
            )


_PACKAGES = {"fio": "fio", "rados": "ceph-common"}


def _output(host: Host, argv: tuple[str, ...], root: str | None) -> str:
    completed = host.run(ProcessRequest(argv[-1].lstrip("-"), argv, timeout_s=10.0, root=root))
    if completed.exit_code != 0:
        text = completed.stderr.decode(errors="replace").strip()
        raise EnvironmentError_(
            f"{' '.join(argv)} failed: {text}",
            hint=f"check that it runs by hand; reinstall it: apt install --reinstall {_PACKAGES[argv[0]]}",
        )
    return completed.stdout.decode(errors="replace")


def check_layers(steps: Iterable[StepSpec], context: LayerContext) -> None:
    """Raise UsageError when a layer cannot run one of its steps; nothing has been changed then."""
    for step in {step.key: step for step in steps}.values():
        try:
            LAYERS[step.layer].check(step, context)
        except UsageError as error:
            hint = error.hint or "take another layer with --layer, or change the plan with --set"
            raise UsageError(f"{step.key} cannot be run: {error.message}", hint=hint) from error


def check_disks(host: Host, steps: Iterable[StepSpec], context: LayerContext) -> None:
    """Raise UsageError for disks that would not be loaded as the user means.

    One that was named and that no step of the disk layer loads, one that is not there, and one that would be written
    and is mounted.
    """
    steps = list(steps)
    classes = sorted({step.device_class for step in steps if not LAYERS[step.layer].needs_cluster})
    for device_class, given in context.target.disks.items():
        if classes and given.named and device_class not in classes:
            raise UsageError(
                f"{given.path} is named for the device class '{device_class or 'any'}', and no step is of it",
                hint="name it for one of: "
                + ", ".join(f"--disk {name}=PATH" if name else "--disk PATH" for name in classes),
            )
    mounts = ""
    with contextlib.suppress(OSError):
        mounts = host.read("/proc/self/mounts").decode(errors="replace")
    disks = {disk.path: disk for step in steps if (disk := LAYERS[step.layer].disk(step, context)) is not None}
    for disk in disks.values():
        if not Path(disk.path).exists():
            raise UsageError(
                f"the disk {disk.path} does not exist", hint="name a file or a block device: --disk hdd=/dev/sdx"
            )
        if disk.destructive and any(line.split(" ")[0] == disk.path for line in mounts.splitlines()):
            raise UsageError(f"{disk.path} is mounted; it will not be overwritten", hint=f"umount {disk.path}")
