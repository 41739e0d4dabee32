"""What must exist before a step: each need says how it is made, filled, checked and removed again.

All of it is pure: a need gives requests, and `bench.resources` carries them out and journals each thing before it is
created. To add a need (a file system, a layout, an erasure-code profile), add a class here or in the file of the layer
that uses it, with its removals: the journal holds the kind of each thing, and the kind names its removal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from bathyscope.errors import ClusterError, ToolError
from bathyscope.host import CephRequest, ProcessRequest
from bathyscope.host.ceph import DEFAULT_CONF
from bathyscope.layers import common
from bathyscope.layers.common import LayerContext
from bathyscope.load import Place, bytes_written, rados_bench
from bathyscope.load.fio_command import Options
from bathyscope.records import RawAnswer
from bathyscope.sources.image_usage import access
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.scope import Scope, ScopeOsd
from bathyscope.units import format_bytes

APPLICATION = "bathyscope"

# Placement groups for each OSD and pool: enough that three OSDs share a pool evenly, few enough that a pool
# of ours does not push a large cluster over mon_max_pg_per_osd.
_PGS_PER_OSD = 32
_PGS_MIN, _PGS_MAX = 16, 4096

_CHANGE_TIMEOUT_S = 60.0
# Removing an image takes as long as deleting its objects does.
_REMOVE_TIMEOUT_S = 3600.0
_NOWHERE = "bathy-nowhere"
_BENCH_FILL_S = 3600


@dataclasses.dataclass(frozen=True, slots=True)
class MakeContext:
    """What needs are made on: the cluster's map, its CRUSH roots with the OSDs below each, the default of replicas."""

    scope: Scope
    roots: Mapping[str, frozenset[int]]
    default_replicas: int


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """One request that makes a need or a part of it. Repeating it is harmless: a kill may come between any two.

    `creates` is (kind, name) of what it creates, which is journaled before, with `details`: what its removal must know
    besides. A failure whose message contains `accept` ("exists") is ignored; the empty text ignores any refusal.
    `request` None: it is created later, by being filled.
    """

    request: CephRequest | ProcessRequest | None
    creates: tuple[str, str] | None = None
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    accept: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Permission:
    """A command for the monitors that a key must be allowed to send.

    `ours`: its arguments that hold a name of ours, so that the cap can be limited to such names. `harmless`: further
    arguments with which it changes nothing while what it names does not exist; None: it cannot be tried.
    """

    prefix: str
    ours: tuple[str, ...]
    harmless: Mapping[str, Any] | None = None

    def cap(self, own_prefix: str) -> str:
        """Return the cap that allows it, on names that begin with `own_prefix` alone."""
        limits = " ".join(f"{argument} prefix {own_prefix}" for argument in self.ours)
        return f'allow command "{self.prefix}" with {limits}'

    def trial(self, name: str) -> CephRequest | None:
        """Return the command on a `name` that nothing has; None when it cannot be tried."""
        if self.harmless is None:
            return None
        return change(f"try {self.prefix}", self.prefix, **dict.fromkeys(self.ours, name), **self.harmless)


@dataclasses.dataclass(frozen=True, slots=True)
class Removal:
    """How everything of one kind in the journal is removed.

    `words` name the kind in a sentence. Kinds of a lower `order` go first. `listing` and `request` are made from the
    details of the change: its name, and what its creation has written down besides. `names` reads the answer to
    `listing`: what is not listed is gone already. `option`: one of the monitors' without which they refuse the removal.
    """

    kind: str
    words: str
    order: int
    listing: Callable[[Mapping[str, Any]], CephRequest]
    names: Callable[[Any], Collection[str]]
    request: Callable[[Mapping[str, Any]], CephRequest]
    option: str | None = None
    permission: Permission | None = None


REMOVALS: dict[str, Removal] = {}
"""Every way to remove something, by the kind that stands in the journal."""


