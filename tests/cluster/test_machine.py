"""A whole machine with systemd, ceph-volume and a cache over its OSD, in an emulated processor: `make test-machine`.

Its units start in order, its cache is killed under load, and then the machine. Its disks keep what they acknowledged:
what disks can lose is the part of the power cuts of `bathy-cache`. It takes ten minutes on a quiet machine.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.cache import guest

from bathyscope.lab import releases

pytestmark = [pytest.mark.cluster, pytest.mark.machine, pytest.mark.timeout(7200)]

ROOT = Path(__file__).parents[2]
GUEST = Path(__file__).with_name("machine_guest.py")
PACKAGES = ("systemd-sysv", "udev", "dbus", "lvm2", "kmod")
#: The kernel's modules come with the initramfs; the rest is on the first disk.
INIT = b"""#!/bin/busybox sh
/bin/busybox mkdir -p /dev /proc /sys /root
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for module in $(cat /modules/order); do insmod "/modules/$module"; done
until [ -b /dev/vda ]; do sleep 0.2; done
mount -t ext4 /dev/vda /root
umount /proc /sys
exec switch_root /root /lib/systemd/systemd
"""
UNIT = """[Unit]
After=multi-user.target
[Service]
Type=exec
ExecStart=/usr/bin/python3 /machine_guest.py
[Install]
WantedBy=graphical.target
"""
# Heartbeats and operations take their time in an emulated processor.
CEPH_CONF = """[global]
fsid = 6b2f4f0e-7a0b-4c59-9d0e-9a0d5d1f0a01
mon host = 127.0.0.1
public network = 127.0.0.0/8
mon initial members = machine
mon allow pool size one = true
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd heartbeat grace = 600
osd op thread timeout = 600
osd op thread suicide timeout = 6000
osd memory target = 939524096
"""
MORE_WRITES = 30
MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "fuse", "dm_mod")


def root_disk(directory: Path) -> Path:
    """Make the machine's first disk: a Debian with Ceph and systemd, and this Bathyscope as it is installed here."""
    tree = directory / "tree"
    # Links between files stay, devices are made.
    subprocess.run(["cp", "-a", str(releases.ensure("pacific", print, PACKAGES).path), str(tree)], check=True)
    for place in {ROOT / "python", Path(sys.prefix), Path(sys.base_prefix)} - {Path("/usr")}:
        target = tree / place.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(place, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "test", "tests"))
    units = tree / "etc/systemd/system"
    for name in ("bathyd@.service", "bathyd-release@.service"):
        shutil.copy(ROOT / "packaging/systemd" / name, units)
    shutil.copy(GUEST, tree)
    (units / "machine.service").write_text(UNIT)
    (tree / "usr/local/bin/bathy").symlink_to(Path(sys.prefix) / "bin/bathy")
    (tree / "etc/ceph/ceph.conf").write_text(CEPH_CONF)
    (tree / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 0\n")
    (tree / "etc/hostname").write_text("machine\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost machine\n")
    names = ("machine.service", "ceph.target", "ceph-mon.target", "ceph-osd.target")
    subprocess.run(["systemctl", f"--root={tree}", "enable", *names], check=True, capture_output=True)
    subprocess.run(
        ["systemctl", f"--root={tree}", "mask", "serial-getty@ttyS0.service"], check=True, capture_output=True
    )
    disk = guest.file_system(directory / "root.img", 6 << 30, tree)
    shutil.rmtree(tree)
    return disk


@pytest.fixture(scope="module")
def disks() -> Iterator[list[Path]]:
    """The machine's disks: its own, the SSD of the cache, and that of the OSD."""
    with tempfile.TemporaryDirectory(prefix="bathy-", dir="/var/tmp") as place:
        directory = Path(place)
        ssd, hdd = (guest.disk(directory / name, size) for name, size in (("ssd", 64 << 20), ("hdd", 8 << 30)))
        yield [root_disk(directory), ssd, hdd]


def said_until(said: Iterator[list[str]], word: str) -> list[list[str]]:
    """Return what the machine says to the line that begins with a word, which is the last."""
    found: list[list[str]] = []
    while not found or found[-1][0] != word:
        found.append(next(said))
    return found


def reported(found: list[list[str]], name: str) -> dict[str, Any]:
    """Return what the machine has of a report of the cache: the first row of each table by column, and the facts."""
    (words,) = (words[1:] for words in found if words[0] == name)
    report = json.loads(" ".join(words))
    rows = {"facts": report["facts"]}
    for table in reversed(report["tables"]):
        rows |= table["rows"][0]
    return rows


def test_a_cache_over_an_osd_of_ceph_volume_is_killed_and_cut_off(disks: list[Path], tmp_path: Path) -> None:
    image = guest.image_of(guest.packages() / "tree", {}, MODULES, INIT)

    def booted() -> contextlib.AbstractContextManager[Iterator[list[str]]]:
        return guest.booted(image, disks, {}, tmp_path, 3000, memory_mib=3072, processors=2)

    cached, plain = ["tmpfs", "fuse.bathyd"], ["tmpfs"]
    with booted() as said:
        found = said_until(said, "restarted")
        # Some more, so that the machine is killed in the middle of writes.
        found += itertools.islice(said, MORE_WRITES)
    assert [words for words in found if words[0] != "ack"] == [["mounted", *cached], ["restarted", *cached]]
    acknowledged = {words[1] for words in found if words[0] == "ack"}
    assert len(acknowledged) > MORE_WRITES

    with booted() as said:
        found = said_until(said, "done")
    assert [words[1:] for words in found if words[0] == "mounted"] == [cached, plain, cached, plain]
    ((cache_us, osd_us),) = [map(int, words[1:]) for words in found if words[0] == "began"]
    assert 0 < cache_us < osd_us
    assert "not stopped cleanly" in json.dumps(reported(found, "status")["facts"])
    # More than what came into the cache since the start was in it before.
    assert reported(found, "status")["usage_bytes"] > reported(found, "io")["cache_write_bytes"]
    kept = {name: is_right for _, name, is_right in (words for words in found if words[0] == "object")}
    assert acknowledged <= kept.keys()
    assert set(kept.values()) == {"True"}
    # A stop of the cache stops its OSD.
    assert ["osd", "inactive"] in found
