"""OSDs of this machine are found whoever started them, and only those of this cluster."""

from __future__ import annotations

import json

import pytest

from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.recording.daemons import local_daemons
from bathyscope.records import RawAnswer
from bathyscope.sources.osd_process import osd_of
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope, ScopeOsd

FSID = "11111111-2222-3333-4444-555555555555"
STAT = "{pid} (ceph-osd) S 1 " + " ".join(["0"] * 17) + " 777 0 0"


def scope(count: int = 3) -> Scope:
    osds = tuple(ScopeOsd(osd=osd, device_class="hdd") for osd in range(count))
    return Scope(target=Target(name="c"), fsid=FSID, osds=osds)


def metadata(*rows: dict[str, object]) -> list[RawAnswer]:
    return [RawAnswer("osd_metadata", (), (), 0, json.dumps(rows).encode(), b"", 0, 1)]


def about(osd: int, **more: object) -> dict[str, object]:
    return {"id": osd, "hostname": "node1", "osd_data": f"/data/{osd}", "bluestore_bdev_devices": "sdb", **more}


def machine(processes: dict[int, str], files: dict[str, str]) -> FakeHost:
    """Return a machine with OSD processes (pid → command line) and other files."""
    found = {f"/proc/{pid}/stat": STAT.format(pid=pid) for pid in processes}
    found |= {f"/proc/{pid}/cmdline": line.replace(" ", "\0") + "\0" for pid, line in processes.items()}
    found |= {"/proc/sys/kernel/hostname": "node1\n", "/proc/sys/kernel/random/boot_id": "b\n", **files}
    listed = "".join(f"{pid}\n" for pid in processes)
    return FakeHost(
        programs={"pgrep": FakeAnswer(stdout=listed.encode())},
        files={path: text.encode() for path, text in found.items()},
    )


@pytest.mark.parametrize(
    ("line", "osd"),
    [
        ("/usr/bin/ceph-osd -f --cluster ceph --id 3 --setuser ceph", 3),
        ("ceph-osd -i 12 -c /etc/ceph.conf", 12),
        ("ceph-osd --id=4", 4),
        ("/usr/bin/ceph-osd -n osd.5 -f", 5),
        ("ceph-osd --name=osd.6", 6),
        ("ceph-osd --mkfs", None),
        ("ceph-osd -i", None),
        ("ceph-osd -n client.admin", None),
    ],
)
def test_the_number_of_an_osd_in_its_command_line(line: str, osd: int | None) -> None:
    assert osd_of(line.split(" ")) == osd


@pytest.mark.parametrize(
    ("files", "is_ours"),
    [
        ({"/proc/71/cgroup": f"0::/system.slice/ceph-{FSID}@osd.1.service\n"}, True),
        ({"/proc/71/root/data/1/ceph_fsid": f"{FSID}\n"}, True),
        ({"/proc/71/root/data/1/ceph_fsid": "another\n"}, False),
        # Not root: the OSD says that it is on this machine, and there is no other process that it could be.
        ({}, True),
        ({"/proc/sys/kernel/hostname": "node2\n"}, False),
    ],
)
def test_how_an_osd_is_known_to_be_of_this_cluster(files: dict[str, str], is_ours: bool) -> None:
    host = machine({71: "ceph-osd -i 1"}, files)
    found = local_daemons(host, metadata(about(0), about(1)), scope())
    assert [(d.name, d.pid, d.start_ticks, d.device, d.device_class) for d in found] == (
        [("osd.1", 71, 777, "sdb", "hdd")] if is_ours else []
    )


def test_of_two_clusters_on_one_machine_neither_is_guessed() -> None:
    lines = {71: "ceph-osd -i 1", 72: "ceph-osd -i 1"}
    assert local_daemons(machine(lines, {}), metadata(about(1)), scope()) == ()
    told = {"/proc/72/root/data/1/ceph_fsid": FSID, "/proc/71/root/data/1/ceph_fsid": "other"}
    both = dict.fromkeys(told, FSID)
    assert local_daemons(machine(lines, both), metadata(about(1)), scope()) == ()
    (found,) = local_daemons(machine(lines, told), metadata(about(1)), scope())
    assert found.pid == 72


def test_an_osd_on_several_devices_has_none_that_could_be_named() -> None:
    host = machine({71: "ceph-osd -i 1"}, {})
    for devices in ("sda,sdb", "", None):
        (found,) = local_daemons(host, metadata(about(1, bluestore_bdev_devices=devices)), scope())
        assert found.device is None


def test_what_cannot_be_read_finds_nothing() -> None:
    host = machine({71: "ceph-osd -i 1"}, {})
    broken = [RawAnswer("osd_metadata", (), (), 0, b"[1]", b"", 0, 1)]
    for answers in ([], broken):
        assert local_daemons(host, answers, scope()) == ()
    assert local_daemons(FakeHost(), metadata(about(1)), scope()) == ()
    assert local_daemons(machine({}, {}), metadata(about(1)), scope()) == ()
