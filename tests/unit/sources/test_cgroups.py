"""Control groups: the limits that hold for a process, by recorded files of both versions and by texts in their form."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from bathyscope.host import NodeRequest, ReadRequest
from bathyscope.host.local import LocalHost
from bathyscope.host.node_sampler import group_paths, matching
from bathyscope.recording.collect import collect
from bathyscope.records import CgroupSample, RawAnswer, from_table
from bathyscope.sources.cgroups import SOURCE
from bathyscope.spec import ClientHost, DaemonTarget, SshAccess, Target
from bathyscope.spec.scope import Scope, ScopeNode

FIXTURES = Path(__file__).parents[2] / "fixtures" / "cgroups"
SECOND = 10**9
GROUPS = "/sys/fs/cgroup"


def recorded_groups(name: str) -> list[RawAnswer]:
    """Return the readings of a recording."""
    readings = []
    for block in re.split(r"^=== ", (FIXTURES / name).read_text(), flags=re.MULTILINE)[1:]:
        stamp, _, rest = block.partition("\n")
        parts = [part.partition("\n") for part in re.split(r"^--- ", rest, flags=re.MULTILINE)[1:]]
        readings.append(reading(int(stamp), {path: text for path, _, text in parts}))
    return readings


def reading(at_ns: int, files: Mapping[str, str], label: str = "cgroups") -> RawAnswer:
    return RawAnswer(label, (), (), 0, b"", b"", at_ns, at_ns, tuple((p, t.encode()) for p, t in files.items()))


def rows_of(answers: list[RawAnswer], scope: Scope) -> list[CgroupSample]:
    return from_table(CgroupSample, SOURCE.parse(answers, scope)[CgroupSample])


NESTED = Scope(
    target=Target(name="t", daemons=(DaemonTarget(name="osd.0", pid=96, start_ticks=260, device="vda"),)),
)
LAB = Scope(
    target=Target(
        name="t",
        daemons=(
            DaemonTarget(name="osd.0", pid=8590, start_ticks=1306667, device="loop11", host="node1"),
            DaemonTarget(name="osd.1", pid=8579, start_ticks=1306657, device="loop8", host="node2"),
        ),
    ),
    processes=(("client", 11065),),
)


def test_recorded_groups_of_version_1() -> None:
    """osd.0 has a group for its processor time and one for its device, osd.1 shares the lab's, the load has none."""
    rows = rows_of(recorded_groups("linux-6.18/v1-osds-and-load.txt"), LAB)
    assert [(row.host, row.process) for row in rows[:3]] == [
        ("node1", "osd.0"),
        ("node2", "osd.1"),
        ("localhost", "client"),
    ]
    own, labs, load = ([row for row in rows if row.process == name] for name in ("osd.0", "osd.1", "client"))
    assert len(own) == len(labs) == len(load) == 3
    # Of 0.02 and 1.5 processors, the group above it.
    assert {row.cpu_quota_cores for row in own} == {0.02}
    assert [row.cpu_throttled_s for row in own] == [1.070721805, 0.834237717, 0.91725131]
    assert [(row.cpu_period_count, row.cpu_throttled_period_count) for row in own] == [(10, 10)] * 3
    assert {(row.device, row.write_iops_limit, row.read_bytes_per_s_limit) for row in own} == {("loop11", 50.0, 2**20)}
    assert {(row.read_iops_limit, row.write_bytes_per_s_limit) for row in own} == {(None, None)}
    assert [(row.read_request_count, row.write_request_count) for row in own] == [(0, 52), (0, 50), (0, 46)]
    assert {(row.cpu_quota_cores, row.cpu_throttled_s, row.cpu_period_count) for row in labs} == {(None, None, None)}
    assert {(row.device, row.read_iops_limit, row.write_bytes_per_s_limit) for row in labs} == {
        ("loop8", 85100.0, 520e6)
    }
    assert all((row.write_request_count or 0) > 40 for row in labs)
    assert {(row.device, row.cpu_quota_cores, row.write_iops_limit, row.write_request_count) for row in load} == {
        ("", None, None, None)
    }


def test_recorded_groups_of_version_2_have_the_tightest_limit_of_their_path() -> None:
    """The group above the OSD's allows a quarter of a processor and 40 writes, its own half of one and 60."""
    rows = rows_of(recorded_groups("linux-6.1/v2-nested.txt"), NESTED)
    assert len(rows) == 2
    assert {row.cpu_quota_cores for row in rows} == {0.25}
    limits = {
        (row.read_iops_limit, row.write_iops_limit, row.read_bytes_per_s_limit, row.write_bytes_per_s_limit)
        for row in rows
    }
    assert limits == {(120.0, 40.0, 2097152.0, None)}
    # What that group counted, and not the OSD's own, which saw fewer requests.
    assert [(row.read_request_count, row.write_request_count) for row in rows] == [(0, 62), (0, 89)]
    assert [(row.cpu_period_count, row.cpu_throttled_period_count) for row in rows] == [(16, 13), (36, 32)]
    assert [row.cpu_throttled_s for row in rows] == [0.645797, 1.757395]