def change(label: str, prefix: str, *, daemon: str = "mon", **words: Any) -> CephRequest:
    """Return a command that changes something, for the monitors unless another daemon is named."""
    return CephRequest(label, daemon, (("prefix", prefix), *words.items()), timeout_s=_CHANGE_TIMEOUT_S)


def question(prefix: str, **words: Any) -> CephRequest:
    """Return a command for the monitors that asks something, in JSON."""
    return CephRequest(prefix, "mon", (("prefix", prefix), *words.items(), ("format", "json")))


class Need:
    """Base of every need: a frozen value, so that equal needs of several steps are one.

    `removals` are the kinds that its actions create, `permissions` what its actions need beside reading. `settles`:
    placement groups must be clean before it is used.
    """

    removals: ClassVar[tuple[Removal, ...]] = ()
    permissions: ClassVar[tuple[Permission, ...]] = ()
    settles: ClassVar[bool] = False
    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Make its removals known by their kind."""
        REMOVALS.update({removal.kind: removal for removal in cls.removals})

    @property
    def key(self) -> str:
        """What it is, in stable words: the name of the journal's facts about it. It contains the name of its pool."""
        raise NotImplementedError

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools that it makes, or that it is in the operator's."""
        return ()

    @property
    def images(self) -> tuple[tuple[str, str], ...]:
        """(pool, image) of the images that it makes: a read of one that is not written in full needs no disk."""
        return ()

    @property
    def cluster_bytes(self) -> int:
        """Bytes that it stores on the cluster once it is full, one copy."""
        return 0

    @property
    def fill_bytes(self) -> int:
        """Bytes that `fill` writes, one copy."""
        return self.cluster_bytes

    def make(self, context: MakeContext) -> Sequence[Action]:  # noqa: ARG002 - for subclasses
        """Return what makes it, in order; empty when it exists anyway. Raises ClusterError when it cannot be made."""
        return ()

    def fill(self, context: LayerContext) -> Sequence[ProcessRequest]:  # noqa: ARG002 - for subclasses
        """Return the processes that write it in full, once; empty when there is nothing to write."""
        return ()

    def check_fill(self, answer: RawAnswer) -> None:
        """Raise ToolError unless a process of `fill` wrote all of it, ParseError when that is not known."""
        written = bytes_written(answer)
        if answer.exit_code != 0 or written < self.fill_bytes:
            raise ToolError(
                f"{answer.label} wrote {format_bytes(written)} of {format_bytes(self.fill_bytes)}",
                hint="check the cluster's health and free space: ceph status, ceph osd df",
            )


