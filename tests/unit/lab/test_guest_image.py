"""The image of the guests: what is in it, in a format that the kernel can read."""

from __future__ import annotations

import lzma
import os
import platform
import subprocess
from pathlib import Path

import pytest

from bathyscope.errors import EnvironmentError_, LabError
from bathyscope.lab import guest_image

# `apt-cache depends linux-image-cloud-amd64` and `ldd /usr/bin/fio`, shortened, on Debian 12.
DEPENDS = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n"
LDD = """/usr/bin/fio:
\tlinux-vdso.so.1 (0x00007ffd5c3f2000)
\tlibrbd.so.1 => /lib/x86_64-linux-gnu/librbd.so.1 (0x00007f5f0a200000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f5f08e1f000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f5f0b4d9000)
/tree/usr/sbin/qemu-ga:
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1f08e1f000)
"""


def module(depends: str) -> bytes:
    """Return what of a kernel module is read: its section .modinfo."""
    return f"\x7fELF\0license=GPL\0depends={depends}\0retpoline=Y\0name=x\0".encode("latin-1")


@pytest.mark.parametrize("usr", [".", "usr"])
def test_modules_are_loaded_after_those_that_they_need(tmp_path: Path, usr: str) -> None:
    place = tmp_path / usr / "lib/modules/6.1.0/kernel/drivers"
    place.mkdir(parents=True)
    (place / "virtio_pci.ko").write_bytes(module("virtio-ring,virtio"))
    (place / "virtio-ring.ko.xz").write_bytes(lzma.compress(module("")))
    (place / "virtio.ko").write_bytes(module("virtio-ring"))
    (place / "other.ko").write_bytes(module(""))
    modules = guest_image.modules_in(tmp_path)
    assert sorted(modules) == ["other", "virtio", "virtio_pci", "virtio_ring"]
    # ext4 is part of this kernel.
    ordered = guest_image.load_order(modules, ("virtio_pci", "virtio", "ext4"))
    assert list(ordered) == ["virtio_ring", "virtio", "virtio_pci"]
    assert ordered["virtio_ring"] == module("")


def test_initramfs_mounts_the_root_and_starts_the_agent() -> None:
    content = guest_image.initramfs(b"BUSYBOX", {"virtio": b"1", "virtio_pci": b"2"})
    assert content["modules/order"] == b"virtio.ko\nvirtio_pci.ko\n"
    assert content["modules/virtio_pci.ko"] == b"2"
    assert content["bin/busybox"] == b"BUSYBOX"
    assert {name for name, data in content.items() if data is None} == {"bin", "dev", "modules", "root"}
    script = (content["init"] or b"").decode()
    assert script.startswith("#!/bin/busybox sh\n")
    assert script.index("insmod") < script.index("mount -t ext4 -o ro /dev/vdb") < script.index("/bin/qemu-ga")
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False, timeout=30).returncode == 0


def test_archive_is_read_by_cpio(tmp_path: Path) -> None:
    content = {"bin": None, "bin/program": os.urandom(4099), "empty": b"", "text": b"one\n"}
    subprocess.run(
        ["cpio", "--extract", "--quiet"], input=guest_image.archive(content), check=True, cwd=tmp_path, timeout=30
    )
    for name, data in content.items():
        path = tmp_path / name
        assert path.is_dir() if data is None else path.read_bytes() == data
        assert os.access(path, os.X_OK)


def test_archive_has_the_layout_of_newc() -> None:
    data = guest_image.archive({"ab": b"12345"})
    fields = [int(data[6 + 8 * n : 14 + 8 * n], 16) for n in range(13)]
    # inode, mode, uid, gid, links, mtime, size, four device numbers, length of the name with its zero, checksum.
    assert fields == [1, 0o100755, 0, 0, 1, 0, 5, 0, 0, 0, 0, 3, 0]
    assert data[:6] == b"070701"
    assert data[110:121] == b"ab\0" + bytes(-113 % 4) + b"12345"
    assert b"TRAILER!!!\0" in data
    assert len(data) % 4 == 0


def test_the_kernels_own_package() -> None:
    assert guest_image.kernel_package(DEPENDS, guest_image.KERNEL_PACKAGE) == "linux-image-6.1.0-56-cloud-amd64"
    with pytest.raises(EnvironmentError_, match="names no kernel"):
        guest_image.kernel_package("linux-image-cloud-amd64\n", guest_image.KERNEL_PACKAGE)


def test_libraries_of_all_programs_once() -> None:
    assert guest_image.shared_libraries(LDD) == [
        "/lib/x86_64-linux-gnu/librbd.so.1",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    ]
    with pytest.raises(LabError, match=r"libaio\.so\.1"):
        guest_image.shared_libraries("/usr/bin/fio:\n\tlibaio.so.1 => not found\n")


def test_only_processors_that_guests_are_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(EnvironmentError_, match="aarch64"):
        guest_image.ensure(lambda _: None)


def test_fio_is_this_machines_own_and_not_one_that_a_lab_puts_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrapper = tmp_path / "fio"
    wrapper.write_text("#!/bin/sh\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert guest_image.fio_program() != str(wrapper)
    monkeypatch.setattr(guest_image, "DEFAULT_PATH", "/nonexistent")
    with pytest.raises(EnvironmentError_, match="not installed: fio"):
        guest_image.fio_program()
