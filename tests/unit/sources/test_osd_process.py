"""OSDs in containers are known by their command line, control group or data, on this machine and on others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.conftest import FIXTURES
from tests.unit.sources.test_nodes import answer, stat

from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.recording.daemons import local_daemons
from bathyscope.records import RawAnswer
from bathyscope.sources import nodes
from bathyscope.sources.osd_process import osd_of
from bathyscope.spec import SshAccess, Target
from bathyscope.spec.scope import Scope, ScopeOsd

PROCESSES = sorted((FIXTURES / "osd_processes").glob("*.json"))
OTHER = "00000000-1111-2222-3333-444444444444"


def read(path: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(path.read_text())
    assert about["origin"]
    return about


def files_of(about: dict[str, Any], data: str, *, hostname: str = "node1", pid: int = 70) -> dict[str, str]:
    """Return the files of a process in a container, as the machine sees them."""
    return {
        "/proc/sys/kernel/hostname": f"{hostname}\n",
        "/proc/sys/kernel/random/boot_id": "b\n",
        f"/proc/{pid}/stat": stat(pid, 0, 700),
        f"/proc/{pid}/cmdline": "\0".join(about["cmdline"]) + "\0",
        f"/proc/{pid}/cgroup": about["cgroup"],
        **({f"/proc/{pid}/root/var/lib/ceph/osd/ceph-{about['osd']}/ceph_fsid": f"{data}\n"} if data else {}),
    }


def found_there(about: dict[str, Any], files: dict[str, str], fsid: str) -> list[str]:
    """Return the OSDs that are found on a machine over ssh."""
    osd = ScopeOsd(osd=about["osd"], host_name="node1", data_path=f"/var/lib/ceph/osd/ceph-{about['osd']}")
    scope = Scope(target=Target(name="t", ssh=SshAccess()), fsid=fsid, osds=(osd,))
    (node,) = nodes.nodes_of([answer("node-node1", files)], scope)
    return [daemon.name for daemon in node.daemons]


def found_here(about: dict[str, Any], files: dict[str, str], fsid: str) -> list[str]:
    """Return the OSDs that are found on this machine."""
    data = f"/var/lib/ceph/osd/ceph-{about['osd']}"
    metadata = [{"id": about["osd"], "hostname": "node1", "osd_data": data, "devices": "sdb"}]
    answers = [RawAnswer("osd_metadata", (), (), 0, json.dumps(metadata).encode(), b"", 1, 2)]
    host = FakeHost({"pgrep": FakeAnswer(b"70\n")}, {path: text.encode() for path, text in files.items()})
    return [d.name for d in local_daemons(host, answers, Scope(target=Target(name="t"), fsid=fsid))]


@pytest.mark.parametrize("found", [found_there, found_here])
@pytest.mark.parametrize("path", PROCESSES, ids=lambda path: path.stem)
def test_an_osd_in_a_container_is_known(path: Path, found: Any) -> None:
    about = read(path)
    assert osd_of(about["cmdline"]) == about["osd"]
    own, name = about["fsid"], f"osd.{about['osd']}"
    # A container's own host name, and a login that may not read its files.
    assert found(about, files_of(about, "", hostname="other"), own) == ([] if about["by"] == "data" else [name])
    # Root reads the data directory inside the container.
    assert found(about, files_of(about, own, hostname="other"), own) == [name]
    # Where nothing tells the cluster, the machine's name must.
    assert found(about, files_of(about, ""), own) == [name]


@pytest.mark.parametrize("found", [found_there, found_here])
@pytest.mark.parametrize("path", PROCESSES, ids=lambda path: path.stem)
def test_an_osd_of_another_cluster_is_not(path: Path, found: Any) -> None:
    about = read(path)
    # Its data directory is another cluster's.
    assert found(about, files_of(about, about["fsid"]), OTHER) == []
