"""Installing the manager's module on a scripted cluster: nothing stays when it fails."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bathyscope.errors import ClusterError, EnvironmentError_, LabError
from bathyscope.host import CephRequest
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.host.mgr_install import by_hand, by_hand_removed, cephadm_spec, contents, install, look, remove
from bathyscope.spec import Target

TARGET = Target(name="t")
HERE = os.uname().nodename
STATUS = {"version": 1, "refused": None}


class Cluster:
    """A cluster whose manager loads the module when it is enabled and its files are there."""

    def __init__(self, path: Path, host: str = HERE, **about: str) -> None:
        self.path = path
        self.enabled = False
        self.loads = True
        self.status: Any = STATUS
        self.order: list[str] = []
        dump = {"active_name": "x", "standbys": [{"name": "y"}]}
        self.session = FakeCephSession(
            {
                "mgr dump": dump,
                "mgr metadata": [{"name": "x", "hostname": host, **about}, {"name": "y", "hostname": host}],
                "mgr module ls": lambda _: {"enabled_modules": ["bathyscope"] if self.enabled else []},
                "config show": f"{path}\n".encode(),
                "bathyscope status": lambda _: self.status if self.enabled and self.loads else -22,
                "mgr module enable": self.switch,
                "mgr module disable": self.switch,
            }
        )

    def switch(self, request: CephRequest) -> Any:
        self.enabled = dict(request.command)["prefix"] == "mgr module enable"
        self.order.append(f"{'enabled' if self.enabled else 'disabled'} {(self.path / 'bathyscope').exists()}")
        return b""


def test_it_is_written_enabled_asked_and_removed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    seen = look(cluster.session, TARGET)
    assert [(manager.name, manager.active, manager.here) for manager in seen.managers] == [
        ("x", True, True),
        ("y", False, True),
    ]
    assert (seen.path, seen.enabled, seen.status) == (str(tmp_path), False, None)
    assert install(FakeHost(), cluster.session, TARGET, seen) == STATUS
    directory = tmp_path / "bathyscope"
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == contents()
    assert [path.stat().st_mode & 0o777 for path in (directory, *directory.iterdir())] == [0o755, 0o644, 0o644]
    # Again: what is loaded is replaced.
    again = look(cluster.session, TARGET)
    assert (again.enabled, again.status) == (True, STATUS)
    install(FakeHost(), cluster.session, TARGET, again)
    remove(FakeHost(), cluster.session, TARGET, look(cluster.session, TARGET))
    assert cluster.order == ["enabled True", "disabled True", "enabled True", "disabled True"]
    assert list(tmp_path.iterdir()) == []
    remove(FakeHost(), cluster.session, TARGET, look(cluster.session, TARGET))


@pytest.mark.parametrize("how", ["silent", "refused", "denied"])
def test_nothing_is_left_when_it_fails(tmp_path: Path, how: str) -> None:
    cluster = Cluster(tmp_path)
    cluster.loads = how != "silent"
    cluster.status = {"version": 1, "refused": "osd.3 is Ceph 14.2.4"}
    if how == "denied":
        cluster.session.answers["mgr module enable"] = -13
    with pytest.raises(ClusterError, match={"silent": "does not answer", "refused": "14.2.4"}.get(how)):
        install(FakeHost(), cluster.session, TARGET, look(cluster.session, TARGET))
    assert list(tmp_path.iterdir()) == []
    assert not cluster.enabled


def test_another_module_of_that_name_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "bathyscope").mkdir()
    (tmp_path / "bathyscope" / "module.py").write_text("mine")
    cluster = Cluster(tmp_path)
    with pytest.raises(EnvironmentError_, match="not the module"):
        install(FakeHost(), cluster.session, TARGET, look(cluster.session, TARGET))
    assert (tmp_path / "bathyscope" / "module.py").read_text() == "mine"
    assert cluster.order == []


def test_a_lab_keeps_its_hands_off_the_machines_modules(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "stock")
    target = Target(name="old", kind="lab", conf=str(tmp_path / "lab" / "ceph.conf"))
    with pytest.raises(LabError, match="not the lab's own"):
        install(FakeHost(), cluster.session, target, look(cluster.session, target))


def test_managers_elsewhere_are_left_to_people(tmp_path: Path) -> None:
    elsewhere = look(Cluster(tmp_path, host="mon1").session, TARGET)
    contained = look(Cluster(tmp_path, container_image="quay.io/ceph").session, TARGET)
    prefixed = look(Cluster(tmp_path).session, TARGET.model_copy(update={"ceph_prefix": ("cephadm", "shell", "--")}))
    assert [[manager.here for manager in seen.managers] for seen in (elsewhere, contained, prefixed)] == [
        [False, False],
        [False, True],
        [False, False],
    ]
    commands = by_hand(elsewhere)
    assert commands[-1] == "ceph mgr module enable bathyscope --force"
    assert [command.split()[0] for command in commands] == ["ssh", "scp", "ceph"]
    assert by_hand_removed(elsewhere) == [
        "ceph mgr module disable bathyscope",
        f"ssh -- mon1 rm -r {tmp_path}/bathyscope",
    ]


@pytest.mark.parametrize("name", ["mon1; touch /tmp/x", "$(id)", "-oProxyCommand=id", "a'b", "m\nn"])
def test_what_a_manager_calls_itself_is_a_word_of_the_printed_commands(tmp_path: Path, name: str) -> None:
    elsewhere = look(Cluster(tmp_path / "it's $(here)", host=name).session, TARGET)
    place = f"{tmp_path}/it's $(here)/bathyscope"
    make, copy, _ = map(shlex.split, by_hand(elsewhere))
    # The shell over there splits what ssh is given once more.
    assert make[:3] == ["ssh", "--", name]
    assert shlex.split(make[3])[:3] == ["mkdir", "-p", place]
    assert copy[:2] == ["scp", "--"]
    assert copy[3].startswith(f"{name}:")
    assert shlex.split(copy[3].removeprefix(f"{name}:")) == [f"{place}/module.py"]
    remove_there = shlex.split(by_hand_removed(elsewhere)[1])
    assert remove_there[:3] == ["ssh", "--", name]
    assert shlex.split(" ".join(remove_there[3:])) == ["rm", "-r", place]
    spec = YAML(typ="safe", pure=True).load(cephadm_spec(elsewhere))
    assert spec["placement"] == {"hosts": [name]}


def test_the_specification_for_cephadm_holds_the_files(tmp_path: Path) -> None:
    text = cephadm_spec(look(Cluster(tmp_path, host="mon1").session, TARGET))
    spec = YAML(typ="safe", pure=True).load(text)
    assert spec["service_type"] == "mgr"
    assert spec["placement"] == {"hosts": ["mon1"]}
    files = {Path(file["mount_path"]).name: file["content"].encode() for file in spec["custom_configs"]}
    assert files == contents()
    assert {str(Path(file["mount_path"]).parent) for file in spec["custom_configs"]} == {
        "/usr/share/ceph/mgr/bathyscope"
    }
