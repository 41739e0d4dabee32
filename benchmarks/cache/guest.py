"""The guest of `peers_in_guest.py`: a Debian kernel with bcache, dm-cache and FUSE, and an initramfs with all programs.

The packages come as those of the lab's guests do, into the cache directory of this user; nothing is installed. dmsetup
and the libraries of all programs are this machine's own, as is `bathyd`, which is built before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bathyscope import files
from bathyscope.errors import EnvironmentError_
from bathyscope.fields import last_line
from bathyscope.host.local import DEFAULT_PATH
from bathyscope.lab import guest_image, requirements
from bathyscope.lab.run import system

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KERNEL_PACKAGE = "linux-image-amd64"  # that of the lab's guests, for clouds, has no bcache
PACKAGES = ("busybox-static", "bcache-tools")
MODULES = (
    *("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "fuse"),
    *("bcache", "dm_mod", "dm_cache", "dm_cache_smq"),
)
PROGRAMS = ("qemu-system-x86_64", "apt-get", "apt-cache", "dpkg-deb", "mke2fs", "ldd", "dmsetup", "rustc")
MEMORY_MIB = 512
_SAID_TO_HOST = "@ "


@dataclasses.dataclass(frozen=True)
class Image:
    """What the guest boots."""

    kernel: Path
    initramfs: bytes
    version: str
    """Of the kernel."""


def bathyd_program() -> Path:
    """Return the newest release build of bathyd."""
    path = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "bathyd"
    if not path.exists():
        raise EnvironmentError_(f"not built: {path}", hint="cargo build --release -p bathyd")
    return path


def missing() -> str | None:
    """Return why no guest can run here, if so. Nothing is fetched."""
    try:
        requirements.require(PROGRAMS)
        bathyd_program()
    except EnvironmentError_ as error:
        return str(error)
    return (
        None if _packages_directory().is_dir() else f"not fetched: the packages of the guest ({_packages_directory()})"
    )


def _packages_directory() -> Path:
    return files.cache_directory() / "guests" / "peers-x86_64-1"


def image() -> Image:
    """Return what the guest of the peers boots. Raises EnvironmentError_."""
    requirements.require(PROGRAMS)
    bathyd = bathyd_program()
    directory = packages()
    tree = directory / "tree"
    dmsetup = shutil.which("dmsetup", path=DEFAULT_PATH) or "dmsetup"
    programs = {
        "bin/make-bcache": tree / "usr/sbin/make-bcache",
        "bin/dmsetup": Path(dmsetup),
        "bin/bathyd": bathyd,
        "bin/replay": _compiled(directory / "replay", HERE / "guest_replay.rs"),
    }
    linked = [str(programs[f"bin/{name}"]) for name in ("make-bcache", "dmsetup", "bathyd")]
    for library in guest_image.shared_libraries(_run("ldd", *linked)):
        programs[library.lstrip("/")] = Path(library)
    return image_of(tree, programs, MODULES, (HERE / "guest_init.sh").read_bytes())


def packages() -> Path:
    """Return where the guest's packages are; 70 MB are fetched the first time. Raises EnvironmentError_."""
    directory = _packages_directory()
    files.own_directory(directory.parent, make=True)
    with files.FileLock(directory.with_suffix(".lock"), "the packages of the guest", wait=True):
        if not directory.is_dir():
            with files.making_directory(directory) as partial:
                _fetch(partial)
    return directory


def image_of(tree: Path, programs: Mapping[str, Path], modules: Sequence[str], init: bytes) -> Image:
    """Return the kernel of `tree`, and an initramfs with busybox, `programs` by their places, modules and `init`."""
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    programs = {"bin/busybox": tree / "bin/busybox", **programs}
    ordered = guest_image.load_order(guest_image.modules_in(tree), modules)
    content: dict[str, bytes | None] = {
        str(parent): None for name in [*programs, "modules/order"] for parent in reversed(Path(name).parents[:-1])
    }
    content |= {name: path.read_bytes() for name, path in programs.items()}
    content |= {f"modules/{name}.ko": module for name, module in ordered.items()}
    content["modules/order"] = "".join(f"{name}.ko\n" for name in ordered).encode()
    content["init"] = init
    return Image(kernel, guest_image.archive(content), kernel.name.removeprefix("vmlinuz-"))


def _fetch(directory: Path) -> None:
    packages = directory / "packages"
    packages.mkdir()
    for package in guest_image.download(packages, KERNEL_PACKAGE, PACKAGES):
        _run("dpkg-deb", "--extract", str(package), str(directory / "tree"))
    shutil.rmtree(packages)


def _run(*argv: str) -> str:
    completed = system(*argv, timeout_s=300.0)
    if completed.exit_code != 0:
        raise EnvironmentError_(f"{argv[0]} failed: {last_line(completed.stderr)}")
    return completed.stdout.decode()


def _compiled(program: Path, source: Path) -> Path:
    """Return the program, compiled again if its source is newer."""
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        options = ["-O", "-C", "target-feature=+crt-static", "--edition", "2024", "-o", str(program)]
        subprocess.run(["rustc", *options, str(source)], check=True)
    return program


def disk(path: Path, size_bytes: int) -> Path:
    """Make a file of zeroes that takes no room."""
    with path.open("xb") as file:
        file.truncate(size_bytes)
    return path


def file_system(path: Path, size_bytes: int, content: Path) -> Path:
    """Make an ext4 file system with what is below a directory."""
    disk(path, size_bytes)
    _run("mke2fs", "-q", "-t", "ext4", "-d", str(content), str(path))
    return path


@contextlib.contextmanager
def booted(
    image: Image,
    disks: Sequence[Path],
    job: Mapping[str, bytes],
    directory: Path,
    timeout_s: float,
    *,
    memory_mib: int = MEMORY_MIB,
    processors: int = 1,
) -> Iterator[Iterator[list[str]]]:
    """Boot a guest with the files of `job` beside those of the image; give the words of each line that it says to us.

    The end of the block is the power cut: QEMU is killed, and what the guest has in memory is lost. What its disks have
    acknowledged is not: they are files in the page cache of this machine.
    """
    initrd = directory / "initrd"
    # The kernel unpacks archives that follow one another, each from a multiple of four bytes on, which `archive` keeps.
    initrd.write_bytes(image.initramfs + guest_image.archive(job))
    argv = [
        *("nice", "-n", "15", "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", str(processors), "-m", str(memory_mib)),
        *("-kernel", str(image.kernel), "-initrd", str(initrd), "-serial", "stdio"),
        # On a busy machine the emulated timer can be too late for the kernel's check of it, which then panics.
        *("-append", "console=ttyS0 loglevel=3 panic=-1 mitigations=off no_timer_check"),
    ]
    for number, path in enumerate(disks):
        argv += ["-drive", f"file={path},format=raw,if=none,id=disk{number},cache=unsafe"]
        argv += ["-device", f"virtio-blk-pci,drive=disk{number}"]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
    out_of_time = threading.Timer(timeout_s, process.kill)
    out_of_time.start()
    try:
        yield _said(process)
    finally:
        out_of_time.cancel()
        process.kill()
        process.wait()


def _said(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    assert process.stdout is not None
    log: list[str] = []
    for line in process.stdout:
        if not line.startswith(_SAID_TO_HOST):
            log.append(line)
        elif (words := line.split()[1:])[0] == "failed":
            raise RuntimeError(f"the guest failed: {' '.join(words[1:])}\n{''.join(log)}{process.stdout.read()}")
        else:
            yield words
    raise RuntimeError(f"the guest ended, or was ended, before it was done:\n{''.join(log)}")
