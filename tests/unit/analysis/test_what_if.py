"""What a change would make of a rate: against simulations of both configurations, and what must hold whatever they are.

A round trip: a cluster is simulated event by event, its account is made from the simulated rate and the known demands,
and the prediction for a changed cluster is held against the simulation of that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.analysis.network_simulation import simulated_rate

from bathyscope.analysis import load_model
from bathyscope.analysis.what_if import predict, predict_in_run
from bathyscope.errors import UsageError
from bathyscope.records.account import Account, Ceiling, LatencyPart, OsdShare, Prediction
from bathyscope.records.figure import Figure
from bathyscope.records.finding import LadderFinding, PointFinding, RungGroup, Verdict

NONE = Figure(None, "")
EVEN = (1 / 3, 1 / 3, 1 / 3)
# What an OSD needs of its processor without any load.
IDLE = 0.02


def figure(value: float, unit: str, spread: float = 0.02) -> Figure:
    """Return a figure whose interval is `spread` to either side."""
    return Figure(value, unit, value * (1 - spread), value * (1 + spread), samples=3)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A small cluster and its load: what an OSD's part of one I/O needs, and what there is of it.

    `osd_quotas` are cores for each OSD, `disks` IOPS of each; `client_us` is the load generator's processor time.
    """

    op: str = "randread"
    customers: int = 16
    shares: Sequence[float] = EVEN
    copies: int = 1
    cpu_us: float = 500.0
    osd_quotas: Sequence[float] = (0.5, 0.5, 0.5)
    disk_ios: float = 1.0
    disks: Sequence[float] = (2000.0, 2000.0, 2000.0)
    delay_s: float = 0.0
    seed: int = 1

    def rate(self) -> float:
        """Return the simulated rate."""
        branches = [
            [(self.cpu_us / 1e6 / (quota - IDLE), 1), (self.disk_ios / disk, 1)]
            for quota, disk in zip(self.osd_quotas, self.disks, strict=True)
        ]
        copies = self.copies if self.op == "randwrite" else 1
        return simulated_rate(
            self.customers, branches, self.shares, delay_s=self.delay_s, copies=copies, seed=self.seed
        )

    def visits(self) -> list[float]:
        """Return how often one I/O is at each OSD."""
        copies, count = self.copies if self.op == "randwrite" else 1, len(self.shares)
        return [sum(self.shares[(osd - step) % count] for step in range(copies)) for osd in range(count)]

    def point(self, rate: float, **more: object) -> PointFinding:
        """Return the point as it would have been measured at `rate`."""
        ceilings = []
        for osd, visits in enumerate(self.visits()):
            cpu_s = visits * self.cpu_us / 1e6 + IDLE / rate
            for resource, words, demand, capacity, unit in (
                ("osd_cpu", f"the CPU of osd.{osd}", cpu_s, self.osd_quotas[osd], "s"),
                ("device", f"osd.{osd}'s SSD", visits * self.disk_ios, self.disks[osd], "I/Os"),
            ):
                if demand > 0:
                    ceilings.append(ceiling(resource, f"osd.{osd}", words, demand, capacity, rate, unit))
        return point(self.op, self.customers, rate, ceilings, self.shares, **more)


def ceiling(  # noqa: PLR0917 - the fields of a ceiling
    resource: str, subject: str, words: str, demand: float, capacity: float, rate: float, unit: str = "s"
) -> Ceiling:
    """Return a ceiling of this machine."""
    reached = figure(rate * demand / capacity, "ratio")
    return Ceiling(
        resource, subject, words, "localhost", figure(demand, unit), Figure(capacity, f"{unit}/s"), "a test",
        figure(capacity / demand, "1/s"), reached,
    )  # fmt: skip


