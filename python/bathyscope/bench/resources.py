"""What a run makes on a cluster: pools, CRUSH rules, images. Each is in the journal before it exists.

Names begin with the run's prefix, so that nothing of anybody else's can be meant.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from bathyscope.bench import cluster
from bathyscope.bench.cluster import OsdNode
from bathyscope.bench.journal import Change, Journal
from bathyscope.bench.settings import Settings
from bathyscope.errors import ClusterError, DeniedError, ToolError, UnhealthyError
from bathyscope.host import CephSession, Host, ProcessRequest
from bathyscope.layers import ImageNeed, PoolNeed
from bathyscope.sources import rbd_usage
from bathyscope.spec import Target

APPLICATION = "bathyscope"
_DELETE_OPTION = "mon_allow_pool_delete"
PREFIX = "bathy-"

# Placement groups for each OSD and pool: enough that three OSDs share a pool evenly, few enough that a pool
# of ours does not push a large cluster over mon_max_pg_per_osd.
_PGS_PER_OSD = 32
_PGS_MIN, _PGS_MAX = 16, 4096


def prefix_of(run_id: str) -> str:
    """Return the prefix of everything that a run makes: bathy- and the run's random part."""
    return PREFIX + run_id.rpartition("-")[2]


class Resources:
    """Makes and removes what a run needs. Making twice is harmless, removing what does not exist is too."""

    def __init__(self, host: Host, session: CephSession, target: Target, journal: Journal) -> None:
        self._host = host
        self._session = session
        self._target = target
        self._journal = journal

    def make_pool(self, need: PoolNeed, nodes: Sequence[OsdNode]) -> None:
        """Make a replicated pool on the OSDs of one device class, tagged as ours. Raises ClusterError."""
        if need.name in cluster.pools(self._session):
            return
        members = [node for node in nodes if need.device_class in ("", node.device_class)]
        if not members:
            raise ClusterError(f"the cluster has no OSD of the device class '{need.device_class}'")
        size = need.replicas or int(self._option("osd_pool_default_size", "3"))
        hosts = len({node.host for node in members})
        if len(members) < size:
            raise ClusterError(
                f"a pool with {size} replicas needs {size} OSDs of class '{need.device_class or 'any'}', "
                f"there are {len(members)}",
                hint="give fewer replicas: --set replicas=N",
            )
        rule = f"{need.name}-rule"
        self._journal.will_change("crush_rule", name=rule)
        words = {"name": rule, "root": self._root(), "type": "host" if hosts >= size else "osd"}
        if need.device_class:
            words["class"] = need.device_class
        cluster.send(self._session, "crush_rule", "mon", "osd crush rule create-replicated", **words)
        self._journal.will_change("pool", name=need.name)
        pgs = _placement_groups(len(members), size)
        cluster.send(
            self._session, "pool", "mon", "osd pool create",
            pool=need.name, pg_num=pgs, pgp_num=pgs, pool_type="replicated", rule=rule,
        )  # fmt: skip
        self._set_pool(need.name, "pg_autoscale_mode", "off")
        self._set_pool(need.name, "size", str(size))
        cluster.send(
            self._session, "application", "mon", "osd pool application enable",
            pool=need.name, app=APPLICATION, yes_i_really_mean_it=True,
        )  # fmt: skip

    def _set_pool(self, pool: str, name: str, value: str) -> None:
        # Releases before Nautilus' end do not know pg_autoscale_mode; a pool that does not have it is off already.
        with contextlib.suppress(ClusterError) if name == "pg_autoscale_mode" else contextlib.nullcontext():
            words = {"pool": pool, "var": name, "val": value}
            if name == "size" and value == "1":
                words |= {"yes_i_really_mean_it": True}  # type: ignore[dict-item]
            cluster.send(self._session, f"pool-{name}", "mon", "osd pool set", **words)

    def _option(self, name: str, default: str) -> str:
        with contextlib.suppress(ClusterError):
            value = self._session.json("mon", "config get", who="mon", key=name)
            if isinstance(value, str | int):
                return str(value)
        return default

    def _root(self) -> str:
        """Return the CRUSH root that holds the most OSDs; usually there is only `default`."""
        tree = self._session.json("mon", "osd tree")
        roots = [node for node in tree["nodes"] if node["type"] == "root" and "~" not in node["name"]]
        if not roots:
            raise ClusterError("the CRUSH map has no root")
        return str(max(roots, key=lambda node: len(node.get("children", [])))["name"])

    def wait_until_settled(self, note: Callable[[str], None], timeout_s: float = 300.0) -> None:
        """Wait until all placement groups are active and clean. Raises UnhealthyError after `timeout_s`."""
        deadline = self._host.monotonic_ns() + int(timeout_s * 1e9)
        told = False
        while not (states := cluster.pg_states(self._session)).settled:
            if self._host.monotonic_ns() > deadline:
                raise UnhealthyError(
                    f"the placement groups did not settle within {timeout_s:.0f} s: {states.troubled or 'unknown'}",
                    hint="look at: ceph health detail",
                )
            if not told:
                note("waiting until all placement groups are active and clean")
                told = True
            self._host.sleep(0.25)

    def make_image(self, need: ImageNeed) -> None:
        """Make an image unless it exists. It goes with its pool, so the pool's journal entry covers it."""
        access = rbd_usage.access(self._target)
        argv = ["rbd", *access, "create", f"{need.pool}/{need.name}"]
        argv += ["--size", f"{need.size_bytes}B", "--object-size", f"{need.object_size_bytes}B"]
        # Exclusive lock and what builds on it would only add the lock's own cost to a single writer.
        argv += ["--image-feature", "layering"]
        completed = self._host.run(
            ProcessRequest(f"create-{need.name}", tuple(argv), timeout_s=60.0, root=self._target.root)
        )
        text = completed.stderr.decode(errors="replace")
        if completed.exit_code != 0 and "exists" not in text:
            raise ToolError(f"the image {need.pool}/{need.name} could not be made: {_last_line(text)}")

    def undo(self, change: Change) -> None:
        """Undo one change of the kinds crush_rule and pool. Raises ClusterError."""
        name = str(change.details["name"])
        if not name.startswith(PREFIX):
            raise ClusterError(f"{name} in the journal does not look like ours; it is left alone")
        if change.kind == "crush_rule":
            rules = self._session.json("mon", "osd crush rule ls") or []
            if name in rules:
                cluster.send(self._session, "rule-rm", "mon", "osd crush rule rm", name=name)
            return
        if name not in cluster.pools(self._session):
            return
        try:
            self._delete_pool(name)
        except DeniedError as error:
            if _DELETE_OPTION not in error.message:
                raise
            with self._deletion_allowed():
                self._delete_pool(name)

    def _delete_pool(self, name: str) -> None:
        cluster.send(
            self._session, "pool-delete", "mon", "osd pool delete",
            pool=name, pool2=name, yes_i_really_really_mean_it=True,
        )  # fmt: skip

    @contextlib.contextmanager
    def _deletion_allowed(self) -> Iterator[None]:
        """Let the monitors delete our pool, and put their setting back exactly as it was."""
        rows = self._session.json("mon", "config dump") or []
        old = [str(r["value"]) for r in rows if r.get("name") == _DELETE_OPTION and r.get("section") == "mon"]
        value = old[0] if old else None
        change = self._journal.will_change("config", who="mon", name=_DELETE_OPTION, value=value)
        cluster.send(self._session, "allow", "mon", "config set", who="mon", name=_DELETE_OPTION, value="true")
        try:
            # The monitors take up a changed option within a moment, not at once.
            self._host.sleep(1.0)
            yield
        finally:
            Settings(self._session, self._journal).undo(change)
            self._journal.undone(change)


def _placement_groups(osds: int, size: int) -> int:
    """Return a power of two near 32 placement group copies for each OSD."""
    wanted = osds * _PGS_PER_OSD / size
    power = 1 << max(0, round(wanted).bit_length() - 1)
    return max(_PGS_MIN, min(_PGS_MAX, power))


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