def v2(pid: int, group: str, **files: str) -> dict[str, str]:
    """Return files of a process in a group of version 2; a keyword cpu_max is the file cpu.max."""
    stat = f"{pid} (x) S " + " ".join(["0"] * 18) + f" {10 * pid} 0 0"
    named = {f"{GROUPS}{group}/{name.replace('_', '.')}": text for name, text in files.items()}
    return {f"/proc/{pid}/stat": stat, f"/proc/{pid}/cgroup": f"0::{group}\n", **named}


def cpu_stat(periods: int, throttled: int, usec: int) -> str:
    return f"usage_usec 1\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {usec}\n"


LOAD = Scope(target=Target(name="t"), processes=(("client", 1), ("client", 2)))


def test_load_processes_of_one_group_share_its_quota_and_those_of_several_have_the_sum() -> None:
    def at(second: int, group_of_second: str) -> RawAnswer:
        files = v2(1, "/a", cpu_max="200000 100000", cpu_stat=cpu_stat(10 * second, 2 * second, 500_000 * second))
        other = v2(2, group_of_second, cpu_max="50000 100000", cpu_stat=cpu_stat(10 * second, second, 100_000 * second))
        return reading(second * SECOND, {**other, **files})

    (shared,) = rows_of([at(1, "/a"), at(2, "/a")], LOAD)
    assert (shared.cpu_quota_cores, shared.cpu_throttled_s) == (2.0, 0.5)
    assert (shared.cpu_period_count, shared.cpu_throttled_period_count) == (10, 2)
    (apart,) = rows_of([at(1, "/b"), at(2, "/b")], LOAD)
    assert (apart.cpu_quota_cores, apart.cpu_throttled_s) == (2.5, 0.6)
    assert (apart.cpu_period_count, apart.cpu_throttled_period_count) == (20, 3)


def test_a_load_process_without_a_quota_is_held_back_by_none() -> None:
    files = [
        reading(s * SECOND, {**v2(1, "/a", cpu_max="5000 100000", cpu_stat=cpu_stat(s, s, s)), **v2(2, "/")})
        for s in (1, 2)
    ]
    (row,) = rows_of(files, LOAD)
    assert (row.cpu_quota_cores, row.cpu_throttled_s, row.cpu_period_count) == (None, None, None)


