"""Other machines' readings: their clocks, their OSDs, and that one machine costs only its own figures."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bathyscope.host import NodeRequest
from bathyscope.records import (
    SAME_MACHINE,
    DeviceSample,
    EnvironmentFact,
    NetworkSample,
    ProcessSample,
    RawAnswer,
    from_table,
)
from bathyscope.sources import node_proc, nodes
from bathyscope.sources.node_clock import clock_of
from bathyscope.spec import ClientHost, DaemonTarget, DeviceLimit, SshAccess, Target
from bathyscope.spec.scope import Scope, ScopeLink, ScopeNode, ScopeOsd

T0 = 1_700_000_000 * 10**9
SECOND, MS = 10**9, 10**6
FSID = "11111111-2222-3333-4444-555555555555"
OSDS = tuple(
    ScopeOsd(osd=osd, device_class="hdd", host_name=host, data_path=f"/data/{osd}", device=device)
    for osd, host, device in ((0, "node1", "sdb"), (1, "node1", "sdc"), (2, "node2", "sdb"))
)
TARGET = Target(name="t", ssh=SshAccess(user="root", names={"node2": "10.0.0.2"}))
SCOPE = Scope(target=TARGET, fsid=FSID, osds=OSDS)


def answer(
    label: str, files: dict[str, str], at_ns: int = T0, *, offset_ns: int = 0, trip_ns: int = 2 * MS, late_ns: int = 0
) -> RawAnswer:
    """Return what a machine answers whose clock is ahead by `offset_ns`; the question took `late_ns` longer."""
    theirs_ns = at_ns + trip_ns // 2 + late_ns + offset_ns
    said = {"before_ns": theirs_ns, "after_ns": theirs_ns + MS, "clock_ticks_per_s": 100, "page_bytes": 4096}
    kept = tuple((path, text.encode()) for path, text in files.items())
    end_ns = at_ns + trip_ns + late_ns + MS
    return RawAnswer(label, ("ssh",), (), 0, json.dumps(said).encode(), b"", at_ns, end_ns, kept)


def failed(label: str, why: str, at_ns: int = T0) -> RawAnswer:
    return RawAnswer(label, ("ssh",), (), 255, b"", why.encode(), at_ns, at_ns)


def stat(pid: int, ticks: int, start: int) -> str:
    return f"{pid} (ceph-osd) S " + " ".join(["0"] * 10) + f" {ticks} 0 " + " ".join(["0"] * 6) + f" {start} 0 100"


def processes(host: str, *rows: tuple[int, str, str]) -> dict[str, str]:
    """Return the files that tell of (pid, command line, control group)."""
    files = {"/proc/sys/kernel/hostname": f"{host}\n"}
    for pid, line, group in rows:
        files |= {f"/proc/{pid}/stat": stat(pid, 0, 10 * pid), f"/proc/{pid}/cgroup": group}
        files[f"/proc/{pid}/cmdline"] = line.replace(" ", "\0")
    return files


def look() -> list[RawAnswer]:
    in_container = f"0::/system.slice/ceph-{FSID}@osd.1.service"
    return [
        answer(
            "node-node1",
            processes("node1", (70, "ceph-osd -i 0", "0::/"), (71, "ceph-osd --id 1", in_container)),
            offset_ns=1500 * MS,
            late_ns=MS,
        ),
        answer("links-node1", {"/sys/class/net/ens1/device/uevent": "", "/sys/class/net/ens1/speed": "25000\n"}),
        *(answer(f"clock-{n}-node1", {}, T0 + n * SECOND, offset_ns=1500 * MS, late_ns=n % 3 * MS) for n in range(8)),
        failed("node-node2", "node2: Permission denied (publickey)."),
    ]


def readings(seconds: int = 3, *, offset_ns: int = 0, host: str = "node1") -> list[RawAnswer]:
    """Return readings of a machine, one a second: osd.0 takes 50 ticks and writes 1000 sectors in each."""
    return [
        answer(
            f"proc-{host}",
            {
                "/proc/stat": f"cpu  {100 * at} 0 0 0 0 0 0\ncpu0 \ncpu1 \n",
                "/proc/diskstats": f"8 16 sdb 0 0 0 0 {at} 0 {1000 * at} 0 0 {500 * at} 0\n",
                "/proc/net/dev": f"|\n|\nens1: {9 * at} 0 0 0 0 0 0 0 {at} 0 0 0 0 0 0 0\n",
                "/proc/70/stat": stat(70, 50 * at, 700),
            },
            T0 + at * SECOND,
            offset_ns=offset_ns,
        )
        for at in range(seconds)
    ]


def node(name: str = "node1") -> ScopeNode:
    daemon = DaemonTarget(
        name="osd.0" if name == "node1" else "osd.2", pid=70, start_ticks=700, host=name, device="sdb"
    )
    return ScopeNode(name=name, daemons=(daemon,), links=(ScopeLink(name="ens1", hardware=True),))


SAMPLED = SCOPE.model_copy(update={"nodes": (node("node1"), node("node2"))})


def node_answers(name: str) -> tuple[list[RawAnswer], Scope]:
    """Return answers of a source and their scope, for the tests of all sources."""
    return (look(), SCOPE) if name == "nodes" else (readings(), SCOPE.model_copy(update={"nodes": (node(),)}))


def test_every_machine_is_asked_by_its_ssh_name_and_only_for_osds_that_are_not_here() -> None:
    here = DaemonTarget(name="osd.0", pid=1, start_ticks=1)
    other = DaemonTarget(name="osd.1", pid=2, start_ticks=1)
    target = TARGET.model_copy(update={"daemons": (here, other)})
    asked = nodes.SOURCE.plan(SCOPE.model_copy(update={"target": target}))
    assert {request.label.rpartition("-")[2] for request in asked} == {"node2"}
    (first, *_) = (request for request in asked if isinstance(request, NodeRequest))
    assert first.argv[0] == "ssh"
    assert first.argv[first.argv.index("--") + 1] == "10.0.0.2"
    assert first.argv[first.argv.index("-l") + 1] == "root"
    assert first.question == {"daemons": "ceph-osd", "beside": ["/data/2/ceph_fsid"]}
    without = target.model_copy(update={"ssh": None})
    assert nodes.SOURCE.plan(SCOPE.model_copy(update={"target": without})) == []


@pytest.mark.parametrize(("here", "there", "machine"), [("a", "a", ["localhost"]), ("a", "b", []), ("", "", [])])
def test_a_node_that_runs_under_this_kernel_is_this_machine(here: str, there: str, machine: list[str]) -> None:
    answers = [*look(), answer("links-node1", {"/proc/sys/kernel/random/boot_id": f"{there}\n"})]
    scope = SCOPE.model_copy(update={"boot_id": here})
    facts = from_table(EnvironmentFact, nodes.SOURCE.parse(answers, scope)[EnvironmentFact])
    assert [fact.value for fact in facts if (fact.subject, fact.name) == ("node node1", SAME_MACHINE)] == machine


def test_nodes_of_a_lab_are_looked_at_over_ssh_and_keep_their_throttle() -> None:
    """Their OSDs are processes of this machine too; with ssh they count as the nodes'."""
    limit = DeviceLimit(read_iops=232)
    known = DaemonTarget(name="osd.0", pid=4711, start_ticks=1, host="node1", device="sdb", limit=limit)
    scope = SCOPE.model_copy(update={"target": TARGET.model_copy(update={"daemons": (known,)})})
    assert {request.label.rpartition("-")[2] for request in nodes.SOURCE.plan(scope)} == {"node1", "node2"}
    (found,) = nodes.nodes_of(look(), scope)
    assert [(daemon.pid, daemon.limit) for daemon in found.daemons] == [(70, limit), (71, None)]
    without = scope.model_copy(update={"target": scope.target.model_copy(update={"ssh": None})})
    assert nodes.SOURCE.plan(without) == []


