"""The account of a load: what one I/O asks of every resource, how fast each would let the load be, and where its
latency is spent.

The operational laws of Denning and Buzen ("The Operational Analysis of Queueing Network Models", Computing Surveys
10(3), 1978), as in Lazowska et al., "Quantitative System Performance" (1984): utilisation = rate × demand, so a
resource lets at most capacity / demand I/Os through a second; I/Os in flight = rate × latency (Little's law).
"""

from __future__ import annotations

import dataclasses

from bathyscope.records.figure import Figure


@dataclasses.dataclass(frozen=True, slots=True)
class Ceiling:
    """How fast the load can be before one resource has none left.

    `resource` is a stable name: device, bluefs_device, osd_cpu, host_cpu, client_cpu, client_thread, network,
    image_limit, kv_sync, op_workers. `subject` names the one of its kind: osd.0, node2, the load generator; `words` are
    its name in a sentence: "osd.0's SSD (node1)". `host` is its machine.

    `demand` is what one I/O of the load asks of it, `capacity` what it gives a second, in the same unit (seconds of
    processor or of busy time, device I/Os, bytes); `source` says where the capacity is from: the disk layer of the
    run, a control group, the link's speed, the processors, the time itself. `iops` is the ceiling, `reached` the
    measured rate over it (0 to 1). Where it is not `binding`, being at it does not hold the load back: the kv-sync
    thread commits all that waits at once, an OSD's workers wait for what is slow below them, and a disk is busy all
    the time with the one I/O that is in flight.
    """

    resource: str
    subject: str
    words: str
    host: str
    demand: Figure
    capacity: Figure
    source: str
    iops: Figure
    reached: Figure
    binding: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class LatencyPart:
    """A part of the client's mean latency. All parts of a load add up to it.

    `place` is a stable name: outside (client, librbd and network), queue, prepare, store, kv_sync (the commit's wait
    for the kv-sync thread), replica_wait, inside (in the OSDs, not known where). `share` is of the client's latency.
    """

    place: str
    share: Figure
    latency_ns: Figure


@dataclasses.dataclass(frozen=True, slots=True)
class OsdShare:
    """What one OSD did of the load.

    `op_share`: of the clients' operations (0 to 1); `in_flight_share`: of the time that they spent in OSDs; `own_ns`:
    how long its own part of an operation took; `expected_share`: what its CRUSH weight gives it of a load that is
    spread evenly over the data.
    """

    osd: int
    host: str
    op_share: Figure
    in_flight_share: Figure
    own_ns: Figure
    expected_share: float


@dataclasses.dataclass(frozen=True, slots=True)
class ForeignWork:
    """Work on the cluster that is not the load's.

    `kind` is a stable name: tenant, scrub, recovery, snap_trim, processes, steal (of processor time). `direction` is
    read, write or empty. `rate` is in its own unit (I/Os a second, placement groups, cores), `share` is of the load's
    own where that can be said; of processes and steal, of the machine's processors.
    """

    kind: str
    subject: str
    direction: str
    rate: Figure
    share: Figure
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class Throttle:
    """A limit on what is in flight, set by `option` of `subject`.

    `held_share`: of an OSD, of the tries that found it full; of the load generator, of its I/Os that wait to be sent
    (0 to 1). `limit` is its value where that is known.
    """

    subject: str
    option: str
    held_share: Figure
    limit: int | None = None


_NOT_KNOWN = Figure(None, "cores")


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """The account of one configuration: medians over its repeats.

    `concurrency` are the I/Os that the load keeps in flight; `in_flight` is rate × latency, which must agree with it.
    `ceilings` are in order of `reached`, the nearest first. `other_cores` are used on the machine of the load by what
    is neither the load nor an OSD under test.
    """

    concurrency: int
    iops: Figure
    latency_ns: Figure
    in_flight: Figure
    ceilings: tuple[Ceiling, ...] = ()
    parts: tuple[LatencyPart, ...] = ()
    osds: tuple[OsdShare, ...] = ()
    foreign: tuple[ForeignWork, ...] = ()
    throttles: tuple[Throttle, ...] = ()
    other_cores: Figure = _NOT_KNOWN

    @property
    def limits(self) -> tuple[Ceiling, ...]:
        """The ceilings that hold the load back when they are reached, the nearest first; unknown ones left out."""
        return tuple(ceiling for ceiling in self.ceilings if ceiling.binding and ceiling.reached.value is not None)


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """What a change would make of a load's rate, and on what that rests.

    `change` is as it was asked: "osd.cpu=2x". `ratio` is the new rate over the measured one. `limit` is the words of
    the resource that is nearest to its ceiling then.
    """

    change: str
    iops: Figure
    latency_ns: Figure
    ratio: Figure
    limit: str
    sentence: str
    assumptions: tuple[str, ...]
