"""What guests boot: a Debian kernel, an initramfs that finds their disks, and a root with fio and QEMU's guest agent.

Built once and cached. The kernel, busybox and the agent come from Debian packages that apt downloads with package lists
of its own into the cache: nothing is installed, and this machine's lists stay as they are. fio is this machine's own,
with its libraries. These are 80 MB, too much for the memory of a small guest, so the root is a disk that all guests
share, read-only; the initramfs holds only what mounts it.
"""

from __future__ import annotations

import dataclasses
import lzma
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from bathyscope import files
from bathyscope.errors import EnvironmentError_, LabError
from bathyscope.fields import last_line
from bathyscope.files import cache_directory
from bathyscope.host import Completed
from bathyscope.host.local import DEFAULT_PATH
from bathyscope.lab import requirements
from bathyscope.lab.run import system

KERNEL_PACKAGE = "linux-image-cloud-amd64"
PACKAGES = ("busybox-static", "qemu-guest-agent")
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "crc32c_generic", "ext4")
PROGRAMS = ("apt-get", "apt-cache", "dpkg-deb", "mke2fs", "ldd")
# Printed by the initramfs once the kernel has started it.
STARTED = "bathyscope guest: kernel and initramfs run"
# Raise it when an image that was built before lacks something that the lab now needs.
IMAGE_FORMAT = 1
_DOWNLOAD_TIMEOUT_S = 900.0

# The guest's own disk is the first one, the shared root the second. Without a root (a trial of KVM) there is nothing
# to do. fio's libraries reserve more memory than a guest has, and use little of it. The agent is started again if it
# ends.
_INIT = f"""#!/bin/busybox sh
busybox=/bin/busybox
$busybox mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
echo "{STARTED}"
for module in $($busybox cat /modules/order); do $busybox insmod "/modules/$module"; done
$busybox mount -t ext4 -o ro /dev/vdb /root || $busybox poweroff -f
$busybox mount -t devtmpfs dev /root/dev
$busybox mount -t proc proc /root/proc
$busybox mount -t sysfs sys /root/sys
$busybox mount -t tmpfs tmp /root/tmp
echo 1 >/root/proc/sys/vm/overcommit_memory
port=$(echo /dev/vport*p1)
while :; do
    $busybox chroot /root /bin/qemu-ga --method=virtio-serial "--path=$port" --statedir=/tmp
    $busybox sleep 1
done
"""


@dataclasses.dataclass(frozen=True, slots=True)
class GuestImage:
    """The files that every guest is started with."""

    directory: Path

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.directory / "vmlinuz"

    @property
    def initramfs(self) -> Path:
        """An uncompressed cpio archive."""
        return self.directory / "initramfs"

    @property
    def root(self) -> Path:
        """A file system, to be attached read-only."""
        return self.directory / "root.ext4"


def ensure(progress: Callable[[str], None]) -> GuestImage:
    """Return the cached image, building it first if need be (some seconds, 30 MB from the mirror).

    Raises EnvironmentError_.
    """
    if platform.machine() != "x86_64":
        raise EnvironmentError_(f"guests are made for x86_64 only, and this machine is {platform.machine()}")
    directory = cache_directory() / "guests" / f"x86_64-{IMAGE_FORMAT}"
    files.own_directory(directory.parent, make=True)
    with files.FileLock(directory.with_suffix(".lock"), "the image of the guests", wait=True):
        if not directory.is_dir():
            requirements.require(PROGRAMS)
            fio = fio_program()
            progress("building the image of the guests (once, some seconds)")
            files.sweep(directory.parent)
            with files.making_directory(directory) as partial:
                _build(partial, fio)
        files.own_directory(directory)
    return GuestImage(directory)


def fio_program() -> str:
    """Return the path of this machine's own fio. Raises EnvironmentError_ when there is none.

    What comes first in PATH may be a script that enters another release's root file system: `bathy lab env` says so.
    """
    if (fio := shutil.which("fio", path=DEFAULT_PATH)) is None:
        raise EnvironmentError_("not installed: fio", hint=requirements.install_command(["fio"]))
    return fio


def _build(directory: Path, fio: str) -> None:
    image, packages = GuestImage(directory), directory / "packages"
    packages.mkdir()
    for package in download(packages, KERNEL_PACKAGE, PACKAGES):
        _run("dpkg-deb", "--extract", str(package), str(packages / "tree"))
    tree = packages / "tree"
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    shutil.copyfile(kernel, image.kernel)
    # Debian 13 has them below /usr.
    (busybox,) = tree.glob("**/bin/busybox")
    (agent,) = tree.glob("**/sbin/qemu-ga")
    image.initramfs.write_bytes(archive(initramfs(busybox.read_bytes(), load_order(modules_in(tree), MODULES))))
    _make_root(packages / "root", fio, busybox, agent, image.root)
    shutil.rmtree(packages)


