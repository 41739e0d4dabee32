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
        """Make a replicated pool on the OSDs of one device class, tagged as ours. Raises ClusterError.

        Every command may be repeated: a kill may have come between any two of them. A pool that is not there (any
        more) takes what the journal remembers of its content with it.
        """
        if need.name not in cluster.pools(self._session):
            self._journal.forget_facts(need.name)
        members = [node for node in nodes if need.device_class in ("", node.device_class)]
        if not members:
            raise ClusterError(f"the cluster has no OSD of the device class '{need.device_class}'")
        size = need.replicas or default_replicas(self._session)
        hosts = len({node.host for node in members})
        if len(members) < size:
            raise ClusterError(
                f"a pool with {size} replicas needs {size} OSDs of class '{need.device_class or 'any'}', "
                f"there are {len(members)}",
                hint="give fewer replicas: --set replicas=N",
            )
        rule = f"{need.name}-rule"
        self._journal.will_change("crush_rule", name=rule)
        words = {"name": rule, "root": self._root(members), "type": "host" if hosts >= size else "osd"}
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

    def _root(self, members: Sequence[OsdNode]) -> str:
        """Return the CRUSH root that holds the most of `members`; usually there is only `default`.

        Raises ClusterError when none holds any.
        """
        tree = self._session.json("mon", "osd tree") or {}
        nodes = {int(node["id"]): node for node in tree.get("nodes", [])}
        wanted = {node.osd for node in members}

        def held(number: int) -> int:
            children = nodes.get(number, {}).get("children", [])
            return (number in wanted) + sum(held(int(child)) for child in children)

        roots = {
            str(node["name"]): held(number)
            for number, node in nodes.items()
            if node["type"] == "root" and "~" not in node["name"]
        }
        if not any(roots.values()):
            raise ClusterError("the CRUSH map has no root with these OSDs", hint="look at: ceph osd tree")
        return max(roots, key=roots.__getitem__)

    def wait_until_settled(self, note: Callable[[str], None], timeout_s: float = 300.0) -> None:
        """Wait until all placement groups are active and clean. Raises UnhealthyError after `timeout_s`.

        The manager hears of a new pool's placement groups a moment after the monitors have made it: until it names
        as many as there are, "all" is not all.
        """
        deadline = self._host.monotonic_ns() + int(timeout_s * 1e9)
        told = False
        expected = cluster.pg_count(self._session)
        while True:
            states = cluster.pg_states(self._session)
            if states.settled and sum(states.states.values()) >= expected:
                return
            if self._host.monotonic_ns() > deadline:
                raise UnhealthyError(
                    f"the placement groups did not settle within {timeout_s:.0f} s: {states.troubled or 'unknown'}",
                    hint="look at: ceph health detail",
                )
            if not told:
                note("waiting until all placement groups are active and clean")
                told = True
            self._host.sleep(0.25)

    def make_image(self, need: ImageNeed, *, client_cache: bool = False) -> None:
        """Make an image unless it exists. It goes with its pool, so the pool's journal entry covers it.

        Without `client_cache` librbd's cache is off for this image (a setting in its own metadata): with it a
        write counts as done before any OSD has it, and a queue depth of 16 puts up to 1,024 writes in flight.
        """
        image = f"{need.pool}/{need.name}"
        # Exclusive lock and what builds on it would only add the lock's own cost to a single writer.
        sizes = ("--size", f"{need.size_bytes}B", "--object-size", f"{need.object_size_bytes}B")
        self._rbd(f"create-{need.name}", ("create", image, *sizes, "--image-feature", "layering"), accept="exists")
        if not client_cache:
            self._rbd(f"cache-{need.name}", ("config", "image", "set", image, "rbd_cache", "false"))

    def _rbd(self, label: str, words: tuple[str, ...], *, accept: str | None = None) -> None:
        """Run one `rbd` command. Raises ToolError unless it succeeds or says `accept`."""
        argv = ("rbd", *rbd_usage.access(self._target), *words)
        completed = self._host.run(ProcessRequest(label, argv, timeout_s=60.0, root=self._target.root))
        text = completed.stderr.decode(errors="replace")
        if completed.exit_code != 0 and (accept is None or accept not in text):
            raise ToolError(f"`rbd {' '.join(words[:4])}` failed: {_last_line(text)}")

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
        """Let the monitors delete our pool for a moment, and put their setting back exactly as it was.

        Their run-time overrides are changed, not the cluster's configuration: an override wins over ceph.conf too,
        and is forgotten at the monitor's next start at the latest.
        """
        settings = Settings(self._session, self._journal)
        names = [f"mon.{monitor['name']}" for monitor in (self._session.json("mon", "mon dump") or {}).get("mons", [])]
        old = settings.overrides(names, [_DELETE_OPTION])
        each = [{"daemon": daemon, "option": _DELETE_OPTION, "value": o[_DELETE_OPTION]} for daemon, o in old.items()]
        changes = self._journal.will_change_all("mon_option", each)
        try:
            for daemon in old:
                cluster.send(self._session, "allow", daemon, "config set", var=_DELETE_OPTION, val=["true"])
            yield
        finally:
            problems = settings.undo(changes)
            self._journal.undone(*(change for change in changes if change.number not in problems))


def default_replicas(session: CephSession) -> int:
    """Return the replicas that the monitors give to a new pool, as they see it: ceph.conf included."""
    for monitor in (session.json("mon", "mon dump") or {}).get("mons", []):
        with contextlib.suppress(ClusterError, TypeError, ValueError, KeyError):
            answer = session.json(f"mon.{monitor['name']}", "config get", var="osd_pool_default_size")
            return int(answer["osd_pool_default_size"])
    return 3


def _placement_groups(osds: int, size: int) -> int:
    """Return a power of two near 32 placement group copies for each OSD."""
    wanted = osds * _PGS_PER_OSD / size
    power = 1 << max(0, round(wanted).bit_length() - 1)
    return max(_PGS_MIN, min(_PGS_MAX, power))


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
