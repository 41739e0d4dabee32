"""Guests: their command lines, their clients, and what a machine must have for them."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from bathyscope.errors import EnvironmentError_, UsageError
from bathyscope.host.fake import FakeHost
from bathyscope.lab import guest_bringup, guest_image, guests, keys, requirements
from bathyscope.lab.bringup import Bringup
from bathyscope.lab.guest_image import GuestImage
from bathyscope.lab.layout import Layout
from bathyscope.lab.spec import LabSpec

LAYOUT = Layout(Path("/var/lib/labs/x"))
IMAGE = GuestImage(Path("/var/cache/guests"))


@pytest.mark.parametrize(("accelerator", "processor"), [("kvm", "host"), ("tcg", "max")])
def test_a_guest_has_its_own_image_and_client_and_no_network(accelerator: guests.Accelerator, processor: str) -> None:
    words = guests.command("vm2", guests.Machine(IMAGE, accelerator), LAYOUT)
    pairs = list(itertools.pairwise(words))
    assert ("-accel", accelerator) in pairs
    assert ("-cpu", processor) in pairs
    assert "-nodefaults" in words
    assert not [word for word in words if word.startswith("-net")]
    disks = [dict(item.split("=", 1) for item in value.split(",")) for option, value in pairs if option == "-blockdev"]
    assert disks == [
        {
            "driver": "rbd",
            "pool": "rbd",
            "image": "vm2",
            "user": "vm2",
            "conf": "/var/lib/labs/x/ceph.conf",
            "cache.direct": "on",
            "node-name": "disk",
        },
        {"driver": "file", "filename": "/var/cache/guests/root.ext4", "read-only": "on", "node-name": "root"},
    ]
    # Where a failed bring-up looks for what was said last.
    assert ("-serial", "file:/var/lib/labs/x/log/vm2.console.out") in pairs
    # The guest's own disk comes first: it is /dev/vda there.
    devices = [value for option, value in pairs if option == "-device"]
    assert [device for device in devices if "virtio-blk" in device] == [
        "virtio-blk-pci,drive=disk,serial=vm2",
        "virtio-blk-pci,drive=root",
    ]
    assert ("-chardev", "socket,id=agent,path=/var/lib/labs/x/run/vm2.sock,server=on,wait=off") in pairs


def test_a_comma_in_a_path_is_no_separator() -> None:
    image = GuestImage(Path("/var/a,b"))
    words = guests.command("vm1", guests.Machine(image, "tcg"), LAYOUT)
    assert "driver=file,filename=/var/a,,b/root.ext4,read-only=on,node-name=root" in words


def test_each_guest_has_a_client_for_the_pool_of_images_only() -> None:
    entities = keys.entities(LabSpec(vms=2))
    assert [name for name in entities if name.startswith("client.")] == ["client.admin", "client.vm1", "client.vm2"]
    assert entities["client.vm2"] == {"mon": "profile rbd", "osd": "profile rbd pool=rbd"}
    assert [name for name in keys.entities(LabSpec()) if name.startswith("client.vm")] == []


@pytest.mark.parametrize("fields", [{"vms": -1}, {"vms": 17}, {"vms": 1, "vm_size_bytes": 1 << 20}])
def test_sizes_and_numbers_out_of_range(fields: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="--vm"):
        LabSpec(**fields).check()


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_program", lambda _name: None)
    with pytest.raises(EnvironmentError_, match="qemu-system-x86_64") as caught:
        guests.prepare(lambda _: None)
    assert (caught.value.hint or "").endswith("apt-get install --no-install-recommends qemu-system-x86")

    monkeypatch.setattr(requirements, "find_program", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(guests, "_run", lambda *_words: b"qemu-system-x86_64: -blockdev ...: Unknown driver 'rbd'\n")
    with pytest.raises(EnvironmentError_, match="driver for RBD") as caught:
        guests.prepare(lambda _: None)
    assert (caught.value.hint or "").endswith("qemu-block-extra")


# A /dev/kvm that can be opened does not mean that a kernel starts: on some machines QEMU ends, or hangs in the kernel.
@pytest.mark.parametrize(
    ("said", "accelerator"),
    [(guest_image.STARTED.encode(), "kvm"), (b"error: failed to set MSR 0x10a to 0x69\n", "tcg"), (b"", "tcg")],
)
def test_kvm_is_used_when_a_kernel_has_started_under_it(
    said: bytes, accelerator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests.os, "access", lambda _path, _mode: True)
    monkeypatch.setattr(requirements, "find_program", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(guest_image, "ensure", lambda _progress: IMAGE)
    monkeypatch.setattr(guests, "_run", lambda *words: said if "-accel" in words else b"error reading conf file\n")
    assert guests.prepare(lambda _: None) == guests.Machine(IMAGE, accelerator)  # type: ignore[arg-type]
    monkeypatch.setattr(guests.os, "access", lambda _path, _mode: False)
    assert guests.prepare(lambda _: None).accelerator == "tcg"


def test_each_guest_has_time_to_boot_on_top_of_that_of_the_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    record = SimpleNamespace(spec=LabSpec(vms=3), root=None)
    bringup = Bringup(
        LAYOUT, record, major=16, root=None, machine=guests.Machine(IMAGE, "tcg"), host=FakeHost(),
        progress=lambda _: None, deadline=1000.0,
    )  # fmt: skip
    monkeypatch.setattr(guests, "make_image", lambda *_: None)
    monkeypatch.setattr(guests, "start", lambda *_: None)
    guest_bringup.start(bringup, None)
    assert bringup.deadline == 1000.0 + 3 * guest_bringup.BOOT_TIMEOUT_S
