"""The cluster's map: versions, health, pools, placement, settings that differ; and the scope that is made of it.

All of it is read-only and costs a few small commands for the cluster and for each OSD that is asked. Whatever is
missing (a command that the caps do not allow) is left out: the absence of a fact is no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from bathyscope.fields import address_of, as_dict, as_float, as_int, as_list, parsing
from bathyscope.host import Request
from bathyscope.records import EnvironmentFact, Placement, RawAnswer, Record, Tables
from bathyscope.sources import cluster_status, exporters, machine, mgr_counters, nodes, perf_counters
from bathyscope.sources.facts import CONFIG_DIFF, CONFIG_DUMP, fact_table, latest, redacted
from bathyscope.sources.shape import Columns, Source, ask, spread, tell
from bathyscope.spec import BluefsDevice, Target
from bathyscope.spec.scope import Scope, ScopeOsd

# A few OSDs speak for the settings of a large cluster.
_CONFIG_ASKED_MAX = 16
_SCHEMA = "perf_schema"
_RULES = "crush_rules"
_MODULES = "mgr_modules"
_MODULE_STATUS = "mgr_module_status"
_CACHE_OPTIONS = ("bluestore_cache_autotune", "bluestore_cache_size", "osd_memory_target")
_POOL_FACTS = (
    *("size", "min_size", "pg_num", "crush_rule", "type", "pg_autoscale_mode", "erasure_code_profile"),
    *("fast_read", "cache_mode", "quota_max_bytes"),
)
_OSD_FACTS = (
    *("ceph_version_short", "osd_objectstore", "bluestore_min_alloc_size", "kernel_version", "cpu"),
    *("bluefs_db_size", "bluefs_db_rotational", "bluefs_wal_size", "bluefs_wal_rotational"),
)
# (label, daemon, prefix); `osd df` as a tree besides.
_COMMANDS = (
    ("versions", "mon", "versions"),
    ("osd_metadata", "mon", "osd metadata"),
    ("osd_dump", "mon", "osd dump"),
    (CONFIG_DUMP, "mon", "config dump"),
    (_RULES, "mon", "osd crush rule dump"),
    ("balancer", "mgr", "balancer status"),
    (_MODULES, "mon", "mgr module ls"),
)

_ADDRESS = re.compile(r"[0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]+")

# Applications whose pools hold no images; a pool without an application, or of bathy's own, may.
_WITHOUT_IMAGES = {"cephfs", "rgw", "mgr", "mgr_devicehealth"}

Given = Mapping[str, RawAnswer]


class ClusterMap:
    """What the monitors, the manager and the OSDs that are asked say of the cluster."""

    name = "cluster_map"
    records: tuple[type[Record], ...] = (EnvironmentFact, Placement)
    period_s = 300.0
    timeout_s = 30.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the requests: those for OSDs need a scope that names some."""
        if scope.target.kind == "disk":
            return []
        requests = [*cluster_status.SOURCE.plan(scope)]
        requests += [ask(label, daemon, prefix, self.timeout_s) for label, daemon, prefix in _COMMANDS]
        requests += [ask("osd_df_tree", "mgr", "osd df", self.timeout_s, output_method="tree")]
        if mgr_counters.MODULE in scope.mgr_modules:
            # To be asked this makes no module count.
            requests += [ask(_MODULE_STATUS, "mgr", f"{mgr_counters.MODULE} status", self.timeout_s)]
        down = {osd.osd for osd in scope.osds if not osd.up}
        asked = [osd for osd in scope.asked_osds if osd not in down]
        # One OSD speaks for the counters of its release.
        requests += [tell(_SCHEMA, osd, "perf schema", self.timeout_s) for osd in asked[:1]]
        requests += [
            tell(name, osd, "config get", self.timeout_s, var=name) for osd in asked for name in _CACHE_OPTIONS
        ]
        return requests + [
            tell(CONFIG_DIFF, osd, "config diff", self.timeout_s) for osd in spread(asked, _CONFIG_ASKED_MAX)
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return the facts about the cluster and the place of each OSD, of the latest answers."""
        # Again, for runs that were recorded when more was kept.
        given = latest(map(redacted, answers))
        with parsing("the cluster's map"):
            return {EnvironmentFact: fact_table(_facts(given)), Placement: _placement(given, scope)}


SOURCE: Source = ClusterMap()


# --- the scope


def scope_of(answers: Sequence[RawAnswer], target: Target) -> Scope:
    """Return the scope that answers of cluster_map, machine, nodes and exporters describe; the latest of each counts.

    Raises ParseError.
    What to ask of it (asked_osds, own_pools, images, processes, op_history_ops) is not in the answers.
    """
    given = latest(answers)
    with parsing("the cluster's map"):
        dump = as_dict(_json(given, "osd_dump") or {})
        module = as_dict(_json(given, _MODULE_STATUS) or {})
        schema = next((label for label in given if label.startswith(f"{_SCHEMA}-")), "")
        scope = Scope(
            target=target,
            fsid=str(dump["fsid"]) if dump else None,
            osds=tuple(_osds(given)),
            pools={str(pool["pool_name"]): as_int(pool["pool"]) for pool in _pools(dump)},
            mgr_modules=_mgr_modules(given),
            mgr_module_version=as_int(module.get("version", 0)) if module else None,
            rbd_pools=tuple(_rbd_pools(dump)),
            machine_names=_machine_names(given, target),
            counter_kinds=perf_counters.kinds(_json(given, schema) or {}),
        )
    about = {"links": machine.links(answers), "boot_id": machine.boot_id(answers)}
    scope = scope.model_copy(update={**machine.units(answers), **about})
    fields = {"nodes": nodes.nodes_of(answers, scope), "exporters": exporters.exporters_of(answers, scope)}
    return scope.model_copy(update=fields)


def still_true(before: Sequence[RawAnswer], now: Sequence[RawAnswer]) -> list[RawAnswer]:
    """Return the good answers in an earlier look that need not be asked for again. Raises ParseError.

    Which version the manager's module has holds while it stays enabled and does not answer. What an OSD says of itself
    (its settings, its counters' kinds) holds while it runs, by the epoch since which the map has it up, and while
    `config dump` is the same. A setting that is changed in the daemon alone is seen after that.
    """
    old, new = latest(before), latest(now)
    with parsing("the cluster's map"):
        stays = all(mgr_counters.MODULE in _mgr_modules(given) for given in (old, new)) and _MODULE_STATUS not in new
        kept = [answer for label, answer in old.items() if stays and label == _MODULE_STATUS]
        since, started = ({osd: as_int(row["up_from"]) for osd, row in _dumped(given).items()} for given in (old, new))
        running = {f"osd.{osd}" for osd, epoch in started.items() if since.get(osd) == epoch}
        if _json(old, CONFIG_DUMP) != _json(new, CONFIG_DUMP):
            return kept
    return [*kept, *(answer for label, answer in old.items() if label.rpartition("-")[2] in running)]


def device_classes(scope: Scope) -> tuple[str, ...]:
    """Return the device classes that have OSDs, sorted."""
    return tuple(sorted({osd.device_class for osd in scope.osds if osd.device_class}))


def up_osds(scope: Scope, device_class: str = "") -> list[ScopeOsd]:
    """Return the OSDs of a device class (empty: of any) that are up."""
    return [osd for osd in scope.osds if osd.up and device_class in ("", osd.device_class)]


def _osds(given: Given) -> Iterator[ScopeOsd]:
    metadata = _metadata(given)
    for osd, (host, node) in _nodes(given).items():
        about = metadata.get(osd, {})
        yield ScopeOsd(
            osd=osd,
            host=host,
            host_name=str(about.get("hostname", "")),
            data_path=str(about.get("osd_data", "")),
            device=single_device(about),
            bluefs_devices=bluefs_devices(about),
            device_class=str(node.get("device_class", "")),
            up=node.get("status", "up") == "up",
            fullness=as_float(node.get("utilization", 0)) / 100,
            size_bytes=as_int(as_float(node.get("kb", 0))) * 1024,
            cache_bytes=_cache_bytes(given, osd),
        )


def _rbd_pools(dump: Mapping[str, Any]) -> Iterator[str]:
    for pool in _pools(dump):
        applications = set(as_dict(pool.get("application_metadata", {})))
        if not applications or applications - _WITHOUT_IMAGES:
            yield str(pool["pool_name"])


def _machine_names(given: Given, target: Target) -> dict[str, str]:
    """Return address → name of the machines with OSDs. Several machines of one address are none.

    The OSDs say their networks' addresses, the operator those for ssh.
    """
    names_by_address: dict[str, set[str]] = {}
    hostnames = {str(about["hostname"]) for about in _metadata(given).values() if about.get("hostname")}
    for about in _metadata(given).values():
        for address in filter(None, (about.get(key) for key in ("front_addr", "back_addr"))):
            if about.get("hostname"):
                names_by_address.setdefault(address_of(str(address)), set()).add(str(about["hostname"]))
    for name, address in target.ssh.names.items() if target.ssh is not None else ():
        if name in hostnames and _ADDRESS.fullmatch(address):
            names_by_address.setdefault(address, set()).add(name)
    return {address: next(iter(names)) for address, names in sorted(names_by_address.items()) if len(names) == 1}


def _cache_bytes(given: Given, osd: int) -> int | None:
    """Return what an OSD's BlueStore cache may hold; None when the OSD did not say."""
    answers = {name: as_dict(_json(given, f"{name}-osd.{osd}") or {}) for name in _CACHE_OPTIONS}
    autotune, fixed, memory = (str(answers[name].get(name, "")) for name in _CACHE_OPTIONS)
    text = fixed if autotune == "false" and fixed not in ("", "0") else memory
    return as_int(text) if autotune and text.isdigit() else None


# --- facts


def _facts(given: Given) -> Iterator[tuple[str, str, Any]]:
    """Yield (subject, name, value)."""
    yield from _cluster_facts(given)
    for osd, row in _metadata(given).items():
        for name in _OSD_FACTS:
            if name in row:
                yield f"osd.{osd}", name, row[name]
    rules = {as_int(rule["rule_id"]): _rule(rule) for rule in map(as_dict, as_list(_json(given, _RULES) or []))}
    for pool in _pools(as_dict(_json(given, "osd_dump") or {})):
        settings = {name: pool[name] for name in _POOL_FACTS if name in pool} | as_dict(pool.get("options", {}))
        # What a rule does, not its number: that differs between equal rules.
        if settings.get("crush_rule") in rules:
            settings["crush_rule"] = rules[settings["crush_rule"]]
        for name, value in settings.items():
            yield f"pool {pool['pool_name']}", name, value
    for label in given:
        if label.startswith(f"{CONFIG_DIFF}-"):
            yield from _config_facts(label.removeprefix(f"{CONFIG_DIFF}-"), _json(given, label))
    for option in map(as_dict, as_list(_json(given, CONFIG_DUMP) or [])):
        yield f"config {option.get('section', '')}", str(option["name"]), option.get("value", "")


def _rule(rule: Mapping[str, Any]) -> str:
    """Return what a CRUSH rule does: "take default~ssd, chooseleaf_firstn 0 host, emit"."""
    steps = [as_dict(step) for step in as_list(rule.get("steps", []))]
    words = [(step.get("op"), step.get("item_name"), step.get("num"), step.get("type")) for step in steps]
    return ", ".join(" ".join(str(word) for word in step if word is not None) for step in words)


def _config_facts(daemon: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the settings of a daemon that differ from the defaults, but not its paths and addresses."""
    differences = as_dict(as_dict(value or {}).get("diff", {}))
    for name, levels in differences.items():
        final = as_dict(levels).get("final")
        if final is not None and not (isinstance(final, str) and "/" in final):
            yield daemon, f"config {name}", final


def _cluster_facts(given: Given) -> Iterator[tuple[str, str, Any]]:
    """Yield the facts about the cluster as a whole."""
    versions = as_dict(_json(given, "versions") or {})
    for kind in ("mon", "mgr", "osd"):
        texts = sorted(_short_version(text) for text in as_dict(versions.get(kind, {})))
        if texts:
            yield "cluster", f"{kind}_version", ", ".join(texts)
    health = as_dict(_json(given, cluster_status.HEALTH) or {})
    if "status" in health:
        yield "cluster", "health", health["status"]
        for code, check in as_dict(health.get("checks", {})).items():
            yield "cluster", f"health {code}", as_dict(as_dict(check).get("summary", {})).get("message", "")
    dump = as_dict(_json(given, "osd_dump") or {})
    if dump:
        yield "cluster", "fsid", dump["fsid"]
        yield "cluster", "flags", dump["flags"]
    for state, count in cluster_status.state_counts(_json(given, cluster_status.STATUS) or {}).items():
        yield "cluster", f"pgs {state}", count
    balancer = as_dict(_json(given, "balancer") or {})
    if "active" in balancer:
        yield "cluster", "balancer_active", balancer["active"]
    for osd, commit_ms, _ in cluster_status.latency_rows(_json(given, cluster_status.PERF) or {}):
        yield f"osd.{osd}", "commit_latency_ms", commit_ms


def _short_version(text: str) -> str:
    """Return "16.2.15 pacific" from "ceph version 16.2.15 (618f…) pacific (stable)"."""
    match = re.match(r"ceph version (\S+) \([^)]*\) (\S+)", text)
    return f"{match[1]} {match[2]}" if match else text


# --- placement


def _placement(given: Given, scope: Scope) -> pa.Table:
    """Return a row for each OSD of the CRUSH tree."""
    columns = Columns(Placement)
    metadata, dumped = _metadata(given), _dumped(given)
    pids = {daemon.name: daemon.pid for daemon in scope.target.daemons}
    for osd, (host, node) in _nodes(given).items():
        about = metadata.get(osd, {})
        machine = _text(about.get("hostname"))
        rotational = str(about.get("bluestore_bdev_rotational", about.get("rotational")))
        columns.add(
            osd=osd,
            host=host,
            device_class=str(node.get("device_class", "")),
            device=_text(about.get("bluestore_bdev_devices") or about.get("devices")),
            rotational={"1": True, "0": False}.get(rotational),
            size_bytes=as_int(as_float(node["kb"])) * 1024 if "kb" in node else None,
            objectstore=_text(about.get("osd_objectstore")),
            ceph_version=_text(about.get("ceph_version_short")),
            osd_pid=pids.get(f"osd.{osd}"),
            primary_affinity=_number(dumped.get(osd, {}).get("primary_affinity")),
            reweight=_number(node.get("reweight")),
            crush_weight=_number(node.get("crush_weight")),
            pg_count=as_int(node["pgs"]) if "pgs" in node else None,
            machine=machine,
            data_path=_text(about.get("osd_data")),
            addresses=_text(" ".join(address for address, name in scope.machine_names.items() if name == machine)),
        )
    return columns.table()


def single_device(about: Mapping[str, Any]) -> str | None:
    """Return the kernel name of the disk under an OSD's data; None when there are several, or it does not say."""
    devices = str(about.get("bluestore_bdev_devices") or about.get("devices") or "").split(",")
    return devices[0] if len(devices) == 1 and devices[0] else None


def bluefs_devices(about: Mapping[str, Any]) -> tuple[BluefsDevice, ...]:
    """Return the disks under an OSD's block.db and block.wal, where these are not with its data."""
    uses: tuple[Literal["db", "wal"], ...] = ("db", "wal")
    return tuple(
        BluefsDevice(use=use, device=device)
        for use in uses
        if str(about.get(f"bluefs_dedicated_{use}")) == "1"
        for device in str(about.get(f"bluefs_{use}_devices", "")).split(",")
        if device
    )


def _text(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None


def _number(value: Any) -> float | None:
    return None if value is None else as_float(value)


# --- answers


def _json(given: Given, label: str) -> Any:
    """Return the JSON of an answer, or None when it was not given or is empty."""
    answer = given.get(label)
    return None if answer is None or not answer.stdout.strip() else answer.json()


def _mgr_modules(given: Given) -> tuple[str, ...]:
    """Return the modules of the manager that are enabled."""
    modules = as_dict(_json(given, _MODULES) or {})
    return tuple(sorted(map(str, as_list(modules.get("enabled_modules", [])))))


def _pools(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [as_dict(pool) for pool in as_list(dump.get("pools", []))]


def _dumped(given: Given) -> dict[int, dict[str, Any]]:
    """Return OSD number → what `osd dump` says of it."""
    rows = map(as_dict, as_list(as_dict(_json(given, "osd_dump") or {}).get("osds", [])))
    return {as_int(row["osd"]): row for row in rows}


def _metadata(given: Given) -> dict[int, dict[str, Any]]:
    """Return OSD number → its metadata. An OSD that has never started has an entry with nothing but its number."""
    rows = [as_dict(row) for row in as_list(_json(given, "osd_metadata") or [])]
    return {as_int(row["id"]): row for row in rows}


def _nodes(given: Given) -> dict[int, tuple[str, dict[str, Any]]]:
    """Return OSD number → (name of the CRUSH host bucket that holds it, its node in the tree), in order.

    With device classes CRUSH has shadow buckets named host~class; they hold the same OSDs and are left out.
    """
    tree = as_dict(_json(given, "osd_df_tree") or {"nodes": []})
    nodes = [as_dict(node) for node in as_list(tree["nodes"])]
    hosts = {
        as_int(child): str(node["name"])
        for node in nodes
        if node["type"] == "host" and "~" not in str(node["name"])
        for child in as_list(node.get("children", []))
    }
    osds = {as_int(node["id"]): node for node in nodes if node["type"] == "osd"}
    return {osd: (hosts.get(osd, ""), osds[osd]) for osd in sorted(osds)}