def point(  # noqa: PLR0917 - what the tests change
    op: str,
    customers: int,
    rate: float,
    ceilings: Sequence[Ceiling],
    shares: Sequence[float] = EVEN,
    parts: Sequence[tuple[str, float]] = (),
    **more: object,
) -> PointFinding:
    """Return a point with an account and nothing else."""
    latency_ns = customers / rate * 1e9
    osds = tuple(
        OsdShare(osd, "localhost", Figure(share, "ratio"), Figure(share, "ratio"), NONE, 1 / len(shares))
        for osd, share in enumerate(shares)
    )
    places = tuple(LatencyPart(name, Figure(share, "ratio"), Figure(share * latency_ns, "ns")) for name, share in parts)
    account = Account(
        customers,
        figure(rate, "1/s"),
        figure(latency_ns, "ns"),
        Figure(customers, "I/Os"),
        tuple(ceilings),
        places,
        osds,
    )
    unknown = dict.fromkeys(
        (
            "bandwidth_bytes_per_s", "latency_ns_p50", "latency_ns_p99", "latency_ns_p999", "write_amplification",
            "read_from_cache_ratio", "osd_cpu_us_per_op", "client_cpu_us_per_op", "device_utilization",
        ),
        NONE,
    )  # fmt: skip
    found = PointFinding(
        step_key=f"rbd-{op}-4K-qd{customers}", layer="rbd", load_generator="fio", device_class="ssd", pattern=op, op=op,
        block_size_bytes=4096, queue_depth=customers, jobs=1, status="done", reason=None, repeats=3, iops=account.iops,
        latency_ns_mean=account.latency_ns, steady=True, stages=(), stage_sample_count=0, stage_sample_complete=True,
        caveats=(), verdict=Verdict("device", ""), account=account, **unknown,
    )  # fmt: skip
    return dataclasses.replace(found, **more)  # type: ignore[arg-type]


def disk_bound(name: str = "SSD", parts: Sequence[tuple[str, float]] = ()) -> PointFinding:
    """Return random reads on three throttled disks, which are the limit."""
    found = Cluster(disks=(200.0,) * 3).point(560.0, parts=parts, device_class=name.lower())
    assert found.account is not None
    ceilings = tuple(dataclasses.replace(one, words=one.words.replace("SSD", name)) for one in found.account.ceilings)
    return dataclasses.replace(found, account=dataclasses.replace(found.account, ceilings=ceilings))


def value(prediction: Prediction) -> float:
    assert prediction.iops.value is not None
    return prediction.iops.value


