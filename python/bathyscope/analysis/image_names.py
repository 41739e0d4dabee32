"""What images are called, and what a name says: those that OpenStack, Proxmox VE, ceph-csi and OpenNebula give."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

_UUID = r"(?P<id>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})"
# (pattern, what it is, its virtual machine)
_CONVENTIONS = (
    (rf"volume-{_UUID}", "Cinder volume {id}", None),
    (rf"{_UUID}_disk", "root disk of the Nova instance {id}", "instance {id}"),
    (rf"{_UUID}_disk\.config", "configuration drive of the Nova instance {id}", "instance {id}"),
    (rf"{_UUID}_disk\.swap", "swap of the Nova instance {id}", "instance {id}"),
    (rf"{_UUID}_disk\.eph(?P<part>\d+)", "ephemeral disk {part} of the Nova instance {id}", "instance {id}"),
    (r"vm-(?P<id>\d+)-disk-(?P<part>\d+)", "disk {part} of the Proxmox VM {id}", "VM {id}"),
    (r"vm-(?P<id>\d+)-cloudinit", "cloud-init drive of the Proxmox VM {id}", "VM {id}"),
    (r"base-(?P<id>\d+)-disk-(?P<part>\d+)", "disk {part} of the Proxmox template {id}", "template {id}"),
    (rf"csi-vol-{_UUID}", "ceph-csi volume {id}", None),
    (rf"csi-snap-{_UUID}", "ceph-csi snapshot {id}", None),
    (r"one-(?P<base>\d+)", "OpenNebula image {base}", None),
    (
        r"one-(?P<base>\d+)-(?P<id>\d+)-(?P<part>\d+)",
        "disk {part} of the OpenNebula VM {id}, of image {base}",
        "VM {id}",
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class NamedFor:
    """What an image is by its name, and the virtual machine that it is of, where the name says that."""

    words: str
    vm: str | None


# A live screen asks for the same ten thousand names every few seconds.
@functools.lru_cache(maxsize=1 << 16)
def named_for(image: str) -> NamedFor | None:
    """Return what a name says by the conventions above, also in the trash; None for a name of another kind."""
    name = image.removesuffix(" (trash)")
    for pattern, words, vm in _CONVENTIONS:
        match = re.fullmatch(pattern, name, re.ASCII)
        if match is not None:
            parts = match.groupdict()
            return NamedFor(words.format(**parts), None if vm is None else vm.format(**parts))
    return None


def called(row: Mapping[str, Any]) -> str:
    """Return what a person calls an image of these columns: POOL/[NAMESPACE/]IMAGE; its id where it has no name."""
    name = row["image"] or f"(id {row['image_id']})"
    return "/".join(part for part in (row["pool"], row["namespace"], name) if part)


def names(images: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what views call these images: each by its name, and by its id."""
    both = (row for image in images for row in (image, {**image, "image": None}))
    return sorted({called(row) for row in both if row["image"] or row["image_id"]})