def test_a_client_host_is_looked_at_with_or_without_the_nodes() -> None:
    client = ClientHost(name="node9", ssh=SshAccess(user="load"))
    for ssh, asked in ((None, {"node9"}), (TARGET.ssh, {"node1", "node2", "node9"})):
        target = TARGET.model_copy(update={"ssh": ssh, "client_host": client})
        requests = nodes.SOURCE.plan(SCOPE.model_copy(update={"target": target}))
        assert {request.label.rpartition("-")[2] for request in requests} == asked
        (first, *_) = (r for r in requests if isinstance(r, NodeRequest) and r.label == "node-node9")
        assert first.argv[first.argv.index("-l") + 1] == "load"
    scope = SCOPE.model_copy(
        update={"target": target, "nodes": (node(), ScopeNode(name="node9")), "processes_there": (("client", 70),)}
    )
    paths = {r.label: r.question["paths"] for r in node_proc.SOURCE.plan(scope) if isinstance(r, NodeRequest)}
    assert "/proc/70/stat" in paths["proc-node9"]
    rows = from_table(ProcessSample, node_proc.SOURCE.parse(readings(host="node9"), scope)[ProcessSample])
    assert {(row.process, row.host, row.cpu_user_s) for row in rows} == {
        ("client", "node9", 0.5),
        ("host", "node9", 1.0),
    }
    # No OSD is missed on it.
    assert nodes.caveats([failed("node-node9", "gone")], scope.model_copy(update={"osds": ()})) == []


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a b", "$(x)", "", "a" * 300, "a\nb", "a\n", "a%h"])
def test_a_name_that_is_no_host_name_never_reaches_ssh(name: str) -> None:
    osd = OSDS[0].model_copy(update={"host_name": name})
    scope = SCOPE.model_copy(update={"osds": (osd, OSDS[2])})
    asked = nodes.SOURCE.plan(scope)
    assert {request.label.rpartition("-")[2] for request in asked} == {"node2"}
    caveats = nodes.caveats([failed("node-node2", "refused")], scope)
    assert any("its name cannot be used for ssh" in text and "osd.0" in text for text in caveats)


