"""Network interfaces of a machine: what /proc/net/dev counted between one reading of /proc and the next.

A packet passes several interfaces of one machine: the card and the bond above it; a container's veth, a bridge and the
card. It counts once, where it leaves the machine: at an interface of hardware. All others, and lo, make no rows. A
machine without such an interface (a container, a node of a lab) is reached through a veth: there every interface counts
that the kernel does not call a bridge, a bond, a VLAN or the like.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.fields import as_int
from bathyscope.records import NetworkSample, build_table, schema_of
from bathyscope.spec.scope import ScopeLink
from bathyscope.units import format_bit_rate

COUNTERS_PATH = "/proc/net/dev"
_CLASS = "/sys/class/net"
# Read once: the kernel asks the card for its speed.
LINK_PATHS = (f"{_CLASS}/*/device/uevent", f"{_CLASS}/*/uevent", f"{_CLASS}/*/speed")
_LOOPBACK = "lo"
# Receive: bytes, packets, errors, drops, …; transmit, from the ninth on: the same.
_COLUMNS = {
    "receive_bytes": 0, "receive_packets": 1, "receive_errors": 2, "receive_drops": 3,
    "transmit_bytes": 8, "transmit_packets": 9, "transmit_errors": 10, "transmit_drops": 11,
}  # fmt: skip


def links(files: Iterable[tuple[str, bytes]]) -> tuple[ScopeLink, ...]:
    """Return the interfaces that files at LINK_PATHS tell of, without lo.

    A speed of 0 or less means that the card does not know it: there is no cable, or it is a virtual one.
    """
    links: dict[str, dict[str, bool | int]] = {}
    for path, content in files:
        if not path.startswith(f"{_CLASS}/"):
            continue
        name, _, kind = path.removeprefix(f"{_CLASS}/").partition("/")
        link, text = links.setdefault(name, {}), content.decode("utf-8", "replace")
        if kind == "device/uevent":
            link["hardware"] = True
        elif kind == "uevent":
            link["stacked"] = "DEVTYPE=" in text
        elif kind == "speed":
            with contextlib.suppress(ValueError):
                if 0 < (speed := int(text)) < 1 << 31:
                    link["speed_bits_per_s"] = speed * 10**6
    return tuple(ScopeLink.model_validate({"name": name, **links[name]}) for name in sorted(links) if name != _LOOPBACK)


def described(known: Iterable[ScopeLink]) -> str:
    """Return the interfaces of hardware and their speeds in words; empty without any."""
    named = []
    for link in known:
        if link.hardware:
            speed = link.speed_bits_per_s
            named.append(link.name if speed is None else f"{link.name} {format_bit_rate(speed)}")
    return ", ".join(named)


def samples(readings: Sequence[tuple[int, str]], host: str, known: Sequence[ScopeLink]) -> pa.Table:
    """Return a row for each interface that counts and pair of consecutive readings, (time, content), that have it.

    Without a `known` interface there is no row: it is not known which of them count the same bytes.
    Counters that went back are another interface of the same name: no row, either. Raises what a text of another form
    does.
    """
    about = {link.name: link for link in known}
    if not about:
        return schema_of(NetworkSample).empty_table()
    counted: dict[str, list[tuple[int, ...]]] = {}
    for at_ns, text in readings:
        for line in text.splitlines()[2:]:
            name, _, rest = line.partition(":")
            words = rest.split()
            values = (as_int(words[index]) for index in _COLUMNS.values())
            counted.setdefault(name.strip(), []).append((at_ns, *values))
    counted.pop(_LOOPBACK, None)
    hardware = {name for name in counted if name in about and about[name].hardware}
    leading = hardware or {name for name in counted if name in about and not about[name].stacked}
    tables = [schema_of(NetworkSample).empty_table()]
    for name in sorted(leading):
        course = np.array(counted[name], dtype=np.int64)
        grown = np.diff(course, axis=0)
        is_whole = (grown[:, 0] > 0) & (grown[:, 1:] >= 0).all(axis=1)
        # Only a card's word is its speed: a veth says 10 Gbit/s, whatever it carries.
        speed = about[name].speed_bits_per_s if name in hardware else None
        columns = dict(zip(_COLUMNS, grown[is_whole, 1:].T, strict=True))
        tables.append(
            build_table(
                NetworkSample,
                {"at_ns": course[1:, 0][is_whole], "duration_ns": grown[is_whole, 0], "host": host, "interface": name}
                | columns
                | ({} if speed is None else {"speed_bits_per_s": speed}),
            )
        )
    return pa.concat_tables(tables)
