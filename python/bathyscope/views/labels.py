"""Words for what a cluster or a plan calls by a short name, and the cleaning of names from outside."""

from __future__ import annotations

import datetime
import unicodedata

from bathyscope.records.finding import LadderFinding, PointFinding, RungGroup
from bathyscope.units import format_size_short

LAYER_NAMES = {
    "disk": "Disk",
    "rados": "RADOS",
    "rbd": "RBD",
    "krbd": "krbd",
    "rbd-nbd": "rbd-nbd",
    "cephfs": "CephFS",
    "rgw": "RGW",
    "omap": "omap",
}
OP_NAMES = {
    "randread": "random read",
    "randwrite": "random write",
    "read": "sequential read",
    "write": "sequential write",
    "randrw": "random mix",
}
STAGE_NAMES = {
    "queue": "queue",
    "prepare": "prepare",
    "store": "own store",
    "replica_wait": "replica wait",
    "reply": "reply",
}
SEVERITY_ORDER = ("refused", "doubt", "note")

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """Return `text` on one line and without what could steer a terminal or reorder a line.

    Names of pools, hosts and devices come from the cluster. Control characters (escape sequences begin
    with one), surrogates and bidirectional overrides become U+FFFD; line breaks and tabs become a space.
    """
    out = []
    for character in text:
        if character in "\n\r\t\u2028\u2029":
            out.append(" ")
        elif character in _BIDI or unicodedata.category(character) in ("Cc", "Cs"):
            out.append("\ufffd")
        else:
            out.append(character)
    return "".join(out)


def layer(name: str) -> str:
    """Return a layer's proper name; one that is not known stays as it is."""
    return LAYER_NAMES.get(name, clean(name))


def stage(name: str) -> str:
    """Return a stage of an op in words."""
    return STAGE_NAMES.get(name, clean(name))


def device_class(name: str) -> str:
    """Return a CRUSH device class for a heading: "HDD"; the empty class is all devices."""
    if not name:
        return "All devices"
    return name.upper() if name in ("hdd", "ssd", "nvme") else clean(name)


def pattern(point: PointFinding) -> str:
    """Return a load pattern in words: "4K random read, QD 1"."""
    size = format_size_short(point.block_size_bytes)
    text = f"{size} {OP_NAMES.get(point.op, clean(point.op))}, QD {point.queue_depth}"
    if point.jobs != 1:
        text += f", {point.jobs} jobs"
    # What the short name says beyond op, size and depth (cold, obj1M, …) tells otherwise equal patterns apart.
    plain = f"{point.op}-{size}-qd{point.queue_depth}"
    extra = point.pattern.removeprefix(plain).strip("-")
    if point.pattern != plain and point.pattern.startswith(plain) and extra != f"j{point.jobs}":
        text += f" ({clean(extra)})"
    return text


def group_pattern(group: RungGroup) -> str:
    """Return the pattern of a group in words; its short name when it has no points."""
    return pattern(group.points[0]) if group.points else clean(group.pattern)


def device_classes(finding: LadderFinding) -> list[str]:
    """Return the device classes of a finding, in the order in which they appear."""
    return list(dict.fromkeys(group.device_class for group in finding.groups))


def layers(finding: LadderFinding) -> list[str]:
    """Return the layers of a finding from the disk up, in the order in which they appear."""
    return list(dict.fromkeys(point.layer for group in finding.groups for point in group.points))


def time_utc(epoch_ns: int) -> str:
    """Return a moment for reading: "2026-08-22 14:03:05 UTC"."""
    return datetime.datetime.fromtimestamp(epoch_ns // 10**9, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
