"""/proc: recorded readings of a lab under load, and readings made by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bathyscope.host import ReadRequest
from bathyscope.host.local import LocalHost
from bathyscope.records import DeviceSample, ProcessSample, RawAnswer, from_table
from bathyscope.sources.proc import SOURCE
from bathyscope.spec import BluefsDevice, DaemonTarget, DeviceLimit, DiskTarget, Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
FIXTURE = "proc/linux-6.18/randwrite"
SECOND = 10**9
T0 = 1_700_000_000 * SECOND


def reading(at_ns: int, files: Mapping[str, bytes]) -> RawAnswer:
    return RawAnswer("proc", ("cat", *files), (), 0, b"", b"", at_ns, at_ns, tuple(files.items()))


def parse(answers: list[RawAnswer], scope: Scope) -> tuple[list[DeviceSample], list[ProcessSample]]:
    tables = SOURCE.parse(answers, scope)
    return from_table(DeviceSample, tables[DeviceSample]), from_table(ProcessSample, tables[ProcessSample])


def recorded_load(recorded: Recorded) -> tuple[list[RawAnswer], Scope, int]:
    """Return the readings, their scope and the bytes that fio wrote meanwhile."""
    answers = {answer.label: answer for answer in recorded(FIXTURE)}
    target = Target.model_validate_json((Path(__file__).parents[2] / "fixtures" / FIXTURE / "target.txt").read_bytes())
    words = [word.partition("=") for word in answers["proc"].argv[1:]]
    scope = Scope(target=target, processes=tuple((role, int(pid)) for role, _, pid in words))
    readings = []
    # They were recorded as one text: "=== TIME", then for each file "--- PATH" and its content.
    for block in re.split(rb"^=== ", answers["proc"].stdout, flags=re.MULTILINE)[1:]:
        stamp, _, rest = block.partition(b"\n")
        parts = [part.partition(b"\n") for part in re.split(rb"^--- ", rest, flags=re.MULTILINE)[1:]]
        readings.append(reading(int(stamp), {path.decode(): content for path, _, content in parts}))
    (job,) = json.loads(answers["fio-0"].stdout[answers["fio-0"].stdout.index(b"{") :])["jobs"]
    return readings, scope, job["write"]["io_bytes"]


def test_a_recorded_load_is_seen_on_devices_daemons_and_client(recorded: Recorded) -> None:
    answers, scope, load_bytes = recorded_load(recorded)
    devices, processes = parse(answers, scope)
    osds = {daemon.name for daemon in scope.target.daemons if daemon.name.startswith("osd.")}
    assert {row.role for row in devices} >= osds
    assert {row.process for row in processes} == {d.name for d in scope.target.daemons} | {"client", "bathy", "host"}
    # Three replicas of each client byte reach the devices, and the write-ahead log besides.
    written = sum(row.write_bytes for row in devices if row.role in osds)
    assert written > 3 * load_bytes > 0
    for row in devices:
        assert 0 <= row.busy_ratio < 1.1
        assert (row.read_limit_ratio is not None) == (row.role in osds or row.role == "disk")
    machine = sum(row.cpu_user_s + row.cpu_system_s for row in processes if row.process == "host")
    parts = sum(row.cpu_user_s + row.cpu_system_s for row in processes if row.process != "host")
    assert 0 < parts <= machine + 0.1 * parts
    assert {row.processors for row in processes} == {2}
    times = [answer.ended_ns for answer in answers]
    for name in ("osd.0", "host"):
        rows = [row for row in processes if row.process == name]
        assert [row.at_ns for row in rows] == times[1:]
        assert [row.at_ns - row.duration_ns for row in rows] == times[:-1]


def diskstats(device: str, reads: int, writes: int, ticks: int) -> str:
    return f" 7 0 {device} {reads} 0 {reads * 8} 5 {writes} 0 {writes * 16} 5 0 {ticks} 9 0 0 0 0\n"


def process(name: str, user: int, system: int, pages: int = 100, start: int = 77) -> str:
    return f"5 ({name}) S {' '.join(['1'] * 10)} {user} {system} {' '.join(['0'] * 6)} {start} 0 {pages} 0\n"


def made(readings: Mapping[float, Mapping[str, str]]) -> list[RawAnswer]:
    return [
        reading(T0 + round(at * SECOND), {path: content.encode() for path, content in files.items()})
        for at, files in readings.items()
    ]


def test_devices_of_block_db_and_block_wal_have_roles_of_their_own() -> None:
    ssd = [
        BluefsDevice(use="db", device="sdz"),
        BluefsDevice(use="wal", device="sdy", device_class="nvme", limit=LIMIT),
    ]
    daemons = tuple(
        DaemonTarget(name=f"osd.{osd}", pid=osd, start_ticks=1, device=f"sd{osd}", bluefs_devices=tuple(ssd[: 2 - osd]))
        for osd in range(2)
    )
    readings = {
        at: {"/proc/diskstats": "".join(diskstats(device, 1, 1, 1) for device in ("sd0", "sd1", "sdy", "sdz"))}
        for at in (0.0, 1.0)
    }
    devices, _ = parse(made(readings), Scope(target=Target(name="t", daemons=daemons)))
    assert {row.device: (row.role, row.device_class, row.write_limit_ratio) for row in devices} == {
        "sd0": ("osd.0", "", None),
        "sd1": ("osd.1", "", None),
        "sdz": ("osd.0.db osd.1.db", "", None),
        "sdy": ("osd.0.wal", "nvme", 0.0),
    }


LIMIT = DeviceLimit(read_iops=232, write_iops=100, read_bytes_per_s=10e6)
TARGET = Target(
    name="t",
    disks={"hdd": DiskTarget(path="/dev/loop1", device="loop1", limit=LIMIT)},
    daemons=(DaemonTarget(name="osd.3", pid=5, start_ticks=77, device="/dev/loop3", device_class="ssd"),),
)
SCOPE = Scope(target=TARGET, processes=(("bathy", 1), ("client", 8), ("client", 9)))


def test_each_pair_of_readings_is_an_interval_and_sums_are_exact() -> None:
    counted = {0.0: (100, 0), 0.2: (107, 100), 1.0: (300, 500), 3.0: (300, 500)}
    readings = {at: {"/proc/diskstats": diskstats("loop1", reads, 7, busy)} for at, (reads, busy) in counted.items()}
    devices, _ = parse(made(readings), SCOPE)
    assert [row.read_count for row in devices] == [7, 193, 0]
    assert [row.read_bytes for row in devices] == [7 * 4096, 193 * 4096, 0]
    assert [row.write_bytes for row in devices] == [0, 0, 0]
    assert [(row.at_ns - T0) / SECOND for row in devices] == [0.2, 1, 3]
    assert [row.duration_ns / SECOND for row in devices] == [0.2, 0.8, 2]
    assert [row.busy_ratio for row in devices] == pytest.approx([0.5, 0.5, 0])
    assert {(row.role, row.device_class) for row in devices} == {("disk", "hdd")}


@pytest.mark.parametrize(
    ("reads", "writes", "of_reads", "of_writes"),
    [(232, 0, 1.0, 0.0), (116, 0, 0.5, 0.0), (0, 90, 0.0, 0.9), (500, 50, 500 / 232, 0.5), (0, 0, 0.0, 0.0)],
)
def test_each_direction_has_its_share_of_its_limit_and_bursts_exceed_it(
    reads: int, writes: int, of_reads: float, of_writes: float
) -> None:
    readings = {
        0.0: {"/proc/diskstats": diskstats("loop1", 0, 0, 0)},
        1.0: {"/proc/diskstats": diskstats("loop1", reads, writes, 0)},
    }
    devices, _ = parse(made(readings), SCOPE)
    assert devices[0].read_limit_ratio == pytest.approx(of_reads)
    assert devices[0].write_limit_ratio == pytest.approx(of_writes)


def test_only_whole_disks_that_were_used_are_other_devices() -> None:
    names = ("sda", "sda1", "nvme0n1", "nvme0n1p2", "loop9", "dm-0", "sdb", "vda")
    lines = {0.0: "", 1.0: ""}
    for name in names:
        lines[0.0] += diskstats(name, 10, 10, 0)
        lines[1.0] += diskstats(name, 10 if name == "sdb" else 20, 10, 0)
    devices, _ = parse(made({at: {"/proc/diskstats": content} for at, content in lines.items()}), SCOPE)
    assert {row.device for row in devices} == {"sda", "nvme0n1", "dm-0", "vda"}
    assert {row.role for row in devices} == {"other"}


def test_a_device_that_went_and_came_back_costs_one_interval() -> None:
    readings = {
        at: {"/proc/diskstats": "" if reads is None else diskstats("loop3", reads, 0, 0)}
        for at, reads in {0.0: 50, 1.0: 60, 2.0: None, 3.0: 2, 4.0: 5}.items()
    }
    devices, _ = parse(made(readings), SCOPE)
    assert [((row.at_ns - T0) // SECOND, row.read_count, row.role) for row in devices] == [
        (1, 10, "osd.3"),
        (4, 3, "osd.3"),
    ]


def test_processes_are_told_by_start_time_and_clients_are_added_up() -> None:
    readings = {
        0.0: {"/proc/5/stat": process("ceph-osd", 100, 50), "/proc/8/stat": process("fio", 0, 0)},
        1.0: {
            "/proc/5/stat": process("a) b (c", 150, 60, pages=200),
            "/proc/8/stat": process("fio", 30, 10),
            "/proc/9/stat": process("fio", 0, 0),
        },
        2.0: {
            # The daemon was restarted under the same pid; its counters are another process's.
            "/proc/5/stat": process("ceph-osd", 1, 1, start=78),
            "/proc/9/stat": process("fio", 20, 0),
        },
    }
    _, processes = parse(made(readings), SCOPE)
    rows = {(row.process, (row.at_ns - T0) // SECOND): row for row in processes}
    assert (rows["osd.3", 1].cpu_user_s, rows["osd.3", 1].cpu_system_s) == (0.5, 0.1)
    assert rows["osd.3", 1].memory_bytes == 200 * 4096
    assert ("osd.3", 2) not in rows
    assert (rows["client", 1].cpu_user_s, rows["client", 1].cpu_system_s) == (0.3, 0.1)
    assert rows["client", 1].memory_bytes == 200 * 4096
    assert (rows["client", 2].cpu_user_s, rows["client", 2].cpu_system_s) == (0.2, 0)
    assert ("bathy", 1) not in rows


def test_load_processes_count_from_their_first_reading_and_lose_nothing() -> None:
    fio = {8: {0: 5, 1: 25, 2: 45}, 9: {2: 300, 3: 310, 4: 330}}
    readings = {
        float(at): {f"/proc/{pid}/stat": process("fio", seen[at], 0) for pid, seen in fio.items() if at in seen}
        for at in range(6)
    }
    # One reading of a process that goes on is missing; and the pid of one that ended is given to a new one.
    del readings[1.0]["/proc/8/stat"]
    readings[5.0] = {"/proc/8/stat": process("fio", 3, 0, start=99), "/proc/9/stat": process("fio", 331, 0)}
    _, processes = parse(made(readings), SCOPE)
    used = {(row.at_ns - T0) // SECOND: row.cpu_user_s for row in processes}
    assert used == pytest.approx({2: 0.4, 3: 0.1, 4: 0.2, 5: 0.01})


def test_ticks_and_pages_are_those_of_the_scope() -> None:
    readings = {at: {"/proc/5/stat": process("ceph-osd", round(250 * at), 0)} for at in (0.0, 1.0)}
    scope = SCOPE.model_copy(update={"clock_ticks_per_s": 250, "page_bytes": 65536})
    _, (row,) = parse(made(readings), scope)
    assert (row.cpu_user_s, row.memory_bytes) == (1.0, 100 * 65536)


def test_the_machine_is_a_row_of_its_own() -> None:
    stat = "cpu  {0} 10 {0} 9999 5 1 2 {1} 0 0\ncpu0 1 1 1 1 1 1 1 0\ncpu1 1 1 1 1 1 1 1 0\nintr 99\n"
    _, (row,) = parse(
        made({at: {"/proc/stat": stat.format(round(100 * at), round(10 * at))} for at in (1.0, 3.0)}), SCOPE
    )
    assert (row.process, row.cpu_user_s, row.cpu_system_s, row.cpu_steal_s) == ("host", 2.0, 2.0, 0.2)
    assert (row.memory_bytes, row.processors) == (None, 2)


@pytest.mark.parametrize(("columns", "steal_s"), [("", None), (" {}", 0.1)])
def test_steal_that_is_unknown_or_goes_back(columns: str, steal_s: float | None) -> None:
    counted = {1.0: 20, 2.0: 30, 3.0: 5}
    stat = {at: f"cpu  {100 * at:.0f} 0 0 0 0 0 0{columns.format(steal)}\ncpu0 \n" for at, steal in counted.items()}
    _, rows = parse(made({at: {"/proc/stat": text} for at, text in stat.items()}), SCOPE)
    assert [row.cpu_steal_s for row in rows] == [steal_s, None if steal_s is None else 0.0]


def test_one_request_names_all_files_of_a_reading() -> None:
    (request,) = SOURCE.plan(SCOPE)
    assert isinstance(request, ReadRequest)
    assert request.paths == (
        "/proc/stat",
        "/proc/diskstats",
        "/proc/net/dev",
        *(f"/proc/{pid}/stat" for pid in (1, 5, 8, 9)),
    )


def test_a_real_reading_is_cheap() -> None:
    host = LocalHost()
    (request,) = SOURCE.plan(Scope(target=Target(name="t"), processes=(("bathy", 1),)))
    assert isinstance(request, ReadRequest)
    answers, took_ns = [], []
    for _ in range(5):
        began_ns = host.monotonic_ns()
        files = {path: host.read(path) for path in request.paths}
        took_ns.append(host.monotonic_ns() - began_ns)
        answers.append(reading(host.now_ns(), files))
        host.sleep(0.05)
    _, processes = parse(answers, Scope(target=Target(name="t"), processes=(("bathy", 1),)))
    assert [row.process for row in processes] == ["bathy", "host"] * 4
    assert min(took_ns) < 10_000_000


def test_no_reading_or_one_has_no_rows() -> None:
    assert parse([], SCOPE) == ([], [])
    assert parse(made({0.0: {"/proc/5/stat": process("ceph-osd", 1, 1)}}), SCOPE) == ([], [])
    assert parse(made({0.0: {}, 1.0: {}}), SCOPE) == ([], [])


def test_requests_that_were_merged_count_towards_the_limit() -> None:
    """Sequential requests pass the throttle one by one and reach the device as fewer, larger ones."""
    line = " 7 0 loop1 {} {} {} 5 0 0 0 5 0 {} 9 0 0 0 0\n"
    readings = {
        0.0: {"/proc/diskstats": line.format(0, 0, 0, 0)},
        1.0: {"/proc/diskstats": line.format(80, 150, 230 * 8, 500)},
    }
    (row,), _ = parse(made(readings), SCOPE)
    assert row.read_count == 80
    assert row.read_bytes == 230 * 4096
    assert row.read_limit_ratio == pytest.approx(230 / 232)


def test_a_device_that_several_osds_share_is_one_row_with_the_names_of_all() -> None:
    daemons = tuple(DaemonTarget(name=f"osd.{n}", pid=n + 2, start_ticks=1, device="vda") for n in range(3))
    files = [b"8 0 vda 1 0 8 0 1 0 8 0 0 0 0\n", b"8 0 vda 2 0 16 0 1 0 8 0 0 0 0\n"]
    readings = [reading(T0 + n * SECOND, {"/proc/diskstats": text}) for n, text in enumerate(files)]
    (row,), _ = parse(readings, Scope(target=Target(name="t", daemons=daemons)))
    assert (row.device, row.role, row.read_count) == ("vda", "osd.0 osd.1 osd.2", 1)
