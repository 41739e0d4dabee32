"""ceph.conf and keyrings against golden files."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
from tests.unit.views import golden

from bathyscope.lab import conf, keys
from bathyscope.lab.layout import Layout
from bathyscope.lab.spec import LabSpec, parse_device

LAYOUT = Layout(Path("/var/lib/labs/x"))
FSID = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize("newer", [False, True], ids=["pacific", "newer"])
def test_conf(newer: bool) -> None:
    spec = LabSpec(devices=(parse_device("hdd=2"), parse_device("ssd=1")), nodes=1, replicas=1)
    text = conf.render(spec, LAYOUT, fsid=FSID, ports=(21000, 21001), newer_than_pacific=newer)
    golden.check(f"lab/ceph-{'newer' if newer else 'pacific'}.conf", text)


def test_cephx_is_on_everywhere_and_caches_are_small() -> None:
    text = conf.render(LabSpec(), LAYOUT, fsid=FSID, ports=(1, 2), newer_than_pacific=False)
    for service in ("cluster", "service", "client"):
        assert f"auth {service} required = cephx\n" in text
    assert "bluestore cache autotune = false\n" in text
    assert f"bluestore cache size = {48 * 2**20}\n" in text
    assert "$pid" in text[text.index("[client]") : text.index("[mon]")]


def test_the_gateway_has_a_port_a_key_and_a_section_of_its_own() -> None:
    spec = LabSpec(rgw=True)
    text = conf.render(spec, LAYOUT, fsid=FSID, ports=(1, 2, 3), newer_than_pacific=False)
    assert "rgw frontends = beast endpoint=127.0.0.1:3\n" in text[text.index("[client.rgw.a]") :]
    assert "client.rgw.a" in keys.entities(spec)
    assert "client.rgw.a" not in keys.entities(LabSpec())


@pytest.mark.parametrize(("nodes", "domain"), [(3, 1), (2, 0)])
def test_failure_domain_follows_the_nodes(nodes: int, domain: int) -> None:
    text = conf.render(LabSpec(nodes=nodes), LAYOUT, fsid=FSID, ports=(1, 2), newer_than_pacific=False)
    assert f"osd crush chooseleaf type = {domain}\n" in text


def test_osds_have_the_addresses_of_their_nodes() -> None:
    spec = LabSpec(devices=(parse_device("ssd=2"),), nodes=2)
    text = conf.render(
        spec,
        LAYOUT,
        fsid=FSID,
        ports=(1, 2),
        newer_than_pacific=False,
        address="198.18.9.1",
        nodes={"node1": "198.18.9.11", "node2": "198.18.9.12"},
    )
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    assert parser["global"]["mon host"] == "[v2:198.18.9.1:1,v1:198.18.9.1:2]"
    assert parser["mon"]["public addr"] == parser["mgr"]["public addr"] == "198.18.9.1"
    for section, address in (("osd.0", "198.18.9.11"), ("osd.1", "198.18.9.12")):
        assert parser[section]["public addr"] == parser[section]["cluster addr"] == address
    assert "127.0.0.1" not in text


def test_keyring_has_every_daemon_with_its_capabilities() -> None:
    spec = LabSpec(devices=(parse_device("hdd=2"),), fs=True)
    capabilities = keys.entities(spec)
    assert list(capabilities) == ["mon.", "client.admin", "mgr.x", "osd.0", "osd.1", "mds.a"]
    golden.check(
        "lab/all.keyring", keys.keyring_text({entity: f"KEY-{entity}" for entity in capabilities}, capabilities)
    )
