"""What names of images say, by the conventions of those who make them."""

from __future__ import annotations

import pytest

from bathyscope.analysis.image_names import named_for

UUID = "00ff159d-a95d-4d7e-877e-7dd69b7ea5c7"


@pytest.mark.parametrize(
    ("image", "words", "vm"),
    [
        (f"volume-{UUID}", f"Cinder volume {UUID}", None),
        (f"{UUID}_disk", f"root disk of the Nova instance {UUID}", f"instance {UUID}"),
        (f"{UUID}_disk.config", f"configuration drive of the Nova instance {UUID}", f"instance {UUID}"),
        (f"{UUID}_disk.swap", f"swap of the Nova instance {UUID}", f"instance {UUID}"),
        (f"{UUID}_disk.eph0", f"ephemeral disk 0 of the Nova instance {UUID}", f"instance {UUID}"),
        ("vm-101-disk-0", "disk 0 of the Proxmox VM 101", "VM 101"),
        ("vm-101-cloudinit", "cloud-init drive of the Proxmox VM 101", "VM 101"),
        ("base-9000-disk-1", "disk 1 of the Proxmox template 9000", "template 9000"),
        (f"csi-vol-{UUID}", f"ceph-csi volume {UUID}", None),
        (f"csi-snap-{UUID}", f"ceph-csi snapshot {UUID}", None),
        ("one-12", "OpenNebula image 12", None),
        ("one-12-345-0", "disk 0 of the OpenNebula VM 345, of image 12", "VM 345"),
        ("vm-101-disk-0 (trash)", "disk 0 of the Proxmox VM 101", "VM 101"),
    ],
)
def test_conventions(image: str, words: str, vm: str | None) -> None:
    found = named_for(image)
    assert found is not None
    assert (found.words, found.vm) == (words, vm)


@pytest.mark.parametrize(
    "image",
    ["", "vm", "vm-1", "vm-x-disk-0", f"volume-{UUID}x", f"VOLUME-{UUID}", "one-1-2", "{id}", "vm-١-disk-0", "\n"],
)
def test_other_names_say_nothing(image: str) -> None:
    assert named_for(image) is None