def download(directory: Path, follows: str, packages: Iterable[str]) -> list[Path]:
    """Return packages, fetched into `directory`: these, and the kernel that `follows` names.

    Raises EnvironmentError_.
    """
    options = (
        *("-o", f"Dir::State::lists={directory}/lists", "-o", f"Dir::Cache={directory}/cache"),
        # The unprivileged user of apt could not write into directories of ours.
        *("-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"),
    )
    for made in ("lists/partial", "cache/archives/partial"):
        (directory / made).mkdir(parents=True)
    hint = f"check that this machine's apt sources are Debian's and can be reached: apt-cache policy {follows}"
    _run("apt-get", *options, "update", hint=hint)
    kernel = kernel_package(_run("apt-cache", *options, "depends", follows, hint=hint).stdout.decode(), follows)
    _run("env", f"--chdir={directory}", "apt-get", *options, "download", kernel, *packages, hint=hint)
    return sorted(directory.glob("*.deb"))


def kernel_package(depends: str, follows: str) -> str:
    """Return the package of the kernel itself, from `apt-cache depends` of `follows`, which follows new versions.

    Raises EnvironmentError_ when none is named.
    """
    if match := re.search(r"^ *Depends: (linux-image-\S+)$", depends, re.MULTILINE):
        return match[1]
    raise EnvironmentError_(f"the package {follows} names no kernel", hint="guests need Debian's packages")


def _run(*argv: str, hint: str | None = None) -> Completed:
    completed = system(*argv, timeout_s=_DOWNLOAD_TIMEOUT_S)
    if completed.exit_code != 0:
        what = f"{argv[0]} failed: {last_line(completed.stderr)}"
        raise EnvironmentError_(f"the image of the guests could not be built: {what}", hint=hint)
    return completed


def modules_in(tree: Path) -> dict[str, Path]:
    """Return the files of the kernel's modules by name."""
    paths = [path for path in tree.glob("**/lib/modules/*/kernel/**/*") if ".ko" in path.suffixes]
    return {path.name.partition(".ko")[0].replace("-", "_"): path for path in paths}


def load_order(modules: Mapping[str, Path], wanted: Iterable[str]) -> dict[str, bytes]:
    """Return the wanted modules and those that they depend on, in the order in which they can be loaded.

    A module that is not there is taken to be part of the kernel.
    """
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in ordered or name not in modules:
            return
        path = modules[name]
        content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        match = re.search(rb"\0depends=([^\0]*)\0", content)
        for needed in match[1].decode().split(",") if match else ():
            add(needed.replace("-", "_"))
        ordered[name] = content

    for name in wanted:
        add(name)
    return ordered


def initramfs(busybox: bytes, modules: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Return the content of the initramfs: each path with its program or text, directories with None."""
    directories = dict.fromkeys(("bin", "dev", "modules", "root"))
    return {
        **directories,
        "init": _INIT.encode(),
        "bin/busybox": busybox,
        "modules/order": "".join(f"{name}.ko\n" for name in modules).encode(),
        **{f"modules/{name}.ko": content for name, content in modules.items()},
    }


def archive(content: Mapping[str, bytes | None]) -> bytes:
    """Return a cpio archive in the format "newc" (the kernel's Documentation/driver-api/early-userspace).

    Everything belongs to root and can be executed; the order is that of `content`.
    """
    parts: list[bytes] = []
    for number, (name, data) in enumerate([*content.items(), ("TRAILER!!!", b"")], 1):
        mode, links = (0o040755, 2) if data is None else (0o100755, 1)
        body = data or b""
        fields = [number, mode, 0, 0, links, 0, len(body), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        parts += [head, bytes(-len(head) % 4), body, bytes(-len(body) % 4)]
    return b"".join(parts)


def _make_root(root: Path, fio: str, busybox: Path, agent: Path, image: Path) -> None:
    """Make the root's file system: fio, the agent, busybox, and the libraries of the first two."""
    programs = {fio: "bin/fio", str(agent): "bin/qemu-ga", str(busybox): "bin/busybox"}
    # It runs with this machine's libraries, and apt's sources may be those of a newer Debian.
    _run(str(agent), "--version", hint="check that apt's sources are those of this machine's Debian")
    libraries = {path: path.lstrip("/") for path in shared_libraries(_run("ldd", fio, str(agent)).stdout.decode())}
    for directory in ("dev", "proc", "sys", "tmp"):
        (root / directory).mkdir(parents=True)
    for source, inside in {**programs, **libraries}.items():
        target = root / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    used = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    size_kib = (used + used // 8 >> 10) + (8 << 10)
    # Nothing ever writes to it: it needs no journal and no room that only root may use.
    _run(*("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", str(root), str(image), f"{size_kib}k"))


def shared_libraries(said: str) -> list[str]:
    """Return the paths of the libraries and of the loader that `ldd` printed. Raises LabError when one is missing."""
    libraries: dict[str, None] = {}
    for line in said.splitlines():
        name, arrow, target = line.strip().partition(" => ")
        if not line.startswith("\t") or name.startswith("linux-vdso"):
            continue
        path = (target if arrow else name).partition(" (")[0]
        if not path.startswith("/"):
            raise LabError(f"the library {name} is missing on this machine", hint="reinstall fio and qemu-system-x86")
        libraries[path] = None
    return list(libraries)