def test_osds_are_found_by_number_and_known_to_be_of_the_cluster() -> None:
    (found,) = nodes.nodes_of(look(), SCOPE)
    assert [(d.name, d.pid, d.start_ticks, d.host, d.device) for d in found.daemons] == [
        ("osd.0", 70, 700, "node1", "sdb"),
        ("osd.1", 71, 710, "node1", "sdc"),
    ]
    assert [(link.name, link.hardware, link.speed_bits_per_s) for link in found.links] == [("ens1", True, 25 * 10**9)]
    assert nodes.caveats(look(), SCOPE) == [
        "node2 was not sampled for osd.2: it could not be reached over ssh: node2: Permission denied (publickey)."
    ]


@pytest.mark.parametrize(
    ("files", "count"),
    [
        (processes("node1", (70, "ceph-osd -i 0", "")), 1),
        (processes("node9", (70, "ceph-osd -i 0", "")), 0),
        (processes("node1", (70, "ceph-osd -i 0", ""), (71, "ceph-osd -i 0", "")), 0),
        ({**processes("node1", (70, "ceph-osd -i 0", "")), "/proc/70/root/data/0/ceph_fsid": "another"}, 0),
        ({**processes("node9", (70, "ceph-osd -i 0", "")), "/proc/70/root/data/0/ceph_fsid": f"{FSID}\n"}, 1),
        # An OSD that the cluster knows on another machine.
        (processes("node1", (70, "ceph-osd -i 2", "")), 0),
    ],
)
def test_whose_osd_a_process_is(files: dict[str, str], count: int) -> None:
    answers = [answer("node-node1", files)]
    (found,) = nodes.nodes_of(answers, SCOPE)
    assert len(found.daemons) == count
    assert any("not found there" in text for text in nodes.caveats(answers, SCOPE))


