"""The cases: what is injected, in which lab, under which loads, and what is then true.

What is true is known from what was injected, not from what `bathy` says. Where two sentences are both right, both are
listed, with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from injectors import (
    Injector,
    client_option,
    client_quota,
    cpu_quota,
    crush_weight,
    disk_fault,
    each,
    hog,
    nothing,
    option,
    pauses,
    primary_affinity,
    recovery,
    scrub,
    slow_device,
    slow_link,
    snap_trim,
    tenant,
)
from truth import Expect

R1, R4, R16, R64 = (f"randread-4K-qd{depth}" for depth in (1, 4, 16, 64))
W1, W4, W16, W64 = (f"randwrite-4K-qd{depth}" for depth in (1, 4, 16, 64))
R64K, W64K = "randread-64K-qd16", "randwrite-64K-qd16"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One injection.

    `inject` is in force during each load (`begins` load) or during the whole run, preparations included (run): devices
    and processors are not slowed down when images are filled. `plan` holds what differs from the common plan. A `clean`
    case is a lab as it is, near no limit but that of the processors.
    """

    name: str
    lab: str
    inject: Injector
    loads: Mapping[str, Expect]
    begins: Literal["load", "run"] = "load"
    plan: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    clean: bool = False


def expect(*limits: str, subject: str = "") -> Expect:
    return Expect(frozenset(limits), subject)


# --- what is true

ANY_OSD = r"osd\.\d+"

# Monitor, OSDs, load and bathy share a few processors. They are what an SSD lab comes near to without any injection,
# whether the machine's are named, or those of the part of it that uses them.
CPU = expect("nearest", "host_cpu", "client_cpu", "osd_cpu")
# One I/O in flight at a time cannot use any resource in full.
ONE_IN_FLIGHT = expect("latency_bound", "in_flight")
CLEAN = {R1: ONE_IN_FLIGHT, W1: ONE_IN_FLIGHT, R16: CPU, W16: CPU, R64: CPU}


def device_of(osd: str) -> Expect:
    return expect("device", subject=osd.replace(".", r"\."))


def cpu_of(osd: str) -> Expect:
    return expect("osd_cpu", subject=osd.replace(".", r"\."))


ANY_DEVICE = expect("device", subject=rf"(?:{ANY_OSD}|HDDs|SSDs)")
# Of the few placement groups of a bench's pool one disk is primary of more than the others, and is full before them.
READ_DEVICE = expect("device", "uneven", subject=rf"(?:{ANY_OSD}|HDDs)")
CLIENT = expect("client_cpu")
# A tenant, scrubs, recovery and other processes take what a few processors or disks give. That these are used up is
# right as well, if the sentence says by whom.
_FULL = ("host_cpu", "osd_cpu", "other_processes", "device")
TENANT = expect("tenant", *_FULL, subject="customer")
SCRUB = expect("scrub", *_FULL, subject="(?i:deep.)?(?i:scrub)(?:s|bing|bed)?")
# A load during recovery is refused: it is of a cluster that is at work for itself.
RECOVERY = expect("recovery", "refused", *_FULL, subject="(?i:recover|backfill)\\w*")
LINK = expect("network", "outside", "slow_osd", subject="network")
THIN = expect("thin", "refused", subject="(?:not written in full|thin)")
SNAP_TRIM = expect("snap_trim", *_FULL, subject="(?i:snap\\w*)")
OTHERS = expect("other_processes", "host_cpu", subject="(?:other )?process(?:es)?")
# One OSD at a time works for it; of a few processors it can use up what the others leave.
HOT = expect("hot_pg", "uneven", *_FULL, subject="(?:object|placement group|PG)")
# All reads are answered from the OSDs' caches. Nothing but processors is asked for then.
CACHE = expect("cache", "host_cpu", "client_cpu", "osd_cpu")


