"""The few questions about a cluster that the conductor asks again and again, answered over one session."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from bathyscope.errors import ClusterError, ParseError
from bathyscope.host import CephRequest, CephSession
from bathyscope.host.ceph import answer_json


@dataclasses.dataclass(frozen=True, slots=True)
class OsdNode:
    """One OSD of the CRUSH tree. `fullness` is 0 to 1."""

    osd: int
    host: str
    device_class: str
    up: bool
    fullness: float
    size_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Health:
    """The cluster's health at a moment: overall status, checks by code with their messages, slow ops."""

    status: str
    checks: dict[str, str]

    @property
    def slow_ops(self) -> int:
        """Slow operations that the monitors count now."""
        words = self.checks.get("SLOW_OPS", "0").split()
        return int(words[0]) if words and words[0].isdigit() else int("SLOW_OPS" in self.checks)


@dataclasses.dataclass(frozen=True, slots=True)
class PgStates:
    """How many placement groups are in which state."""

    states: dict[str, int]

    @property
    def troubled(self) -> str | None:
        """Return what is not whole ("12 PGs active+undersized+degraded"), or None. Scrubbing is whole."""
        bad = {
            state: count
            for state, count in self.states.items()
            if "active" not in state or any(word in state for word in _NOT_WHOLE)
        }
        return ", ".join(f"{count} PGs {state}" for state, count in sorted(bad.items())) or None

    @property
    def unwhole(self) -> str | None:
        """As `troubled`, without what the manager has only not heard of yet ("unknown"): no sign of data at risk."""
        return PgStates({state: count for state, count in self.states.items() if state != "unknown"}).troubled

    @property
    def settled(self) -> bool:
        """Whether all of them are active and clean."""
        return bool(self.states) and all("active" in s and "clean" in s for s in self.states)

    @property
    def scrubbing(self) -> int:
        """Placement groups that are being scrubbed."""
        return sum(count for state, count in self.states.items() if "scrubbing" in state)


_NOT_WHOLE = ("degraded", "recover", "backfill", "undersized", "remapped", "peering", "stale", "down", "incomplete")


def osd_nodes(session: CephSession) -> list[OsdNode]:
    """Return every OSD of the tree. Raises ClusterError, ParseError."""
    tree = session.json("mgr", "osd df", output_method="tree")
    try:
        nodes: list[dict[str, Any]] = tree["nodes"]
        hosts = {
            child: str(node["name"])
            for node in nodes
            if node["type"] == "host" and "~" not in str(node["name"])
            for child in node.get("children", [])
        }
        found = {
            int(node["id"]): OsdNode(
                osd=int(node["id"]),
                host=hosts.get(node["id"], ""),
                device_class=str(node.get("device_class", "")),
                up=node.get("status", "up") == "up",
                fullness=float(node.get("utilization", 0.0)) / 100,
                size_bytes=int(float(node.get("kb", 0))) * 1024,
            )
            for node in nodes
            if node["type"] == "osd"
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ParseError(f"the answer to 'osd df tree' is not understood: {error}") from error
    return [found[osd] for osd in sorted(found)]


def health(session: CephSession) -> Health:
    """Return the cluster's health. Raises ClusterError."""
    answer = session.json("mon", "health", detail="detail") or {}
    checks = {
        str(code): str(check.get("summary", {}).get("message", "")) for code, check in answer.get("checks", {}).items()
    }
    return Health(str(answer.get("status", "HEALTH_UNKNOWN")), checks)


def pg_states(session: CephSession) -> PgStates:
    """Return the states of the placement groups. Raises ClusterError."""
    status = session.json("mon", "status") or {}
    states = status.get("pgmap", {}).get("pgs_by_state", [])
    return PgStates({str(state["state_name"]): int(state["count"]) for state in states})


def fsid(session: CephSession) -> str:
    """Return the cluster's identity. Raises ClusterError, ParseError."""
    try:
        return str(session.json("mon", "fsid")["fsid"])
    except (KeyError, TypeError) as error:
        raise ParseError("the answer to 'fsid' is not understood") from error


def commit_latencies_ms(session: CephSession) -> dict[int, float]:
    """Return OSD → mean commit latency of all its clients. Raises ClusterError, KeyError, TypeError, ValueError."""
    answer = session.json("mgr", "osd perf") or {}
    # Nested in "osdstats" since 15, flat before.
    infos = answer.get("osdstats", answer).get("osd_perf_infos", [])
    return {int(info["id"]): float(info["perf_stats"]["commit_latency_ms"]) for info in infos}


def pg_count(session: CephSession) -> int:
    """Return how many placement groups the pools have; the manager's states may not name all of them yet."""
    dump = session.json("mon", "osd dump") or {}
    return sum(int(pool.get("pg_num", 0)) for pool in dump.get("pools", []))


def pools(session: CephSession) -> dict[str, int]:
    """Return pool name → pool id. Raises ClusterError."""
    return {str(pool["poolname"]): int(pool["poolnum"]) for pool in session.json("mon", "osd lspools") or []}


def classes_of(nodes: Sequence[OsdNode]) -> tuple[str, ...]:
    """Return the device classes that have OSDs, sorted."""
    return tuple(sorted({node.device_class for node in nodes if node.device_class}))


def send(session: CephSession, label: str, daemon: str, prefix: str, **words: Any) -> str:
    """Send a command that changes something and return what it says. Raises as `answer_json`."""
    request = CephRequest(label, daemon, (("prefix", prefix), *words.items()), timeout_s=60.0)
    completed = session.command(request)
    if completed.exit_code != 0:
        answer_json(completed)
        raise ClusterError(f"'{prefix}' failed")
    return completed.stdout.decode(errors="replace").strip()


def cache_sizes(session: CephSession, osds: Sequence[int]) -> dict[int, int]:
    """Return osd → bytes that its BlueStore cache may hold, where the OSD tells."""
    names = ("bluestore_cache_autotune", "bluestore_cache_size", "osd_memory_target")
    asked = [(osd, name) for osd in osds for name in names]
    words = [(("prefix", "config get"), ("var", name), ("format", "json")) for _, name in asked]
    requests = [
        CephRequest(f"{name}-osd.{osd}", f"osd.{osd}", command, timeout_s=30.0)
        for (osd, name), command in zip(asked, words, strict=True)
    ]
    values: dict[int, dict[str, str]] = {}
    for (osd, name), answer in zip(asked, session.commands(requests), strict=True):
        with contextlib.suppress(ClusterError, ParseError, AttributeError):
            values.setdefault(osd, {})[name] = str((answer_json(answer) or {}).get(name, ""))
    found = {}
    for osd, options in values.items():
        if len(options) == len(names):
            fixed = options["bluestore_cache_autotune"] == "false" and options["bluestore_cache_size"] not in ("", "0")
            text = options["bluestore_cache_size"] if fixed else options["osd_memory_target"]
            if text.isdigit():
                found[osd] = int(text)
    return found
