"""What a run stands on: versions, health, flags, pools, placement, settings that differ, and this machine.

`plan` names the cluster's commands, `FILES` the files of this machine; `collect` reads both. All of it is
read-only and costs a few small commands for each OSD. Whatever is missing (a file that this kernel does not have,
a command that the caps do not allow) is left out: the absence of a fact is no error. Values of options that hold
secrets are never kept.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bathyscope.errors import EnvironmentError_
from bathyscope.host import CephRequest, CephSession, Host, ProcessRequest, Request
from bathyscope.records import EnvironmentFact, Placement
from bathyscope.sources import base
from bathyscope.sources.base import RawAnswer
from bathyscope.sources.fields import as_dict, as_float, as_int, as_list, parsing
from bathyscope.spec import Target

_CPU = "/sys/devices/system/cpu"
FILES: dict[str, str] = {
    "kernel": "/proc/sys/kernel/osrelease",
    "host_name": "/proc/sys/kernel/hostname",
    "cpu_online": f"{_CPU}/online",
    "cpuinfo": "/proc/cpuinfo",
    "governor": f"{_CPU}/cpu0/cpufreq/scaling_governor",
    "cpuidle_driver": f"{_CPU}/cpuidle/current_driver",
    "cpuidle_governor": f"{_CPU}/cpuidle/current_governor_ro",
    "intel_idle_max_cstate": "/sys/module/intel_idle/parameters/max_cstate",
    "smt": f"{_CPU}/smt/control",
    "turbo_off": f"{_CPU}/intel_pstate/no_turbo",
    "meminfo": "/proc/meminfo",
    "loadavg": "/proc/loadavg",
    "pressure_io": "/proc/pressure/io",
    "transparent_hugepage": "/sys/kernel/mm/transparent_hugepage/enabled",
    "limits": "/proc/self/limits",
    "aio_max_nr": "/proc/sys/fs/aio-max-nr",
    "os_release": "/etc/os-release",
}
_FILE = "file-"
_SECRET = re.compile(r"password|passwd|secret|token|access_key|private_key|(?<!auth_)_key$", re.IGNORECASE)
_POOL_FACTS = (
    *("size", "min_size", "pg_num", "crush_rule", "type", "pg_autoscale_mode", "erasure_code_profile"),
    *("fast_read", "cache_mode", "quota_max_bytes"),
)
_COMMANDS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("versions", "mon", (("prefix", "versions"),)),
    ("status", "mon", (("prefix", "status"),)),
    ("health", "mon", (("prefix", "health"), ("detail", "detail"))),
    ("osd_metadata", "mon", (("prefix", "osd metadata"),)),
    ("osd_df_tree", "mgr", (("prefix", "osd df"), ("output_method", "tree"))),
    ("osd_dump", "mon", (("prefix", "osd dump"),)),
    ("osd_perf", "mgr", (("prefix", "osd perf"),)),
    ("config_dump", "mon", (("prefix", "config dump"),)),
    ("balancer", "mgr", (("prefix", "balancer status"),)),
)
_CONFIG_DIFF = "config_diff-"


def plan(target: Target, osds: Sequence[int] = ()) -> list[Request]:
    """Return the requests; `osds` are asked for the settings that differ from the defaults."""
    requests: list[Request] = [ProcessRequest("fio_version", ("fio", "--version"), timeout_s=10, root=target.root)]
    if target.kind == "disk":
        return requests
    requests += [CephRequest(label, daemon, (*words, ("format", "json"))) for label, daemon, words in _COMMANDS]
    words = (("prefix", "config diff"), ("format", "json"))
    return requests + [CephRequest(f"{_CONFIG_DIFF}osd.{osd}", f"osd.{osd}", words) for osd in osds]


def collect(host: Host, session: CephSession | None, target: Target, osds: Sequence[int] = ()) -> list[RawAnswer]:
    """Ask everything and return the answers, refusals included. Raises UnreachableError when the cluster is lost."""
    answers: list[RawAnswer] = []
    requests = [r for r in plan(target, osds) if session is not None or not isinstance(r, CephRequest)]
    ceph = [request for request in requests if isinstance(request, CephRequest)]
    answers += base.collect(host, session, ceph)
    for request in requests:
        if isinstance(request, ProcessRequest):
            with contextlib.suppress(EnvironmentError_):
                answers += base.collect(host, session, [request])
    for name, path in FILES.items():
        now_ns = host.now_ns()
        with contextlib.suppress(OSError):
            answers.append(RawAnswer(f"{_FILE}{name}", ("cat", path), (), 0, host.read(path), b"", now_ns, now_ns))
    return answers


def osds_of(answers: Sequence[RawAnswer]) -> list[int]:
    """Return the numbers of all OSDs that `osd metadata` lists. Raises ParseError."""
    return sorted(_metadata(_by_label(answers)))


def parse(run_id: str, moment: str, answers: Sequence[RawAnswer]) -> list[EnvironmentFact]:
    """Return the facts; `moment` is before or after. Raises ParseError."""
    by_label = _by_label(answers)
    facts: dict[tuple[str, str], str] = {}
    with parsing("the environment"):
        for subject, name, value in _facts(by_label):
            text = "(not kept)" if _SECRET.search(name) else str(value)
            facts[subject, name] = text
    return [EnvironmentFact(run_id, moment, subject, name, value) for (subject, name), value in facts.items()]


def _by_label(answers: Sequence[RawAnswer]) -> dict[str, RawAnswer]:
    """Return the answers that were given, by label."""
    return {answer.label: answer for answer in answers if answer.exit_code == 0}


def _json(by_label: Mapping[str, RawAnswer], label: str) -> Any:
    """Return the JSON of an answer, or None when it was not given or empty."""
    answer = by_label.get(label)
    return None if answer is None or not answer.stdout.strip() else answer.json()


def _facts(by_label: Mapping[str, RawAnswer]) -> Iterator[tuple[str, str, Any]]:
    """Yield (subject, name, value)."""
    yield from _host_facts(by_label)
    yield from _cluster_facts(by_label)
    for osd, row in _metadata(by_label).items():
        for name in ("ceph_version_short", "osd_objectstore", "bluestore_min_alloc_size", "kernel_version", "cpu"):
            if name in row:
                yield f"osd.{osd}", name, row[name]
    dump = _json(by_label, "osd_dump")
    for pool in as_list(as_dict(dump).get("pools", [])) if dump is not None else []:
        for name in _POOL_FACTS:
            if name in as_dict(pool):
                yield f"pool {pool['pool_name']}", name, pool[name]
        for name, value in as_dict(pool.get("options", {})).items():
            yield f"pool {pool['pool_name']}", name, value
    for label in by_label:
        if label.startswith(_CONFIG_DIFF):
            yield from _config_facts(label.removeprefix(_CONFIG_DIFF), _json(by_label, label))
    for entry in as_list(_json(by_label, "config_dump") or []):
        option = as_dict(entry)
        yield f"config {option.get('section', '')}", str(option["name"]), option.get("value", "")


def _config_facts(daemon: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the settings of a daemon that differ from the defaults, but not its paths and addresses."""
    differences = as_dict(as_dict(value or {}).get("diff", {}))
    for name, levels in differences.items():
        final = as_dict(levels).get("final")
        if final is not None and not (isinstance(final, str) and "/" in final):
            yield daemon, f"config {name}", final