_DISTRIBUTED: tuple[Case, ...] = (
    Case(
        "clean-nodes", "nodes", nothing, {R1: ONE_IN_FLIGHT, R16: CPU, W16: CPU}, clean=True,
        plan={"device_classes": ["ssd"]},
    ),
    Case(
        "nodes-hdd", "nodes", nothing, {R16: READ_DEVICE, W16: ANY_DEVICE},
        plan={"device_classes": ["hdd"]},
    ),
    Case(
        "nodes-slow-device", "nodes", slow_device("osd.3", read_iops=50, write_iops=50),
        {R16: device_of("osd.3"), W16: device_of("osd.3")}, plan={"device_classes": ["ssd"]},
    ),
    Case(
        "nodes-osd-cpu", "nodes", cpu_quota(0.05, "osd.4"), {R16: cpu_of("osd.4"), W16: cpu_of("osd.4")},
        plan={"device_classes": ["ssd"]},
    ),
    Case(
        # All daemons of a node together: of the OSDs under test there it is one.
        "nodes-node-cpu", "nodes", cpu_quota(0.08, "osd.2", "osd.5"),
        {
            R16: expect("osd_cpu", "host_cpu", subject=r"(?:osd\.5|node3)"),
            W16: expect("osd_cpu", "host_cpu", subject=r"(?:osd\.5|node3)"),
        },
        plan={"device_classes": ["ssd"]},
    ),
    Case(
        "nodes-slow-link", "nodes", slow_link("node2", "20mbit"),
        # Nothing on a node knows of a limit on the way: that the time is lost in the network, or that the OSD behind it
        # is slow although its device is idle, is right as well where the network is named.
        {R64K: LINK, W64K: LINK},
        plan={"device_classes": ["ssd"]},
    ),
    Case(
        # Both OSDs of the node are behind the link.
        "pairs-slow-link", "pairs", slow_link("node2", "20mbit"),
        {load: expect("network", "outside", "slow_node", "slow_osd", subject="network") for load in (R64K, W64K)},
    ),
    Case(
        "nodes-slow-disk", "nodes", disk_fault("osd.1", "slow=10x"),
        # A disk that needs ten times as long for each request is a device at its limit, and an outlier among its kind.
        {R16: expect("device", "slow_osd", subject=r"osd\.1"), W16: expect("device", "slow_osd", subject=r"osd\.1")},
        plan={"device_classes": ["hdd"]},
    ),
    Case(
        "nodes-pauses", "nodes", pauses(("osd.4",), 0.45, 0.05),
        {R16: expect("slow_osd", subject=r"osd\.4"), W16: expect("slow_osd", subject=r"osd\.4")},
        plan={"device_classes": ["ssd"]},
    ),
    Case(
        "nodes-client-cpu", "nodes", client_quota(0.1), {R16: CLIENT, W16: CLIENT}, plan={"device_classes": ["ssd"]},
    ),
    Case(
        "nodes-affinity", "nodes", primary_affinity("osd.1", 0.0),
        # The other two disks are at their limit because the primaries are not spread over all three.
        {R16: expect("uneven", "device", subject=ANY_OSD)}, begins="run", plan={"device_classes": ["hdd"]},
    ),
)  # fmt: skip

_SSD: tuple[Case, ...] = (
    Case("clean-ssd", "ssd", nothing, CLEAN, clean=True),
    Case("clean-large", "ssd", nothing, {R64K: CPU, W64K: CPU}, clean=True),
    Case("clean-rados", "ssd", nothing, {R16: CPU, W16: CPU}, clean=True, plan={"layers": ["rados"]}),
    Case(
        "slow-device", "ssd", slow_device("osd.0", read_iops=50, write_iops=50),
        {load: device_of("osd.0") for load in (R4, R16, W4, W16)},
    ),
    Case("osd-cpu", "ssd", cpu_quota(0.05, "osd.0"), {load: cpu_of("osd.0") for load in (R4, R16, W4, W16)}),
    Case("client-cpu", "ssd", client_quota(0.1), {R4: CLIENT, R16: CLIENT, W16: CLIENT}),
    Case("tenant-writes", "ssd", tenant("randwrite", 200), {R16: TENANT, W16: TENANT}, begins="run"),
    Case("scrub", "ssd", scrub(), {R16: SCRUB, W16: SCRUB}),
    Case(
        "one-object", "ssd", nothing, {R16: HOT, W16: HOT}, plan={"axes": {"image_size": "4M", "object_size": "4M"}},
    ),
    Case(
        # On this lab processors are what is used up, and the other OSDs have them: nothing is lost by uneven primaries.
        "affinity", "ssd", primary_affinity("osd.1", 0.0),
        {R16: expect("uneven", *CPU.limits), W16: expect("uneven", *CPU.limits)}, begins="run",
    ),
    Case(
        # Writes are not touched by it.
        "slow-reads", "ssd", slow_device("osd.1", read_iops=80), {R16: device_of("osd.1"), W16: CPU},
    ),
    Case("slow-writes", "ssd", slow_device("osd.2", write_iops=80), {R16: CPU, W16: device_of("osd.2")}),
    Case(
        "slow-bandwidth", "ssd", slow_device("osd.1", read_bytes_per_s=6e6, write_bytes_per_s=6e6),
        {R64K: device_of("osd.1"), W64K: device_of("osd.1")},
    ),
    Case(
        "slow-devices", "ssd",
        each(lambda osd: slow_device(osd, read_iops=150, write_iops=150), "osd.0", "osd.1", "osd.2"),
        {R16: ANY_DEVICE, W16: ANY_DEVICE},
    ),
    Case(
        "osds-cpu", "ssd", each(lambda osd: cpu_quota(0.15, osd), "osd.0", "osd.1", "osd.2"),
        {R16: expect("osd_cpu", subject=ANY_OSD), W16: expect("osd_cpu", subject=ANY_OSD)},
    ),
    Case("tenant-reads", "ssd", tenant("randread", 400), {R16: TENANT, W16: TENANT}, begins="run"),
    Case("recovery", "ssd", recovery(), {R16: RECOVERY, W16: RECOVERY}),
    Case("snap-trim", "ssd", snap_trim(8000), {W16: SNAP_TRIM, R16: SNAP_TRIM}),
    Case("other-processes", "ssd", hog(6), {R16: OTHERS, W16: OTHERS}),
    Case(
        "pauses", "ssd", pauses(("osd.1",), 0.45, 0.05),
        {R16: expect("slow_osd", subject=r"osd\.1"), W16: expect("slow_osd", subject=r"osd\.1")},
    ),
    Case(
        "slow-dispatch", "ssd",
        option("osd.2", osd_debug_inject_dispatch_delay_probability=1, osd_debug_inject_dispatch_delay_duration=0.02),
        # What sleeps are the workers of the OSD's queue.
        {
            R16: expect("slow_osd", "op_workers", subject=r"osd\.2"),
            W16: expect("slow_osd", "op_workers", subject=r"osd\.2"),
        },
    ),
    Case(
        # One message of a client at a time: the OSD reads the next one from its socket when the last is answered.
        "message-cap", "ssd", option("osd.0", osd_client_message_cap=1),
        {
            R64: expect("in_flight", "slow_osd", subject=r"osd\.0"),
            W16: expect("in_flight", "slow_osd", subject=r"osd\.0"),
        },
    ),
    Case(
        "image-limit", "ssd", client_option(rbd_qos_iops_limit=300),
        {load: expect("image_limit", subject="rbd_qos_iops_limit") for load in (R16, W16)}, begins="run",
    ),
    Case(
        # Sixteen I/Os are wanted, four are sent.
        "in-flight-limit", "ssd", client_option(objecter_inflight_ops=4),
        {load: expect("in_flight", subject="objecter_inflight_ops") for load in (R16, W16)}, begins="run",
    ),
    Case("thin-image", "ssd", nothing, {R16: THIN}, plan={"prefill": False}),
    Case(
        "cached", "ssd", nothing, {R16: CACHE, R1: expect("latency_bound", "in_flight", "cache")},
        plan={"axes": {"image_size": "32M"}},
    ),
    # Which part of a write is the longest, the own commit or the wait for the other copies, depends on the machine.
    Case("three-copies", "ssd", nothing, {W1: ONE_IN_FLIGHT}),
    Case("one-copy", "ssd", nothing, {W1: ONE_IN_FLIGHT}, plan={"replicas": 1}),
    Case(
        # Not for so long that the others report it: the load of a cluster that loses an OSD is stopped.
        "stopped-osd", "ssd", pauses(("osd.2",), 2.0, 0.2),
        {R16: expect("slow_osd", subject=r"osd\.2"), W16: expect("slow_osd", subject=r"osd\.2")},
    ),
)  # fmt: skip

