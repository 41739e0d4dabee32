"""Guests of a lab that is being made: their keys, their images, and the wait until they have booted."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.host import CephSession
from bathyscope.lab import guests
from bathyscope.lab.bringup import Bringup, command_all

# On top of the time for the daemons: emulated by TCG, each boot takes a whole processor for many seconds.
BOOT_TIMEOUT_S = 60.0


def has_old_keys(bringup: Bringup) -> bool:
    """Return whether guests have keys of the old type: QEMU runs with this machine's librbd, not with the release's."""
    return bringup.machine is not None and bringup.root is not None and bringup.major >= guests.NEW_KEYS_MAJOR


def key_options(bringup: Bringup, entity: str) -> Sequence[str]:
    """Return the options of ceph-authtool for the key of `entity`."""
    is_guest = entity.removeprefix("client.") in bringup.spec.guests
    return guests.OLD_KEY if is_guest and has_old_keys(bringup) else ()


def start(bringup: Bringup, session: CephSession) -> None:
    """Make each guest's image and start the guest; it boots while the cluster settles. Raises LabError."""
    if bringup.machine is None:
        return
    if has_old_keys(bringup):
        mutes = [{"prefix": "health mute", "code": code, "sticky": True} for code in guests.OLD_KEY_WARNINGS]
        command_all(session, mutes)
    bringup.allow(BOOT_TIMEOUT_S * bringup.spec.vms)
    bringup.progress(f"starting {bringup.spec.vms} guests ({bringup.machine.accelerator})")
    for guest in bringup.spec.guests:
        guests.make_image(guest, bringup.spec.vm_size_bytes, bringup.tools, bringup.layout)
        started = guests.start(guest, bringup.machine, bringup.layout, bringup.journal)
        bringup.children[f"{guests.PROCESS}.{guest}"] = started


def wait(bringup: Bringup) -> None:
    """Wait until every guest has booted. Raises LabError."""
    if bringup.spec.vms:
        bringup.progress("waiting for the guests")
    for guest in bringup.spec.guests:
        while not guests.answers(guest, bringup.layout):
            bringup.tick(f"{guest} does not answer")
