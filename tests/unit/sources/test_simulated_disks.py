"""The counters of simulated disks: recorded around two loads whose numbers are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from bathyscope.analysis.simulated_disks import disk_times
from bathyscope.host import SocketRequest
from bathyscope.records import RawAnswer, SimulatedDiskSample, from_table
from bathyscope.sources.simulated_disks import SOURCE
from bathyscope.spec import DaemonTarget, DiskTarget, Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
FIXTURE = "simulated_disks/0.1/two-disks"
TARGET = Target(
    name="t",
    disk_control="/lab/run/simdisk.sock",
    daemons=(DaemonTarget(name="osd.0", pid=1, start_ticks=1, device="loop3", simulated="osd.0.hdd"),),
    disks={"hdd": DiskTarget(path="/dev/loop4", device="loop4", simulated="spare.hdd")},
)
SCOPE = Scope(target=TARGET)


def samples(answers: list[RawAnswer]) -> list[SimulatedDiskSample]:
    return from_table(SimulatedDiskSample, SOURCE.parse(answers, SCOPE)[SimulatedDiskSample])


def test_one_question_for_all_disks_and_none_without_disks() -> None:
    (request,) = SOURCE.plan(SCOPE)
    assert isinstance(request, SocketRequest)
    assert request.path == TARGET.disk_control
    assert list(SOURCE.plan(Scope(target=Target(name="t")))) == []


def test_what_two_loads_did(recorded: Recorded) -> None:
    """200 random reads of 4 KiB, four at a time, of the one; 23 writes of 16 KiB to the other, 3 failed."""
    first, then = (
        [row for row in samples(recorded(FIXTURE)) if row.disk == name] for name in ("osd.0.hdd", "spare.hdd")
    )
    assert [(row.device, row.read_count, row.write_count) for row in first] == [("loop3", 200, 0), ("loop3", 0, 0)]
    assert [(row.device, row.write_count, row.error_count) for row in then] == [("loop4", 0, 0), ("loop4", 20, 3)]
    assert [row.faults for row in then] == ["", "slow=2x; eio=write,count=3"]
    (load, _) = first
    # Four at a time; every read is a seek, and its 4 KiB pass the head in the end.
    assert load.queue_ns / load.busy_ns == pytest.approx(4, rel=0.05)
    assert load.seek_count == load.reply_count == 200
    assert load.media_read_bytes == 200 * 4096
    assert load.seek_ns + load.rotation_ns + load.transfer_ns == pytest.approx(load.busy_ns, rel=0.01)


def test_times_of_a_window(recorded: Recorded) -> None:
    times = disk_times(SOURCE.parse(recorded(FIXTURE), SCOPE)[SimulatedDiskSample], ["loop3", "loop4", "sda"])
    assert set(times) == {"loop3", "loop4"}
    disk = times["loop3"]
    assert disk.seek + disk.rotation + disk.transfer == pytest.approx(disk.busy, rel=0.01)
    assert disk.lateness_ratio is not None
    assert 0 < disk.lateness_ratio < 0.01
    assert times["loop4"].faults == ("slow=2x", "eio=write,count=3")


def test_a_program_that_was_started_anew_makes_no_row(recorded: Recorded) -> None:
    before, between, after = recorded(FIXTURE)
    # The counters of the first answer are lower than those of the last.
    later = dataclasses.replace(before, stdout=before.stdout.replace(b'"time_ns":17', b'"time_ns":18'))
    assert {row.disk for row in samples([between, after, later])} == {"osd.0.hdd", "spare.hdd"}
    assert len(samples([between, after, later])) == len(samples([between, after]))