def test_the_clock_is_told_by_the_fastest_round_trip() -> None:
    facts = {f.name: f.value for f in from_table(EnvironmentFact, nodes.SOURCE.parse(look(), SCOPE)[EnvironmentFact])}
    # Trips of 2, 3 and 4 ms, of which the longer ones are one-sided.
    assert int(facts["clock_error_ns"]) == MS
    assert int(facts["clock_offset_ns"]) == 1500 * MS
    assert facts["osds"] == "0 1"
    assert facts["network_links"] == "ens1 25 Gbit/s"
    assert clock_of([failed("clock-0-node1", "gone")]) is None


def test_readings_are_put_at_our_time_and_intervals_keep_their_length() -> None:
    for offset_ns in (0, 1500 * MS, -3600 * SECOND):
        tables = node_proc.SOURCE.parse(readings(offset_ns=offset_ns), SAMPLED)
        devices = from_table(DeviceSample, tables[DeviceSample])
        assert [(d.at_ns - T0, d.duration_ns, d.host, d.role, d.write_bytes) for d in devices] == [
            (SECOND + 2 * MS, SECOND, "node1", "osd.0", 512_000),
            (2 * SECOND + 2 * MS, SECOND, "node1", "osd.0", 512_000),
        ]
        rows = from_table(ProcessSample, tables[ProcessSample])
        assert {(r.process, r.host, r.cpu_user_s, r.processors) for r in rows} == {
            ("osd.0", "node1", 0.5, 2),
            ("host", "node1", 1.0, 2),
        }
        network = from_table(NetworkSample, tables[NetworkSample])
        assert [(n.at_ns - T0, n.host, n.interface, n.receive_bytes, n.transmit_bytes) for n in network] == [
            (at * SECOND + 2 * MS, "node1", "ens1", 9, 1) for at in (1, 2)
        ]


def test_a_clock_that_is_set_meanwhile_moves_no_reading_out_of_its_exchange() -> None:
    later = [
        dataclasses.replace(a, started_ns=a.started_ns + 3 * SECOND, ended_ns=a.ended_ns + 3 * SECOND)
        for a in readings(3, offset_ns=90 * SECOND)
    ]
    answers = [*readings(3), *later]
    rows = from_table(DeviceSample, node_proc.SOURCE.parse(answers, SAMPLED)[DeviceSample])
    for row in rows:
        assert any(a.started_ns <= row.at_ns <= a.ended_ns for a in answers)


def test_a_machine_that_dies_costs_its_own_figures_and_is_named() -> None:
    well = [dataclasses.replace(a, label="proc-node2") for a in readings()]
    gone = [*readings(2), failed("proc-node1", "the connection was lost", T0 + 2 * SECOND)]
    tables = node_proc.SOURCE.parse([*gone, *well], SAMPLED)
    assert {row.host for row in from_table(ProcessSample, tables[ProcessSample])} == {"node2"}
    assert node_proc.caveats([*gone, *well], SAMPLED) == [
        "node1 has no processor and device figures: 1 of 3 readings failed: the connection was lost"
    ]


def test_a_gap_loses_nothing_and_is_said() -> None:
    first, _, last = readings()
    gap = [first, failed("proc-node1", "no answer within 2 s", T0 + SECOND), last]
    scope = SCOPE.model_copy(update={"nodes": (node(),)})
    rows = from_table(DeviceSample, node_proc.SOURCE.parse(gap, scope)[DeviceSample])
    assert [(row.duration_ns, row.write_bytes) for row in rows] == [(2 * SECOND, 1_024_000)]
    assert node_proc.caveats(gap, scope) == [
        "node1 was sampled more rarely: 1 of 3 readings failed: no answer within 2 s"
    ]
    assert node_proc.caveats(readings(), scope) == []


def test_a_machine_that_answers_nonsense_costs_its_own_figures() -> None:
    bad = [dataclasses.replace(a, label="proc-node2", files=(("/proc/diskstats", b"8 16 sdb x"),)) for a in readings()]
    tables = node_proc.SOURCE.parse([*readings(), *bad], SAMPLED)
    assert {row.host for row in from_table(DeviceSample, tables[DeviceSample])} == {"node1"}
    (text,) = node_proc.caveats([*readings(), *bad], SAMPLED)
    assert text.startswith("node2 has no processor and device figures: /proc of node2 has an unexpected form")
