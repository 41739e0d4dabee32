"""What limits a load: one sentence with its cause and evidence, or how far the nearest limit is away.

The questions are asked in the order of certainty:

1. a resource at its ceiling (`AT_CEILING`), named with its machine and figure; where the OSDs serve unlike shares, what
   even spreading would give;
2. an OSD's own limit on what is in flight, an OSD that stands out, or a load that is spread unevenly;
3. work on the cluster that is not the load's;
4. reads that a cache answered;
5. commits that are waited for, and time outside of the OSDs: the client and the network;
6. with one I/O in flight there is no limit, only latency, and its largest part is named;
7. else the nearest limit, and how much of it is reached. Of a recording it follows that the clients ask for no more.

A queue is a symptom and never the cause: what is waited for has a name above, or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bathyscope.analysis.account.ceilings import AT_CEILING, BUSY_TIME, THROTTLE
from bathyscope.analysis.account.hot_spot import HOT_SHARE, HotSpot
from bathyscope.analysis.account.osd_shares import Outlier, slow_part
from bathyscope.analysis.interference import OF_MACHINES
from bathyscope.analysis.stages import PeerWait
from bathyscope.analysis.step_figures import machine
from bathyscope.records.account import Account, Ceiling, ForeignWork, OsdShare
from bathyscope.records.figure import Figure
from bathyscope.records.finding import Evidence, Verdict
from bathyscope.units import format_bandwidth, format_duration_ns, format_percent, format_rate, three_digits

CACHE_LIMIT = 0.5
OUTSIDE_LIMIT = 0.5
PART_LIMIT = 0.5
_NEAR = 0.7
_ON_THE_WAY_RATIO = 3.0
_MUCH = 0.15
FOREIGN_LIMIT = 0.05
# Of a recording: fewer I/Os say nothing of what limits clients.
IOS_MIN = 100
# Less than the limit is told beside a cause, and is none.
_FOREIGN_MIN = 0.02
# Placement groups at work for themselves at once, over the time of a step.
_GROUPS_MIN, _GROUPS_PER_OSD = 0.5, 0.1
# Of the processors of a machine, so that they are called the ones that use it up.
_MOST_OF_MACHINE, _ALMOST_ALL = 0.4, 0.8
# Primaries are spread by a hash, so of many OSDs some serve far more than the mean by chance alone: only one that
# serves most of the load is named.
_UNEVEN_RATIO, _UNEVEN_SHARE = 1.6, 0.5
_STARVED_RATIO = 0.4
_WAITS_RATIO = 1.3
_OTHERS_MAX = 0.2

_PLACE_WORDS = {
    "outside": "outside of the OSDs (load generator, librbd, network)",
    "queue": "in the OSDs' queues",
    "prepare": "in the OSDs before the object store",
    "store": "in the OSDs' object store",
    "kv_sync": "waiting for the commit of the kv-sync thread",
    "replica_wait": "waiting for replicas",
    "inside": "inside the OSDs",
}
# In this order where several are at their ceilings: the narrower a resource is, the surer it is the cause.
_HARD = ("image_limit", "device", "osd_cpu", "client_cpu", "bluefs_device", "network", "client_thread", "host_cpu")
# Of the latency, and of the time of the waits for replicas.
_REPLICA_LIMIT, _MOST_WAITS = 0.3, 0.6
_SLOWER_RATIO = 1.5
# A device of which less is used is not what makes its OSD slow.
_IDLE_MAX = 0.3
_REMARKS_MAX, _NAMED_MAX, _EVIDENCE_MAX = 2, 3, 4
# Resources that OSDs share. One that stands out by so much, and holds most of the time, has a reason of its own.
_SHARED = ("host_cpu", "network", "client_thread", "client_cpu")
_ALONE_RATIO, _ALONE_SHARE = 5.0, 0.5
_HELD_ALONE = 0.3
# A device that gives so many times less than others is slow; what others would give is seen where they do something.
_LESS_RATIO, _SEEN_MIN = 2.0, 0.02
_MORE_RATIO = 1.15
_NEXT = {
    "image_limit": "Raise this option of librbd (`ceph config set client OPTION VALUE`), if it was not set on purpose.",
    "device": "Measure this device alone (`bathy bench run --layer disk`), or spread its data over more devices.",
    "osd_cpu": "Give the OSDs more processors, or raise their quota.",
    "client_cpu": "Make the load with more jobs (`--set jobs=4`) or on other machines (`--client-host`).",
    "network": "Look at the link's speed and its errors, or add a link.",
    "host_cpu": "Run the load on another machine than the OSDs, or add processors.",
    "kv_sync": "Put block.db and block.wal on a device with quick flushes.",
    "slow_osd": "Look at this OSD's disk (SMART, kernel log), its process and its machine's network first.",
    "slow_node": "Look at this machine's network (speed, errors, drops), its processors and its disk controller first.",
    "uneven": "Look at primary affinity, CRUSH weights and the balancer (`ceph osd df`, `ceph balancer status`).",
    "hot_pg": "Spread the load over more objects: a larger working set, or striping.",
    "tenant": "Repeat the run when the others are quiet, or compare with one that ran with them.",
    "scrub": "Repeat the run without scrubbing (`ceph osd set noscrub nodeep-scrub`), or in another hour.",
    "recovery": "Repeat the run when all placement groups are active and clean.",
    "snap_trim": "Repeat the run when no snapshot is being trimmed.",
    "other_processes": "Stop the other processes on the machine, or run the load on another one.",
    "in_flight": "Raise this option, if it was not set on purpose, and measure again.",
    "cache": "Use a working set larger than the caches, or state that the caches are meant (`temperature: warm`).",
    "outside": "Measure a layer below (`--layer rados`) and the machine of the load: threads, network round trip.",
    "latency_bound": "Measure with more I/Os in flight (`--set queue_depth=16`) to see the cluster's rate.",
    "load_rate": "Take the rate off the plan to see how fast the load can be.",
    "nearest": "Raise the queue depth until a resource is at its ceiling.",
    "unknown": "Let bathy see the OSDs' machines (`--ssh` or `--prometheus`), and measure a disk (`--disk`).",
}

# What differs where the load is that of a cluster's own clients.
_NEXT_RECORDED = {
    "device": "Spread this device's data over more devices, or give it a cache (`bathy size` says how much).",
    "host_cpu": "Give this machine more processors, or move OSDs to another one.",
    "tenant": "Look at who it is (`bathy analyze RUN --view clients`).",
    "scrub": "Let scrubs run in quieter hours (`osd_scrub_begin_hour`), or fewer at once.",
    "recovery": "Wait until all placement groups are active and clean, or let recovery take less.",
    "snap_trim": "Let fewer snapshots be trimmed at once, or in quieter hours.",
    "other_processes": "Stop the other processes on the machine, or move them to another one.",
    "hot_pg": "Spread what is in this object over more of them: a smaller object size, or striping.",
    "cache": "The devices are not what is measured here: what is read fits into the OSDs' caches.",
    "outside": "Look at the network between the OSDs: link speeds, errors, round trips.",
    "clients": "Look at the clients: limits of images and machines (QoS), and how many I/Os each has in flight.",
    "idle": "Ask about a time in which clients do more (`--since`, `--until`), or record longer.",
    "unknown": "Let bathy see the OSDs' machines (`bathy collect --ssh` or `--prometheus`).",
}


@dataclasses.dataclass(frozen=True, slots=True)
class CpuUse:
    """What the processors of a machine were used for, in cores; None is not known."""

    host: str
    processors: int
    osds: float | None
    load_generator: float | None
    others: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster of a load: how many OSDs it has (0: not known), and primary affinities where they are not 1."""

    osd_count: int = 0
    primary_affinity: Mapping[int, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """What a verdict is judged from: medians over the repeats. None is unknown.

    `subject` says what was measured, as the beginning of a sentence: "4K random writes on RBD at QD16 reach 65 IOPS".
    `peer_waits`: the replicas that writes waited for, the slowest first; none of a history that kept only slow ones.
    `arm` says what the busiest simulated disk's busy time was spent on.
    `rate_reached`: the load keeps to a rate and reached it. `unseen`: what may be at its ceiling and was not measured.
    `is_recorded`: nobody made the load for a measurement; it is `ios` I/Os that clients did.
    """

    subject: str
    account: Account
    machines: tuple[CpuUse, ...] = ()
    osd_cpu_us_per_op: float | None = None
    read_from_cache_ratio: float | None = None
    arm: str = ""
    hot_spot: HotSpot | None = None
    pgs_seen: Figure = Figure(None, "placement groups")  # noqa: RUF009 - a constant
    peer_waits: tuple[PeerWait, ...] = ()
    cluster: Cluster = Cluster()
    rate_reached: bool = False
    unseen: tuple[str, ...] = ()
    ios: int = 0
    is_recorded: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """An answer to one question. `figure` is what makes it one; `remark` is how it is told beside another cause.

    `alone`: it slows one OSD and no other, which what several of them share (`shared`) cannot do. `minor`: it is told
    beside a cause and is none by itself.
    """

    limit: str
    subject: str
    text: str
    figure: Figure
    remark: str = ""
    alone: bool = False
    shared: bool = False
    minor: bool = False


def verdict(case: Case) -> Verdict:
    """Return what limits the point: one sentence that can be forwarded as it is, with its evidence."""
    causes = [cause for question in _QUESTIONS for cause in question(case)]
    first = next((cause for cause in causes if not cause.minor), None) or _nearest(case)
    if case.is_recorded and case.ios < IOS_MIN and (case.account.in_flight.value or 0.0) < 1:
        # Nobody waits, and too little was done for any of these to be what holds clients back.
        few = "1 I/O is" if case.ios == 1 else f"{case.ios} I/Os are"
        text = f"cannot tell what limits them: {few} too few to say (at least {IOS_MIN})"
        causes, first = [], Cause("idle", "", text, case.account.iops)
    alone = next((cause for cause in causes if cause.alone), None)
    if alone is not None and first.shared:
        first = alone
    others = [cause for cause in causes if cause is not first]
    sentence = f"{case.subject}: {first.text}"
    remarks = [cause.remark for cause in others if cause.remark and not _is_same(cause, first)][:_REMARKS_MAX]
    if remarks:
        sentence += "; besides, " + ", and ".join(remarks)
    return Verdict(
        first.limit,
        sentence,
        tuple(_evidence(case)),
        first.subject,
        tuple(Evidence(cause.text, cause.figure) for cause in others),
        (_NEXT_RECORDED if case.is_recorded else {}).get(first.limit, _NEXT.get(first.limit, "")),
    )


def _is_same(cause: Cause, first: Cause) -> bool:
    """Return whether a cause says of the same thing what has been said: an OSD is slow because its device is full."""
    return cause.limit == first.limit or (bool(cause.subject) and cause.subject == first.subject)


# --- 1. ceilings


def _ceilings(case: Case) -> Iterator[Cause]:
    if case.rate_reached:
        yield Cause(
            "load_rate", "", "the load does what it was asked for: its own rate is the limit", case.account.iops
        )
    at = [ceiling for ceiling in case.account.limits if (ceiling.reached.value or 0.0) >= AT_CEILING]
    for resource in _HARD:
        same = [ceiling for ceiling in at if ceiling.resource == resource]
        if same and (case.is_recorded or resource != "host_cpu" or case.account.concurrency > 1):
            cause = _cause_of(case, same)
            yield dataclasses.replace(cause, shared=resource in _SHARED)


def _cause_of(case: Case, same: list[Ceiling]) -> Cause:
    """Return the cause that ceilings of one resource, the nearest first, are."""
    first = same[0]
    reached = format_percent(min(first.reached.value or 0.0, 1.0))
    if first.resource in ("device", "bluefs_device"):
        return _device(case, same, reached)
    if first.resource == "image_limit":
        value = first.capacity.value or 0.0
        allowed = format_bandwidth(value) if first.capacity.unit == "bytes" else f"{format_rate(value)} I/Os a second"
        text = f"{first.words} is the limit ({reached} of {allowed})"
        return Cause("image_limit", first.subject, text, first.reached)
    if first.resource == "host_cpu":
        return _processors(case, first, reached)
    if first.resource == "network":
        moved = f"{reached} of its link's speed"
        return Cause("network", first.subject, f"{first.words} is the limit ({moved})", first.reached)
    if first.resource == "client_thread":
        text = f"the load generator is the limit (its thread uses {reached} of one processor)"
        return Cause("client_cpu", first.subject, text, first.reached)
    cores = three_digits(first.capacity.value or 0.0)
    if len(same) > 1:
        least = format_percent(min(same[-1].reached.value or 0.0, 1.0))
        text = f"{_names(same)} are the limit ({least} to {reached} of their quotas, {cores} cores each or less)"
    else:
        text = f"{first.words} is the limit ({reached} of {first.source}, {cores} cores)"
    return Cause(first.resource, first.subject, text, first.reached)


def _names(same: list[Ceiling]) -> str:
    """Return what several ceilings of one resource are of: three of them, and how many more."""
    more = f" and {len(same) - _NAMED_MAX} others" if len(same) > _NAMED_MAX else ""
    return " and ".join(ceiling.words for ceiling in same[:_NAMED_MAX]) + more


def _device(case: Case, same: list[Ceiling], reached: str) -> Cause:
    first = same[0]
    least = format_percent(min(same[-1].reached.value or 0.0, 1.0))
    reached = reached if least == reached else f"{least} to {reached}"
    arm = case.arm if first.resource == "device" else ""
    its = (
        "their" + first.source.removeprefix("its") if len(same) > 1 and first.source.startswith("its") else first.source
    )
    of = f"{reached} busy{arm}" if first.source == BUSY_TIME else f"{reached} of {its}"
    devices = [ceiling for ceiling in case.account.ceilings if ceiling.resource == first.resource]
    alone = len(same) == 1 or 2 * len(same) <= len(devices)
    if len(devices) > 1 and not alone and len(same) == len(devices):
        kind = first.words.split("'s ")[-1].split(" (")[0] if "'s " in first.words else "device"
        return Cause("device", "", f"the {kind}s are saturated ({of})", first.reached)
    names = _names(same)
    text = f"{names} {'is' if len(same) == 1 else 'are'} saturated ({of}{_rest(devices, same)})"
    text += _less(devices, first) or _evenly(case, devices, first)
    return Cause("device", first.subject, text, first.reached, f"{names} reached {reached}")


def _less(devices: list[Ceiling], first: Ceiling) -> str:
    """Return how much less than the others a device gives: it is slow then, rather than loaded too much."""
    seen = [ceiling for ceiling in devices if ceiling.source == THROTTLE or (ceiling.reached.value or 0.0) >= _SEEN_MIN]
    others = [ceiling.capacity.value for ceiling in seen if ceiling is not first]
    given = first.capacity.value
    middle = float(np.median([value for value in others if value is not None])) if others else 0.0
    if not given or middle < _LESS_RATIO * given:
        return ""
    return (
        f"; it gives {format_rate(given)} I/Os a second where the median of the others would give {format_rate(middle)}"
    )


def _rest(devices: list[Ceiling], same: list[Ceiling]) -> str:
    rest = [ceiling.reached.value or 0.0 for ceiling in devices if ceiling not in same]
    return f"; the others at most {format_percent(max(rest))}" if rest else ""


def _evenly(case: Case, devices: list[Ceiling], first: Ceiling) -> str:
    """Return what even spreading would give, where the device at its ceiling does more than its part of the I/Os.

    Even is over devices, as these are what is used up. That the weights give one more is said.
    """
    done = sum(ceiling.demand.value or 0.0 for ceiling in devices)
    share, even = (first.demand.value or 0.0) / done if done else 0.0, 1 / len(devices)
    if share < _MORE_RATIO * even or not first.iops.value:
        return ""
    now, then = format_rate(first.iops.value), format_rate(first.iops.value * share / even)
    expected = {f"osd.{share.osd}": share.expected_share for share in case.account.osds}.get(first.subject, even)
    weight = f" (its CRUSH weight gives it {format_percent(expected)})" if expected >= _MORE_RATIO * even else ""
    return (
        f"; it does {format_percent(share)} of the devices' I/Os{weight}, so the load can be {now} IOPS at most: "
        f"evenly, {then}"
    )


def _processors(case: Case, first: Ceiling, reached: str) -> Cause:
    """Return the cause that the processors of a machine are: by who uses them, where one uses most."""
    use = next((use for use in case.machines if use.host == first.subject), None)
    where = f" of {machine(first.subject)}" if case.machines and len(case.machines) > 1 else ""
    processors = use.processors if use else round(first.capacity.value or 1)
    parts = _parts(use)
    most, cores = max(parts, key=lambda part: part[1], default=("", 0.0))
    # Where others take much as well, what is used up is the machine: the OSDs would not need more by themselves.
    shared = any(work.kind == "processes" and work.subject == first.subject for work in case.account.foreign)
    if most == "OSDs" and cores >= _MOST_OF_MACHINE * processors and not shared:
        per_op = f"{format_duration_ns(case.osd_cpu_us_per_op * 1e3)} per I/O, " if case.osd_cpu_us_per_op else ""
        rest = f"; the machine is {reached} busy" if cores < _ALMOST_ALL * processors else ""
        text = f"OSD CPU is the limit{where} ({per_op}{three_digits(cores)} of {processors} cores{rest})"
        return Cause("osd_cpu", first.subject, text, first.reached)
    split = ": " + ", ".join(f"{name} {three_digits(part)}" for name, part in parts) if parts else ""
    whose = f"the CPU of {machine(first.subject)}"
    busy = f"({reached} busy{split} of {processors} cores)"
    if most == "other processes" and cores >= _MOST_OF_MACHINE * processors:
        return Cause(
            "other_processes", first.subject, f"other processes and the kernel use up {whose} {busy}", first.reached
        )
    return Cause("host_cpu", first.subject, f"{whose} is saturated {busy}", first.reached)


def _parts(use: CpuUse | None) -> list[tuple[str, float]]:
    if use is None:
        return []
    parts = (("OSDs", use.osds), ("load generator", use.load_generator), ("other processes", use.others))
    return [(name, cores) for name, cores in parts if cores is not None]


# --- 2. what stands out


def _standing_out(case: Case) -> Iterator[Cause]:
    hot = case.hot_spot
    served = next((share.op_share.value or 0.0 for share in case.account.osds if hot and share.osd == hot.osd), 0.0)
    if served < HOT_SHARE:
        # The histories hold the last seconds of some OSDs; the counters hold the whole step of all.
        hot = None
    if hot is not None:
        what = f"the object {hot.object_name}" if hot.object_name else f"the placement group {hot.pg}"
        share = format_percent(hot.share)
        text = f"{what} takes {share} of the operations, and osd.{hot.osd} serves them all"
        yield Cause("hot_pg", hot.object_name or hot.pg, text, Figure(hot.share, "ratio", samples=hot.samples), text)
    slow = slow_part(case.account.osds)
    # An OSD that serves all of a load takes longer than those that serve none of it.
    if slow is not None and (hot is None or hot.osd not in slow.osds):
        yield _slow(case, slow)
    if slow is None:
        yield from _slow_replica(case)
    if hot is None:
        yield from _uneven(case)


def _slow(case: Case, slow: Outlier) -> Cause:
    factor, count = three_digits(slow.own_ns / slow.others_ns), len(slow.osds)
    name = f"{slow.name} ({slow.host})" if slow.host and count == 1 else slow.name
    takes, holds = "its part of an operation takes", "it holds"
    if count > 1:
        takes, holds = f"in its {count} OSDs the own part of an operation takes", "they hold"
    text = (
        f"{name} is slow: {takes} {format_duration_ns(slow.own_ns)}, {factor} × as long as that of the others "
        f"({format_duration_ns(slow.others_ns)}), and {holds} {format_percent(slow.time_share)} of the time that "
        f"operations spend in OSDs{_elsewhere(case, slow)}"
    )
    alone = slow.own_ns >= _ALONE_RATIO * slow.others_ns and slow.time_share >= _ALONE_SHARE
    limit = "slow_osd" if count == 1 else "slow_node"
    return Cause(
        limit, slow.name, text, Figure(slow.own_ns, "ns"), f"{name} is {factor} × slower than the others", alone
    )


def _elsewhere(case: Case, slow: Outlier) -> str:
    """Return what is left where the devices of what is slow are idle: a part begins when a message begins to arrive."""
    names = {f"osd.{osd}" for osd in slow.osds}
    ceilings = [ceiling for ceiling in case.account.limits if ceiling.subject in names]
    devices = [ceiling for ceiling in ceilings if ceiling.resource == "device"]
    if len(devices) < len(names) or (ceilings[0].reached.value or 0.0) >= _IDLE_MAX:
        return ""
    used, first = format_percent(devices[0].reached.value or 0.0), devices[0]
    which = f"{first.words} is" if len(names) == 1 else "its devices are"
    return f"; {which} hardly used ({used} of {first.source}), so look at its processes and its network"


def _slow_replica(case: Case) -> Iterator[Cause]:
    """Yield the OSD that most waits for replicas are for: one that stands still for a while counts no time then."""
    waits = next((part.share for part in case.account.parts if part.place == "replica_wait"), Figure(0.0, "ratio"))
    peers = case.peer_waits
    if len(peers) < 2 or (waits.value or 0.0) < _REPLICA_LIMIT:
        return
    first = peers[0]
    own_ns = {share.osd: share.own_ns.value for share in case.account.osds if share.own_ns.value}
    others = [ns for osd, ns in own_ns.items() if osd != first.osd]
    # Replicas that take equally long end a wait by turns, and one of them more often than the other.
    if first.osd in own_ns and others and own_ns[first.osd] < _SLOWER_RATIO * float(np.median(others)):
        return
    if first.wait_share >= max(_MOST_WAITS, 1.5 / len(peers)):
        text = (
            f"{format_percent(waits.value or 0.0)} of the latency is waiting for replicas, and osd.{first.osd} ends "
            f"{format_percent(first.wait_share)} of these waits"
        )
        figure = Figure(first.wait_share, "ratio", samples=first.wait_count)
        yield Cause("slow_osd", f"osd.{first.osd}", text, figure, text)


def _uneven(case: Case) -> Iterator[Cause]:
    """Yield the OSD that serves far more, or because of its primary affinity far less, than even spreading gives."""
    shares = [share for share in case.account.osds if 0 < share.expected_share < 1]
    others = sum(work.share.value or 0.0 for work in case.account.foreign if work.kind == "tenant")
    # The OSDs count the operations of all clients. With one I/O in flight nothing waits behind another.
    if not shares or others >= _OTHERS_MAX or case.account.concurrency <= 1:
        return
    ratios = {share.osd: (share.op_share.value or 0.0) / share.expected_share for share in shares}
    by_osd = {share.osd: share for share in shares}
    starved = [
        osd
        for osd, ratio in ratios.items()
        if ratio <= _STARVED_RATIO and case.cluster.primary_affinity.get(osd, 1) < 1
    ]
    most = max(ratios, key=lambda osd: ratios[osd])
    if starved:
        osd = starved[0]
        share = by_osd[osd]
        text = (
            f"the load is spread unevenly: osd.{osd} serves {_served(share)} (its primary affinity is "
            f"{three_digits(case.cluster.primary_affinity[osd])}), osd.{most} {_served(by_osd[most])}"
        )
    elif (
        ratios[most] >= _UNEVEN_RATIO
        and (by_osd[most].op_share.value or 0.0) >= _UNEVEN_SHARE
        and _waits_more(by_osd[most], shares)
    ):
        osd, share = most, by_osd[most]
        text = f"the load is spread unevenly: osd.{osd} serves {_served(share)}, {_even(share)} if it were even"
    else:
        return
    yield Cause("uneven", f"osd.{osd}", text, share.op_share, text)


def _waits_more(most: OsdShare, shares: Sequence[OsdShare]) -> bool:
    """Return whether operations take longer at the OSD that serves most: as long as elsewhere, none waits for it."""
    own_ns = {share.osd: share.own_ns.value for share in shares if share.own_ns.value}
    others = [ns for osd, ns in own_ns.items() if osd != most.osd]
    return most.osd not in own_ns or not others or own_ns[most.osd] >= _WAITS_RATIO * float(np.median(others))


def _served(share: OsdShare) -> str:
    return f"{format_percent(share.op_share.value or 0.0)} of the operations"


def _even(share: OsdShare) -> str:
    return format_percent(share.expected_share)


# --- 3. to 6.


def _foreign(case: Case) -> Iterator[Cause]:
    """Yield the work of others. What a machine does besides holds a load back where the processors are used up."""
    works = [each_work for each_work in case.account.foreign if each_work.kind not in OF_MACHINES]
    work = [each_work for each_work in works if _counts(each_work, case.cluster.osd_count)]
    for one in sorted(work, key=lambda one: -(one.share.value or 0.0)):
        minor = one.share.value is not None and one.share.value < FOREIGN_LIMIT
        # It holds clients back where it uses up what they need.
        minor = minor or (case.is_recorded and _nearest_reached(case) < _NEAR)
        yield Cause(one.kind, one.subject, one.sentence, one.rate, one.sentence, minor=minor)


def _nearest_reached(case: Case) -> float:
    return max((ceiling.reached.value or 0.0 for ceiling in case.account.limits), default=0.0)


def _counts(work: ForeignWork, osd_count: int) -> bool:
    """Return whether the work of others is much: of the load, or for so many OSDs where its share is not known.

    Where there are many OSDs in the cluster, some placement group is always being scrubbed.
    """
    if work.share.value is not None or work.kind not in ("scrub", "snap_trim"):
        return work.share.value is None or work.share.value >= _FOREIGN_MIN
    return osd_count > 0 and (work.rate.value or 0.0) >= max(_GROUPS_MIN, _GROUPS_PER_OSD * osd_count)


def _throttles(case: Case) -> Iterator[Cause]:
    for throttle in case.account.throttles:
        share = format_percent(throttle.held_share.value or 0.0)
        text = (
            f"the limit of {throttle.subject} on what is in flight ({throttle.option}) was full at {share} of the "
            "tries to enter"
            if throttle.limit is None
            else f"{throttle.option} of {throttle.limit} keeps {share} of the load generator's I/Os from being sent"
        )
        alone = (throttle.held_share.value or 0.0) >= _HELD_ALONE
        yield Cause("in_flight", throttle.subject, text, throttle.held_share, text, alone)


def _commits(case: Case) -> Iterator[Cause]:
    """Yield the kv-sync thread that commits all the time, where commits are what is waited for.

    It takes as many transactions at a time as wait for it, so a busy one alone is no limit.
    """
    busy = next((ceiling for ceiling in case.account.ceilings if ceiling.resource == "kv_sync"), None)
    waits = sum(part.share.value or 0.0 for part in case.account.parts if part.place in ("kv_sync", "replica_wait"))
    if busy is None or (busy.reached.value or 0.0) < AT_CEILING or waits < PART_LIMIT:
        return
    text = (
        f"{format_percent(waits)} of the latency is waiting for commits, and {busy.words} commits "
        f"{format_percent(busy.reached.value or 0.0)} of the time"
    )
    yield Cause("kv_sync", busy.subject, text + _to_nearest(case), busy.reached)


def _cache(case: Case) -> Iterator[Cause]:
    ratio = case.read_from_cache_ratio
    if ratio is not None and ratio >= CACHE_LIMIT:
        text = f"{format_percent(ratio)} of the reads came from a cache, so this is not the speed of the devices"
        # Clients are not held back by what their caches answer.
        yield Cause("cache", "", text, Figure(ratio, "ratio"), minor=case.is_recorded)


def _outside(case: Case) -> Iterator[Cause]:
    """Yield the time that passes outside of the OSDs, and on the way between them.

    Replicas that commit as quickly as the primary does, and are waited for much longer, had the write late.
    """
    # Near the limit of what OSDs share, its processors above all, time passes outside of them for that reason.
    near = any(
        ceiling.resource in _SHARED and (ceiling.reached.value or 0.0) >= _NEAR for ceiling in case.account.limits
    )
    if case.rate_reached or near or case.account.concurrency <= 1:
        return
    shares = {part.place: part.share.value or 0.0 for part in case.account.parts}
    waits, commits = shares.get("replica_wait", 0.0), shares.get("store", 0.0) + shares.get("kv_sync", 0.0)
    outside = shares.get("outside", 0.0)
    between = waits - commits if waits >= _ON_THE_WAY_RATIO * commits else 0.0
    if outside + between < OUTSIDE_LIMIT:
        return
    spent = format_duration_ns((outside + between) * (case.account.latency_ns.value or 0.0))
    text = f"{format_percent(outside + between)} of the latency ({spent}) is {_PLACE_WORDS['outside']}"
    if case.is_recorded:
        # What lies between client and OSDs is in no latency of a recording.
        text = (
            f"{format_percent(between)} of the latency ({spent}) is spent on the way between OSDs (their network), "
            f"whose own commits take {format_percent(commits)}"
        )
    elif between >= _MUCH:
        text += (
            f": {format_percent(outside)} between client and OSDs, {format_percent(between)} between OSDs, whose own "
            f"commits take {format_percent(commits)}"
        )
    yield Cause("outside", "", text + _to_nearest(case), Figure(outside + between, "ratio"))


def _latency(case: Case) -> Iterator[Cause]:
    account = case.account
    if account.concurrency > 1 or account.latency_ns.value is None or case.rate_reached or case.is_recorded:
        return
    text = f"latency sets the rate (one I/O in flight, {format_duration_ns(account.latency_ns.value)} each)"
    yield Cause("latency_bound", "", text + _largest(case), account.latency_ns)


_QUESTIONS: tuple[Callable[[Case], Iterator[Cause]], ...] = (
    *(_ceilings, _throttles, _standing_out, _foreign, _latency, _cache, _commits, _outside),
)


# --- 7.


def _nearest(case: Case) -> Cause:
    limits = case.account.limits
    if not limits:
        text = "the nearest limit is not known, as neither devices nor CPU were measured"
        return Cause("unknown", "", text + _largest(case), Figure(None, "ratio"))
    nearest = ", then ".join(
        f"{ceiling.words}, {format_percent(ceiling.reached.value or 0.0)} reached" for ceiling in limits[:3]
    )
    if case.unseen:
        unseen = " and ".join(case.unseen)
        text = f"of what was measured, nothing is at its ceiling; nearest limit: {nearest}; not known: {unseen}"
        return Cause("unknown", limits[0].subject, text + _largest(case), limits[0].reached)
    if case.is_recorded:
        text = (
            f"no resource of the cluster is at its ceiling (nearest: {nearest}): clients ask for no more, or are held "
            "back before they reach it (by limits of their own, or their network)"
        )
        return Cause("clients", "", text, limits[0].reached)
    text = f"no resource is at its ceiling; nearest limit: {nearest}"
    return Cause("nearest", limits[0].subject, text + _largest(case), limits[0].reached)


def _to_nearest(case: Case) -> str:
    limits = case.account.limits
    return (
        f"; nearest limit: {limits[0].words}, {format_percent(limits[0].reached.value or 0.0)} reached"
        if limits
        else ""
    )


def _largest(case: Case) -> str:
    """Return where most of the latency is: the largest part, and the next one if that is much as well."""
    parts = sorted(case.account.parts, key=lambda part: -(part.share.value or 0.0))
    named = [part for index, part in enumerate(parts[:2]) if index == 0 or (part.share.value or 0.0) >= _MUCH]
    texts = [
        f"{format_percent(part.share.value or 0.0)} of the latency is {_PLACE_WORDS[part.place]}" for part in named[:1]
    ]
    texts += [f"{format_percent(part.share.value or 0.0)} {_PLACE_WORDS[part.place]}" for part in named[1:]]
    return f"; {', '.join(texts)}" if texts else ""


def _evidence(case: Case) -> Iterator[Evidence]:
    """Yield what the sentence rests on; the whole account is on the point beside it."""
    for ceiling in case.account.limits[:_EVIDENCE_MAX]:
        yield Evidence(ceiling.words, ceiling.reached)
    slow = slow_part(case.account.osds)
    if slow is not None:
        yield Evidence(f"time of operations in {slow.name}", Figure(slow.time_share, "ratio"))
    if case.pgs_seen.value is not None:
        yield Evidence("operations seen in", case.pgs_seen)
    if case.osd_cpu_us_per_op is not None:
        yield Evidence("OSD CPU per I/O", Figure(case.osd_cpu_us_per_op, "µs"))
    if case.read_from_cache_ratio is not None:
        yield Evidence("reads from cache", Figure(case.read_from_cache_ratio, "ratio"))
    for use in case.machines:
        for name, cores in _parts(use):
            yield Evidence(f"{name} on {machine(use.host)}", Figure(cores, "cores"))