_HDD: tuple[Case, ...] = (
    Case(
        "hdd", "hdd", nothing, {R16: READ_DEVICE, W16: ANY_DEVICE, R64: READ_DEVICE, R1: ONE_IN_FLIGHT},
    ),
    Case(
        "slow-disk", "hdd", disk_fault("osd.0", "slow=10x"),
        # A disk that needs ten times as long for each request is a device at its limit, and an outlier among its kind.
        {load: expect("device", "slow_osd", subject=r"osd\.0") for load in (R4, R16, W16)},
    ),
    Case(
        "spikes", "hdd", disk_fault("osd.1", "spike=200ms,probability=0.2"),
        {load: expect("device", "slow_osd", subject=r"osd\.1") for load in (R16, W16)},
    ),
    Case(
        "slow-flush", "hdd",
        each(lambda osd: disk_fault(osd, "spike=60ms,op=flush"), "osd.0", "osd.1", "osd.2"),
        # The thread that commits waits for the device's flush; the disk does nothing else meanwhile.
        {
            W16: expect("kv_sync", "device", subject=rf"(?:{ANY_OSD}|HDDs)"),
            W1: expect("kv_sync", "device", "latency_bound", "in_flight"),
        },
    ),
    Case("hdd-tenant", "hdd", tenant("randwrite", 40), {R16: TENANT, W16: TENANT}, begins="run"),
    Case("hdd-tenant-reads", "hdd", tenant("randread", 100), {R16: TENANT, W16: TENANT}, begins="run"),
    Case("hdd-scrub", "hdd", scrub(), {R16: SCRUB, W16: SCRUB}),
    Case("hdd-recovery", "hdd", recovery(), {R16: RECOVERY, W16: RECOVERY}),
    Case(
        "hdd-affinity", "hdd", primary_affinity("osd.1", 0.0),
        # The other two disks are at their limit because the primaries are not spread over all three.
        {R16: expect("uneven", "device", subject=ANY_OSD), W16: ANY_DEVICE}, begins="run",
    ),
    Case(
        # With two copies on three OSDs, most of the data is on one of them.
        "hdd-weight", "hdd", crush_weight("osd.2", 4.0),
        {R16: expect("uneven", "device", subject=r"osd\.2"), W16: expect("uneven", "device", subject=r"osd\.2")},
        begins="run", plan={"replicas": 2},
    ),
    Case(
        "hdd-one-object", "hdd", nothing, {W16: HOT},
        plan={"axes": {"image_size": "4M", "object_size": "4M"}},
    ),
    Case("hdd-client-cpu", "hdd", client_quota(0.01), {R16: CLIENT}),
)  # fmt: skip


CASES: dict[str, Case] = {case.name: case for case in (*_SSD, *_HDD, *_DISTRIBUTED)}
