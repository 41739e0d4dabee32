"""Configurations of ssh and sshd against OpenSSH itself, and what stands in the way of nodes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bathyscope.host.local import find_program
from bathyscope.lab import nodes, requirements

ADDRESSES = {"node1": "198.18.9.11", "node2": "198.18.9.12"}
DIRECTORY = Path("/var/lib/labs/x/ssh")


@pytest.mark.skipif(find_program("ssh") is None, reason="no ssh")
def test_a_nodes_name_leads_to_it_with_the_keys_of_the_lab(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(nodes.client_config(DIRECTORY, ADDRESSES))

    def effective(host: str) -> dict[str, str]:
        said = subprocess.run(["ssh", "-G", "-F", config, host], capture_output=True, check=True, text=True, timeout=30)
        return dict(line.partition(" ")[::2] for line in said.stdout.splitlines())

    for node, address in ADDRESSES.items():
        found = effective(node)
        assert (found["hostname"], found["user"], found["port"]) == (address, "root", "22")
        assert found["identityfile"] == f"{DIRECTORY}/id_ed25519"
        assert found["userknownhostsfile"] == f"{DIRECTORY}/known_hosts"
        assert found["stricthostkeychecking"] in ("true", "yes")
    # No other host is touched.
    assert effective("node3")["identityfile"] != f"{DIRECTORY}/id_ed25519"
    assert effective("node3")["hostname"] == "node3"


def test_the_labs_key_is_the_only_way_in() -> None:
    lines = nodes.server_config(DIRECTORY, "198.18.9.11").splitlines()
    assert "ListenAddress 198.18.9.11:22" in lines
    assert [line for line in lines if line.startswith("ListenAddress")] == ["ListenAddress 198.18.9.11:22"]
    assert {"AuthenticationMethods publickey", "PasswordAuthentication no", "UsePAM no"} <= set(lines)
    assert f"AuthorizedKeysFile {DIRECTORY}/id_ed25519.pub" in lines


def test_without_root_or_programs_there_are_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in (nodes.obstacle() or "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "find_program", lambda name: None if name == "sshd" else f"/usr/bin/{name}")
    found = nodes.obstacle() or ""
    assert found.startswith("not installed: sshd; ")
    assert found.endswith("openssh-server")