def test_a_process_that_was_moved_is_found_and_costs_one_interval() -> None:
    scope = Scope(target=Target(name="t"), processes=(("client", 1),))
    groups = {1: "/a", 2: "/a", 3: "/b", 4: "/b"}
    quotas = {"/a": "100000 100000", "/b": "20000 100000"}
    answers = [reading(s * SECOND, v2(1, group, cpu_max=quotas[group])) for s, group in groups.items()]
    assert [(row.at_ns // SECOND, row.cpu_quota_cores) for row in rows_of(answers, scope)] == [(2, 1.0), (4, 0.2)]


def test_a_pid_that_another_process_got_is_not_the_daemon() -> None:
    daemon = DaemonTarget(name="osd.1", pid=1, start_ticks=11)
    answers = [reading(s * SECOND, v2(1, "/a", cpu_max="5000 100000")) for s in (1, 2)]
    assert rows_of(answers, Scope(target=Target(name="t", daemons=(daemon,)))) == []
    same = daemon.model_copy(update={"start_ticks": 10})
    assert len(rows_of(answers, Scope(target=Target(name="t", daemons=(same,))))) == 1


def test_counters_that_went_back_are_those_of_another_group() -> None:
    daemon = DaemonTarget(name="osd.1", pid=1, start_ticks=10, device="sda")
    scope = Scope(target=Target(name="t", daemons=(daemon,)))

    def at(second: int, count: int) -> RawAnswer:
        files = v2(
            1, "/a", cpu_max="5000 100000", cpu_stat=cpu_stat(count, count, count),
            io_max="8:0 rbps=max wbps=max riops=max wiops=30\n", io_stat=f"8:0 rbytes=0 rios={count} wios={count}\n",
        )  # fmt: skip
        return reading(second * SECOND, {**files, "/sys/class/block/sda/dev": "8:0\n"})

    first, second = rows_of([at(1, 50), at(2, 20), at(3, 25)], scope)
    assert (first.cpu_quota_cores, first.cpu_throttled_s, first.write_request_count) == (0.05, None, None)
    assert (second.write_iops_limit, second.write_request_count, second.cpu_period_count) == (30.0, 5, 5)


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [({"dm-0": "253:0"}, (25.0, 7)), ({"dm-0": "253:0", "dm-1": "253:1"}, (90.0, 3)), ({}, (90.0, 3))],
)
def test_a_limit_of_the_volume_on_the_device_counts_where_there_is_one(
    volumes: Mapping[str, str], expected: tuple[float, int]
) -> None:
    daemon = DaemonTarget(name="osd.1", pid=1, start_ticks=10, device="sda")

    def at(second: int) -> RawAnswer:
        files = v2(
            1, "/a",
            io_max="253:0 rbps=max wbps=max riops=max wiops=25\n8:0 rbps=max wbps=max riops=max wiops=90\n",
            io_stat=f"8:0 rios=0 wios={3 * second}\n253:0 rios=0 wios={7 * second}\n",
        )  # fmt: skip
        held = {f"/sys/class/block/sda/holders/{name}/dev": f"{number}\n" for name, number in volumes.items()}
        return reading(second * SECOND, {**files, **held, "/sys/class/block/sda/dev": "8:0\n"})

    (row,) = rows_of([at(1), at(2)], Scope(target=Target(name="t", daemons=(daemon,))))
    assert (row.write_iops_limit, row.write_request_count) == expected


def test_other_machines_are_asked_over_ssh_for_their_daemons_and_their_load() -> None:
    daemon = DaemonTarget(name="osd.0", pid=70, start_ticks=700, host="node1", device="sdb")
    target = Target(name="t", ssh=SshAccess(), client_host=ClientHost(name="node1"))
    scope = Scope(target=target, nodes=(ScopeNode(name="node1", daemons=(daemon,)),), processes_there=(("client", 7),))
    here, there = SOURCE.plan(scope)
    assert isinstance(here, ReadRequest)
    assert here.paths == ()
    assert isinstance(there, NodeRequest)
    paths = there.question["paths"]
    assert {"/proc/7/cgroup", "/proc/70/cgroup", "/sys/class/block/sdb/dev"} <= set(paths)
    # Only an OSD has a device: the groups of all devices of a machine are a long list.
    assert [path for path in paths if "io.max" in path and path.startswith("/proc/7/")] == []
    files = {
        **v2(7, "/a", cpu_max="5000 100000"),
        **v2(70, "/b", io_max="8:16 rbps=max wbps=max riops=9 wiops=max\n"),
        "/sys/class/block/sdb/dev": "8:16\n",
    }
    rows = rows_of([reading(s * SECOND, files, there.label) for s in (1, 2)], scope)
    assert [(row.host, row.process, row.device, row.read_iops_limit, row.cpu_quota_cores) for row in rows] == [
        ("node1", "osd.0", "sdb", 9.0, None),
        ("node1", "client", "", None, 0.05),
    ]


@pytest.mark.parametrize(
    ("text", "cpu", "blkio", "io"),
    [
        ("0::/a/b\n", [f"{GROUPS}/a/b", f"{GROUPS}/a", GROUPS], [], [f"{GROUPS}/a/b", f"{GROUPS}/a", GROUPS]),
        # The throttle of version 1 knows no groups above.
        (
            "4:cpu,cpuacct:/a\n3:blkio:/c/d\n1:name=systemd:/x\n0::/x\n",
            [f"{GROUPS}/cpu/a", f"{GROUPS}/cpu"],
            [f"{GROUPS}/blkio/c/d"],
            [],
        ),
        # Both versions at once: what version 1 does not have is version 2's.
        ("3:cpu:/\n0::/x\n", [f"{GROUPS}/cpu"], [], [f"{GROUPS}/unified/x", f"{GROUPS}/unified"]),
        # A process outside of our own namespace of groups.
        ("0::/../other\n", [], [], []),
        ("nonsense\n", [], [], []),
    ],
)
def test_the_groups_whose_limits_hold(text: str, cpu: list[str], blkio: list[str], io: list[str]) -> None:
    assert [group_paths(text, controller) for controller in ("cpu", "blkio", "io")] == [cpu, blkio, io]


def test_the_groups_of_a_process_are_found_when_they_are_read() -> None:
    text = Path("/proc/self/cgroup").read_text()
    expected = [f"{group}/cpu.stat" for group in group_paths(text, "cpu")]
    assert matching(f"/proc/{os.getpid()}/cgroup/*/cpu.stat") == expected
    assert matching("/proc/0/cgroup/*/cpu.stat") == []


def test_a_group_that_processes_share_is_read_once() -> None:
    me = os.getpid()
    scope = Scope(target=Target(name="t"), processes=(("client", me), ("client", os.getppid()), ("bathy", me)))
    (answer,) = collect(LocalHost(), None, SOURCE.plan(scope))
    paths = [path for path, _ in answer.files]
    assert f"/proc/{me}/cgroup" in paths
    assert len(paths) == len(set(paths))