def _cluster_facts(by_label: Mapping[str, RawAnswer]) -> Iterator[tuple[str, str, Any]]:
    """Yield the facts about the cluster as a whole."""
    versions = as_dict(_json(by_label, "versions") or {})
    for kind in ("mon", "mgr", "osd"):
        texts = sorted(_short_version(text) for text in as_dict(versions.get(kind, {})))
        if texts:
            yield "cluster", f"{kind}_version", ", ".join(texts)
    health = as_dict(_json(by_label, "health") or {})
    if "status" in health:
        yield "cluster", "health", health["status"]
        for code, check in as_dict(health.get("checks", {})).items():
            yield "cluster", f"health {code}", as_dict(as_dict(check).get("summary", {})).get("message", "")
    dump = as_dict(_json(by_label, "osd_dump") or {})
    if dump:
        yield "cluster", "fsid", dump["fsid"]
        yield "cluster", "flags", dump["flags"]
    status = as_dict(_json(by_label, "status") or {})
    states = as_list(as_dict(status.get("pgmap", {})).get("pgs_by_state", []))
    for state in states:
        yield "cluster", f"pgs {as_dict(state)['state_name']}", state["count"]
    balancer = as_dict(_json(by_label, "balancer") or {})
    if "active" in balancer:
        yield "cluster", "balancer_active", balancer["active"]
    perf = as_dict(_json(by_label, "osd_perf") or {})
    # Nested in "osdstats" since 15, flat before.
    for info in as_list(as_dict(perf.get("osdstats", perf)).get("osd_perf_infos", [])):
        yield f"osd.{as_dict(info)['id']}", "commit_latency_ms", as_dict(info["perf_stats"])["commit_latency_ms"]