DISKS = Cluster(disks=(200.0,) * 3, cpu_us=300.0)
CPU = Cluster(cpu_us=900.0, osd_quotas=(0.3,) * 3)
WRITES = Cluster(op="randwrite", copies=3, cpu_us=400.0, osd_quotas=(0.3,) * 3, disk_ios=2.0, disks=(1200.0,) * 3)
UNEVEN = Cluster(shares=(0.1, 0.2, 0.7), disks=(400.0,) * 3)


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (DISKS, "disk=2x", {"disks": (400.0,) * 3}),
        (DISKS, "disk=4x", {"disks": (800.0,) * 3}),
        (DISKS, "osd.cpu=2x", {"osd_quotas": (1.0,) * 3}),
        (CPU, "osd.cpu=2x", {"osd_quotas": (0.6,) * 3}),
        (CPU, "osd.cpu=2x,disk=2x", {"osd_quotas": (0.6,) * 3, "disks": (4000.0,) * 3}),
        (dataclasses.replace(CPU, delay_s=0.02), "osd.cpu=2x", {"osd_quotas": (0.6,) * 3}),
        (CPU, "qd=32", {"customers": 32}),
        (dataclasses.replace(CPU, customers=1, delay_s=0.005), "qd=8", {"customers": 8}),
        (CPU, "qd=4", {"customers": 4}),
        (UNEVEN, "even", {"shares": EVEN}),
        (DISKS, "osds=6", {"shares": (1 / 6,) * 6, "disks": (200.0,) * 6, "osd_quotas": (0.5,) * 6}),
        (WRITES, "disk=2x", {"disks": (2400.0,) * 3}),
        (WRITES, "osd.cpu=2x", {"osd_quotas": (0.6,) * 3}),
        (WRITES, "osd.cpu=2x,disk=2x", {"osd_quotas": (0.6,) * 3, "disks": (2400.0,) * 3}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_prediction_is_what_the_changed_cluster_does(
    before: Cluster, change: str, after: dict[str, object]
) -> None:
    simulated = dataclasses.replace(before, seed=2, **after).rate()  # type: ignore[arg-type]
    rate = before.rate()
    outside = before.delay_s * rate / before.customers
    point = before.point(rate, parts=[("outside", outside), ("inside", 1 - outside)])
    found = predict(point, change, replicas=before.copies)
    assert value(found) == pytest.approx(simulated, rel=0.05)
    assert (found.iops.low or 0) <= simulated <= (found.iops.high or 0)
    # From one I/O in flight nobody can see what many would wait for.
    assert (found.iops.low or 0) > (0.5 if before.customers == 1 else 0.75) * simulated
    assert (found.iops.high or 0) < 1.42 * simulated


@pytest.mark.parametrize("copies", [1, 2])
def test_fewer_replicas(copies: int) -> None:
    # The simulation's replicas cost what a primary does; the prediction takes half of that processor time.
    before = dataclasses.replace(WRITES, cpu_us=100.0, disk_ios=1.0)
    simulated = dataclasses.replace(before, copies=copies, seed=2).rate()
    found = predict(before.point(before.rate()), f"size={copies}", replicas=3)
    assert value(found) == pytest.approx(simulated, rel=0.06)
    assert (found.iops.low or 0) <= simulated <= (found.iops.high or 0)


def test_writes_of_the_journal_do_not_go_with_the_number_of_replicas() -> None:
    # Three copies of data and 1.5 writes of the journal on 600 IOPS: then two copies and as much of the journal.
    before = dataclasses.replace(WRITES, cpu_us=10.0, disk_ios=1.5, disks=(200.0,) * 3)
    found = predict(before.point(130.0), "size=2", replicas=3)
    assert value(found) == pytest.approx(130 * 4.5 / 3.5, rel=0.04)


def test_reads_do_not_depend_on_the_number_of_replicas() -> None:
    found = predict(disk_bound(), "size=2", replicas=3)
    assert found.iops == figure(560.0, "1/s")
    assert found.ratio == Figure(1.0, "ratio", 1.0, 1.0)
    assert found.sentence == (
        "With 2 replicas instead of 3: 560 IOPS (549–571), about as many as now: osd.0's SSD still holds it "
        "(93 % of its ceiling)"
    )


def test_the_sentence_says_what_is_gained_and_what_is_the_limit_then() -> None:
    found = predict(Cluster(disks=(300.0,) * 3, cpu_us=400.0, osd_quotas=(0.2,) * 3).point(820.0), "disk=2x")
    assert found.limit == "the CPU of osd.0"
    assert found.sentence.startswith("With disks twice as fast: 1.")
    assert found.sentence.endswith("× as many; then the CPU of osd.0 is the limit")
    assert found.change == "disk=2x"
    assert any("disks:" in assumption for assumption in found.assumptions)


def test_a_change_that_does_not_help_says_what_holds_the_rate() -> None:
    found = predict(disk_bound(), "osd.cpu=2x")
    assert value(found) == pytest.approx(560, rel=0.04)
    assert found.sentence.endswith("about as many as now: osd.0's SSD still holds it (94 % of its ceiling)")


def test_one_io_in_flight_is_held_by_latency() -> None:
    found = predict(Cluster(customers=1).point(150.0), "disk=2x")
    assert "latency holds it, not a resource; the nearest is the CPU of osd.0" in found.sentence


def test_another_class_of_disk_takes_its_measured_speed() -> None:
    hdd = disk_bound("HDD")
    found = predict(hdd, "disk=ssd", disk_iops={"ssd": 85_000.0})
    # The processors of the OSDs let 3,000 IOPS through.
    assert 1500 < value(found) < 3000
    assert found.limit == "the CPU of osd.0"
    slower = predict(hdd, "disk=ssd", disk_iops={"ssd": 300.0})
    assert value(slower) == pytest.approx(840, rel=0.04)
    assert slower.limit == "osd.0's SSD"


def test_processors_without_a_quota_are_those_of_the_machine() -> None:
    rate = 1800.0
    machine = ceiling("host_cpu", "localhost", "the CPU of this machine", 1.05e-3, 2.0, rate)
    one = point(
        "randread", 16, rate, [machine], osd_cpu_us_per_op=figure(700.0, "µs"), client_cpu_us_per_op=figure(200.0, "µs")
    )
    osd, client = predict(one, "osd.cpu=2x"), predict(one, "client.cpu=2x")
    # The machine's time for each I/O falls from 1,050 to 700 and to 950 µs.
    assert value(osd) == pytest.approx(rate * 1050 / 700, rel=0.06)
    assert value(client) == pytest.approx(rate * 1050 / 950, rel=0.04)
    assert osd.limit == "the CPU of this machine"


def test_an_io_takes_less_of_a_busier_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of two processors 0.45 are used: 1 ms for each I/O, of which a busy machine needs less.
    rate = 450.0
    machine = ceiling("host_cpu", "localhost", "the CPU of this machine", 1e-3, 2.0, rate)
    disk = ceiling("device", "osd.0", "osd.0's HDD", 1.0, 480.0, rate, "I/Os")
    cpu = {"osd_cpu_us_per_op": figure(700.0, "µs"), "client_cpu_us_per_op": figure(200.0, "µs")}
    one = point("randread", 64, rate, [machine, disk], (1.0,), **cpu)
    found = predict(one, "disk=50x")
    assert "the busier they are, the less of their time an I/O takes" in " ".join(found.assumptions)
    monkeypatch.setattr(load_model, "_CPU_FALL_MAX", 0.0)
    always = value(predict(one, "disk=50x"))
    assert 1.6 * always < value(found) < 2.8 * always
    # The interval holds that it never falls.
    assert (found.iops.low or 0) < always


def test_what_other_processes_use_of_a_machine_may_be_free_for_the_load_or_not() -> None:
    # Of two processors the load uses 0.4, others 1.5.
    rate = 500.0
    device = ceiling("device", "osd.0", "osd.0's SSD", 1.0, 520.0, rate, "I/Os")
    machine = ceiling("host_cpu", "localhost", "the CPU of this machine", 1.9 / rate, 2.0, rate)
    one = point("randread", 32, rate, [device, machine], (1.0,))
    assert one.account is not None
    shared = dataclasses.replace(one, account=dataclasses.replace(one.account, other_cores=Figure(1.5, "cores")))
    assert value(predict(one, "disk=4x")) < 530
    found = predict(shared, "disk=4x")
    # 0.5 of its processors are left to the load for certain, all 2 at most.
    assert 0.5 / 0.4 * rate < value(found) < 2 / 0.4 * rate
    assert (found.iops.low or 0) < 1.5 * rate
    assert (found.iops.high or 0) > 2.5 * rate


def test_an_osd_that_did_nothing_is_as_good_as_the_others() -> None:
    # osd.0 is no primary; the few I/Os on its disk say nothing of what that can do.
    rate = 350.0
    disks = [(0, 0.002, 50.0), (1, 0.55, 200.0), (2, 0.45, 200.0)]
    ceilings = [
        ceiling("device", f"osd.{osd}", f"osd.{osd}'s SSD", demand, iops, rate, "I/Os") for osd, demand, iops in disks
    ]
    found = predict(point("randread", 16, rate, ceilings, (0.0, 0.55, 0.45)), "even")
    assert value(found) == pytest.approx(600 * 16 / 18, rel=0.1)


def test_a_thread_that_waits_for_the_disk_follows_it() -> None:
    rate = 190.0
    device = ceiling("device", "osd.0", "osd.0's HDD", 2.0, 400.0, rate, "I/Os")
    thread = ceiling("kv_sync", "osd.0", "the kv-sync thread of osd.0", 4.8e-3, 1.0, rate)
    one = point("randwrite", 16, rate, [device, thread], (1.0,))
    assert value(predict(one, "disk=2x", replicas=1)) == pytest.approx(2 * rate, rel=0.05)
    alone = dataclasses.replace(thread, demand=figure(5.2e-3, "s"))
    slow_device = ceiling("device", "osd.0", "osd.0's HDD", 0.2, 400.0, rate, "I/Os")
    held = predict(point("randwrite", 16, rate, [slow_device, alone], (1.0,)), "disk=2x", replicas=1)
    assert value(held) < 1.2 * rate
    assert held.limit == "the kv-sync thread of osd.0"


def test_op_workers_that_wait_for_the_disk_follow_it() -> None:
    # Four of five workers are busy, most of the time waiting for a disk that is the limit.
    rate = 190.0
    device = ceiling("device", "osd.0", "osd.0's HDD", 1.0, 200.0, rate, "I/Os")
    workers = ceiling("op_workers", "osd.0", "the op workers of osd.0", 4.0 / rate, 5.0, rate)
    parts = [("outside", 0.02), ("store", 0.98)]
    found = predict(point("randread", 16, rate, [device, workers], (1.0,), parts), "disk=4x")
    assert value(found) == pytest.approx(4 * rate, rel=0.05)
    assert (found.iops.low or 0) > 2 * rate


def test_what_nobody_measured_widens_the_interval() -> None:
    # Nothing is near its ceiling: what the I/Os wait for is not known.
    known = predict(disk_bound(parts=[("outside", 0.02), ("store", 0.98)]), "disk=2x")
    unknown = predict(Cluster().point(900.0), "osd.cpu=2x")
    assert value(unknown) > 900

    def width(found: Prediction) -> float:
        return (found.ratio.high or 0) / (found.ratio.low or 1)

    assert width(unknown) > 1.03 * width(known)
    inside = predict(Cluster().point(900.0, parts=[("outside", 0.05), ("inside", 0.95)]), "osd.cpu=2x")
    outside = predict(Cluster().point(900.0, parts=[("outside", 0.95), ("inside", 0.05)]), "osd.cpu=2x")
    assert (inside.ratio.low or 0) <= (outside.ratio.low or 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("", "'' is not a change"),
        ("faster", "'faster' is not a change"),
        ("osd.cpu", "'osd.cpu' is not a change"),
        ("osd.cpu=two", "'osd.cpu=two' is not a factor"),
        ("osd.cpu=0x", "'osd.cpu=0x' is not a factor"),
        ("even=1", "'even=1' is not a change"),
        ("size=0", "'size=0' is not a number"),
        ("size=4", "'size=4' is more than the load's 3 OSDs"),
        ("qd=-1", "'qd=-1' is not a number"),
        ("osds=2", "'osds=2' is fewer than the 3 OSDs of the load"),
        ("osd.cpu=2x,,even", "'osd.cpu=2x,,even' is not a change"),
        ("disk=2x,disk=nvme", "'disk=2x,disk=nvme' has disk twice"),
        ("disk=nvme", "the run did not measure a disk of class nvme with this pattern"),
        ("client.cpu=2x", "the run did not sample the CPU of the load generator of rbd-randread-4K-qd16"),
        ("network=2x", "the run did not sample a network link with a known speed for the load of rbd-randread-4K-qd16"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_hint(change: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        predict(disk_bound(), change, replicas=3)
    assert refused.value.message == message
    assert refused.value.hint


def test_what_the_account_does_not_know_is_refused() -> None:
    with pytest.raises(UsageError, match="no account"):
        predict(dataclasses.replace(disk_bound(), account=None), "even")
    with pytest.raises(UsageError, match="no resource of the load was sampled"):
        predict(point("randread", 16, 500.0, []), "even")
    with pytest.raises(UsageError, match="number of replicas"):
        predict(WRITES.point(400.0), "size=2")
    on_disk = point(
        "randread", 16, 190.0, [ceiling("device", "disk", "the SSD under test", 1.0, 200.0, 190.0, "I/Os")], ()
    )
    with pytest.raises(UsageError, match="the OSDs' shares"):
        predict(on_disk, "even")
    assert value(predict(on_disk, "disk=2x")) == pytest.approx(380, rel=0.05)


def run_of(points: Sequence[PointFinding], environment: Sequence[tuple[str, str, str]] = ()) -> LadderFinding:
    group = RungGroup("hdd", "randread-4K-qd16", tuple(points), (), "")
    return LadderFinding(
        run_id="r", plan_name="p", target="t", status="done", started_ns=0, ended_ns=1, headline="", groups=(group,),
        cross_checks=(), distributions=(), series=(), caveats=(), environment=tuple(environment), commands=(),
    )  # fmt: skip


def test_a_run_knows_what_its_other_disks_can_do() -> None:
    hdd = disk_bound("HDD")
    on_disk = [
        dataclasses.replace(
            hdd, layer="disk", on_cluster=False, device_class=name, queue_depth=depth, iops=Figure(rate, "1/s")
        )
        for name, depth, rate in (("hdd", 16, 200.0), ("ssd", 16, 300.0), ("ssd", 1, 20.0))
    ]
    found = predict_in_run(run_of([*on_disk, hdd]), hdd, "disk=ssd")
    assert found == predict(hdd, "disk=ssd", disk_iops={"hdd": 200.0, "ssd": 300.0})
    with pytest.raises(UsageError, match="did not measure a disk of class nvme"):
        predict_in_run(run_of([*on_disk, hdd]), hdd, "disk=nvme")


def test_a_run_knows_the_replicas_of_its_own_pools() -> None:
    writes = WRITES.point(400.0)
    other, own = ("pool vms", "size", "2"), ("pool bathy-1-rbd-ssd", "size", "3")
    assert predict_in_run(run_of([writes], [other, own]), writes, "size=1") == predict(writes, "size=1", replicas=3)
    assert predict_in_run(run_of([writes], [other]), writes, "size=1") == predict(writes, "size=1", replicas=2)
    for environment in ([other, ("pool images", "size", "3")], [own, (own[0], "erasure_code_profile", "k2m1")], []):
        with pytest.raises(UsageError, match="number of replicas"):
            predict_in_run(run_of([writes], environment), writes, "size=1")


LOADS = st.builds(
    Cluster,
    op=st.sampled_from(["randread", "randwrite"]),
    customers=st.sampled_from([1, 4, 16]),
    shares=st.sampled_from([EVEN, (0.2, 0.3, 0.5), (0.0, 0.45, 0.55)]),
    copies=st.sampled_from([1, 2, 3]),
    cpu_us=st.floats(20.0, 2000.0),
    disk_ios=st.floats(0.1, 4.0),
)
REACHED = st.floats(0.05, 1.05)


def at(load: Cluster, reached: float) -> PointFinding:
    """Return the load with its nearest resource used so far."""
    visits = load.visits()
    most = max(
        max(times * load.cpu_us / 1e6 / (quota - IDLE), times * load.disk_ios / disk)
        for times, quota, disk in zip(visits, load.osd_quotas, load.disks, strict=True)
    )
    return load.point(reached / most)


@settings(max_examples=8, deadline=None)
@given(LOADS, REACHED, st.sampled_from(["osd.cpu=2x", "disk=2x", "disk=1.5x,osd.cpu=4x", "osds=5", "qd=64"]))
def test_more_of_a_resource_never_slows(load: Cluster, reached: float, change: str) -> None:
    found = predict(at(load, reached), change, replicas=load.copies)
    # A write's copies are on neighbours in the model: new OSDs make what these do a little uneven.
    assert (found.ratio.value or 0) >= (0.97 if change == "osds=5" else 0.995)
    assert (found.ratio.low or 0) <= (found.ratio.value or 0) <= (found.ratio.high or 0)


@settings(max_examples=8, deadline=None)
@given(LOADS, st.floats(0.86, 1.0))
def test_twice_a_resource_that_is_hardly_used_changes_hardly_anything(load: Cluster, reached: float) -> None:
    # The disks are used a tenth as much as the processors.
    disks = tuple(10 * load.disk_ios * (quota - IDLE) / (load.cpu_us / 1e6) for quota in load.osd_quotas)
    found = predict(at(dataclasses.replace(load, disks=disks), reached), "disk=2x", replicas=load.copies)
    assert (found.ratio.value or 0) <= 1.11


@settings(max_examples=8, deadline=None)
@given(LOADS, REACHED)
def test_even_spreading_never_hurts(load: Cluster, reached: float) -> None:
    found = predict(at(load, reached), "even", replicas=load.copies)
    assert (found.ratio.value or 0) >= 0.995


@settings(max_examples=8, deadline=None)
@given(LOADS, REACHED, st.sampled_from(["osd.cpu=2x", "disk=3x", "even", "qd=32"]))
def test_no_prediction_is_above_a_ceiling(load: Cluster, reached: float, change: str) -> None:
    found = predict(at(load, reached), change, replicas=load.copies)
    more = {"osd.cpu=2x": (2, 1), "disk=3x": (1, 3)}.get(change, (1, 1))
    visits = [1 / 3 * sum(load.visits())] * 3 if change == "even" else load.visits()
    ceilings = [
        min((more[0] * quota - IDLE) / (times * load.cpu_us / 1e6), more[1] * disk / (times * load.disk_ios))
        for times, quota, disk in zip(visits, load.osd_quotas, load.disks, strict=True)
        if times > 0
    ]
    # A rate above the ceiling was measured: then the ceiling is the measured one, and no less.
    assert value(found) <= min(ceilings) * max(1.0, reached) * 1.001
