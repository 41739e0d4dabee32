"""Words for what a cluster or a plan calls by a short name, and the cleaning of names from outside."""

from __future__ import annotations

import datetime
import json
import re
import shlex
from collections.abc import Iterable

from bathyscope.records import HERE
from bathyscope.records.blocks import CaveatView
from bathyscope.records.finding import LadderFinding, LayerView, PointFinding, RungGroup, Verdict
from bathyscope.units import format_size_short

_OPS = {
    "randread": "random read",
    "randwrite": "random write",
    "read": "sequential read",
    "write": "sequential write",
    "randrw": "random mix",
}
# In the order in which an operation passes through them; a stage's place is also its colour's.
STAGES = {
    "queue": "queue",
    "prepare": "prepare",
    "store": "local store",
    "replica_wait": "replica wait",
    "reply": "reply",
}

# What a verdict calls a limit, where its plain name would not be read as it is meant.
_LIMITS = {
    "osd_cpu": "OSD CPU",
    "host_cpu": "host CPU",
    "client_cpu": "client CPU",
    "kv_sync": "kv-sync thread",
    "slow_osd": "slow OSD",
    "slow_node": "slow node",
    "image_limit": "image's QoS limit",
    "hot_pg": "hot PG",
    "in_flight": "I/Os in flight",
    "latency_bound": "latency",
    "nearest": "none reached",
    "outside": "client, network",
    "load_rate": "its own rate",
    "uneven": "uneven load",
    "unknown": "not known",
    "clients": "clients ask for no more",
    "idle": "cannot tell",
}

_BREAKS = "\n\r\t\u2028\u2029"
# Control characters (escape sequences begin with one), surrogates, and what changes the direction of text.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Return `text` on one line and without what could steer a terminal or reorder a line.

    Names of pools, hosts and devices come from the cluster. Control characters (escape sequences begin
    with one), surrogates and bidirectional overrides become U+FFFD; line breaks and tabs become a space.
    """
    return _STEERING.sub("\ufffd", re.sub(f"[{_BREAKS}]", " ", text))


def escaped_json(text: str) -> str:
    """Return a JSON text with the characters that `clean` would replace as escapes; its own line feeds stay."""
    return re.sub(f"(?!\n)(?:[{_BREAKS}]|{_STEERING.pattern})", lambda match: f"\\u{ord(match[0]):04x}", text)


def clean_lines(text: str) -> str:
    """Return `text` with each of its lines clean; line feeds stay."""
    return "\n".join(map(clean, text.split("\n")))


def shell_word(word: str) -> str:
    """Return a word for a shell; control characters by escapes, so that what is copied is what was run."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = json.dumps(word)[1:-1].replace("'", "\\'").replace('\\"', '"')
    return f"$'{escaped}'"


def layer(finding: LadderFinding, name: str) -> LayerView:
    """Return what is shown of a layer; one that the finding does not describe stands by its name above the others."""
    unknown = LayerView(name, clean(name), clean(name), place=99, slot=6, shape="circle", dash=(4, 4))
    return next((view for view in finding.layers if view.name == name), unknown)


def layers(finding: LadderFinding) -> list[LayerView]:
    """Return the layers that a finding has points of, from the disk up."""
    names = dict.fromkeys(point.layer for group in finding.groups for point in group.points)
    return sorted((layer(finding, name) for name in names), key=lambda view: view.place)


def device_class(name: str) -> str:
    """Return a CRUSH device class for a heading: "HDD"; the empty class is all devices."""
    if not name:
        return "All devices"
    return name.upper() if name in ("hdd", "ssd", "nvme") else clean(name)


def device_classes(finding: LadderFinding) -> list[str]:
    """Return the device classes of a finding, in the order in which they appear."""
    return list(dict.fromkeys(group.device_class for group in finding.groups))


def pattern(point: PointFinding) -> str:
    """Return a load pattern in words: "4K random read, QD 1"."""
    size = format_size_short(point.block_size_bytes)
    text = f"{size} {_OPS.get(point.op, clean(point.op))}, QD {point.queue_depth}"
    if point.jobs != 1:
        text += f", {point.jobs} jobs"
    # What the short name holds beyond op, size and depth (cold, obj1M, …) distinguishes otherwise equal patterns.
    plain = f"{point.op}-{size}-qd{point.queue_depth}"
    extra = point.pattern.removeprefix(plain).strip("-")
    if point.pattern != plain and point.pattern.startswith(plain) and extra != f"j{point.jobs}":
        text += f" ({clean(extra)})"
    return text


def limit(verdict: Verdict) -> str:
    """Return what a verdict names in few words: "device (osd.0)"."""
    name = _LIMITS.get(verdict.limit, clean(verdict.limit).replace("_", " "))
    return f"{name} ({machine(verdict.subject)})" if verdict.subject and verdict.limit != "nearest" else name


def caveat_codes(step_key: str, *caveats: Iterable[CaveatView]) -> str:
    """Return the caveats of a step and those of the whole run as a cell for programs: other outputs have their texts.

    The text of a caveat of several steps gives the ranges of all of them.
    """
    of_step = (c for each in caveats for c in each if not c.step_keys or step_key in c.step_keys)
    return "; ".join(dict.fromkeys(c.code for c in of_step))


def machine(name: str) -> str:
    """Return the name of a machine, or of what is no machine, for reading."""
    return "this machine" if name == HERE else clean(name)


def group_pattern(group: RungGroup) -> str:
    """Return the pattern of a group in words; its short name when it has no points."""
    return pattern(group.points[0]) if group.points else clean(group.pattern)


def time_utc(epoch_ns: int) -> str:
    """Return a moment for reading: "2026-08-22 14:03:05 UTC"."""
    return datetime.datetime.fromtimestamp(epoch_ns // 10**9, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
