"""Verdicts: each cause is found when it is the cause, named, and nothing is claimed when nothing qualifies."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bathyscope.analysis.account import ceilings as c
from bathyscope.analysis.account.hot_spot import HotSpot
from bathyscope.analysis.stages import PeerWait
from bathyscope.analysis.verdict import Case, Cluster, CpuUse, verdict
from bathyscope.records.account import Account, Ceiling, ForeignWork, LatencyPart, OsdShare
from bathyscope.records.figure import Figure

IOPS = 476.0


def at(reached: float, resource: str, subject: str = "", words: str = "", source: str = c.THROTTLE) -> Ceiling:
    return c.ceiling(
        *(resource, subject, words or c.device_words(subject, "localhost", "ssd"), "localhost"),
        used=reached,
        capacity=1.0,
        unit="s",
        source=source,
        iops=IOPS,
    )


def devices(*reached: float, source: str = c.THROTTLE) -> tuple[Ceiling, ...]:
    return tuple(at(use, "device", f"osd.{osd}", source=source) for osd, use in enumerate(reached))


def busy_with_one(*reached: float) -> tuple[Ceiling, ...]:
    return tuple(dataclasses.replace(one, binding=False) for one in devices(*reached, source=c.BUSY_TIME))


def of_capacity(reached: float, capacity: float, osd: int) -> Ceiling:
    one = at(reached, "device", f"osd.{osd}", source=c.BUSY_TIME)
    return dataclasses.replace(one, capacity=Figure(capacity, "I/Os"))


def cpu(reached: float, host: str = "localhost") -> Ceiling:
    return at(reached, "host_cpu", host, f"the CPU of {c.machine(host)}", c.PROCESSORS)


def thread(reached: float) -> Ceiling:
    return at(reached, "client_thread", "localhost", "the load generator's thread", c.THREAD)


def shares(*served: float, own_ms: tuple[float, ...] = ()) -> tuple[OsdShare, ...]:
    own = own_ms or (4.0,) * len(served)
    spent = sum(part * ms for part, ms in zip(served, own, strict=True))
    return tuple(
        OsdShare(
            osd,
            f"node{osd + 1}",
            Figure(part, "ratio"),
            Figure(part * ms / spent, "ratio"),
            Figure(ms * 1e6, "ns", samples=500),
            1 / len(served),
        )
        for osd, (part, ms) in enumerate(zip(served, own, strict=True))
    )


def parts(**of_latency: float) -> tuple[LatencyPart, ...]:
    return tuple(
        LatencyPart(place, Figure(share, "ratio"), Figure(share * 30e6, "ns")) for place, share in of_latency.items()
    )


def foreign(kind: str, share: float | None, sentence: str, subject: str = "", *, rate: float = 200.0) -> ForeignWork:
    return ForeignWork(kind, subject, "write", Figure(rate, "1/s"), Figure(share, "ratio"), sentence)


def case(concurrency: int = 16, ceilings: tuple[Ceiling, ...] = (), **changes: Any) -> Case:
    account = Account(concurrency, Figure(IOPS, "1/s"), Figure(33.6e6, "ns"), Figure(float(concurrency), "I/Os"))
    fields = {field.name for field in dataclasses.fields(Account)}
    of_account = {name: value for name, value in changes.items() if name in fields}
    ordered = tuple(sorted(ceilings, key=lambda one: -(one.reached.value or 0)))
    account = dataclasses.replace(account, ceilings=ordered, **of_account)
    return Case("4K random reads reach 476 IOPS", account, **{k: v for k, v in changes.items() if k not in fields})


KV_SYNC = dataclasses.replace(at(0.99, "kv_sync", "osd.0", "the kv-sync thread of osd.0", c.THREAD), binding=False)
ONE = (CpuUse("localhost", 2, 1.1, 0.2, 0.1),)
CASES = {
    "throttled device": (
        case(ceilings=(*devices(0.92, 0.1, 0.08), cpu(0.2))),
        "device",
        "osd.0",
        "osd.0's SSD is saturated (92 % of its throttle; the others at most 10 %)",
    ),
    "all devices": (
        case(ceilings=devices(0.97, 0.96, 0.95, source=c.BUSY_TIME), arm="; that time: 40 % seeking"),
        "device",
        "",
        "the SSDs are saturated (95 % to 97 % busy; that time: 40 % seeking)",
    ),
    "a device that does more than its part": (
        case(ceilings=devices(0.99, 0.5, 0.5, source=c.BUSY_TIME)),
        "device",
        "osd.0",
        "it does 50 % of the devices' I/Os, so the load can be 481 IOPS at most: evenly, 718",
    ),
    "a device that gives less than the others": (
        case(ceilings=(of_capacity(0.99, 20, 0), of_capacity(0.13, 230, 1), of_capacity(0.12, 210, 2))),
        "device",
        "osd.0",
        "; it gives 20 I/Os a second where the median of the others would give 220",
    ),
    "quota of the load generator": (
        case(ceilings=(at(0.93, "client_cpu", "localhost", "the CPU of the load generator", c.QUOTA), cpu(0.3))),
        "client_cpu",
        "localhost",
        "the CPU of the load generator is the limit (93 % of its quota, 1.00 cores)",
    ),
    "thread of the load generator": (
        case(ceilings=(thread(0.97), cpu(0.6))),
        "client_cpu",
        "localhost",
        "the load generator is the limit (its thread uses 97 % of one processor)",
    ),
    "OSD CPU": (
        case(ceilings=(cpu(0.97),), machines=ONE, osd_cpu_us_per_op=1890.0),
        "osd_cpu",
        "localhost",
        "OSD CPU is the limit (1.89 ms per I/O, 1.10 of 2 cores; the machine is 97 % busy)",
    ),
    "OSD CPU of a node": (
        case(
            ceilings=(cpu(0.97, "node2"), cpu(0.2)),
            machines=(CpuUse("localhost", 2, None, 0.3, 0.0), CpuUse("node2", 8, 7.0, None, None)),
        ),
        "osd_cpu",
        "node2",
        "OSD CPU is the limit of node2 (7.00 of 8 cores)",
    ),
    "other processes": (
        case(ceilings=(cpu(1.0),), machines=(CpuUse("localhost", 2, 0.3, 0.2, 1.5),)),
        "other_processes",
        "localhost",
        "other processes and the kernel use up the CPU of this machine",
    ),
    "processors of nobody in particular": (
        case(ceilings=(cpu(1.0),), machines=(CpuUse("localhost", 2, 0.7, 0.7, 0.6),)),
        "host_cpu",
        "localhost",
        "the CPU of this machine is saturated (100 % busy: OSDs 0.700, load generator 0.700, other processes 0.600",
    ),
    "OSDs beside other processes": (
        case(
            ceilings=(cpu(0.99),),
            machines=(CpuUse("localhost", 2, 0.95, 0.35, 0.68),),
            foreign=(foreign("processes", 0.34, "other processes used 0.680 processors", "localhost"),),
        ),
        "host_cpu",
        "localhost",
        "the CPU of this machine is saturated (99 % busy: OSDs 0.950, load generator 0.350, other processes 0.680",
    ),
    "time outside of the OSDs where the processors are nearly used up": (
        case(ceilings=(cpu(0.84),), parts=parts(outside=0.58, store=0.42)),
        "nearest",
        "localhost",
        "nearest limit: the CPU of this machine, 84 % reached; 58 % of the latency is outside of the OSDs",
    ),
    "network": (
        case(ceilings=(at(0.97, "network", "node2", "the network of node2", c.LINK),)),
        "network",
        "node2",
        "the network of node2 is the limit (97 % of its link's speed)",
    ),
    "a device is surer than processors": (
        case(ceilings=(cpu(0.99), *devices(0.9, 0.2)), machines=ONE),
        "device",
        "osd.0",
        "osd.0's SSD is saturated (90 % of its throttle; the others at most 20 %)",
    ),
    "slow OSD": (
        case(ceilings=(cpu(0.2),), osds=shares(0.34, 0.33, 0.33, own_ms=(283.0, 0.3, 0.31))),
        "slow_osd",
        "osd.0",
        "osd.0 (node1) is slow: its part of an operation takes 283 ms, 928 × as long as that of the others (305 µs)",
    ),
    "what all OSDs share does not slow one alone": (
        case(ceilings=(cpu(1.0),), machines=ONE, osds=shares(0.34, 0.33, 0.33, own_ms=(77.0, 2.0, 2.1))),
        "slow_osd",
        "osd.0",
        "osd.0 (node1) is slow",
    ),
    "the quota of the one OSD that is slow": (
        case(
            ceilings=(cpu(1.0), at(0.95, "osd_cpu", "osd.0", "the CPU of osd.0 (node1)", c.QUOTA)),
            machines=ONE,
            osds=shares(0.34, 0.33, 0.33, own_ms=(77.0, 2.0, 2.1)),
        ),
        "osd_cpu",
        "osd.0",
        "the CPU of osd.0 (node1) is the limit (95 % of its quota, 1.00 cores)",
    ),
    "one that is a little slower explains no full processors": (
        case(ceilings=(cpu(1.0),), machines=ONE, osds=shares(0.34, 0.33, 0.33, own_ms=(7.0, 2.0, 2.1))),
        "osd_cpu",
        "localhost",
        "besides, osd.0 (node1) is 3.41 × slower than the others",
    ),
    "a slow OSD with an idle device": (
        case(
            ceilings=(cpu(0.2), *devices(0.005, 0.01, 0.01)), osds=shares(0.34, 0.33, 0.33, own_ms=(56.0, 13.0, 13.4)),
        ),
        "slow_osd",
        "osd.0",
        "osd.0's SSD is hardly used (0.5 % of its throttle), so look at its processes and its network",
    ),
    "a slow machine": (
        case(
            ceilings=(cpu(0.2),),
            osds=tuple(
                dataclasses.replace(one, host=f"node{one.osd // 2 + 1}")
                for one in shares(0.25, 0.25, 0.25, 0.25, own_ms=(4.0, 4.0, 60.0, 50.0))
            ),
        ),
        "slow_node",
        "node2",
        "node2 is slow: in its 2 OSDs the own part of an operation takes 55.0 ms, 13.8 × as long",
    ),
    "a replica that ends most waits and takes longer": (
        case(
            ceilings=devices(0.5), osds=shares(0.34, 0.33, 0.33, own_ms=(20.0, 12.0, 12.1)),
            parts=parts(replica_wait=0.6, store=0.4), peer_waits=(PeerWait(0, 0.8, 80), PeerWait(1, 0.2, 20)),
        ),
        "slow_osd",
        "osd.0",
        "60 % of the latency is waiting for replicas, and osd.0 ends 80 % of these waits",
    ),
    "a replica that ends most waits and takes as long as the others": (
        case(
            ceilings=devices(0.5), osds=shares(0.34, 0.33, 0.33, own_ms=(14.0, 12.0, 12.1)),
            parts=parts(replica_wait=0.6, store=0.4), peer_waits=(PeerWait(0, 0.8, 80), PeerWait(1, 0.2, 20)),
        ),
        "nearest",
        "osd.0",
        "nearest limit",
    ),
    "one object": (
        case(ceilings=(cpu(0.3),), osds=shares(1.0, 0.0), hot_spot=HotSpot("2.1f", 0, "rbd_data.1", 1.0, 300)),
        "hot_pg",
        "rbd_data.1",
        "the object rbd_data.1 takes 100 % of the operations, and osd.0 serves them all",
    ),
    "primary affinity": (
        case(ceilings=(cpu(0.3),), osds=shares(0.0, 0.45, 0.55), cluster=Cluster(3, {0: 0.0})),
        "uneven",
        "osd.0",
        "osd.0 serves 0.0 % of the operations (its primary affinity is 0), osd.2 55 % of the operations",
    ),
    "CRUSH weights": (
        case(ceilings=(cpu(0.3),), osds=shares(0.1, 0.2, 0.7, own_ms=(4.0, 4.4, 9.0))),
        "uneven",
        "osd.2",
        "osd.2 serves 70 % of the operations, 33 % if it were even",
    ),
    "unlike shares of which none is waited for": (
        case(ceilings=devices(0.5), osds=shares(0.1, 0.2, 0.7)),
        "nearest",
        "osd.0",
        "nearest limit",
    ),
    "unlike shares with one I/O in flight": (
        case(1, busy_with_one(0.5), osds=shares(0.1, 0.2, 0.7, own_ms=(4.0, 4.4, 9.0)), parts=parts(store=1.0)),
        "latency_bound",
        "",
        "latency sets the rate",
    ),
    "a little of a tenant beside a limit": (
        case(ceilings=devices(0.95), foreign=(foreign("tenant", 0.04, "the pool other did 40 writes/s", "other"),)),
        "device",
        "osd.0",
        "besides, the pool other did 40 writes/s",
    ),
    "a tenant": (
        case(ceilings=(cpu(0.3),), foreign=(foreign("tenant", 0.4, "the pool other did 200 writes/s", "other"),)),
        "tenant",
        "other",
        "the pool other did 200 writes/s",
    ),
    "a tenant beside a limit": (
        case(ceilings=devices(0.95), foreign=(foreign("tenant", 0.4, "the pool other did 200 writes/s", "other"),)),
        "device",
        "osd.0",
        "besides, the pool other did 200 writes/s",
    ),
    "a little of a tenant": (
        case(ceilings=devices(0.5), foreign=(foreign("tenant", 0.01, "the pool other did 2 writes/s"),)),
        "nearest",
        "osd.0",
        "nearest limit: osd.0's SSD, 50 % reached",
    ),
    "scrub": (
        case(
            cluster=Cluster(60), foreign=(foreign("scrub", None, "30 placement groups were being scrubbed", rate=30),)
        ),
        "scrub",
        "",
        "30 placement groups were being scrubbed",
    ),
    "a scrub somewhere in a large cluster": (
        case(ceilings=devices(0.5), cluster=Cluster(1000), foreign=(foreign("scrub", None, "5 were", rate=5),)),
        "nearest",
        "osd.0",
        "nearest limit",
    ),
    "chance spreads primaries unevenly": (
        case(ceilings=devices(0.5), osds=shares(0.3, 0.14, 0.14, 0.14, 0.14, 0.14)),
        "nearest",
        "osd.0",
        "nearest limit",
    ),
    "a tenant's operations are none of the load's": (
        case(
            ceilings=devices(0.5),
            osds=shares(0.1, 0.2, 0.7),
            foreign=(foreign("tenant", 2.0, "the pool other did 1.00k reads a second", "other"),),
        ),
        "tenant",
        "other",
        "the pool other did",
    ),
    "sequential I/O is at one object for seconds": (
        case(ceilings=devices(0.5), osds=shares(0.3, 0.3, 0.4), hot_spot=HotSpot("2.1f", 0, "rbd_data.1", 1.0, 300)),
        "nearest",
        "osd.0",
        "nearest limit",
    ),
    "one of a thousand OSDs is always the slowest": (
        case(ceilings=devices(0.5), osds=shares(*[0.05] * 20, own_ms=(7.0, *[2.0] * 19))),
        "slow_osd",
        "osd.0",
        "osd.0 (node1) is slow",
    ),
    "not all was measured": (
        case(ceilings=(cpu(0.12),), unseen=("how near the OSDs' devices are to theirs",)),
        "unknown",
        "localhost",
        "of what was measured, nothing is at its ceiling; nearest limit: the CPU of this machine, 12 % reached",
    ),
    "a scrub in one of many looks": (
        case(ceilings=devices(0.5), foreign=(foreign("scrub", None, "a group was being scrubbed", rate=0.17),)),
        "nearest",
        "osd.0",
        "nearest limit",
    ),
    "cache": (
        case(ceilings=devices(0.1), read_from_cache_ratio=0.9),
        "cache",
        "",
        "90 % of the reads came from a cache",
    ),
    "outside": (
        case(ceilings=devices(0.1), parts=parts(outside=0.93, store=0.07)),
        "outside",
        "",
        "93 % of the latency (31.2 ms) is outside of the OSDs",
    ),
    "on the way between OSDs": (
        case(
            ceilings=devices(0.1),
            parts=parts(outside=0.41, queue=0.06, store=0.001, kv_sync=0.004, replica_wait=0.525),
        ),
        "outside",
        "",
        "network): 41 % between client and OSDs, 52 % between OSDs, whose own commits take 0.5 %",
    ),
    "replicas that commit as slowly as they are waited for": (
        case(ceilings=devices(0.5), parts=parts(outside=0.1, store=0.3, replica_wait=0.6)),
        "nearest",
        "osd.0",
        "60 % of the latency is waiting for replicas",
    ),
    "one I/O in flight": (
        case(1, busy_with_one(0.97, 0.4), parts=parts(store=0.8, outside=0.2)),
        "latency_bound",
        "",
        "latency sets the rate (one I/O in flight, 33.6 ms each); 80 % of the latency is in the OSDs' object store",
    ),
    "one I/O in flight at a throttle": (case(1, devices(0.97, 0.4)), "device", "osd.0", "97 % of its throttle"),
    "the load's own rate": (case(ceilings=devices(0.5), rate_reached=True), "load_rate", "", "its own rate"),
    "commits": (
        case(ceilings=(KV_SYNC, cpu(0.4)), parts=parts(kv_sync=0.4, replica_wait=0.4, outside=0.2)),
        "kv_sync",
        "osd.0",
        "80 % of the latency is waiting for commits, and the kv-sync thread of osd.0 commits 99 % of the time",
    ),
    "nothing": (
        case(ceilings=(*devices(0.4, 0.39), cpu(0.61)), parts=parts(kv_sync=0.6, outside=0.4)),
        "nearest",
        "localhost",
        "nearest limit: the CPU of this machine, 61 % reached, then osd.0's SSD, 40 % reached",
    ),
    "nothing known": (case(), "unknown", "", "the nearest limit is not known"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cause(name: str) -> None:
    judged, limit, subject, words = CASES[name]
    found = verdict(judged)
    assert (found.limit, found.subject) == (limit, subject)
    assert words in found.sentence
    assert found.sentence.startswith("4K random reads reach 476 IOPS: ")
    assert found.next_step


def test_a_queue_is_never_the_cause_and_commits_only_where_they_are_waited_for() -> None:
    found = verdict(case(ceilings=(KV_SYNC, cpu(0.4)), parts=parts(queue=0.9, outside=0.1)))
    assert found.limit == "nearest"
    assert "nearest limit: the CPU of this machine, 40 % reached" in found.sentence
    assert "90 % of the latency is in the OSDs' queues" in found.sentence


def test_evidence_holds_what_was_measured_and_alternatives_their_figures() -> None:
    judged = case(ceilings=(*devices(0.95), cpu(0.99)), machines=ONE, osd_cpu_us_per_op=180.0)
    found = verdict(judged)
    assert {e.name: (e.figure.value, e.figure.unit) for e in found.evidence}["OSD CPU per I/O"] == (180.0, "µs")
    assert "reads from cache" not in {e.name for e in found.evidence}
    assert [(e.name.split(" is the limit")[0], e.figure.value) for e in found.alternatives] == [("OSD CPU", 0.99)]
