"""The /proc sampler and its parser: recorded readings of a lab under load, and readings made by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bathyscope.errors import ParseError
from bathyscope.host.fake import FakeHost
from bathyscope.host.local import LocalHost
from bathyscope.records import DeviceSample, ProcessSample, to_table
from bathyscope.sources import fio, proc
from bathyscope.sources.base import RawAnswer
from bathyscope.spec import DaemonTarget, DeviceLimit, DiskTarget, Target

Recorded = Callable[[str], list[RawAnswer]]
Mutate = Callable[[bytes, st.DataObject], bytes]
FIXTURE = "proc/linux-6.18/randwrite"
SECOND = 10**9
T0 = 1_700_000_000 * SECOND


def recorded_step(recorded: Recorded) -> tuple[RawAnswer, Target, proc.Window, fio.FioRows]:
    answers = {answer.label: answer for answer in recorded(FIXTURE)}
    target = Target.model_validate_json((Path(__file__).parents[2] / "fixtures" / FIXTURE / "target.txt").read_bytes())
    rows = fio.parse("r", 0, answers["fio-0"], client="fio#0")
    return answers["proc"], target, proc.Window(rows.measured_start_ns, rows.measured_end_ns), rows


def test_a_recorded_load_is_seen_on_devices_daemons_and_client(recorded: Recorded) -> None:
    answer, target, window, load = recorded_step(recorded)
    devices, processes = proc.parse("r", 0, answer, target, window)
    assert to_table(DeviceSample, devices).num_rows == len(devices)
    assert to_table(ProcessSample, processes).num_rows == len(processes)
    osds = {daemon.name for daemon in target.daemons if daemon.name.startswith("osd.")}
    assert {row.role for row in devices} >= osds
    assert {row.process for row in processes} == {d.name for d in target.daemons} | {"client", "bathy", "host"}
    # Three replicas of each client byte reach the devices, and the write-ahead log besides.
    written = sum(row.write_bytes for row in devices if row.role in osds)
    assert written > 3 * sum(result.io_bytes for result in load.results)
    for row in devices:
        assert 0 <= row.busy_ratio <= 1
        assert (row.limit_ratio is not None) == (row.role in osds or row.role == "disk")
    machine = sum(row.cpu_user_s + row.cpu_system_s for row in processes if row.process == "host")
    parts = sum(row.cpu_user_s + row.cpu_system_s for row in processes if row.process != "host")
    assert 0 < parts <= machine + 0.1 * parts
    assert {row.processors for row in processes} == {2}
    assert max(row.offset_ns for row in devices) == window.end_ns - window.start_ns


def diskstats(device: str, reads: int, writes: int, ticks: int) -> str:
    return f" 7 0 {device} {reads} 0 {reads * 8} 5 {writes} 0 {writes * 16} 5 0 {ticks} 9 0 0 0 0\n"


def process(name: str, user: int, system: int, pages: int = 100, start: int = 77) -> str:
    return f"5 ({name}) S {' '.join(['1'] * 10)} {user} {system} {' '.join(['0'] * 6)} {start} 0 {pages} 0\n"


def text(readings: Mapping[float, Mapping[str, str]]) -> RawAnswer:
    blocks = [
        f"=== {T0 + round(at * SECOND)}\n" + "".join(f"--- {path}\n{content}" for path, content in files.items())
        for at, files in readings.items()
    ]
    return RawAnswer("proc", ("/proc", "bathy=1", "client=8", "client=9"), (), 0, "".join(blocks).encode(), b"", T0, T0)


LIMIT = DeviceLimit(read_iops=232, write_iops=100, read_bytes_per_s=10e6)
TARGET = Target(
    name="t",
    disks={"hdd": DiskTarget(path="/dev/loop1", device="loop1", limit=LIMIT)},
    daemons=(DaemonTarget(name="osd.3", pid=5, start_ticks=77, device="/dev/loop3", device_class="ssd"),),
)


def test_readings_are_interpolated_to_the_window_and_sums_are_exact() -> None:
    # 100 reads a second from -0.5 s to 2.5 s; the window is 0 to 2 s and lies between the readings.
    readings = {t - 0.5: {"/proc/diskstats": diskstats("loop1", round(100 * t), 0, round(500 * t))} for t in range(4)}
    devices, _ = proc.parse("r", 0, text(readings), TARGET, proc.Window(T0, T0 + 2 * SECOND))
    assert [row.read_count for row in devices] == [100, 100]
    assert [row.read_bytes for row in devices] == [100 * 4096] * 2
    assert [row.offset_ns for row in devices] == [SECOND, 2 * SECOND]
    assert [row.busy_ratio for row in devices] == [0.5, 0.5]
    assert {(row.role, row.device_class) for row in devices} == {("disk", "hdd")}


@pytest.mark.parametrize(
    ("reads", "writes", "expected"), [(232, 0, 1.0), (116, 0, 0.5), (0, 90, 0.9), (500, 0, 1.0), (0, 0, 0.0)]
)
def test_the_limit_ratio_is_the_greatest_share_of_any_limit(reads: int, writes: int, expected: float) -> None:
    readings = {
        0.0: {"/proc/diskstats": diskstats("loop1", 0, 0, 0)},
        1.0: {"/proc/diskstats": diskstats("loop1", reads, writes, 0)},
    }
    devices, _ = proc.parse("r", 0, text(readings), TARGET, proc.Window(T0, T0 + SECOND))
    assert devices[0].limit_ratio == pytest.approx(expected)


def test_only_whole_disks_that_were_used_are_other_devices() -> None:
    names = ("sda", "sda1", "nvme0n1", "nvme0n1p2", "loop9", "dm-0", "sdb", "vda")
    lines = {0.0: "", 1.0: ""}
    for name in names:
        lines[0.0] += diskstats(name, 10, 10, 0)
        lines[1.0] += diskstats(name, 10 if name == "sdb" else 20, 10, 0)
    readings = {at: {"/proc/diskstats": content} for at, content in lines.items()}
    devices, _ = proc.parse("r", 0, text(readings), TARGET, proc.Window(T0, T0 + SECOND))
    assert {row.device for row in devices} == {"sda", "nvme0n1", "dm-0", "vda"}
    assert {row.role for row in devices} == {"other"}


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
    _, processes = proc.parse("r", 0, text(readings), TARGET, proc.Window(T0, T0 + 2 * SECOND))
    rows = {(row.process, row.offset_ns // SECOND): row for row in processes}
    assert (rows["osd.3", 1].cpu_user_s, rows["osd.3", 1].cpu_system_s) == (0.5, 0.1)
    assert rows["osd.3", 1].memory_bytes == 200 * 4096
    assert rows["osd.3", 2].cpu_user_s == 0
    assert rows["client", 1].cpu_user_s == pytest.approx(0.3)
    assert rows["client", 2].cpu_user_s == pytest.approx(0.2)
    assert ("bathy", 1) not in rows


def test_the_sampler_reads_what_it_is_told_and_leaves_out_what_is_gone() -> None:
    host = FakeHost(
        files={"/proc/stat": b"cpu  1 2 3 4 5 6 7 0\ncpu0 1 2 3 4 5 6 7 0\nintr 99\n", "/proc/diskstats": b""}
    )
    sampler = proc.Sampler(host, TARGET, period_s=60)
    sampler.start()
    host.files["/proc/4242/stat"] = process("fio", 1, 1).encode()
    sampler.watch(4242)
    host.sleep(1)
    answer = sampler.stop()
    readings = proc.readings(answer)
    assert [set(reading.files) for reading in readings] == [
        {"/proc/stat", "/proc/diskstats"},
        {"/proc/stat", "/proc/diskstats", "/proc/4242/stat"},
        {"/proc/stat", "/proc/diskstats", "/proc/4242/stat"},
    ]
    assert "client=4242" in answer.argv
    assert "intr" not in readings[0].files["/proc/stat"]
    assert readings[-1].at_ns - readings[0].at_ns == SECOND


def test_a_real_reading_is_cheap() -> None:
    with proc.Sampler(LocalHost(), TARGET, period_s=0.05) as sampler:
        LocalHost().sleep(0.5)
    count = len(proc.readings(sampler.stop()))
    assert count >= 5
    assert sampler.busy_s / count < 0.01


def test_too_few_readings_and_an_empty_window_are_errors() -> None:
    with pytest.raises(ParseError, match="two are needed"):
        proc.parse("r", 0, text({0.0: {}}), TARGET, proc.Window(T0, T0 + SECOND))
    with pytest.raises(ParseError, match="empty"):
        proc.parse("r", 0, text({0.0: {}, 1.0: {}}), TARGET, proc.Window(T0, T0))


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_broken_readings_are_parse_errors_and_nothing_else(
    recorded: Recorded, mutate: Mutate, data: st.DataObject
) -> None:
    answer, target, window, _ = recorded_step(recorded)
    pieces = answer.stdout.split(b"=== ")
    short = b"=== ".join([pieces[0], *pieces[1:4], pieces[-1]])
    try:
        devices, processes = proc.parse("r", 0, dataclasses.replace(answer, stdout=mutate(short, data)), target, window)
    except ParseError:
        return
    to_table(DeviceSample, devices)
    to_table(ProcessSample, processes)
