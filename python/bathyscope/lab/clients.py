"""Clients of a lab that do what virtual machines do: small reads and writes at a bounded rate, each on its own image.

Each is an fio process over librbd. Where the lab's nodes have networks of their own, the clients are dealt out over
them, so that the cluster sees several machines. They end with this program at the latest.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from bathyscope.errors import LabError
from bathyscope.fields import last_line
from bathyscope.host import Host, ProcessRequest, Running
from bathyscope.host.ceph import connect
from bathyscope.lab import nodes
from bathyscope.lab.bringup import command_all
from bathyscope.lab.state import LabState
from bathyscope.lab.unthrottle import unthrottled

POOL = "vms"
_IMAGE_BYTES = 10 << 30
# What is written before and used then: all of an image would take minutes.
_USED_BYTES = 24 << 20
_OBJECT_BYTES = 1 << 20
_BLOCK_BYTES = 4096
_TIMEOUT_S = 300.0
# A rate is kept on average; this many requests may be under way at once.
_QUEUE_DEPTH = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Client:
    """One client: its image, what it does a second, and how long after the others it begins."""

    image: str
    reads_per_s: int
    writes_per_s: int
    delay_s: float = 0.0


@contextlib.contextmanager
def filling(state: LabState, host: Host, clients: Sequence[Client], device_class: str) -> Iterator[None]:
    """Make the pool and the images of the clients on OSDs of a class, and write what is used while the context lasts.

    What was never written is answered by nobody: an OSD counts no read of it. Raises LabError, BusyError.
    """
    spec = state.record.spec
    rule = {"name": POOL, "root": "default", "type": spec.failure_domain, "class": device_class}
    with contextlib.closing(connect(host, state.target())) as session:
        command_all(session, [{"prefix": "osd crush rule create-replicated", **rule}])
        command_all(session, [{"prefix": "osd pool create", "pool": POOL, "pg_num": 32, "rule": POOL}])
        command_all(session, [{"prefix": "osd pool application enable", "pool": POOL, "app": "rbd"}])
    conf = str(state.layout.conf)
    # Small objects: few large ones would lie on the OSDs by chance.
    sizes = ("--size", f"{_IMAGE_BYTES}B", "--object-size", f"{_OBJECT_BYTES}B", "--image-feature", "layering")
    images = [f"{POOL}/{client.image}" for client in clients]
    for made in [host.start(_request(state, "rbd", "-c", conf, "create", *sizes, image)) for image in images]:
        _done(made)
    with unthrottled(state):
        fills = [host.start(_fio(state, client, "--rw=write", "--bs=4M", "--iodepth=4")) for client in clients]
        yield
        for fill in fills:
            _done(fill)


@contextlib.contextmanager
def running(state: LabState, host: Host, clients: Sequence[Client]) -> Iterator[None]:
    """Let the clients do I/O as long as the context lasts. Raises LabError when one has ended before."""
    started: list[Running] = []
    try:
        for index, client in enumerate(clients):
            started.append(host.start(_fio(state, client, *_load(client), inside=_inside(state, index))))
        yield
        for process in started:
            if process.wait(0) is not None:
                _done(process)
    finally:
        for process in started:
            process.stop()


def _load(client: Client) -> tuple[str, ...]:
    """Return fio's options for I/O at the client's rate, until it is ended."""
    return (
        *("--rw=randrw", f"--bs={_BLOCK_BYTES}", f"--iodepth={_QUEUE_DEPTH}", "--norandommap=1"),
        # Each direction has a rate of its own; without `poisson` all clients would ask at the same moments.
        *(f"--rate_iops={client.reads_per_s},{client.writes_per_s}", "--rate_process=poisson"),
        *("--time_based", "--runtime=1h", f"--startdelay={round(client.delay_s * 1000)}ms"),
    )


def _fio(state: LabState, client: Client, *words: str, inside: Sequence[str] = ()) -> ProcessRequest:
    image = (
        "--ioengine=rbd",
        "--clientname=admin",
        f"--pool={POOL}",
        f"--rbdname={client.image}",
        f"--size={_USED_BYTES}",
    )
    return _request(state, *inside, "fio", "--thread", f"--name={client.image}", *image, *words)


def _request(state: LabState, *argv: str) -> ProcessRequest:
    target = state.target()
    # Without librbd's cache: each request is one for the cluster.
    environment = (("CEPH_CONF", str(target.conf)), ("CEPH_ARGS", f"--keyring={target.keyring} --rbd_cache=false"))
    return ProcessRequest(argv[0], argv, environment=environment, timeout_s=_TIMEOUT_S, root=target.root)


def _inside(state: LabState, index: int) -> tuple[str, ...]:
    """Return the program that runs another one in the network of a node, dealt out in turn."""
    pids = [daemon.identity.pid for daemon in state.daemons() if daemon.kind == nodes.PROCESS]
    # Only the network: in the others it would be a child of its own, which does not end with this program.
    return ("nsenter", f"--net=/proc/{pids[index % len(pids)]}/ns/net", "--") if pids else ()


def _done(process: Running) -> None:
    """Wait for a process. Raises LabError unless it has succeeded."""
    completed = process.wait()
    if completed is None or completed.timed_out or completed.exit_code != 0:
        said = last_line(completed.stderr) if completed is not None else ""
        name = completed.request.label if completed is not None else "a client"
        raise LabError(f"{name} of a client of the lab has failed: {said or 'no word of why'}")
