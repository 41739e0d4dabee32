from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest

from bathyscope.errors import LabError
from bathyscope.lab import network

FSID = "1a2b3c4d-2222-3333-4444-555555555555"
EVERY = set(network.RESERVED.subnets(new_prefix=24))
SUBNET = IPv4Network("198.18.9.0/24")


def test_a_network_is_one_that_no_lab_and_no_route_has() -> None:
    assert network.choose(EVERY - {SUBNET}, set()) == SUBNET
    # Routes: the machine's default, a neighbour, an address in one candidate, and a wider part of the range.
    routes = {"default", "10.0.0.0/8", "198.18.9.1", "198.19.0.0/16", "0.0.0.0/1"}
    free = IPv4Network("198.18.10.0/24")
    assert network.choose(EVERY - {SUBNET, free, IPv4Network("198.19.1.0/24")}, routes) == free


def test_no_network_left_is_an_error() -> None:
    with pytest.raises(LabError, match="no free network"):
        network.choose(EVERY, set())
    with pytest.raises(LabError, match="no free network"):
        network.choose((), {"198.18.0.0/15"})


def test_addresses_of_machine_and_nodes_differ_and_lie_inside() -> None:
    addresses = [network.machine_address(SUBNET), *(network.node_address(SUBNET, f"node{n}") for n in range(1, 65))]
    assert len(set(addresses)) == 65
    assert addresses[:2] == ["198.18.9.1", "198.18.9.11"]
    assert all(IPv4Address(address) in SUBNET for address in addresses)
    assert "198.18.9.255" not in addresses


@pytest.mark.parametrize("node", ["node1", "node64"])
def test_links_are_known_by_name(node: str) -> None:
    cable = network.cable_name(FSID, node)
    assert len(cable) <= 15
    for name in (cable, network.bridge_name(FSID)):
        assert network.is_link_of(FSID, name)
        assert network.is_link_of(None, name)
        assert not network.is_link_of(FSID.replace("1a2b", "1a2c"), name)


@pytest.mark.parametrize(
    "name", ["eth0", "by-", "by-1a2b3c4d-", "by-1a2b3c4d-1/..", "by-1a2b3c4d\n", "xby-1a2b3c4d", ""]
)
def test_other_links_are_nobodys(name: str) -> None:
    assert not network.is_link_of(None, name)
    assert not network.is_link_of(FSID, name)
