"""Guests: small virtual machines whose disks are RBD images, to be the clients of the lab that do I/O on command.

Each guest has an image and a cephx client of its own, of the guest's name (image rbd/vm1, client.vm1), so that it is
known which virtual machine an operation comes from. It has no network. QEMU's guest agent runs in it, and is talked to
over a Unix socket of the lab; what it runs there ends with the guest.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Literal

from bathyscope.errors import EnvironmentError_
from bathyscope.host import outliving
from bathyscope.host.local import FOREIGN_VARIABLES
from bathyscope.lab import guest_agent, guest_image, journal, requirements
from bathyscope.lab.guest_image import GuestImage
from bathyscope.lab.layout import Layout
from bathyscope.lab.run import Tools, system
from bathyscope.lab.spec import RBD_POOL

PROCESS = "qemu"  # of vm1: qemu.vm1
DISK = "/dev/vda"
MEMORY_MIB = 160

# Ceph 20.2.4 has keys of a new type, which older clients cannot use, and takes the old type only when told to. A guest
# of a lab of that release needs one: QEMU runs with this machine's librbd.
NEW_KEYS_MAJOR = 20
OLD_KEY = ("--key-type", "aes")
OLD_KEYS_ALLOWED = ("--auth-allowed-ciphers", "aes,aes256k")
OLD_KEY_WARNINGS = ("AUTH_INSECURE_CLIENT_KEY_TYPE", "AUTH_INSECURE_KEYS_ALLOWED", "AUTH_INSECURE_KEYS_CREATABLE")

Accelerator = Literal["kvm", "tcg"]

_QEMU = "qemu-system-x86_64"
# A kernel under KVM starts within a second; a machine whose KVM does not work may hang instead of failing.
_TRIAL_TIMEOUT_S = 15.0


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """What all guests of a lab have in common: the image they boot, and how their processor is emulated."""

    image: GuestImage
    accelerator: Accelerator


def prepare(progress: Callable[[str], None]) -> Machine:
    """Check that guests can run here, and get what they boot. Raises EnvironmentError_."""
    requirements.require([_QEMU])
    _require_rbd_driver()
    image = guest_image.ensure(progress)
    return Machine(image, _accelerator(image))


def _require_rbd_driver() -> None:
    """QEMU's driver for RBD is a module in a package of its own; without it the driver is unknown."""
    trial = _run(_QEMU, *_nothing("none"), "-blockdev", "driver=rbd,node-name=trial,pool=rbd,image=x,conf=/nonexistent")
    if b"Unknown driver" in trial:
        raise EnvironmentError_(
            "QEMU's driver for RBD is not installed", hint=requirements.install_command(["block-rbd.so"])
        )


def _accelerator(image: GuestImage) -> Accelerator:
    """Return `kvm` when a guest has started under it: an open /dev/kvm does not mean that a kernel gets to run."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    said = _run(_QEMU, *_kernel(Machine(image, "kvm")), "-serial", "stdio")
    return "kvm" if guest_image.STARTED.encode() in said else "tcg"


def _run(*argv: str) -> bytes:
    completed = system(*argv, timeout_s=_TRIAL_TIMEOUT_S)
    return completed.stdout + completed.stderr


def client_capabilities() -> dict[str, str]:
    """Return the cephx capabilities of a guest's client: to use images of the pool that holds its own."""
    return {"mon": "profile rbd", "osd": f"profile rbd pool={RBD_POOL}"}


def _nothing(machine: str) -> tuple[str, ...]:
    """Return the arguments for a machine without devices, configuration files and windows."""
    return ("-nodefaults", "-no-user-config", "-display", "none", "-machine", machine)


def _kernel(machine: Machine) -> tuple[str, ...]:
    image = machine.image
    processor = "host" if machine.accelerator == "kvm" else "max"
    return (
        *_nothing("q35"),
        *("-accel", machine.accelerator, "-cpu", processor, "-smp", "1", "-m", str(MEMORY_MIB)),
        # A kernel that panics resets the machine, and a reset ends QEMU.
        *("-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-no-reboot"),
        *("-append", "console=ttyS0 quiet panic=-1"),
    )


def command(guest: str, machine: Machine, layout: Layout) -> list[str]:
    """Return the program that is the guest.

    Its disk has no cache of librbd's, so that each of its requests is one for the cluster.
    """
    # QEMU takes a doubled comma for one of the value. A lab's own paths have none.
    root_file = str(machine.image.root).replace(",", ",,")
    root = f"driver=file,filename={root_file},read-only=on,node-name=root"
    disk = f"driver=rbd,pool={RBD_POOL},image={guest},user={guest},conf={layout.conf},cache.direct=on,node-name=disk"
    return [
        _QEMU,
        *("-name", guest),
        *_kernel(machine),
        *("-blockdev", disk, "-device", f"virtio-blk-pci,drive=disk,serial={guest}"),
        *("-blockdev", root, "-device", "virtio-blk-pci,drive=root"),
        *("-device", "virtio-serial-pci"),
        *("-chardev", f"socket,id=agent,path={layout.guest_agent(guest)},server=on,wait=off"),
        *("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"),
        *("-serial", f"file:{layout.log / guest}.console.out"),
        *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
    ]


def make_image(guest: str, size_bytes: int, tools: Tools, layout: Layout) -> None:
    """Make the image of a guest, thin. Raises LabError."""
    tools.run("rbd", "-c", str(layout.conf), "create", "--size", f"{size_bytes}B", f"{RBD_POOL}/{guest}")


def start(guest: str, machine: Machine, layout: Layout, book: journal.Journal) -> outliving.Started:
    """Start a guest, whose image exists; journaled. It boots for some seconds before its agent answers."""
    name = f"{PROCESS}.{guest}"
    return outliving.start(
        command(guest, machine, layout),
        log=layout.log / f"{name}.out",
        announce=lambda identity: book.process(name, identity),
        without=FOREIGN_VARIABLES,
    )


def answers(guest: str, layout: Layout) -> bool:
    """Return whether the guest has booted: its agent answers."""
    socket = layout.guest_agent(guest)
    return socket.exists() and guest_agent.answers(socket)


def fio_options(guest: str) -> list[str]:
    """Return the options that fio gets first: a job of the guest's name on its disk, past the guest's page cache."""
    return ["--output-format=json", f"--name={guest}", f"--filename={DISK}", "--direct=1", "--ioengine=libaio"]