def _short_version(text: str) -> str:
    """Return "16.2.15 pacific" from "ceph version 16.2.15 (618f…) pacific (stable)"."""
    match = re.match(r"ceph version (\S+) \([^)]*\) (\S+)", text)
    return f"{match[1]} {match[2]}" if match else text


def _host_facts(by_label: Mapping[str, RawAnswer]) -> Iterator[tuple[str, str, Any]]:
    """Yield the facts about this machine and its tools."""
    texts = {
        label.removeprefix(_FILE): answer.stdout.decode("utf-8", "replace").strip()
        for label, answer in by_label.items()
        if label.startswith(_FILE)
    }
    subject = f"host {texts.get('host_name', 'localhost')}"
    if "fio_version" in by_label:
        yield subject, "fio_version", by_label["fio_version"].stdout.decode("utf-8", "replace").strip()
    for name in ("kernel", "cpu_online", "cpuidle_driver", "cpuidle_governor", "intel_idle_max_cstate"):
        if texts.get(name):
            yield subject, name, texts[name]
    for name in ("governor", "smt", "turbo_off", "loadavg", "transparent_hugepage", "aio_max_nr"):
        if texts.get(name):
            yield subject, name, texts[name]
    cpuinfo = texts.get("cpuinfo", "")
    if cpuinfo:
        yield subject, "cpu_count", len(re.findall(r"^processor\s*:", cpuinfo, flags=re.MULTILINE))
    for name, pattern, text in (
        ("cpu_model", r"^model name\s*:\s*(.+)$", cpuinfo),
        ("memory_total", r"^MemTotal:\s*(.+)$", texts.get("meminfo", "")),
        ("memory_available", r"^MemAvailable:\s*(.+)$", texts.get("meminfo", "")),
        ("open_files_limit", r"^Max open files\s+(\S+)", texts.get("limits", "")),
        ("locked_memory_limit", r"^Max locked memory\s+(\S+)", texts.get("limits", "")),
        ("operating_system", r'^PRETTY_NAME="?([^"\n]+)', texts.get("os_release", "")),
    ):
        match = re.search(pattern, text, flags=re.MULTILINE)
        if match is not None:
            yield subject, name, match[1].strip()


def _metadata(by_label: Mapping[str, RawAnswer]) -> dict[int, dict[str, Any]]:
    """Return OSD number → its metadata."""
    value = _json(by_label, "osd_metadata")
    with parsing("osd metadata"):
        rows = [as_dict(row) for row in as_list(value or [])]
        # An OSD that has never started has an entry with nothing but its number.
        return {as_int(row["id"]): row for row in rows}


def parse_placement(run_id: str, answers: Sequence[RawAnswer], target: Target) -> list[Placement]:
    """Return a row for each OSD of the CRUSH tree. Raises ParseError."""
    by_label = _by_label(answers)
    tree = _json(by_label, "osd_df_tree")
    metadata = _metadata(by_label)
    pids = {daemon.name: daemon.pid for daemon in target.daemons}
    rows: dict[int, Placement] = {}
    with parsing("osd df tree"):
        nodes = [as_dict(node) for node in as_list(as_dict(tree or {"nodes": []})["nodes"])]
        hosts = _hosts(nodes)
        for node in nodes:
            if node["type"] != "osd":
                continue
            osd = as_int(node["id"])
            about = metadata.get(osd, {})
            rows[osd] = Placement(
                run_id=run_id,
                osd=osd,
                host=hosts.get(osd, ""),
                device_class=str(node.get("device_class", "")),
                device=_text(about.get("bluestore_bdev_devices") or about.get("devices")),
                rotational={"1": True, "0": False}.get(
                    str(about.get("bluestore_bdev_rotational", about.get("rotational")))
                ),
                size_bytes=as_int(as_float(node["kb"])) * 1024 if "kb" in node else None,
                objectstore=_text(about.get("osd_objectstore")),
                ceph_version=_text(about.get("ceph_version_short")),
                osd_pid=pids.get(f"osd.{osd}"),
            )
    return [rows[osd] for osd in sorted(rows)]


def _hosts(nodes: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Return OSD number → name of the CRUSH host bucket that holds it.

    With device classes CRUSH has shadow buckets named host~class; they hold the same OSDs and are left out.
    """
    return {
        as_int(child): str(node["name"])
        for node in nodes
        if node["type"] == "host" and "~" not in str(node["name"])
        for child in as_list(node.get("children", []))
    }


def _text(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None
