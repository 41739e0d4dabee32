"""Network interfaces: where a byte leaves its machine, by recorded readings and by texts in the kernel's form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bathyscope.records import NetworkSample, RawAnswer, from_table
from bathyscope.sources import network
from bathyscope.sources.proc import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope, ScopeLink

FIXTURES = Path(__file__).parents[2] / "fixtures" / "network"
SECOND = 10**9
GBIT = 10**9
HEAD = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n"


def recorded_course(name: str) -> tuple[list[tuple[str, bytes]], list[RawAnswer]]:
    """Return the files about the links and the readings of a recording."""
    links: list[tuple[str, bytes]] = []
    readings = []
    for block in re.split(rb"^=== ", (FIXTURES / name).read_bytes(), flags=re.MULTILINE)[1:]:
        stamp, _, rest = block.partition(b"\n")
        parts = [part.partition(b"\n") for part in re.split(rb"^--- ", rest, flags=re.MULTILINE)[1:]]
        files = tuple((path.decode(), content) for path, _, content in parts)
        if stamp == b"links":
            links += files
        else:
            readings.append(RawAnswer("proc", (), (), 0, b"", b"", int(stamp), int(stamp), files))
    return links, readings


def rows_of(name: str) -> list[NetworkSample]:
    links, readings = recorded_course(name)
    scope = Scope(target=Target(name="t"), links=network.links(links))
    return from_table(NetworkSample, SOURCE.parse(readings, scope)[NetworkSample])


def test_a_bridge_and_its_veths_carry_nothing_out_of_a_machine_with_a_card() -> None:
    """A lab with two nodes under load: its traffic stays on this machine, whose card is virtual and has no speed."""
    links, _ = recorded_course("linux-6.18/bridge-and-veth.txt")
    known = {link.name: link for link in network.links(links)}
    assert [name for name, link in known.items() if link.hardware] == ["eth0"]
    assert [name for name, link in known.items() if link.stacked] == ["by-cfeb1c16"]
    assert known["eth0"].speed_bits_per_s is None
    assert "lo" not in known
    (row,) = rows_of("linux-6.18/bridge-and-veth.txt")
    assert (row.host, row.interface, row.receive_bytes, row.speed_bits_per_s) == ("localhost", "eth0", 0, None)


def test_two_cards_under_a_bond_a_bridge_and_a_vlan_count_once() -> None:
    """A virtual machine with two cards of 1 Gbit/s: bond0 of both, bond0.7 and br0 upon it."""
    links, _ = recorded_course("linux-6.1/bond-bridge-vlan.txt")
    assert [link.name for link in network.links(links) if link.stacked] == ["bond0", "bond0.7", "br0"]
    assert network.described(network.links(links)) == "eth0 1 Gbit/s, eth1 1 Gbit/s"
    rows = rows_of("linux-6.1/bond-bridge-vlan.txt")
    assert [(row.interface, row.speed_bits_per_s) for row in rows] == [("eth0", GBIT), ("eth1", GBIT)]
    # As much as the bond itself has counted.
    assert sum(row.transmit_bytes for row in rows) == 9470 - 2890
    assert sum(row.receive_bytes for row in rows) == 924 - 624


def test_a_machine_without_a_card_is_reached_through_its_veth() -> None:
    """A node of that lab, two seconds of it."""
    (row,) = rows_of("linux-6.18/only-veth.txt")
    assert (row.interface, row.receive_bytes, row.transmit_bytes) == ("eth0", 384809705 - 330553478, 14229131)
    assert (row.receive_packets, row.transmit_packets) == (17239 - 14943, 14747 - 12664)
    assert row.duration_ns == 1795366688496556368 - 1795366686495493658
    # What a veth says of its speed is no limit of it.
    assert row.speed_bits_per_s is None


def line(name: str, received: int, sent: int) -> str:
    return f"{name}:{received} 10 1 2 0 0 0 0 {sent} 20 3 4 0 0 0 0\n"


def table(at: int, *names: str) -> tuple[int, str]:
    return at * SECOND, HEAD + "".join(line(name, 1000 * at, 500 * at) for name in names)


@pytest.mark.parametrize(
    ("links", "counted"),
    [
        # A bond of two cards, a VLAN on it, a bridge with a container.
        (
            [("eth0", True, False), ("eth1", True, False), ("bond0", False, True), ("bond0.7", False, True),
             ("br0", False, True), ("veth1", False, False)],
            ["eth0", "eth1"],
        ),
        # A container with a bridge of its own.
        ([("eth0", False, False), ("docker0", False, True)], ["eth0"]),
        # Nothing is known: /sys was not there. They may count the same bytes.
        ([], []),
    ],
)  # fmt: skip
def test_a_byte_counts_where_it_leaves_the_machine(links: list[tuple[str, bool, bool]], counted: list[str]) -> None:
    known = [ScopeLink(name=name, hardware=card, stacked=above) for name, card, above in links]
    names = [name for name, _, _ in links] or ["eth0", "bond0"]
    readings = [table(at, "lo", *names) for at in (1, 2, 3)]
    rows = from_table(NetworkSample, network.samples(readings, "node1", known))
    assert [(row.interface, row.at_ns, row.receive_bytes, row.transmit_bytes) for row in rows] == [
        (name, at * SECOND, 1000, 500) for name in counted for at in (2, 3)
    ]


def test_counters_that_went_back_are_another_interface() -> None:
    readings = [table(5, "eth0"), table(6, "eth0"), (7 * SECOND, HEAD + line("eth0", 0, 0)), (8 * SECOND, HEAD)]
    readings.append((9 * SECOND, HEAD + line("eth0", 7, 7)))
    rows = from_table(NetworkSample, network.samples(readings, "node1", [ScopeLink(name="eth0", hardware=True)]))
    assert [(row.at_ns // SECOND, row.duration_ns // SECOND, row.receive_bytes) for row in rows] == [
        (6, 1, 1000),
        (9, 2, 7),
    ]


@pytest.mark.parametrize(
    ("text", "speed"), [(b"25000\n", 25 * GBIT), (b"-1\n", None), (b"0\n", None), (b"4294967295\n", None), (b"", None)]
)
def test_the_speed_of_a_link(text: bytes, speed: int | None) -> None:
    files = [(f"/sys/class/net/eth0/{name}", text) for name in ("device/uevent", "speed")]
    (link,) = network.links(files)
    assert link.speed_bits_per_s == speed
    assert network.described([link]) == ("eth0 25 Gbit/s" if speed else "eth0")
