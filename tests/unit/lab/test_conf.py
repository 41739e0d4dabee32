"""ceph.conf and keyrings against golden files; refresh with BATHY_UPDATE_GOLDEN=1 and review the difference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bathyscope.lab import conf, keys
from bathyscope.lab.layout import Layout
from bathyscope.lab.spec import LabSpec, parse_device

GOLDEN = Path(__file__).parents[2] / "golden" / "lab"
LAYOUT = Layout(Path("/var/lib/labs/x"))
FSID = "11111111-2222-3333-4444-555555555555"


def check(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("BATHY_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("newer", [False, True], ids=["pacific", "newer"])
def test_conf(newer: bool) -> None:
    spec = LabSpec(devices=(parse_device("hdd=2"), parse_device("ssd=1")), nodes=1, replicas=1)
    text = conf.render(spec, LAYOUT, fsid=FSID, ports=(21000, 21001), newer_than_pacific=newer)
    check(f"ceph-{'newer' if newer else 'pacific'}.conf", text)


def test_cephx_is_on_everywhere_and_caches_are_small() -> None:
    text = conf.render(LabSpec(), LAYOUT, fsid=FSID, ports=(1, 2), newer_than_pacific=False)
    for service in ("cluster", "service", "client"):
        assert f"auth {service} required = cephx\n" in text
    assert "bluestore cache autotune = false\n" in text
    assert f"bluestore cache size = {48 * 2**20}\n" in text
    assert "$pid" in text[text.index("[client]") : text.index("[mon]")]


@pytest.mark.parametrize(("nodes", "domain"), [(3, 1), (2, 0)])
def test_failure_domain_follows_the_nodes(nodes: int, domain: int) -> None:
    text = conf.render(LabSpec(nodes=nodes), LAYOUT, fsid=FSID, ports=(1, 2), newer_than_pacific=False)
    assert f"osd crush chooseleaf type = {domain}\n" in text


def test_keyring_has_every_daemon_with_its_capabilities() -> None:
    spec = LabSpec(devices=(parse_device("hdd=2"),), fs=True)
    capabilities = keys.entities(spec)
    assert list(capabilities) == ["mon.", "client.admin", "mgr.x", "osd.0", "osd.1", "mds.a"]
    check("all.keyring", keys.keyring_text({entity: f"KEY-{entity}" for entity in capabilities}, capabilities))
