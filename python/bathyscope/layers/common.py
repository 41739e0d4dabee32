"""What the layers share: names of what is ours, the way to the cluster, fio's commands and its answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from bathyscope.host import Elsewhere, ProcessRequest
from bathyscope.host.ssh import login_argv
from bathyscope.load import LoadTables, Place, fio, fio_command
from bathyscope.load.base import joined
from bathyscope.load.fio_command import Options
from bathyscope.records import RawAnswer
from bathyscope.spec import StepSpec, Target

FILL_BLOCK_BYTES = 4 << 20
FILL_QUEUE_DEPTH = 16

# A cache keeps what comes in reads of this size; it may let longer ones pass.
_WARM_BLOCK_BYTES = 64 << 10

# How long beyond its asked runtime a load may take (connect, open, drain a slow disk) before it counts as hung.
_MARGIN_S = 120.0

# What is written or read in full comes to 5 MB/s even on the slowest disk, after replication; slower counts as hung.
_BYTES_PER_S_MIN = 5e6


@dataclasses.dataclass(frozen=True, slots=True)
class LayerContext:
    """What a layer may know: the target, the prefix of everything that is ours, a scratch directory, and the plan's
    choices for what is made.

    `scratch` is inside `target.root` when that is set, and is the path as the tools see it. `replicas` None: the
    cluster's default. `client_cache`: whether librbd's cache stays on.
    """

    target: Target
    prefix: str
    scratch: str
    replicas: int | None = None
    client_cache: bool = False


def pool_name(layer: str, step: StepSpec, context: LayerContext) -> str:
    """Return the name of our pool for a layer and device class, or of the operator's that is used instead."""
    return context.target.pool or f"{context.prefix}-{layer}-{step.device_class or 'all'}"


def own_name(name: str, context: LayerContext) -> str:
    """Return the name of a thing in the pool: in the operator's pool it says that it is ours, and which run's."""
    return name if context.target.pool is None else f"{context.prefix}-{name}"


def cluster_place(context: LayerContext) -> Place:
    """Return how a program reaches the cluster: librados reads CEPH_CONF and CEPH_KEYRING."""
    target = context.target
    pairs = (("CEPH_CONF", target.conf), ("CEPH_KEYRING", target.keyring))
    return Place(environment=tuple((name, value) for name, value in pairs if value is not None), root=target.root)


def load_place(context: LayerContext) -> Place:
    """Return where a step's load runs: on the target's client host, if it has one.

    What was named here (a lab's, --conf, --keyring) is sent there; what was not is the client host's own.
    """
    place, client = cluster_place(context), context.target.client_host
    if client is None:
        return place
    return Place(elsewhere=Elsewhere(login_argv(client.ssh, client.name), place.environment))


def client_id(context: LayerContext) -> str:
    """Return the cephx name as fio's engines take it: without "client."."""
    return context.target.client.removeprefix("client.")


def load(
    step: StepSpec, job: int, context: LayerContext, engine: Options, *, place: Place | None = None
) -> ProcessRequest:
    """Return the fio process of one job of a step: the engine's options, then the load's.

    `place` None: the client host or this machine, and with remote servers one of them, dealt out in turn.
    """
    label, clients = f"fio-{job}", context.target.clients if place is None else ()
    place = place or load_place(context)
    scratch = f"{context.scratch}/{label}"
    return fio_command.command(
        label,
        {**engine, **fio_command.load_options(step, job, label if clients or place.elsewhere else scratch)},
        place=place,
        client=clients[job % len(clients)] if clients else None,
        scratch=scratch,
        # fio itself then refuses to write, whatever the options say.
        readonly=not step.pattern.writes and not clients,
        timeout_s=step.ramp_s + step.runtime_s + _MARGIN_S,
    )


def fill(
    label: str, engine: Options, total_bytes: int, *, place: Place, piece_bytes: int | None = None
) -> ProcessRequest:
    """Return the fio process that writes all of something once, from its start to its end.

    `piece_bytes` is the size of the single files that the engine makes of it, when it is not one.
    """
    options: dict[str, str | int | float | None] = {
        **engine,
        "thread": None,
        "rw": "write",
        # A block that divides the size: fio silently leaves out a last, shorter one, and writes nothing at all,
        # without an error, where a file is smaller than the block.
        "bs": math.gcd(FILL_BLOCK_BYTES, piece_bytes or total_bytes),
        "iodepth": FILL_QUEUE_DEPTH,
        "randrepeat": 0,
    }
    return fio_command.command(label, options, place=place, timeout_s=_limit_s(total_bytes))


def read(label: str, engine: Options, total_bytes: int, context: LayerContext) -> ProcessRequest:
    """Return the fio process that reads all that the engine's options lead to once, from its start to its end."""
    options = {**engine, "thread": None, "rw": "read", "bs": _WARM_BLOCK_BYTES, "iodepth": FILL_QUEUE_DEPTH}
    return fio_command.command(
        label, options, place=cluster_place(context), readonly=True, timeout_s=_limit_s(total_bytes)
    )


def _limit_s(total_bytes: int) -> float:
    return 120 + total_bytes / _BYTES_PER_S_MIN


def fio_tables(step_index: int, step: StepSpec, answers: Sequence[RawAnswer], *, own_cpu: bool = False) -> LoadTables:
    """Return what all fio processes of a step reported. Raises ParseError, ToolError."""
    expected = [name for name, used in (("read", step.pattern.reads), ("write", step.pattern.writes)) if used]
    parts: dict[str, LoadTables] = {}
    for answer in answers:
        fio.check(answer)
        name = client_name(answer)
        name = name if name not in parts else f"{name}#{answer.label.rpartition('-')[2]}"
        parts[name] = fio.parse(answer, step_index=step_index, client=name, expected=expected, own_cpu=own_cpu)
    return joined(list(parts.values()))


def client_name(answer: RawAnswer) -> str:
    """Return how a load process is called in the rows: fio#0, or host:port of its remote server."""
    for word in answer.argv:
        if word.startswith("--client="):
            return word.removeprefix("--client=").replace(",", ":")
    return answer.label.replace("-", "#")
