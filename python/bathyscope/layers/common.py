"""What the layers share: names of what is ours, the way to the cluster, and rows from fio's answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bathyscope.errors import ToolError
from bathyscope.host import ProcessRequest
from bathyscope.layers.base import LayerContext, LayerRows
from bathyscope.records import Histogram, Interval, Result
from bathyscope.sources import fio, fio_command, rados_bench
from bathyscope.sources.base import RawAnswer
from bathyscope.sources.fio_command import Options, Place
from bathyscope.spec import FioClient, StepSpec
from bathyscope.units import format_bytes

DEFAULT_WORKING_SET_BYTES = 1 << 30
DEFAULT_OBJECT_BYTES = 4 << 20
PREFILL_BLOCK_BYTES = 4 << 20
PREFILL_QUEUE_DEPTH = 16

# The slowest disk that a prefill is meant for writes 5 MB/s after replication; slower counts as hung.
_PREFILL_BYTES_PER_S_MIN = 5e6


def pool_name(layer: str, step: StepSpec, context: LayerContext) -> str:
    """Return the name of our pool for a layer and device class."""
    return f"{context.prefix}-{layer}-{step.device_class or 'all'}"


def cluster_place(context: LayerContext) -> Place:
    """Return how a program reaches the cluster: librados reads CEPH_CONF and CEPH_KEYRING."""
    target = context.target
    environment = []
    if target.conf is not None:
        environment.append(("CEPH_CONF", target.conf))
    if target.keyring is not None:
        environment.append(("CEPH_KEYRING", target.keyring))
    return Place(environment=tuple(environment), root=target.root)


def client_id(context: LayerContext) -> str:
    """Return the cephx name as fio's engines take it: without "client."."""
    return context.target.client.removeprefix("client.")


def fio_client(job: int, context: LayerContext) -> FioClient | None:
    """Return the remote server of a job, dealt out in turn; None: this machine."""
    clients = context.target.clients
    return clients[job % len(clients)] if clients else None


def load(
    step: StepSpec,
    job: int,
    context: LayerContext,
    engine: Options,
    *,
    place: Place,
    client: FioClient | None = None,
    scratch: str | None = None,
) -> ProcessRequest:
    """Return the fio process of one job of a step: the engine's options, then the load's."""
    label = f"fio-{job}"
    options = {**engine, **fio_command.load_options(step, job, f"{scratch or context.scratch}/{label}")}
    return fio_command.command(
        label,
        options,
        place=place,
        client=client,
        # fio itself then refuses to write, whatever the options say.
        readonly=not step.pattern.writes and client is None,
        timeout_s=fio_command.timeout_of(step),
    )


def prefill(
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
        "bs": math.gcd(PREFILL_BLOCK_BYTES, piece_bytes or total_bytes),
        "iodepth": PREFILL_QUEUE_DEPTH,
        "randrepeat": 0,
    }
    timeout_s = 120 + total_bytes / _PREFILL_BYTES_PER_S_MIN
    return fio_command.command(label, options, place=place, timeout_s=timeout_s)


def check_prefill(answer: RawAnswer, total_bytes: int) -> None:
    """Raise ToolError unless the prefill wrote all of `total_bytes`; ParseError when that cannot be told."""
    # A command in another root is described as: chroot ROOT PROGRAM …
    program = answer.argv[2] if answer.argv[0] == "chroot" else answer.argv[0]
    if program == "rados":
        rados_bench.check(answer)
        result, _ = rados_bench.parse("", 0, answer, client="prefill")
        written = result.io_bytes
    else:
        fio.check(answer)
        rows = fio.parse("", 0, answer, client="prefill", expected=("write",))
        written = sum(row.io_bytes for row in rows.results if row.direction == "write")
    if answer.exit_code != 0 or written < total_bytes:
        raise ToolError(
            f"{answer.label} wrote {format_bytes(written)} of {format_bytes(total_bytes)}",
            hint="what is not written is read without any disk; look at the cluster's health and free space",
        )


def fio_rows(
    run_id: str, step_index: int, step: StepSpec, answers: Sequence[RawAnswer], *, own_cpu: bool = False
) -> LayerRows:
    """Return the rows of all fio answers of a step. Raises ParseError, ToolError."""
    expected = [name for name, used in (("read", step.pattern.reads), ("write", step.pattern.writes)) if used]
    results: list[Result] = []
    intervals: list[Interval] = []
    histograms: list[Histogram] = []
    starts_ns, ends_ns, names = [], [], set[str]()
    for answer in answers:
        fio.check(answer)
        name = client_name(answer)
        name = name if name not in names else f"{name}#{answer.label.rpartition('-')[2]}"
        names.add(name)
        rows = fio.parse(run_id, step_index, answer, client=name, expected=expected, own_cpu=own_cpu)
        results += rows.results
        intervals += rows.intervals
        histograms += rows.histograms
        starts_ns.append(rows.measured_start_ns)
        ends_ns.append(rows.measured_end_ns)
    return LayerRows(
        tuple(results),
        tuple(intervals),
        tuple(histograms),
        measured_start_ns=min(starts_ns, default=None),
        measured_end_ns=max(ends_ns, default=None),
    )


def client_name(answer: RawAnswer) -> str:
    """Return how a load process is called in the rows: fio#0, or host:port of its remote server."""
    for word in answer.argv:
        if word.startswith("--client="):
            return word.removeprefix("--client=").replace(",", ":")
    return answer.label.replace("-", "#")
