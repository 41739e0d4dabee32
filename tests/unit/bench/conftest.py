"""A cluster that remembers what was done to it, behind the fake session."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path
from typing import Any

import pytest

from bathyscope.errors import UnreachableError
from bathyscope.host import CephRequest, CephSession
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.recording.journal import Journal
from bathyscope.spec import Target

RUN = "20260101-000000-abcdef"
DEFAULTS = {"osd_op_history_size": "20", "osd_op_history_duration": "600"}


@dataclasses.dataclass
class FakeCluster:
    """Pools, rules, flags, run-time overrides and module options, and the commands that change them."""

    osds: int = 3
    device_classes: tuple[str, ...] = ("ssd",)
    pools: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    rules: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    flags: set[str] = dataclasses.field(default_factory=lambda: {"sortbitwise"})
    overrides: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    config: dict[str, str] = dataclasses.field(default_factory=dict)
    osd_config: dict[str, str] = dataclasses.field(default_factory=dict)
    other_config: list[dict[str, str]] = dataclasses.field(default_factory=list)
    runtime: dict[str, bool] = dataclasses.field(default_factory=dict)
    """Options that are known, and whether they can be changed while an OSD runs."""
    balancer: bool = True
    deletable: bool = True
    down: set[str] = dataclasses.field(default_factory=set)
    denied: set[str] = dataclasses.field(default_factory=set)
    """Commands, or daemons ("osd", "mon."), that the caps do not allow."""
    objects: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    """Names of images and objects by pool, for those that the operator made."""
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    held: int = 0
    default_size: int = 3
    pg_num: int = 0
    lost: bool = False
    log: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def session(self) -> FakeCephSession:
        made = FakeCephSession()
        made.answers = _Everything(self)  # type: ignore[assignment]
        return made

    def state(self) -> Any:
        """Return everything that a run must restore."""
        return (
            dict(self.pools), dict(self.rules), set(self.flags), self.balancer,
            dict(self.config), dict(self.osd_config),
            {daemon: dict(values) for daemon, values in self.overrides.items() if values},
        )  # fmt: skip

    def answer(self, request: CephRequest) -> Any:
        words = dict(request.command)
        prefix = str(words["prefix"])
        self.log.append((request.daemon, prefix))
        if self.lost:
            return UnreachableError("the connection to the cluster was lost")
        if request.daemon in self.down:
            return -errno.ENXIO
        kind, dot, _ = request.daemon.partition(".")
        if self.denied & {prefix, kind + dot}:
            return -errno.EACCES
        method = getattr(self, "do_" + prefix.replace(" ", "_").replace("-", "_"), None)
        return -errno.EINVAL if method is None else method(request.daemon, words)

    # --- what is asked

    def do_fsid(self, daemon: str, words: Any) -> Any:
        return {"fsid": "f-s-i-d"}

    def do_osd_lspools(self, daemon: str, words: Any) -> Any:
        return [{"poolnum": i, "poolname": name} for i, name in enumerate(self.pools, 1)]

    def do_osd_tree(self, daemon: str, words: Any) -> Any:
        return {"nodes": [
            {"id": -1, "type": "root", "name": "default", "children": [-2]},
            {"id": -9, "type": "root", "name": "empty", "children": [-10, -11, -12]},
            {"id": -2, "type": "host", "name": "node1", "children": list(range(self.osds))},
            *({"id": i, "type": "osd", "name": f"osd.{i}"} for i in range(self.osds)),
        ]}  # fmt: skip

    def do_osd_crush_rule_ls(self, daemon: str, words: Any) -> Any:
        return list(self.rules)

    def do_mon_dump(self, daemon: str, words: Any) -> Any:
        return {"mons": [{"name": "a"}, {"name": "b"}]}

    def do_config_get(self, daemon: str, words: Any) -> Any:
        values = {"osd_pool_default_size": str(self.default_size), **DEFAULTS, **self.options}
        values["mon_allow_pool_delete"] = str(self.deletable).lower()
        values |= self.overrides.get(daemon, {})
        return {words["var"]: values[words["var"]]} if words["var"] in values else -errno.ENOENT

    def do_config_show(self, daemon: str, words: Any) -> Any:
        found = self.do_config_get(words["who"], {"var": words["key"]})
        return found if isinstance(found, int) else f"{found[words['key']]}\n".encode()

    def do_osd_df(self, daemon: str, words: Any) -> Any:
        return {"nodes": [{"id": osd, "pgs": self.held} for osd in range(self.osds)]}

    def do_access(self, daemon: str, words: Any) -> Any:
        return {"read": True, "execute": True, "write": "write" not in self.denied, "initialised": True}

    def _in_pool(self, daemon: str) -> set[str] | None:
        return self.objects.get(daemon.removeprefix("pool."))

    def do_image_ls(self, daemon: str, words: Any) -> Any:
        found = self._in_pool(daemon)
        return -errno.ENOENT if found is None else sorted(found)

    def do_image_rm(self, daemon: str, words: Any) -> Any:
        self.objects[daemon.removeprefix("pool.")].remove(words["name"])
        return b""

    def do_objects_ls(self, daemon: str, words: Any) -> Any:
        names = {f"{words['name']}.{number}" for number in range(words["count"])}
        return [words["name"]] if names & (self._in_pool(daemon) or set()) else []

    def do_objects_rm(self, daemon: str, words: Any) -> Any:
        names = {f"{words['name']}.{number}" for number in range(words["count"])}
        self.objects[daemon.removeprefix("pool.")] -= names
        return [words["name"]]

    def do_config_diff_get(self, daemon: str, words: Any) -> Any:
        value = self.overrides.get(daemon, {}).get(words["var"])
        levels = {"default": DEFAULTS.get(words["var"], ""), **({} if value is None else {"override": value})}
        return {"diff": {words["var"]: levels}}

    def do_config_dump(self, daemon: str, words: Any) -> Any:
        mgr = [{"section": "mgr", "name": name, "value": value} for name, value in self.config.items()]
        osds = [{"section": "osd", "name": name, "value": value} for name, value in self.osd_config.items()]
        # The monitors sort by place: osd/class:hdd comes before some options of all OSDs.
        return [*mgr, *self.other_config, *osds]

    def do_config_help(self, daemon: str, words: Any) -> Any:
        known = self.runtime.get(words["key"])
        return -errno.ENOENT if known is None else {"name": words["key"], "can_update_at_runtime": known}

    def do_osd_dump(self, daemon: str, words: Any) -> Any:
        osds = [{"osd": osd, "up": 1} for osd in range(self.osds)]
        given = [{"pool_name": name, "pg_num": 8, "size": 2, "type": 1, "crush_rule": 0} for name in self.objects]
        return {"flags": ",".join(sorted(self.flags)), "pools": [{"pg_num": self.pg_num}, *given], "osds": osds}

    def do_balancer_status(self, daemon: str, words: Any) -> Any:
        return {"active": self.balancer}

    # --- what is done

    def do_osd_crush_rule_create_replicated(self, daemon: str, words: Any) -> Any:
        if words["root"] not in ("default", "empty"):
            return -errno.ENOENT
        self.rules.setdefault(words["name"], {"root": words["root"], "type": words["type"]})
        return b""

    def do_osd_crush_rule_rm(self, daemon: str, words: Any) -> Any:
        if any(pool["rule"] == words["name"] for pool in self.pools.values()):
            return -errno.EBUSY
        self.rules.pop(words["name"], None)
        return b""

    def do_osd_pool_create(self, daemon: str, words: Any) -> Any:
        if words["rule"] not in self.rules:
            return -errno.ENOENT
        self.pools.setdefault(words["pool"], {"rule": words["rule"], "size": str(self.default_size), "app": ""})
        return b""

    def do_osd_pool_set(self, daemon: str, words: Any) -> Any:
        if words["pool"] not in self.pools:
            return -errno.ENOENT
        self.pools[words["pool"]][words["var"]] = words["val"]
        return b""

    def do_osd_pool_application_enable(self, daemon: str, words: Any) -> Any:
        if words["pool"] not in self.pools:
            return -errno.ENOENT
        self.pools[words["pool"]]["app"] = words["app"]
        return b""

    def do_osd_pool_delete(self, daemon: str, words: Any) -> Any:
        allowed = self.deletable or all(
            self.overrides.get(f"mon.{name}", {}).get("mon_allow_pool_delete") == "true" for name in "ab"
        )
        if words["pool"] not in self.pools:
            return b""
        if not allowed:
            return PermissionError("pool deletion is disabled; set mon_allow_pool_delete")
        del self.pools[words["pool"]]
        return b""

    def do_osd_set(self, daemon: str, words: Any) -> Any:
        self.flags.add(words["key"])
        return b""

    def do_osd_unset(self, daemon: str, words: Any) -> Any:
        self.flags.discard(words["key"])
        return b""

    def do_balancer_off(self, daemon: str, words: Any) -> Any:
        self.balancer, self.config["mgr/balancer/active"] = False, "false"
        return b""

    def do_balancer_on(self, daemon: str, words: Any) -> Any:
        self.balancer, self.config["mgr/balancer/active"] = True, "true"
        return b""

    def do_config_rm(self, daemon: str, words: Any) -> Any:
        (self.osd_config if words["who"] == "osd" else self.config).pop(words["name"], None)
        return b""

    def do_config_set(self, daemon: str, words: Any) -> Any:
        if daemon == "mon":
            self.osd_config[words["name"]] = {"4G": "4294967296"}.get(words["value"], words["value"])
            return b""
        self.overrides.setdefault(daemon, {})[words["var"]] = words["val"][0]
        return {"success": ""}

    def do_config_unset(self, daemon: str, words: Any) -> Any:
        self.overrides.get(daemon, {}).pop(words["var"], None)
        return {"success": ""}


class _Everything(dict[Any, Any]):
    """Sends every command to the cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def get(self, key: Any, default: Any = None) -> Any:
        def answer(request: CephRequest) -> Any:
            found = self._cluster.answer(request)
            if isinstance(found, PermissionError):
                from bathyscope.errors import PolicyError  # noqa: PLC0415

                return PolicyError(f"the cluster forbids it: {found}")
            return found

        return answer


@pytest.fixture
def fake_cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def fake_session(fake_cluster: FakeCluster) -> CephSession:
    return fake_cluster.session()


@pytest.fixture
def fake_host(fake_session: CephSession) -> FakeHost:
    return FakeHost(ceph=fake_session)


@pytest.fixture
def journal(tmp_path: Path, fake_host: FakeHost) -> Journal:
    target = Target(name="c", conf="/etc/ceph/ceph.conf")
    return Journal.create(tmp_path / "journal", RUN, "/ws/runs/x", target, fake_host, fsid="f-s-i-d")