@dataclasses.dataclass(frozen=True, slots=True)
class PoolNeed(Need):
    """A replicated pool of our own on the OSDs of one device class. `replicas` None: the cluster's default."""

    name: str
    device_class: str
    replicas: int | None = None

    settles = True
    removals = (
        Removal(
            kind="pool",
            words="the pool",
            order=0,
            listing=lambda _: question("osd lspools"),
            names=lambda answer: {str(pool["poolname"]) for pool in answer},
            request=lambda given: change(
                "pool-delete",
                "osd pool delete",
                pool=given["name"],
                pool2=given["name"],
                yes_i_really_really_mean_it=True,
            ),
            option="mon_allow_pool_delete",
            permission=Permission(
                "osd pool delete", ours=("pool", "pool2"), harmless={"yes_i_really_really_mean_it": True}
            ),
        ),
        # A pool goes before the rule that it uses.
        Removal(
            kind="crush_rule",
            words="the CRUSH rule",
            order=1,
            listing=lambda _: question("osd crush rule ls"),
            names=lambda answer: {str(name) for name in answer},
            request=lambda given: change("rule-rm", "osd crush rule rm", name=given["name"]),
            permission=Permission("osd crush rule rm", ours=("name",), harmless={}),
        ),
    )
    permissions = (
        # The root does not exist either, nor the pool's rule, nor the pools that are set: each is refused for that.
        Permission("osd crush rule create-replicated", ours=("name",), harmless={"root": _NOWHERE, "type": "host"}),
        Permission(
            "osd pool create", ours=("pool",),
            harmless={"pg_num": 1, "pgp_num": 1, "pool_type": "replicated", "rule": _NOWHERE},
        ),
        Permission("osd pool set", ours=("pool",), harmless={"var": "size", "val": "3"}),
        Permission("osd pool application enable", ours=("pool",), harmless={"app": APPLICATION}),
    )  # fmt: skip

    @property
    def key(self) -> str:
        """The pool's name."""
        return f"pool {self.name}"

    @property
    def pools(self) -> tuple[str, ...]:
        """The pool."""
        return (self.name,)

    def placement(self, context: MakeContext) -> tuple[list[ScopeOsd], int, int]:
        """Return the OSDs that it lies on, its replicas and its placement groups.

        Raises ClusterError when there are too few OSDs for it.
        """
        members = [osd for osd in context.scope.osds if self.device_class in ("", osd.device_class)]
        if not members:
            raise ClusterError(f"the cluster has no OSD of the device class '{self.device_class}'")
        size = self.replicas or context.default_replicas
        if len(members) < size:
            raise ClusterError(
                f"a pool with {size} replicas needs {size} OSDs of class '{self.device_class or 'any'}', "
                f"there are {len(members)}",
                hint="give fewer replicas: --set replicas=N",
            )
        return members, size, _placement_groups(len(members), size)

    def make(self, context: MakeContext) -> Sequence[Action]:
        """Return rule, pool and settings. Raises ClusterError when the cluster has too few OSDs for it."""
        members, size, pgs = self.placement(context)
        hosts = len({osd.host for osd in members})
        rule = f"{self.name}-rule"
        words = {"name": rule, "root": _root(members, context.roots), "type": "host" if hosts >= size else "osd"}
        if self.device_class:
            words["class"] = self.device_class
        one_copy: dict[str, Any] = {"yes_i_really_mean_it": True} if size == 1 else {}
        return (
            Action(change("crush_rule", "osd crush rule create-replicated", **words), creates=("crush_rule", rule)),
            Action(
                change(
                    "pool", "osd pool create",
                    pool=self.name, pg_num=pgs, pgp_num=pgs, pool_type="replicated", rule=rule,
                ),
                creates=("pool", self.name),
            ),
            # Releases before Nautilus' end do not know pg_autoscale_mode; a pool that does not have it is off already.
            Action(
                change("autoscale", "osd pool set", pool=self.name, var="pg_autoscale_mode", val="off"), accept=""
            ),
            Action(change("size", "osd pool set", pool=self.name, var="size", val=str(size), **one_copy)),
            Action(
                change(
                    "application", "osd pool application enable",
                    pool=self.name, app=APPLICATION, yes_i_really_mean_it=True,
                )
            ),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class GivenPoolNeed(Need):
    """The operator's pool that a run was told to use: nothing of it is made, changed or removed."""

    name: str

    @property
    def key(self) -> str:
        """The pool's name."""
        return f"pool {self.name}"

    @property
    def pools(self) -> tuple[str, ...]:
        """The pool."""
        return (self.name,)


def pool_of(layer: str, step: StepSpec, context: LayerContext) -> Need:
    """Return the pool that a step of a layer works in."""
    name = common.pool_name(layer, step, context)
    if context.target.pool is not None:
        return GivenPoolNeed(name)
    return PoolNeed(name=name, device_class=step.device_class, replicas=context.replicas)


def _root(members: Sequence[ScopeOsd], roots: Mapping[str, frozenset[int]]) -> str:
    """Return the CRUSH root that holds the most of `members`; usually there is only `default`."""
    wanted = {osd.osd for osd in members}
    held = {name: len(wanted & osds) for name, osds in roots.items()}
    if not any(held.values()):
        raise ClusterError("the CRUSH map has no root with these OSDs", hint="look at: ceph osd tree")
    return max(held, key=held.__getitem__)


def _placement_groups(osds: int, size: int) -> int:
    """Return a power of two near 32 placement group copies for each OSD."""
    wanted = osds * _PGS_PER_OSD / size
    power = 1 << max(0, round(wanted).bit_length() - 1)
    return max(_PGS_MIN, min(_PGS_MAX, power))


@dataclasses.dataclass(frozen=True, slots=True)
class ImageNeed(Need):
    """An RBD image of our own that must be fully written before it is read. It goes with its pool, if that is ours.

    Without `client_cache` librbd's cache is off for this image (a setting in its own metadata): with it a write counts
    as done before any OSD has it, and a queue depth of 16 puts up to 1,024 writes in flight.
    """

    pool: str
    name: str
    size_bytes: int
    object_size_bytes: int
    client_cache: bool = False

    removals = (
        Removal(
            kind="image",
            words="the image",
            order=0,
            listing=lambda given: in_pool(given["pool"], "image ls"),
            names=lambda answer: {str(name) for name in answer},
            request=lambda given: in_pool(given["pool"], "image rm", name=given["name"]),
        ),
    )
    # librbd checks with it that a new pool can hold images.
    permissions = (Permission("osd pool op unmanaged-snap", ours=("poolname",)),)

    @property
    def key(self) -> str:
        """Pool and name; the layer's names hold the sizes."""
        return f"image {self.pool}/{self.name}"

    @property
    def images(self) -> tuple[tuple[str, str], ...]:
        """The image."""
        return ((self.pool, self.name),)

    @property
    def cluster_bytes(self) -> int:
        """All of it."""
        return self.size_bytes

    def options(self, context: LayerContext) -> Options:
        """Return fio's options that lead to the image."""
        return {"clientname": common.client_id(context), "pool": self.pool, "rbdname": self.name}

    def make(self, context: MakeContext) -> Sequence[Action]:
        """Return its creation, and the switch of librbd's cache."""
        target, image = context.scope.target, f"{self.pool}/{self.name}"

        def rbd(label: str, *words: str) -> ProcessRequest:
            argv = (*target.ceph_prefix, "rbd", *access(target), *words)
            return ProcessRequest(f"{label}-{self.name}", argv, timeout_s=_CHANGE_TIMEOUT_S, root=target.root)

        sizes = ("--size", f"{self.size_bytes}B", "--object-size", f"{self.object_size_bytes}B")
        # Exclusive lock and what builds on it would only add the lock's own cost to a single writer.
        given = _of_given_pool("image", self.pool, self.name, target)
        creation = Action(
            rbd("create", "create", image, *sizes, "--image-feature", "layering"), accept="exists", **given
        )
        if self.client_cache:
            return (creation,)
        return (creation, Action(rbd("cache", "config", "image", "set", image, "rbd_cache", "false")))

    def fill(self, context: LayerContext) -> Sequence[ProcessRequest]:
        """Return the process that writes it from its start to its end; it runs on this machine."""
        engine = {"ioengine": "rbd", **self.options(context)}
        return (common.fill(f"prefill-{self.name}", engine, self.size_bytes, place=common.cluster_place(context)),)


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectsNeed(Need):
    """RADOS objects of our own, fully written. They go with their pool, if that is ours.

    `bench_block_bytes`: written by rados bench in blocks of this size, because it reads nothing else; None: by fio.
    """

    pool: str
    prefix: str
    total_bytes: int
    object_size_bytes: int
    bench_block_bytes: int | None = None

    removals = (
        Removal(
            kind="objects",
            words="the objects",
            order=0,
            listing=lambda given: in_pool(given["pool"], "objects ls", name=given["name"], count=given["count"]),
            names=lambda answer: {str(name) for name in answer},
            request=lambda given: in_pool(given["pool"], "objects rm", name=given["name"], count=given["count"]),
        ),
    )

    @property
    def key(self) -> str:
        """Pool and prefix; the layer's prefixes hold the sizes."""
        return f"objects {self.pool}/{self.prefix}"

    @property
    def cluster_bytes(self) -> int:
        """All of them."""
        return self.total_bytes

    @property
    def object_count(self) -> int:
        """How many objects they are."""
        return self.total_bytes // self.object_size_bytes

    def make(self, context: MakeContext) -> Sequence[Action]:
        """Return what must be written down before they are filled."""
        given = _of_given_pool("objects", self.pool, self.prefix, context.scope.target, count=self.object_count)
        return (Action(None, **given),) if given else ()

    def options(self, context: LayerContext) -> Options:
        """Return fio's options that lead to the objects."""
        return {
            "conf": context.target.conf or DEFAULT_CONF,
            "clientname": common.client_id(context),
            "pool": self.pool,
            "filename_format": f"{self.prefix}.$filenum",
            "nrfiles": self.object_count,
            "size": self.total_bytes,
        }

    def bench(
        self, label: str, mode: str, context: LayerContext, *, block_bytes: int, seconds: int, queue_depth: int,
        run_name: str | None = None,
    ) -> ProcessRequest:  # fmt: skip
        """Return a rados bench on these objects, or on as many others of the name `run_name`."""
        return rados_bench.command(
            label,
            mode,
            access=access(context.target),
            pool=self.pool,
            seconds=seconds,
            queue_depth=queue_depth,
            block_size_bytes=block_bytes,
            object_size_bytes=self.object_size_bytes,
            run_name=run_name or self.prefix,
            output=f"{context.scratch}/{label}.json",
            place=common.cluster_place(context),
            objects_max=self.object_count,
        )

    def fill(self, context: LayerContext) -> Sequence[ProcessRequest]:
        """Return the process that writes all of them."""
        label = f"prefill-{self.prefix}"
        if self.bench_block_bytes is not None:
            bench = self.bench(
                label, "write", context,
                block_bytes=self.bench_block_bytes, seconds=_BENCH_FILL_S, queue_depth=common.FILL_QUEUE_DEPTH,
            )  # fmt: skip
            return (bench,)
        engine = {"ioengine": "rados", **self.options(context), "file_service_type": "sequential"}
        place = common.cluster_place(context)
        return (common.fill(label, engine, self.total_bytes, place=place, piece_bytes=self.object_size_bytes),)


def in_pool(pool: str, prefix: str, **words: Any) -> CephRequest:
    """Return a command for the objects of a pool."""
    return CephRequest(prefix, f"pool.{pool}", (("prefix", prefix), *words.items()), timeout_s=_REMOVE_TIMEOUT_S)


def _of_given_pool(kind: str, pool: str, name: str, target: Target, **details: Any) -> dict[str, Any]:
    """Return what an action says of a thing in the operator's pool; in a pool of ours it goes with the pool."""
    if target.pool is None:
        return {}
    return {"creates": (kind, name), "details": {"pool": pool, **details}}


@dataclasses.dataclass(frozen=True, slots=True)
class DiskNeed(Need):
    """The working set of a disk that may be overwritten: the first `size_bytes` of it, written once a run."""

    path: str
    size_bytes: int

    @property
    def key(self) -> str:
        """Path and size."""
        return f"disk {self.path} {self.size_bytes}"

    @property
    def fill_bytes(self) -> int:
        """All of it; none of it is on the cluster."""
        return self.size_bytes

    def fill(self, context: LayerContext) -> Sequence[ProcessRequest]:  # noqa: ARG002 - the disk is this machine's
        """Return the process that writes it once, outside of the disk's control group: filling is not measured."""
        engine = {"ioengine": "libaio", **disk_options(self.path), "size": self.size_bytes}
        request = common.fill("prefill-disk", engine, self.size_bytes, place=Place())
        return (dataclasses.replace(request, exclusive=(self.path,)),)


def disk_options(path: str) -> Options:
    """Return fio's options that lead to a disk. A path that vanished must not be made anew as a file of that name."""
    return {
        # fio separates several files by colons.
        "filename": path.replace("\\", "\\\\").replace(":", "\\:"),
        "direct": 1,
        "allow_file_create": 0,
        "fallocate": "none",
    }
